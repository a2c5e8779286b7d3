-- What is kept of a run that has left the store for an archive (docs/decisions/33-retention.md): its links, the digest of
-- its key's binding, and how many rows left with it. `run_position` is the position that its row had.
CREATE TABLE archived_runs (
  position       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tool_run_id    text COLLATE "C" NOT NULL UNIQUE,
  session_id     text COLLATE "C" NOT NULL,
  archive_id     text COLLATE "C" NOT NULL,
  step_index     bigint NOT NULL,
  run_position   bigint NOT NULL,
  chunks         bigint NOT NULL,
  events         bigint NOT NULL,
  approvals      bigint NOT NULL,
  binding_digest bytea,
  links          bytea NOT NULL
);

CREATE TRIGGER archived_runs_no_delete BEFORE DELETE ON archived_runs FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER archived_runs_no_truncate BEFORE TRUNCATE ON archived_runs FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER archived_runs_no_update BEFORE UPDATE ON archived_runs FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
ALTER TABLE archived_runs ENABLE ALWAYS TRIGGER archived_runs_no_delete;
ALTER TABLE archived_runs ENABLE ALWAYS TRIGGER archived_runs_no_truncate;
ALTER TABLE archived_runs ENABLE ALWAYS TRIGGER archived_runs_no_update;

-- Only the rows of archived runs are deleted.
CREATE FUNCTION stepgate_keep_run() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = OLD.tool_run_id) THEN
    RAISE EXCEPTION '%: only rows of archived runs are deleted', TG_TABLE_NAME
      USING ERRCODE = 'SG002';
  END IF;
  RETURN OLD;
END;
$$;

CREATE FUNCTION stepgate_keep_trace() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM archived_runs WHERE tool_run_id = OLD.trace_id) THEN
    RAISE EXCEPTION '%: only rows of archived runs are deleted', TG_TABLE_NAME
      USING ERRCODE = 'SG002';
  END IF;
  RETURN OLD;
END;
$$;

DROP TRIGGER tool_runs_no_delete ON tool_runs;
CREATE TRIGGER tool_runs_no_delete BEFORE DELETE ON tool_runs FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_run();
DROP TRIGGER chunks_no_delete ON chunks;
CREATE TRIGGER chunks_no_delete BEFORE DELETE ON chunks FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_trace();
DROP TRIGGER approvals_no_delete ON approvals;
CREATE TRIGGER approvals_no_delete BEFORE DELETE ON approvals FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_run();
DROP TRIGGER events_no_delete ON events;
CREATE TRIGGER events_no_delete BEFORE DELETE ON events FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_run();
ALTER TABLE tool_runs ENABLE ALWAYS TRIGGER tool_runs_no_delete;
ALTER TABLE chunks ENABLE ALWAYS TRIGGER chunks_no_delete;
ALTER TABLE approvals ENABLE ALWAYS TRIGGER approvals_no_delete;
ALTER TABLE events ENABLE ALWAYS TRIGGER events_no_delete;

-- An event of a run that has left the store would be in no archive. A node may have read the run just before: it waits
-- for the session's row, which the archive's commit locks, and then this refuses.
CREATE FUNCTION stepgate_keep_archived() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM added JOIN archived_runs USING (tool_run_id)) THEN
    RAISE EXCEPTION 'events: a run is archived' USING ERRCODE = 'SG002';
  END IF;
  RETURN NULL;
END;
$$;
CREATE TRIGGER events_not_archived AFTER INSERT ON events REFERENCING NEW TABLE AS added
  FOR EACH STATEMENT EXECUTE FUNCTION stepgate_keep_archived();
ALTER TABLE events ENABLE ALWAYS TRIGGER events_not_archived;
