-- The binding of a run's key is in the run's own row (docs/decisions/07-idempotency-key.md). `effects` keeps the keys of runs of
-- older versions, and gets those of runs that leave the store for an archive. `bound_tool` is the tool's name at its server.
ALTER TABLE tool_runs
  ADD COLUMN idempotency_key text COLLATE "C",
  ADD COLUMN tool_server     text COLLATE "C",
  ADD COLUMN bound_tool      text COLLATE "C",
  ADD COLUMN asked_digest    bytea,
  ADD COLUMN settled         bigint;

-- Without the runs of older versions, so that it is made empty.
CREATE UNIQUE INDEX tool_runs_by_key ON tool_runs (idempotency_key) WHERE idempotency_key IS NOT NULL;

-- A key is bound once in both tables, and a run has one key. These look after the rows are there: a row with the key of a run
-- that another node archives waits, at the unique index, for the end of that commit, and what a trigger saw before is old.
CREATE FUNCTION stepgate_keep_runs_key() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM added JOIN effects USING (idempotency_key)) THEN
    RAISE EXCEPTION 'tool_runs: a key is bound already' USING ERRCODE = 'SG002';
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER tool_runs_bind_new AFTER INSERT ON tool_runs REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION stepgate_keep_runs_key();

CREATE FUNCTION stepgate_keep_later_key() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM effects WHERE idempotency_key = NEW.idempotency_key)
    OR EXISTS (SELECT 1 FROM effects WHERE trace_id = NEW.tool_run_id) THEN
    RAISE EXCEPTION 'tool_runs: a key is bound already' USING ERRCODE = 'SG002';
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER tool_runs_bind_free AFTER UPDATE OF idempotency_key ON tool_runs FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_later_key();

CREATE FUNCTION stepgate_keep_effects_key() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM added JOIN tool_runs USING (idempotency_key))
    OR EXISTS (SELECT 1 FROM added JOIN tool_runs AS run ON run.tool_run_id = added.trace_id
               WHERE run.settled IS NOT NULL) THEN
    RAISE EXCEPTION 'effects: a key is bound already' USING ERRCODE = 'SG002';
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER effects_bind_free AFTER INSERT ON effects REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION stepgate_keep_effects_key();

-- A key is bound for ever; its effect is recorded once.
CREATE TRIGGER tool_runs_bind_once BEFORE UPDATE OF idempotency_key, tool_server, bound_tool,
  asked_digest ON tool_runs FOR EACH ROW
  WHEN (OLD.idempotency_key IS NOT NULL)
  EXECUTE FUNCTION stepgate_refuse('a bound key never changes');
CREATE TRIGGER tool_runs_settle_once BEFORE UPDATE OF settled ON tool_runs FOR EACH ROW
  WHEN (NEW.settled IS DISTINCT FROM OLD.settled
    AND (OLD.settled IS DISTINCT FROM 0 OR NEW.settled IS DISTINCT FROM 1)
    AND (OLD.idempotency_key IS NOT NULL OR NEW.idempotency_key IS NULL))
  EXECUTE FUNCTION stepgate_refuse('an effect is settled once');

-- The key of a run that leaves the store stays bound.
CREATE FUNCTION stepgate_keep_archived_key() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO effects (idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled)
  SELECT idempotency_key, tool_server, bound_tool, encode(asked_digest, 'hex'), tool_run_id, settled
  FROM gone WHERE idempotency_key IS NOT NULL ORDER BY position;
  RETURN NULL;
END;
$$;
CREATE TRIGGER tool_runs_keep_key AFTER DELETE ON tool_runs REFERENCING OLD TABLE AS gone
  FOR EACH STATEMENT EXECUTE FUNCTION stepgate_keep_archived_key();

ALTER TABLE tool_runs ENABLE ALWAYS TRIGGER tool_runs_bind_new;
ALTER TABLE tool_runs ENABLE ALWAYS TRIGGER tool_runs_bind_free;
ALTER TABLE tool_runs ENABLE ALWAYS TRIGGER tool_runs_bind_once;
ALTER TABLE tool_runs ENABLE ALWAYS TRIGGER tool_runs_settle_once;
ALTER TABLE tool_runs ENABLE ALWAYS TRIGGER tool_runs_keep_key;
ALTER TABLE effects ENABLE ALWAYS TRIGGER effects_bind_free;
