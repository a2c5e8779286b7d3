-- Payloads as they came, of runs whose row has redacted arguments: the one table whose rows go again.
-- A row comes with its run and goes with the run's record.

CREATE TABLE sealed_payloads (
  position    INTEGER PRIMARY KEY,
  tool_run_id TEXT NOT NULL UNIQUE,
  payload     BLOB NOT NULL
) STRICT;

CREATE TRIGGER sealed_payloads_no_replace BEFORE INSERT ON sealed_payloads
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM sealed_payloads WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM sealed_payloads WHERE tool_run_id = NEW.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'sealed_payloads: there is such a row already');
END;

CREATE TRIGGER sealed_payloads_no_update BEFORE UPDATE ON sealed_payloads
BEGIN
  SELECT RAISE(ROLLBACK, 'sealed_payloads: rows are never changed');
END;

CREATE TRIGGER sealed_payloads_needed BEFORE DELETE ON sealed_payloads
WHEN EXISTS (SELECT 1 FROM tool_runs WHERE tool_run_id = OLD.tool_run_id
             AND status IN ('started', 'approval_required', 'approved'))
BEGIN
  SELECT RAISE(ROLLBACK, 'sealed_payloads: a run that is not over needs its payload');
END;

-- As large as the number of open questions. A step that asks nobody does not touch it.
CREATE INDEX approvals_pending ON approvals (position) WHERE status = 'pending';
