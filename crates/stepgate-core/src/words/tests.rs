use crate::failure::OpenLimit;
use crate::step::ErrorBody;

use super::*;

const PAYLOAD_BYTES_MAX: usize = 1024;

/// The text after this failure, built as from the record and the journal.
fn words(failure: &Failure, is_in_doubt: bool) -> String {
    let recorded = Recorded {
        outcome: failure.outcome(),
        output_json: None,
        error: Some(ErrorBody::of(failure)),
        detail: failure.detail(),
        last_entry_digest: None,
    };
    of_refusal(&recorded, Known { is_in_doubt, payload_bytes_max: PAYLOAD_BYTES_MAX })
}

#[test]
fn the_words_name_the_argument_and_the_rule_that_it_broke() {
    let said = words(&Failure::InvalidArgs("volume: not an integer".into()), false);
    assert_eq!(
        said,
        "VALIDATION_ERROR (INVALID_ARGS): Arguments do not match the action's contract: volume: not \
         an integer. Nothing was done: correct the arguments and call again."
    );
}

#[test]
fn a_limit_is_told_with_its_name() {
    let rows = [
        (Failure::PayloadTooLarge, "limits.payload_bytes_max is 1024 bytes"),
        (
            Failure::TooManyApprovals(OpenLimit::OfPrincipal(7)),
            "limits.approvals_open_max is 7. Nothing was done, and no person was asked: too many of your calls",
        ),
        (
            Failure::TooManyApprovals(OpenLimit::Total(8)),
            "limits.approvals_open_total_max is 8. Nothing was done, and no person was asked: too many calls",
        ),
        (Failure::Execution(ExecutionFailure::FileTooLarge, None), "sandbox.file_bytes_max"),
        (Failure::Execution(ExecutionFailure::TooManyEntries, None), "sandbox.entries_max"),
        (
            Failure::Execution(ExecutionFailure::Timeout, Some("no answer within 9 ms".into())),
            "no answer within 9 ms (the limit is timeout_ms of its server)",
        ),
        (
            Failure::Execution(
                ExecutionFailure::OutputInvalid,
                Some("the result is longer than 9 bytes (output_bytes_max)".into()),
            ),
            "longer than 9 bytes (output_bytes_max)",
        ),
    ];
    for (failure, limit) in rows {
        let said = words(&failure, false);
        assert!(said.contains(limit), "{said}");
    }
}

#[test]
fn a_denial_says_not_to_try_again_and_names_no_policy_and_no_note() {
    let approver_id = crate::ids::PrincipalId::parse("ann").unwrap();
    let rows = [
        Failure::PolicyViolation("denied by secret/policy".into()),
        Failure::RefusedAtExecution("denied by secret/policy".into()),
        Failure::DeniedByOperator { approver_id, note: Some("secret note".into()) },
        Failure::ApprovalExpired,
        Failure::ActionNotAllowed,
        Failure::CommandExecution,
    ];
    for failure in rows {
        let said = words(&failure, false);
        assert!(said.contains("Do not try again"), "{said}");
        assert!(!said.contains("secret") && !said.contains("ann,"), "{said}");
    }
}

#[test]
fn what_may_have_happened_is_told_and_what_cannot_is_told_too() {
    for failure in ExecutionFailure::ALL {
        let doubted = words(&Failure::Execution(failure, None), true);
        assert!(doubted.contains("It may have been done"), "{doubted}");
        let certain = words(&Failure::Execution(failure, None), false);
        assert!(!certain.contains("may have been done"), "{certain}");
        assert!(certain.starts_with(&format!("EXECUTION_ERROR ({})", failure.code())), "{certain}");
    }
}

#[test]
fn nothing_of_the_host_is_told() {
    let host = "cannot start `/opt/secret/server`";
    for failure in
        [ExecutionFailure::Unavailable, ExecutionFailure::ToolFailed, ExecutionFailure::Io]
    {
        let said = words(&Failure::Execution(failure, Some(host.into())), true);
        assert!(!said.contains("secret"), "{said}");
    }
}

#[test]
fn a_detail_is_printable_and_has_an_end() {
    let long = format!("path: \u{1b}[2J{}", "a".repeat(5000));
    let said = words(&Failure::InvalidArgs(long), false);
    assert!(!said.contains('\u{1b}') && said.chars().count() < 1300, "{}", said.len());
}

#[test]
fn a_call_that_a_budget_denies_is_told_so_without_the_budget() {
    let detail = "BUDGET: `payments`: 95.0 of 100.0 is used, and the call needs 10.0".to_owned();
    for failure in
        [Failure::PolicyViolation(detail.clone()), Failure::RefusedAtExecution(detail.clone())]
    {
        let said = words(&failure, false);
        assert!(said.contains("more than may be used at present"), "{said}");
        assert!(!said.contains("payments") && !said.contains("100"), "{said}");
    }
}
