use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use stepgate_core::action::CoreCall;
use stepgate_core::call::Call;
use stepgate_core::facts::Facts;
use stepgate_core::policy::BuiltInRule;
use stepgate_core::ports::PolicyVerdict;
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;
use crate::control::pins::Pins;
use crate::start::start_servers;

const DENIES: &str = "forbid (principal, action, resource);";
const PERMITS: &str = "permit (principal, action, resource);";

async fn no_servers() -> Servers {
    let (late, _) = mpsc::channel(1);
    let started = start_servers(vec![], Pins::new(), late, Arc::new(|_| {}), Duration::ZERO);
    started.await.unwrap()
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms)
}

fn write(directory: &TempDir, text: &str) {
    let file = directory.path().join("all.cedar");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Thinks, where the set in force permits it; what the shadow would have decided.
fn think(shadow: &Shadow) -> Option<PolicyVerdict> {
    asked(shadow, None)
}

fn asked(shadow: &Shadow, instead: Option<&dyn Policy>) -> Option<PolicyVerdict> {
    let principal_id = PrincipalId::parse("agent").unwrap();
    let call = Call::Core(CoreCall::Think);
    let request =
        PolicyRequest { principal_id: &principal_id, call: &call, facts: &Facts::default() };
    let in_force = BuiltInRule.decide(request);
    let decision = match instead {
        None => shadow.differs(request, &in_force),
        Some(policy) => shadow.ask(&shadow.candidate().unwrap(), policy, request, &in_force),
    };
    decision.map(|decision| decision.verdict)
}

#[tokio::test]
async fn a_candidate_is_asked_as_its_files_are_and_not_where_they_cannot_be_loaded() {
    let (directory, servers) = (TempDir::new().unwrap(), no_servers().await);
    let shadow = Shadow::new(directory.path().to_owned(), FactNames::default());
    write(&directory, DENIES);
    assert!(shadow.look_again(&servers, &[], at(1)).await);
    assert!(!shadow.look_again(&servers, &[], at(2)).await);
    assert_eq!(shadow.candidate().unwrap().since, at(1));
    assert_eq!(think(&shadow), Some(PolicyVerdict::Deny));

    write(&directory, "forbid (principle, action, resource);");
    assert!(shadow.look_again(&servers, &[], at(3)).await);
    let why = shadow.candidate().unwrap_err();
    assert!(why.contains("all.cedar"), "{why}");
    assert_eq!(think(&shadow), None);

    write(&directory, PERMITS);
    assert!(shadow.look_again(&servers, &[], at(4)).await);
    assert_eq!((think(&shadow), shadow.candidate().unwrap().since), (None, at(4)));

    fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(shadow.look_again(&servers, &[], at(5)).await);
    assert!(shadow.candidate().unwrap_err().contains("chmod go-w"));
    fs::remove_dir_all(directory.path()).unwrap();
    shadow.look_again(&servers, &[], at(6)).await;
    assert!(shadow.candidate().unwrap_err().contains("cannot be read as a directory"));
}

#[tokio::test]
async fn a_candidate_is_counted_on_while_its_files_are_the_same() {
    let (directory, servers) = (TempDir::new().unwrap(), no_servers().await);
    let shadow = Shadow::new(directory.path().to_owned(), FactNames::default());
    write(&directory, DENIES);
    shadow.look_again(&servers, &[], at(1)).await;
    think(&shadow);
    // Read again, because a mode is another one; the text is the same.
    let file = directory.path().join("all.cedar");
    fs::set_permissions(file, PermissionsExt::from_mode(0o640)).unwrap();
    assert!(!shadow.look_again(&servers, &[], at(2)).await);
    think(&shadow);
    let candidate = shadow.candidate().unwrap();
    let kind = DifferenceKind { from: PolicyAnswer::Permit, to: PolicyAnswer::Deny };
    let counts = ShadowCounts { asked: 2, differing: BTreeMap::from([(kind, 2)]) };
    assert_eq!((candidate.since, candidate.counts()), (at(1), counts));

    write(&directory, PERMITS);
    shadow.look_again(&servers, &[], at(3)).await;
    think(&shadow);
    let counts = ShadowCounts { asked: 1, differing: BTreeMap::new() };
    assert_eq!(shadow.candidate().unwrap().counts(), counts);
}

struct Panics;

impl Policy for Panics {
    fn decide(&self, _: PolicyRequest<'_>) -> PolicyDecision {
        panic!("a defect")
    }
}

#[tokio::test]
async fn a_candidate_that_panics_is_not_asked_again_until_it_changes() {
    let (directory, servers) = (TempDir::new().unwrap(), no_servers().await);
    let shadow = Shadow::new(directory.path().to_owned(), FactNames::default());
    write(&directory, DENIES);
    shadow.look_again(&servers, &[], at(1)).await;
    assert_eq!(asked(&shadow, Some(&Panics)), None);
    assert!(shadow.candidate().unwrap_err().contains("panicked"));
    assert_eq!(think(&shadow), None);
    assert!(!shadow.look_again(&servers, &[], at(2)).await);
    write(&directory, &format!("{DENIES}\n"));
    assert!(shadow.look_again(&servers, &[], at(3)).await);
    assert_eq!(think(&shadow), Some(PolicyVerdict::Deny));
}
