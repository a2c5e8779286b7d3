-- The tables of a Stepgate store. Ids, digests and instants are the texts that were hashed.
--
-- Every table appends by `position`, an INTEGER PRIMARY KEY, and finds by unique indexes: keys are
-- random, and a table ordered by them costs several times as much to write. A link stands in the row
-- that it links.

CREATE TABLE sessions (
  position        INTEGER PRIMARY KEY,
  session_id      TEXT NOT NULL UNIQUE,
  principal_id    TEXT NOT NULL,
  kind            TEXT NOT NULL,
  ts              TEXT NOT NULL,
  head_number     INTEGER NOT NULL,
  head_digest     TEXT NOT NULL,
  last_step_index INTEGER NOT NULL
) STRICT;

CREATE INDEX sessions_by_principal ON sessions (principal_id, kind);

-- One system session, and one default session for each principal.
CREATE UNIQUE INDEX sessions_one_system ON sessions (kind) WHERE kind = 'system';
CREATE UNIQUE INDEX sessions_one_default ON sessions (principal_id) WHERE kind = 'default';

-- REPLACE would delete the row in its way (V0002 says more).
CREATE TRIGGER sessions_one_of_a_kind BEFORE INSERT ON sessions
WHEN (NEW.kind = 'system' AND EXISTS (SELECT 1 FROM sessions WHERE kind = 'system'))
  OR (NEW.kind = 'default' AND EXISTS
      (SELECT 1 FROM sessions WHERE kind = 'default' AND principal_id = NEW.principal_id))
BEGIN
  SELECT RAISE(ROLLBACK, 'sessions: there is such a row already');
END;

CREATE TABLE tool_runs (
  position      INTEGER PRIMARY KEY,
  tool_run_id   TEXT NOT NULL UNIQUE,
  ts            TEXT NOT NULL,
  session_id    TEXT NOT NULL,
  principal_id  TEXT NOT NULL,
  step_index    INTEGER NOT NULL,
  tool_name     TEXT,
  status        TEXT NOT NULL,
  input_json    TEXT,
  output_json   TEXT,
  error_json    TEXT,
  latency_ms    INTEGER,
  payload_bytes INTEGER NOT NULL,
  payload       BLOB NOT NULL
) STRICT;

CREATE INDEX tool_runs_by_session ON tool_runs (session_id);

-- As large as the number of open runs, so recovery does not read the finished ones.
CREATE INDEX tool_runs_unfinished ON tool_runs (position, status, tool_run_id)
  WHERE status IN ('started', 'approval_required', 'approved');

CREATE TABLE journal (
  position          INTEGER PRIMARY KEY,
  trace_id          TEXT NOT NULL,
  sequence_number   INTEGER NOT NULL,
  prev_entry_digest TEXT NOT NULL,
  entry_digest      TEXT NOT NULL,
  ts                TEXT NOT NULL,
  from_state        TEXT NOT NULL,
  to_state          TEXT NOT NULL,
  artifact_type     TEXT NOT NULL,
  artifact_id       TEXT NOT NULL,
  artifact_digest   TEXT NOT NULL,
  tool_call_id      TEXT,
  idempotency_key   TEXT,
  artifact          TEXT NOT NULL,
  link_number       INTEGER,
  link_prev         TEXT,
  link_digest       TEXT,
  UNIQUE (trace_id, sequence_number)
) STRICT;

CREATE TABLE records (
  position      INTEGER PRIMARY KEY,
  tool_run_id   TEXT NOT NULL UNIQUE,
  record        TEXT NOT NULL,
  record_digest TEXT NOT NULL,
  link_number   INTEGER NOT NULL,
  link_prev     TEXT NOT NULL,
  link_digest   TEXT NOT NULL
) STRICT;

CREATE TABLE checkpoints (
  position                   INTEGER PRIMARY KEY,
  trace_id                   TEXT NOT NULL,
  checkpoint_sequence_number INTEGER NOT NULL,
  checkpoint_state           TEXT NOT NULL,
  checkpoint_digest          TEXT NOT NULL,
  ts                         TEXT NOT NULL,
  UNIQUE (trace_id, checkpoint_sequence_number)
) STRICT;

CREATE TABLE approvals (
  position              INTEGER PRIMARY KEY,
  approval_id           TEXT NOT NULL UNIQUE,
  tool_run_id           TEXT NOT NULL UNIQUE,
  ts_requested          TEXT NOT NULL,
  ts_resolved           TEXT,
  status                TEXT NOT NULL,
  approval_context_json TEXT NOT NULL,
  approver_id           TEXT,
  note                  TEXT
) STRICT;

CREATE TABLE events (
  position        INTEGER PRIMARY KEY,
  event_id        TEXT NOT NULL UNIQUE,
  ts              TEXT NOT NULL,
  session_id      TEXT NOT NULL,
  tool_run_id     TEXT,
  event_type      TEXT NOT NULL,
  payload_json    TEXT NOT NULL,
  sequence_number INTEGER NOT NULL,
  link_number     INTEGER,
  link_prev       TEXT,
  link_digest     TEXT
) STRICT;

CREATE INDEX events_by_run ON events (tool_run_id) WHERE tool_run_id IS NOT NULL;
CREATE INDEX events_loose ON events (position) WHERE tool_run_id IS NULL;

CREATE TABLE effects (
  position        INTEGER PRIMARY KEY,
  idempotency_key TEXT NOT NULL UNIQUE,
  tool_server     TEXT NOT NULL,
  tool_name       TEXT NOT NULL,
  asked_digest    TEXT NOT NULL,
  trace_id        TEXT NOT NULL UNIQUE,
  settled         INTEGER NOT NULL
) STRICT;
