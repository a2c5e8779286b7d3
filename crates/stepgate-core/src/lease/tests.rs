use std::time::Duration;

use super::{Claim, Claiming, Holder, Lease, Ownership, Sending};
use crate::ids::RunId;
use crate::run::Status;

const ME: i64 = 7;
const OTHER: i64 = 8;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn held(owner: Option<i64>) -> Ownership {
    Ownership { owner, epoch: 3 }
}

fn claim(incarnation: i64, epoch: i64) -> Option<Claim> {
    Some(Claim { incarnation, epoch })
}

#[test]
fn a_run_is_claimed_unless_it_is_over_or_a_living_node_works_on_it() {
    let taken = Claiming::Claimed(Claim { incarnation: ME, epoch: 4 });
    for status in Status::ALL {
        for (owner, is_gone, expected) in [
            (None, false, taken),
            (Some(ME), false, taken),
            (Some(ME), true, taken),
            (Some(OTHER), false, Claiming::Held),
            (Some(OTHER), true, taken),
        ] {
            let expected = if status.is_final() { Claiming::NothingToClaim } else { expected };
            let claimed = held(owner).claimed_by(ME, status, |_| is_gone);
            assert_eq!(claimed, expected, "{status:?} {owner:?} {is_gone}");
        }
    }
}

#[test]
fn a_run_is_stray_if_another_node_left_it_and_is_gone() {
    for (owner, is_gone, expected) in [
        (None, true, false),
        (Some(ME), true, false),
        (Some(OTHER), false, false),
        (Some(OTHER), true, true),
    ] {
        assert_eq!(held(owner).is_stray_for(ME, |_| is_gone), expected, "{owner:?} {is_gone}");
    }
}

#[test]
fn a_commit_passes_the_fence_with_the_claim_of_the_owner_or_where_no_other_node_owns_the_run() {
    for (owner, believed, expected) in [
        (Some(ME), claim(ME, 3), true),
        (Some(ME), claim(ME, 2), false),
        (Some(ME), claim(ME, 4), false),
        (Some(OTHER), claim(ME, 3), false),
        (Some(OTHER), claim(ME, 2), false),
        (None, claim(ME, 3), false),
        (Some(ME), None, true),
        (Some(OTHER), None, false),
        (None, None, true),
        // A claim that this node made in an earlier incarnation is accepted like its own.
        (Some(OTHER), claim(OTHER, 3), true),
    ] {
        assert_eq!(held(owner).admits(believed, ME), expected, "{owner:?} {believed:?}");
    }
}

#[test]
fn the_sender_of_a_commit_owns_the_run_while_there_is_something_to_do() {
    for status in Status::ALL {
        let works = matches!(status, Status::Started | Status::Approved);
        for (before, believed, owner, epoch) in [
            (None, None, ME, 1),
            (Some(held(None)), None, ME, 3),
            (Some(held(Some(ME))), claim(ME, 3), ME, 3),
            (Some(held(Some(OTHER))), claim(OTHER, 3), OTHER, 3),
        ] {
            let after = Ownership::after_commit(before, believed, ME, status);
            let expected = Ownership { owner: works.then_some(owner), epoch };
            assert_eq!(after, expected, "{status:?} {before:?}");
            assert_eq!(after.claim(), works.then_some(Claim { incarnation: owner, epoch }));
        }
    }
}

#[test]
fn a_call_is_sent_with_a_claim_of_this_incarnation_while_the_lease_leaves_the_margin() {
    let lease = Lease { incarnation: ME, good_until: at(10) };
    for (believed, now, expected) in [
        (claim(ME, 3), 7, Sending::Now),
        (claim(ME, 3), 8, Sending::AfterRenewal),
        (claim(ME, 3), 11, Sending::AfterRenewal),
        (claim(OTHER, 3), 0, Sending::Never),
        (None, 0, Sending::Never),
    ] {
        assert_eq!(lease.may_send(believed, at(now), at(2)), expected, "{believed:?} {now}");
    }
}

#[test]
fn a_lease_counts_from_when_it_was_asked_for_and_a_late_answer_renews_nothing() {
    for (answered, is_renewed, expected) in
        [(9, true, Some(15)), (10, true, None), (9, false, None)]
    {
        let mut holder = Holder::new(at(10));
        assert!(!holder.lease().is_good(at(0)));
        holder.registered(ME, at(0));
        let lease = holder.lease();
        assert_eq!((lease.is_good(at(9)), lease.is_good(at(10))), (true, false));
        let is_good = holder.renewed(lease, at(5), at(answered), is_renewed);
        assert_eq!(is_good, expected.is_some(), "{answered} {is_renewed}");
        let good_until = at(expected.unwrap_or(10));
        assert_eq!(holder.lease(), Lease { incarnation: ME, good_until });
    }
}

#[test]
fn a_claim_is_good_in_the_incarnation_that_made_it_and_released_once() {
    let run_id = RunId::new(uuid::Uuid::from_u128(1));
    let mut holder = Holder::new(at(10));
    holder.registered(ME, at(0));
    assert!(!holder.has_claimed(run_id));
    holder.note(run_id, claim(ME, 3));
    assert!(holder.has_claimed(run_id));
    holder.registered(OTHER, at(20));
    assert_eq!((holder.has_claimed(run_id), holder.claim_on(run_id)), (false, claim(ME, 3)));
    assert_eq!((holder.release(run_id), holder.release(run_id)), (claim(ME, 3), None));
    holder.note(run_id, claim(OTHER, 4));
    holder.note(run_id, None);
    assert_eq!(holder.claim_on(run_id), None);
}
