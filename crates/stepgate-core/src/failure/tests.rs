use super::{ExecutionFailure, Failure, OpenLimit, Outcome, Phase};
use crate::ids::{PrincipalId, RunId};
use crate::json::strict::Refusal;

struct Row {
    failure: Failure,
    phase: &'static str,
    outcome: &'static str,
    code: &'static str,
    message: &'static str,
    detail: Option<&'static str>,
}

fn row(
    failure: Failure,
    phase: &'static str,
    outcome: &'static str,
    code: &'static str,
    message: &'static str,
    detail: Option<&'static str>,
) -> Row {
    Row { failure, phase, outcome, code, message, detail }
}

/// The closed table, row by row as it is published; EXECUTE's messages have their own below.
#[rustfmt::skip]
fn table() -> Vec<Row> {
    let why = || "path: missing".to_owned();
    let parse = |refusal, detail| row(Failure::InvalidJson(refusal), "PARSE", "VALIDATION_ERROR", "INVALID_JSON", "Invalid JSON format", Some(detail));
    vec![
        row(Failure::EmptyPayload, "RECEIVE", "VALIDATION_ERROR", "EMPTY_PAYLOAD", "Payload is empty", None),
        row(Failure::PayloadTooLarge, "RECEIVE", "VALIDATION_ERROR", "PAYLOAD_TOO_LARGE", "Payload exceeds the maximum length", None),
        parse(Refusal::DuplicateKey, "DUPLICATE_KEY"),
        parse(Refusal::TooDeep, "TOO_DEEP"),
        parse(Refusal::NumberRange, "NUMBER_RANGE"),
        parse(Refusal::InvalidUtf8, "INVALID_UTF8"),
        parse(Refusal::Syntax, "SYNTAX"),
        row(Failure::SchemaVersionIncompatible("2.0.0".into()), "VALIDATE_SCHEMA", "VALIDATION_ERROR", "SCHEMA_VERSION_INCOMPATIBLE", "Unsupported proposal schema version.", None),
        row(Failure::InvalidProposal(why()), "VALIDATE_SCHEMA", "VALIDATION_ERROR", "INVALID_PROPOSAL", "Proposal does not match the schema", Some("path: missing")),
        row(Failure::CommandExecution, "VALIDATE_ACTION", "DENIED", "ACTION_NOT_ALLOWED", "Generic command execution is not permitted in the core schema.", None),
        row(Failure::ActionNotAllowed, "VALIDATE_ACTION", "DENIED", "ACTION_NOT_ALLOWED", "Action is not allowed", Some("TOOL_UNCLASSIFIED_DENIED")),
        row(Failure::InvalidArgs(why()), "VALIDATE_ARGS", "VALIDATION_ERROR", "INVALID_ARGS", "Arguments do not match the action's contract", Some("path: missing")),
        row(Failure::IdempotencyConflict, "VALIDATE_ARGS", "VALIDATION_ERROR", "IDEMPOTENCY_CONFLICT", "Proposal id was already used for a different action", None),
        row(Failure::ResultArchived(RunId::new(uuid::Uuid::nil())), "VALIDATE_ARGS", "VALIDATION_ERROR", "RESULT_ARCHIVED", "Proposal id was already used, and its result is archived", Some("RUN_ARCHIVED: run 00000000-0000-0000-0000-000000000000")),
        row(Failure::PolicyViolation(why()), "AUTHORIZE", "DENIED", "POLICY_VIOLATION", "Action is not permitted by policy", Some("path: missing")),
        row(denied(None), "AUTHORIZE", "DENIED", "APPROVAL_DENIED", "Action was not approved", Some("DENIED_BY_OPERATOR: by ann")),
        row(denied(Some("too loud")), "AUTHORIZE", "DENIED", "APPROVAL_DENIED", "Action was not approved", Some("DENIED_BY_OPERATOR: by ann, who noted: too loud")),
        row(Failure::ApprovalExpired, "AUTHORIZE", "DENIED", "APPROVAL_DENIED", "Action was not approved", Some("APPROVAL_EXPIRED")),
        row(Failure::TooManyApprovals(OpenLimit::OfPrincipal(100)), "AUTHORIZE", "DENIED", "APPROVAL_DENIED", "Action was not approved", Some("TOO_MANY_OPEN: limits.approvals_open_max is 100")),
        row(Failure::TooManyApprovals(OpenLimit::Total(200)), "AUTHORIZE", "DENIED", "APPROVAL_DENIED", "Action was not approved", Some("TOO_MANY_OPEN: limits.approvals_open_total_max is 200")),
        // The same rule, found only when the executor touched the path.
        row(Failure::RefusedAtExecution(why()), "EXECUTE", "DENIED", "POLICY_VIOLATION", "Action is not permitted by policy", Some("path: missing")),
        row(Failure::Execution(ExecutionFailure::ToolFailed, Some("boom".into())), "EXECUTE", "EXECUTION_ERROR", "EXECUTION_ERROR", "Tool failed", Some("UPSTREAM_ERROR: boom")),
        row(Failure::Execution(ExecutionFailure::FileNotFound, None), "EXECUTE", "EXECUTION_ERROR", "EXECUTION_ERROR", "File not found", Some("FILE_NOT_FOUND")),
    ]
}

/// A new variant stops the build here: give it its row above.
fn has_a_row(failure: &Failure) {
    match failure {
        Failure::EmptyPayload
        | Failure::PayloadTooLarge
        | Failure::InvalidJson(_)
        | Failure::SchemaVersionIncompatible(_)
        | Failure::InvalidProposal(_)
        | Failure::CommandExecution
        | Failure::ActionNotAllowed
        | Failure::InvalidArgs(_)
        | Failure::IdempotencyConflict
        | Failure::ResultArchived(_)
        | Failure::PolicyViolation(_)
        | Failure::DeniedByOperator { .. }
        | Failure::ApprovalExpired
        | Failure::TooManyApprovals(_)
        | Failure::RefusedAtExecution(_)
        | Failure::Execution(..) => {}
    }
}

#[test]
fn every_failure_is_a_row_of_the_closed_table() {
    for row in table() {
        let failure = &row.failure;
        has_a_row(failure);
        assert_eq!(failure.phase().as_str(), row.phase, "{failure:?}");
        assert_eq!(failure.outcome().as_str(), row.outcome, "{failure:?}");
        assert_eq!(failure.code(), row.code, "{failure:?}");
        assert_eq!(failure.message(), row.message, "{failure:?}");
        assert_eq!(failure.detail().as_deref(), row.detail, "{failure:?}");
    }
}

#[test]
fn execution_failures_have_the_published_messages_and_codes_of_their_own() {
    let rows = [
        ("FILE_NOT_FOUND", "File not found"),
        ("PATH_NOT_FOUND", "Path not found"),
        ("NOT_A_FILE", "Not a file"),
        ("NOT_A_DIRECTORY", "Not a directory"),
        ("ALREADY_EXISTS", "Already exists"),
        ("INVALID_UTF8", "File is not valid UTF-8"),
        ("FILE_TOO_LARGE", "File is too large"),
        ("TOO_MANY_ENTRIES", "File is too large"),
        ("PERMISSION_DENIED", "Permission denied"),
        ("STORAGE_FULL", "Storage is full"),
        ("UPSTREAM_ERROR", "Tool failed"),
        ("OUTPUT_INVALID", "Tool returned an invalid result"),
        ("TIMEOUT", "Tool timed out"),
        ("BREAKER_OPEN", "Tool is unavailable"),
        ("IO_ERROR", "I/O error"),
    ];
    let found = ExecutionFailure::ALL.map(|failure| (failure.code(), failure.message()));
    assert_eq!(found, rows);
    for failure in ExecutionFailure::ALL {
        assert_eq!(ExecutionFailure::parse(failure.code()), Some(failure));
        let whole = Failure::Execution(failure, None);
        assert_eq!(whole.message(), failure.message());
        assert_eq!(whole.detail().as_deref(), Some(failure.code()));
    }
    assert_eq!(ExecutionFailure::parse("file_not_found"), None);
}

#[test]
fn phases_and_outcomes_are_spelled_as_the_specification_spells_them() {
    let phases = [
        "RECEIVE",
        "PARSE",
        "VALIDATE_SCHEMA",
        "VALIDATE_ACTION",
        "VALIDATE_ARGS",
        "AUTHORIZE",
        "EXECUTE",
        "RECORD",
        "RESPOND",
    ];
    assert_eq!(Phase::ALL.map(Phase::as_str), phases);
    for phase in Phase::ALL {
        assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
    }
    let outcomes = ["SUCCESS", "VALIDATION_ERROR", "DENIED", "EXECUTION_ERROR"];
    assert_eq!(Outcome::ALL.map(Outcome::as_str), outcomes);
    for outcome in Outcome::ALL {
        assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.as_str());
    }
}

fn denied(note: Option<&str>) -> Failure {
    let approver_id = PrincipalId::parse("ann").unwrap();
    Failure::DeniedByOperator { approver_id, note: note.map(str::to_owned) }
}
