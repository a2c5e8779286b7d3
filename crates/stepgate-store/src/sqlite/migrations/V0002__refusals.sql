-- What the database itself refuses, whoever holds the file and whatever program it uses.
--
-- REPLACE deletes the row in its way without firing a delete trigger (unless the connection asks for
-- recursive triggers, which binds only our own), so a BEFORE INSERT trigger refuses any insert whose
-- unique keys are taken. `position` of a row that names none is -1 there, as with every row of ours, so
-- it is not looked for.

-- No row is replaced.
CREATE TRIGGER sessions_no_replace BEFORE INSERT ON sessions
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM sessions WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM sessions WHERE session_id = NEW.session_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: there is such a row already');
END;

CREATE TRIGGER tool_runs_no_replace BEFORE INSERT ON tool_runs
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM tool_runs WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM tool_runs WHERE tool_run_id = NEW.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: there is such a row already');
END;

CREATE TRIGGER journal_no_replace BEFORE INSERT ON journal
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM journal WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM journal WHERE trace_id = NEW.trace_id AND sequence_number = NEW.sequence_number)
BEGIN
  SELECT RAISE(ROLLBACK, 'journal: there is such a row already');
END;

CREATE TRIGGER records_no_replace BEFORE INSERT ON records
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM records WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM records WHERE tool_run_id = NEW.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'records: there is such a row already');
END;

CREATE TRIGGER checkpoints_no_replace BEFORE INSERT ON checkpoints
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM checkpoints WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM checkpoints WHERE trace_id = NEW.trace_id AND checkpoint_sequence_number = NEW.checkpoint_sequence_number)
BEGIN
  SELECT RAISE(ROLLBACK, 'checkpoints: there is such a row already');
END;

CREATE TRIGGER approvals_no_replace BEFORE INSERT ON approvals
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM approvals WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM approvals WHERE approval_id = NEW.approval_id)
  OR EXISTS (SELECT 1 FROM approvals WHERE tool_run_id = NEW.tool_run_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'approvals: there is such a row already');
END;

CREATE TRIGGER events_no_replace BEFORE INSERT ON events
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM events WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM events WHERE event_id = NEW.event_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'events: there is such a row already');
END;

CREATE TRIGGER effects_no_replace BEFORE INSERT ON effects
WHEN (NEW.position >= 0 AND EXISTS (SELECT 1 FROM effects WHERE position = NEW.position))
  OR EXISTS (SELECT 1 FROM effects WHERE idempotency_key = NEW.idempotency_key)
  OR EXISTS (SELECT 1 FROM effects WHERE trace_id = NEW.trace_id)
BEGIN
  SELECT RAISE(ROLLBACK, 'effects: there is such a row already');
END;

-- No row is deleted.
CREATE TRIGGER sessions_no_delete BEFORE DELETE ON sessions
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: rows are never deleted');
END;

CREATE TRIGGER tool_runs_no_delete BEFORE DELETE ON tool_runs
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: rows are never deleted');
END;

CREATE TRIGGER journal_no_delete BEFORE DELETE ON journal
BEGIN
  SELECT RAISE(ROLLBACK, 'journal: rows are never deleted');
END;

CREATE TRIGGER records_no_delete BEFORE DELETE ON records
BEGIN
  SELECT RAISE(ROLLBACK, 'records: rows are never deleted');
END;

CREATE TRIGGER checkpoints_no_delete BEFORE DELETE ON checkpoints
BEGIN
  SELECT RAISE(ROLLBACK, 'checkpoints: rows are never deleted');
END;

CREATE TRIGGER approvals_no_delete BEFORE DELETE ON approvals
BEGIN
  SELECT RAISE(ROLLBACK, 'approvals: rows are never deleted');
END;

CREATE TRIGGER events_no_delete BEFORE DELETE ON events
BEGIN
  SELECT RAISE(ROLLBACK, 'events: rows are never deleted');
END;

CREATE TRIGGER effects_no_delete BEFORE DELETE ON effects
BEGIN
  SELECT RAISE(ROLLBACK, 'effects: rows are never deleted');
END;

-- What is chained is never changed.
CREATE TRIGGER journal_no_update BEFORE UPDATE ON journal
BEGIN
  SELECT RAISE(ROLLBACK, 'journal: rows are never changed');
END;

CREATE TRIGGER records_no_update BEFORE UPDATE ON records
BEGIN
  SELECT RAISE(ROLLBACK, 'records: rows are never changed');
END;

CREATE TRIGGER checkpoints_no_update BEFORE UPDATE ON checkpoints
BEGIN
  SELECT RAISE(ROLLBACK, 'checkpoints: rows are never changed');
END;

CREATE TRIGGER events_no_update BEFORE UPDATE ON events
BEGIN
  SELECT RAISE(ROLLBACK, 'events: rows are never changed');
END;

-- A session's chain only grows.
CREATE TRIGGER sessions_fixed BEFORE UPDATE OF
  position, session_id, principal_id, kind, ts
ON sessions
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: what names a session never changes');
END;

CREATE TRIGGER sessions_grow BEFORE UPDATE ON sessions
WHEN NEW.head_number < OLD.head_number OR NEW.last_step_index < OLD.last_step_index
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: a chain never gets shorter');
END;

-- A run is fixed when it arrives, and again when it ends.
CREATE TRIGGER tool_runs_fixed BEFORE UPDATE OF
  position, tool_run_id, ts, session_id, principal_id, step_index, tool_name, input_json,
  payload_bytes, payload
ON tool_runs
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: what arrived never changes');
END;

CREATE TRIGGER tool_runs_final BEFORE UPDATE ON tool_runs
WHEN OLD.status NOT IN ('started', 'approval_required', 'approved')
BEGIN
  SELECT RAISE(ROLLBACK, 'tool_runs: a finalized run never changes');
END;

-- A question is fixed when it is asked, and again when it is decided.
CREATE TRIGGER approvals_fixed BEFORE UPDATE OF
  position, approval_id, tool_run_id, ts_requested, approval_context_json
ON approvals
BEGIN
  SELECT RAISE(ROLLBACK, 'approvals: what was asked never changes');
END;

CREATE TRIGGER approvals_decided BEFORE UPDATE ON approvals
WHEN OLD.status <> 'pending'
BEGIN
  SELECT RAISE(ROLLBACK, 'approvals: a decided approval never changes');
END;

-- A key is bound for ever; its effect is recorded once.
CREATE TRIGGER effects_fixed BEFORE UPDATE OF
  position, idempotency_key, tool_server, tool_name, asked_digest, trace_id
ON effects
BEGIN
  SELECT RAISE(ROLLBACK, 'effects: a bound key never changes');
END;

CREATE TRIGGER effects_settle_once BEFORE UPDATE ON effects
WHEN OLD.settled <> 0 OR NEW.settled <> 1
BEGIN
  SELECT RAISE(ROLLBACK, 'effects: an effect is settled once');
END;
