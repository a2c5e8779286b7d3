-- What is kept of a run that has left the store for an archive (docs/decisions/33-retention.md): its links, the digest of
-- its key's binding, and how many rows left with it. `run_position` is the position that its row had.
CREATE TABLE archived_runs (
  position       INTEGER PRIMARY KEY,
  tool_run_id    TEXT NOT NULL UNIQUE,
  session_id     TEXT NOT NULL,
  archive_id     TEXT NOT NULL,
  step_index     INTEGER NOT NULL,
  run_position   INTEGER NOT NULL,
  chunks         INTEGER NOT NULL,
  events         INTEGER NOT NULL,
  approvals      INTEGER NOT NULL,
  binding_digest BLOB,
  links          BLOB NOT NULL
) STRICT;

CREATE TRIGGER archived_runs_no_replace BEFORE INSERT ON archived_runs
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM archived_runs WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = NEW.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'archived_runs: there is such a row already');
END;

CREATE TRIGGER archived_runs_no_delete BEFORE DELETE ON archived_runs
BEGIN
  SELECT RAISE(ROLLBACK, 'archived_runs: rows are never deleted');
END;

CREATE TRIGGER archived_runs_no_update BEFORE UPDATE ON archived_runs
BEGIN
  SELECT RAISE(ROLLBACK, 'archived_runs: rows are never changed');
END;

-- Only the rows of archived runs are deleted.
DROP TRIGGER tool_runs_no_delete;
CREATE TRIGGER tool_runs_no_delete BEFORE DELETE ON tool_runs
WHEN OLD.status IN ('started', 'approval_required', 'approved')
  OR NOT EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = OLD.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: only rows of archived runs are deleted');
END;

DROP TRIGGER chunks_no_delete;
CREATE TRIGGER chunks_no_delete BEFORE DELETE ON chunks
WHEN NOT EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = OLD.trace_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'chunks: only rows of archived runs are deleted');
END;

DROP TRIGGER approvals_no_delete;
CREATE TRIGGER approvals_no_delete BEFORE DELETE ON approvals
WHEN NOT EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = OLD.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'approvals: only rows of archived runs are deleted');
END;

DROP TRIGGER events_no_delete;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events
WHEN OLD.tool_run_id IS NULL
  OR NOT EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = OLD.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'events: only rows of archived runs are deleted');
END;
