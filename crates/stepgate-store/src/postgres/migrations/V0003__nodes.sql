-- A principal that names no session has one on each node, so that nodes do not wait for each other at the
-- end of one chain. Sessions that were opened before stay where they are, and belong to no node.
ALTER TABLE sessions ADD COLUMN node_id text COLLATE "C";

DROP INDEX sessions_one_default;
CREATE UNIQUE INDEX sessions_one_default ON sessions (principal_id, node_id) NULLS NOT DISTINCT
  WHERE kind = 'default';

DROP TRIGGER sessions_fixed ON sessions;
CREATE TRIGGER sessions_fixed BEFORE UPDATE OF position, session_id, principal_id, kind, ts, node_id
  ON sessions FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('what names a session never changes');
ALTER TABLE sessions ENABLE ALWAYS TRIGGER sessions_fixed;
