-- The node whose callers join a default session. A store in one file has no nodes; one that was restored from
-- the backup of several keeps what it was.
ALTER TABLE sessions ADD COLUMN node_id TEXT;

DROP INDEX sessions_one_default;
CREATE UNIQUE INDEX sessions_one_default ON sessions (principal_id, ifnull(node_id, ''))
WHERE kind = 'default';

DROP TRIGGER sessions_one_of_a_kind;
CREATE TRIGGER sessions_one_of_a_kind BEFORE INSERT ON sessions
WHEN (NEW.kind = 'system' AND EXISTS (SELECT 1 FROM sessions WHERE kind = 'system'))
  OR (NEW.kind = 'default' AND EXISTS
      (SELECT 1 FROM sessions WHERE kind = 'default' AND principal_id = NEW.principal_id
       AND ifnull(node_id, '') = ifnull(NEW.node_id, '')))
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: there is such a row already');
END;

DROP TRIGGER sessions_fixed;
CREATE TRIGGER sessions_fixed BEFORE UPDATE OF
  position, session_id, principal_id, kind, ts, node_id
ON sessions
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: what names a session never changes');
END;
