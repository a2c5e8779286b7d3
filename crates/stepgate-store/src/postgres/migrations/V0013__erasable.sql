-- Erasable arguments (docs/decisions/34-erasable-arguments.md): a row comes with its run, stays also when the run leaves the
-- store for an archive, and goes when an operator erases it.

CREATE TABLE erasable_args (
  position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tool_run_id text COLLATE "C" NOT NULL UNIQUE,
  session_id  text COLLATE "C" NOT NULL,
  args        bytea NOT NULL
);

CREATE FUNCTION stepgate_keep_erasable() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM tool_runs WHERE tool_run_id = OLD.tool_run_id
             AND status IN ('started', 'approval_required', 'approved')) THEN
    RAISE EXCEPTION 'erasable_args: a run that is not over needs its arguments'
      USING ERRCODE = 'SG002';
  END IF;
  RETURN OLD;
END;
$$;

CREATE TRIGGER erasable_args_no_truncate BEFORE TRUNCATE ON erasable_args FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER erasable_args_no_update BEFORE UPDATE ON erasable_args FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
CREATE TRIGGER erasable_args_needed BEFORE DELETE ON erasable_args FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_erasable();
ALTER TABLE erasable_args ENABLE ALWAYS TRIGGER erasable_args_no_truncate;
ALTER TABLE erasable_args ENABLE ALWAYS TRIGGER erasable_args_no_update;
ALTER TABLE erasable_args ENABLE ALWAYS TRIGGER erasable_args_needed;
