-- Erasable arguments (docs/decisions/34-erasable-arguments.md): a row comes with its run, stays also when the run leaves the
-- store for an archive, and goes when an operator erases it.

CREATE TABLE erasable_args (
  position    INTEGER PRIMARY KEY,
  tool_run_id TEXT NOT NULL UNIQUE,
  session_id  TEXT NOT NULL,
  args        BLOB NOT NULL
) STRICT;

CREATE TRIGGER erasable_args_no_replace BEFORE INSERT ON erasable_args
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM erasable_args WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM erasable_args WHERE tool_run_id = NEW.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'erasable_args: there is such a row already');
END;

CREATE TRIGGER erasable_args_no_update BEFORE UPDATE ON erasable_args
BEGIN
  SELECT RAISE(ROLLBACK, 'erasable_args: rows are never changed');
END;

CREATE TRIGGER erasable_args_needed BEFORE DELETE ON erasable_args
WHEN EXISTS (SELECT 1 FROM tool_runs WHERE tool_run_id = OLD.tool_run_id
             AND status IN ('started', 'approval_required', 'approved'))
BEGIN
  SELECT RAISE(ROLLBACK, 'erasable_args: a run that is not over needs its arguments');
END;
