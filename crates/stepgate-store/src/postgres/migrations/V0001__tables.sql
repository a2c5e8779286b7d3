-- The tables of a Stepgate store, as SQLite has them. Ids, digests and instants are the texts that were
-- hashed; they are compared byte by byte, whatever language the database speaks.
--
-- Every table appends by `position` and finds by unique indexes. A position is given when a row is
-- written and says nothing about who committed first, except in `events`: there it comes from a counter
-- whose row stays locked until the commit, so whoever has read a position never finds a smaller one
-- later, and no position is missing.

CREATE TABLE stepgate_store (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  version  bigint  NOT NULL
);

-- Processes that have this store open. A lease is good until it expires by the clock of the database.
CREATE TABLE nodes (
  incarnation bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  node_id     text COLLATE "C" NOT NULL,
  started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at  timestamptz NOT NULL,
  -- The last batch that this node has committed: how it finds out what became of a commit whose answer
  -- was lost.
  last_batch  bigint NOT NULL DEFAULT 0,
  policy_hash text COLLATE "C",
  executors   text COLLATE "C" NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

CREATE TABLE sessions (
  position        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  session_id      text COLLATE "C" NOT NULL UNIQUE,
  principal_id    text COLLATE "C" NOT NULL,
  kind            text COLLATE "C" NOT NULL,
  ts              text COLLATE "C" NOT NULL,
  head_number     bigint NOT NULL,
  head_digest     text COLLATE "C" NOT NULL,
  last_step_index bigint NOT NULL,
  -- Where indexes began anew after the server had lost the last that it gave.
  step_index_floor bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- The highest step index that any node was given. Apart from `sessions`, whose rows are locked while
-- steps are committed. Not logged: that is fast, and a server that crashes, or a replica that takes over, has
-- not some older numbers but none, so that nobody takes them for the last.
CREATE UNLOGGED TABLE step_indexes (
  session_id text COLLATE "C" PRIMARY KEY,
  given      bigint NOT NULL
) WITH (fillfactor = 50);

CREATE FUNCTION stepgate_number_steps() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO step_indexes (session_id, given) VALUES (NEW.session_id, 0);
  RETURN NULL;
END;
$$;

CREATE TRIGGER sessions_number_steps AFTER INSERT ON sessions FOR EACH ROW
  EXECUTE FUNCTION stepgate_number_steps();

CREATE INDEX sessions_by_principal ON sessions (principal_id, kind);

-- One system session, and one default session for each principal.
CREATE UNIQUE INDEX sessions_one_system ON sessions (kind) WHERE kind = 'system';
CREATE UNIQUE INDEX sessions_one_default ON sessions (principal_id) WHERE kind = 'default';

-- `owner` is the node that works on a run, none where it waits or is over. `epoch` counts the owners:
-- every commit names the one that it was made under.
CREATE TABLE tool_runs (
  position      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tool_run_id   text COLLATE "C" NOT NULL UNIQUE,
  ts            text COLLATE "C" NOT NULL,
  session_id    text COLLATE "C" NOT NULL,
  principal_id  text COLLATE "C" NOT NULL,
  step_index    bigint NOT NULL,
  tool_name     text COLLATE "C",
  status        text COLLATE "C" NOT NULL,
  input_json    text COLLATE "C",
  output_json   text COLLATE "C",
  error_json    text COLLATE "C",
  latency_ms    bigint,
  payload_bytes bigint NOT NULL,
  payload       bytea NOT NULL,
  owner         bigint,
  epoch         bigint NOT NULL
);

CREATE INDEX tool_runs_by_session ON tool_runs (session_id, position);

-- As large as the number of open runs, so recovery does not read the finished ones.
CREATE INDEX tool_runs_unfinished ON tool_runs (position)
  WHERE status IN ('started', 'approval_required', 'approved');

CREATE TABLE journal (
  position          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  trace_id          text COLLATE "C" NOT NULL,
  sequence_number   bigint NOT NULL,
  prev_entry_digest text COLLATE "C" NOT NULL,
  entry_digest      text COLLATE "C" NOT NULL,
  ts                text COLLATE "C" NOT NULL,
  from_state        text COLLATE "C" NOT NULL,
  to_state          text COLLATE "C" NOT NULL,
  artifact_type     text COLLATE "C" NOT NULL,
  artifact_id       text COLLATE "C" NOT NULL,
  artifact_digest   text COLLATE "C" NOT NULL,
  tool_call_id      text COLLATE "C",
  idempotency_key   text COLLATE "C",
  artifact          text COLLATE "C" NOT NULL,
  link_number       bigint,
  link_prev         text COLLATE "C",
  link_digest       text COLLATE "C",
  UNIQUE (trace_id, sequence_number)
);

CREATE TABLE records (
  position      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tool_run_id   text COLLATE "C" NOT NULL UNIQUE,
  record        text COLLATE "C" NOT NULL,
  record_digest text COLLATE "C" NOT NULL,
  link_number   bigint NOT NULL,
  link_prev     text COLLATE "C" NOT NULL,
  link_digest   text COLLATE "C" NOT NULL
);

CREATE TABLE checkpoints (
  position                   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  trace_id                   text COLLATE "C" NOT NULL,
  checkpoint_sequence_number bigint NOT NULL,
  checkpoint_state           text COLLATE "C" NOT NULL,
  checkpoint_digest          text COLLATE "C" NOT NULL,
  ts                         text COLLATE "C" NOT NULL,
  UNIQUE (trace_id, checkpoint_sequence_number)
);

CREATE TABLE approvals (
  position              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  approval_id           text COLLATE "C" NOT NULL UNIQUE,
  tool_run_id           text COLLATE "C" NOT NULL UNIQUE,
  ts_requested          text COLLATE "C" NOT NULL,
  ts_resolved           text COLLATE "C",
  status                text COLLATE "C" NOT NULL,
  approval_context_json text COLLATE "C" NOT NULL,
  approver_id           text COLLATE "C",
  note                  text COLLATE "C"
);

-- As large as the number of open questions.
CREATE INDEX approvals_pending ON approvals (position) WHERE status = 'pending';

CREATE TABLE events (
  position        bigint PRIMARY KEY,
  event_id        text COLLATE "C" NOT NULL UNIQUE,
  ts              text COLLATE "C" NOT NULL,
  session_id      text COLLATE "C" NOT NULL,
  tool_run_id     text COLLATE "C",
  event_type      text COLLATE "C" NOT NULL,
  payload_json    text COLLATE "C" NOT NULL,
  sequence_number bigint NOT NULL,
  link_number     bigint,
  link_prev       text COLLATE "C",
  link_digest     text COLLATE "C"
);

CREATE INDEX events_by_run ON events (tool_run_id) WHERE tool_run_id IS NOT NULL;
CREATE INDEX events_loose ON events (position) WHERE tool_run_id IS NULL;

-- The last position in `events`.
CREATE TABLE event_counter (
  only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  last     bigint  NOT NULL
) WITH (fillfactor = 10);
INSERT INTO event_counter (last) VALUES (0);

CREATE TABLE effects (
  position        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  idempotency_key text COLLATE "C" NOT NULL UNIQUE,
  tool_server     text COLLATE "C" NOT NULL,
  tool_name       text COLLATE "C" NOT NULL,
  asked_digest    text COLLATE "C" NOT NULL,
  trace_id        text COLLATE "C" NOT NULL UNIQUE,
  settled         bigint NOT NULL
);

-- Payloads as they came, of runs whose row has redacted arguments: the one table whose rows go again.
CREATE TABLE sealed_payloads (
  position    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tool_run_id text COLLATE "C" NOT NULL UNIQUE,
  payload     bytea NOT NULL
);

-- A batch of writes is sent without waiting for answers in between. A statement that found another
-- number of rows than its writer knows of ends the whole batch.
CREATE FUNCTION stepgate_expect(what text, changed bigint, expected bigint) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF changed <> expected THEN
    RAISE EXCEPTION '%: % rows were there, of %', what, changed, expected USING ERRCODE = 'SG001';
  END IF;
END;
$$;
