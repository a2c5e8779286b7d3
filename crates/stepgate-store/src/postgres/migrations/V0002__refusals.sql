-- What the database itself refuses, whoever is connected and whatever program they use. An owner of the
-- tables can drop a trigger; nobody can fire one less often.

CREATE FUNCTION stepgate_refuse() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '%: %', TG_TABLE_NAME, TG_ARGV[0] USING ERRCODE = 'SG002';
END;
$$;

-- No row is deleted.
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER tool_runs_no_delete BEFORE DELETE ON tool_runs FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER records_no_delete BEFORE DELETE ON records FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER checkpoints_no_delete BEFORE DELETE ON checkpoints FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER approvals_no_delete BEFORE DELETE ON approvals FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER events_no_delete BEFORE DELETE ON events FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');
CREATE TRIGGER effects_no_delete BEFORE DELETE ON effects FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never deleted');

-- Not all at once either.
CREATE TRIGGER sessions_no_truncate BEFORE TRUNCATE ON sessions FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER tool_runs_no_truncate BEFORE TRUNCATE ON tool_runs FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER journal_no_truncate BEFORE TRUNCATE ON journal FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER records_no_truncate BEFORE TRUNCATE ON records FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER checkpoints_no_truncate BEFORE TRUNCATE ON checkpoints FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER approvals_no_truncate BEFORE TRUNCATE ON approvals FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER events_no_truncate BEFORE TRUNCATE ON events FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER effects_no_truncate BEFORE TRUNCATE ON effects FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER sealed_payloads_no_truncate BEFORE TRUNCATE ON sealed_payloads FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER nodes_no_truncate BEFORE TRUNCATE ON nodes FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER event_counter_no_truncate BEFORE TRUNCATE ON event_counter FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');
CREATE TRIGGER stepgate_store_no_truncate BEFORE TRUNCATE ON stepgate_store FOR EACH STATEMENT
  EXECUTE FUNCTION stepgate_refuse('a table is never emptied');

-- What is chained is never changed.
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
CREATE TRIGGER records_no_update BEFORE UPDATE ON records FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
CREATE TRIGGER checkpoints_no_update BEFORE UPDATE ON checkpoints FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
CREATE TRIGGER events_no_update BEFORE UPDATE ON events FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');
CREATE TRIGGER sealed_payloads_no_update BEFORE UPDATE ON sealed_payloads FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('rows are never changed');

-- A session's chain only grows.
CREATE TRIGGER sessions_fixed BEFORE UPDATE OF position, session_id, principal_id, kind, ts
  ON sessions FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('what names a session never changes');
CREATE TRIGGER sessions_grow BEFORE UPDATE ON sessions FOR EACH ROW
  WHEN (NEW.head_number < OLD.head_number OR NEW.last_step_index < OLD.last_step_index)
  EXECUTE FUNCTION stepgate_refuse('a chain never gets shorter');

-- A run is fixed when it arrives, and again when it ends.
CREATE TRIGGER tool_runs_fixed BEFORE UPDATE OF position, tool_run_id, ts, session_id, principal_id,
  step_index, tool_name, input_json, payload_bytes, payload ON tool_runs FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('what arrived never changes');
CREATE TRIGGER tool_runs_final BEFORE UPDATE ON tool_runs FOR EACH ROW
  WHEN (OLD.status NOT IN ('started', 'approval_required', 'approved'))
  EXECUTE FUNCTION stepgate_refuse('a finalized run never changes');
CREATE TRIGGER tool_runs_epoch BEFORE UPDATE ON tool_runs FOR EACH ROW
  WHEN (NEW.epoch < OLD.epoch)
  EXECUTE FUNCTION stepgate_refuse('an epoch never comes back');

-- A question is fixed when it is asked, and again when it is decided.
CREATE TRIGGER approvals_fixed BEFORE UPDATE OF position, approval_id, tool_run_id, ts_requested,
  approval_context_json ON approvals FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('what was asked never changes');
CREATE TRIGGER approvals_decided BEFORE UPDATE ON approvals FOR EACH ROW
  WHEN (OLD.status <> 'pending')
  EXECUTE FUNCTION stepgate_refuse('a decided approval never changes');

-- A key is bound for ever; its effect is recorded once.
CREATE TRIGGER effects_fixed BEFORE UPDATE OF position, idempotency_key, tool_server, tool_name,
  asked_digest, trace_id ON effects FOR EACH ROW
  EXECUTE FUNCTION stepgate_refuse('a bound key never changes');
CREATE TRIGGER effects_settle_once BEFORE UPDATE ON effects FOR EACH ROW
  WHEN (OLD.settled <> 0 OR NEW.settled <> 1)
  EXECUTE FUNCTION stepgate_refuse('an effect is settled once');

-- A payload that is kept apart goes with the record of its run, and not before.
CREATE FUNCTION stepgate_keep_sealed() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM tool_runs WHERE tool_run_id = OLD.tool_run_id
             AND status IN ('started', 'approval_required', 'approved')) THEN
    RAISE EXCEPTION 'sealed_payloads: a run that is not over needs its payload'
      USING ERRCODE = 'SG002';
  END IF;
  RETURN OLD;
END;
$$;
CREATE TRIGGER sealed_payloads_needed BEFORE DELETE ON sealed_payloads FOR EACH ROW
  EXECUTE FUNCTION stepgate_keep_sealed();

-- Also for a session that replays changes from elsewhere.
DO $$
DECLARE
  ours record;
BEGIN
  FOR ours IN
    SELECT tgname, tgrelid::regclass AS owning FROM pg_trigger
    WHERE NOT tgisinternal AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = current_schema()::regnamespace)
      AND tgfoid IN ('stepgate_refuse'::regproc, 'stepgate_keep_sealed'::regproc)
  LOOP
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', ours.owning, ours.tgname);
  END LOOP;
END;
$$;
