-- The binding of a run's key is in the run's own row (docs/decisions/07-idempotency-key.md). `effects` keeps the keys of runs of
-- older versions, and gets those of runs that leave the store for an archive. `bound_tool` is the tool's name at its server.
ALTER TABLE tool_runs ADD COLUMN idempotency_key TEXT;
ALTER TABLE tool_runs ADD COLUMN tool_server TEXT;
ALTER TABLE tool_runs ADD COLUMN bound_tool TEXT;
ALTER TABLE tool_runs ADD COLUMN asked_digest BLOB;
ALTER TABLE tool_runs ADD COLUMN settled INTEGER;

-- Without the runs of older versions, so that it is made empty.
CREATE UNIQUE INDEX tool_runs_by_key ON tool_runs (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- A key is bound once in both tables, and a run has one key.
DROP TRIGGER tool_runs_no_replace;
CREATE TRIGGER tool_runs_no_replace BEFORE INSERT ON tool_runs
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM tool_runs WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM tool_runs WHERE tool_run_id = NEW.tool_run_id)
  OR EXISTS (SELECT 1 FROM tool_runs WHERE idempotency_key = NEW.idempotency_key)
  OR EXISTS (SELECT 1 FROM effects WHERE idempotency_key = NEW.idempotency_key)
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: there is such a row already');
END;

DROP TRIGGER effects_no_replace;
CREATE TRIGGER effects_no_replace BEFORE INSERT ON effects
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM effects WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM effects WHERE idempotency_key = NEW.idempotency_key)
  OR EXISTS (SELECT 1 FROM effects WHERE trace_id = NEW.trace_id)
  OR EXISTS (SELECT 1 FROM tool_runs WHERE idempotency_key = NEW.idempotency_key)
  OR EXISTS (SELECT 1 FROM tool_runs
             WHERE tool_run_id = NEW.trace_id AND idempotency_key IS NOT NULL)
BEGIN
  SELECT RAISE(ROLLBACK, 'effects: there is such a row already');
END;

CREATE TRIGGER tool_runs_bind_free BEFORE UPDATE OF idempotency_key ON tool_runs
WHEN OLD.idempotency_key IS NULL
 AND (EXISTS (SELECT 1 FROM tool_runs WHERE idempotency_key = NEW.idempotency_key)
   OR EXISTS (SELECT 1 FROM effects WHERE idempotency_key = NEW.idempotency_key)
   OR EXISTS (SELECT 1 FROM effects WHERE trace_id = NEW.tool_run_id))
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: a key is bound already');
END;

-- A key is bound for ever; its effect is recorded once.
CREATE TRIGGER tool_runs_bind_once BEFORE UPDATE OF
  idempotency_key, tool_server, bound_tool, asked_digest
ON tool_runs
WHEN OLD.idempotency_key IS NOT NULL
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: a bound key never changes');
END;

CREATE TRIGGER tool_runs_settle_once BEFORE UPDATE OF settled ON tool_runs
WHEN NEW.settled IS NOT OLD.settled
 AND NOT (OLD.settled IS 0 AND NEW.settled IS 1)
 AND NOT (OLD.idempotency_key IS NULL AND NEW.idempotency_key IS NOT NULL)
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: an effect is settled once');
END;

-- The key of a run that leaves the store stays bound.
CREATE TRIGGER tool_runs_keep_key AFTER DELETE ON tool_runs
WHEN OLD.idempotency_key IS NOT NULL
BEGIN
  INSERT INTO effects (idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled)
  VALUES (OLD.idempotency_key, OLD.tool_server, OLD.bound_tool, lower(hex(OLD.asked_digest)),
          OLD.tool_run_id, OLD.settled);
END;
