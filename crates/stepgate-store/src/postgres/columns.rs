//! The columns that are read from each table, by name. `SELECT *` would fail on every running node when the
//! next version adds a column: in PostgreSQL a prepared statement must return the same columns as when it
//! was prepared.

/// `SELECT … FROM` a table.
macro_rules! rows_of {
    (sessions) => {
        "SELECT session_id, principal_id, kind, ts, node_id, head_number, head_digest,
           last_step_index FROM sessions"
    };
    (tool_runs) => {
        "SELECT position, tool_run_id, ts, session_id, principal_id, step_index, tool_name, status,
           input_json, output_json, error_json, latency_ms, payload_bytes, payload FROM tool_runs"
    };
    (journal) => {
        "SELECT trace_id, sequence_number, prev_entry_digest, entry_digest, ts, from_state,
           to_state, artifact_type, artifact_id, artifact_digest, tool_call_id, idempotency_key,
           artifact, link_number, link_prev, link_digest FROM journal"
    };
    (records) => {
        "SELECT tool_run_id, record, record_digest, link_number, link_prev, link_digest FROM records"
    };
    (checkpoints) => {
        "SELECT trace_id, checkpoint_sequence_number, checkpoint_state, checkpoint_digest, ts
         FROM checkpoints"
    };
    (approvals) => {
        "SELECT approval_id, tool_run_id, ts_requested, ts_resolved, status, approval_context_json,
           approver_id, note FROM approvals"
    };
    (events) => {
        "SELECT position, event_id, ts, session_id, tool_run_id, event_type, payload_json,
           sequence_number, link_number, link_prev, link_digest FROM events"
    };
    (effects) => {
        "SELECT idempotency_key, tool_server, tool_name, asked_digest, trace_id, settled
         FROM effects"
    };
    (sealed_payloads) => {
        "SELECT tool_run_id, payload FROM sealed_payloads"
    };
}

pub(super) use rows_of;
