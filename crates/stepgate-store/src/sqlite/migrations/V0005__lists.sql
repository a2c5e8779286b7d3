-- What people filter lists by. An action's name can be as long as a payload: no index has the long ones.
-- With the principal, so that runs of others are passed over without reading their rows.
CREATE INDEX tool_runs_by_tool ON tool_runs (tool_name, position, principal_id)
  WHERE length(tool_name) <= 128;

-- Runs that ended badly are few: the others cost nothing here.
CREATE INDEX tool_runs_not_ok ON tool_runs (status, position, principal_id)
  WHERE status IN ('error', 'timeout', 'denied');

CREATE INDEX sessions_of_principal ON sessions (principal_id);

CREATE INDEX events_turns ON events (session_id) WHERE event_type = 'turn_opened';
