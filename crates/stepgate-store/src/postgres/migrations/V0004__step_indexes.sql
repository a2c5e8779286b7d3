-- Step indexes are given by commits that nobody waits for. Their table is not logged: that is fast, and a server
-- that crashes, or a replica that takes over, has not some older numbers but none, so that nobody takes them for
-- the last.
ALTER TABLE step_indexes SET UNLOGGED;

-- Where indexes began anew after the server had lost the last that it gave.
ALTER TABLE sessions ADD COLUMN step_index_floor bigint NOT NULL DEFAULT 0;

-- A session is numbered when it is opened, or restored: one without a number has lost it.
CREATE FUNCTION stepgate_number_steps() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO step_indexes (session_id, given) VALUES (NEW.session_id, NEW.last_step_index);
  RETURN NULL;
END;
$$;

CREATE TRIGGER sessions_number_steps AFTER INSERT ON sessions FOR EACH ROW
  EXECUTE FUNCTION stepgate_number_steps();

INSERT INTO step_indexes (session_id, given) SELECT session_id, last_step_index FROM sessions
  ON CONFLICT (session_id) DO NOTHING;
