//! The simulation against itself, and against what is known of queues.

use super::{Chance, Grown, Town, mixed, place};

fn town() -> Town {
    Town {
        databases: 4,
        sessions: 500,
        skew: 1.0,
        steps_per_second: 2_000.0,
        burst_steps: 8.0,
        burst_pause: 0.05,
        service: 0.001,
        seconds: 10.0,
    }
}

#[test]
fn the_same_seed_gives_the_same_day() {
    assert_eq!(town().live(7), town().live(7));
    assert_ne!(town().live(7), town().live(8));
}

#[test]
fn every_step_is_served_once_where_its_session_lives() {
    for seed in 0..5 {
        let town = town();
        let day = town.live(seed);
        assert_eq!(day.asked, day.served);
        // Bursts come and go, so the number is near what was asked for and not equal to it.
        let served: usize = day.served.iter().sum();
        assert!((14_000..26_000).contains(&served), "{served}");
        // Two seconds of work for each of the four, if all were alike: somebody has at least that.
        assert!(day.fullest >= served as f64 * town.service / town.seconds / 4.0 - 1e-9);
        assert!(day.fullest <= 1.0);
    }
}

#[test]
fn one_database_without_bursts_waits_as_the_formula_says() {
    for load in [0.3, 0.5, 0.7, 0.8] {
        let town = Town {
            databases: 1,
            sessions: 200,
            skew: 0.0,
            steps_per_second: load * 1_000.0,
            burst_steps: 1.0,
            seconds: 200.0,
            ..town()
        };
        let day = town.live(1);
        // Pollaczek and Khinchine, for a service that always takes as long.
        let expected = load * town.service / (2.0 * (1.0 - load));
        let off = (day.waited_mean - expected).abs() / expected;
        assert!(off < 0.1, "at {load}: {} instead of {expected}", day.waited_mean);
        assert!((day.fullest - load).abs() < 0.02, "{} instead of {load}", day.fullest);
    }
}

#[test]
fn bursts_make_a_database_wait_longer() {
    let calm = Town { databases: 1, steps_per_second: 600.0, burst_steps: 1.0, ..town() };
    let bursty = Town { burst_steps: 8.0, burst_pause: 0.001, ..calm.clone() };
    assert!(bursty.live(3).waited_p99 > 2.0 * calm.live(3).waited_p99);
}

#[test]
fn one_more_database_takes_a_part_and_moves_nothing_else() {
    let mut chance = Chance::new(5);
    let mut taken = 0;
    for _ in 0..10_000 {
        let session = chance.number();
        let (before, after) = (place(session, 4), place(session, 5));
        assert!(after == before || after == 4, "{session} went from {before} to {after}");
        taken += usize::from(after == 4);
    }
    assert!((1_850..2_150).contains(&taken), "{taken}");
}

#[test]
fn only_new_sessions_reach_a_new_database() {
    assert_eq!(Grown::after(4, 0.0, 1).newest, 0.0);
    let later = Grown::after(4, 20.0, 1);
    assert!((later.newest - 0.2).abs() < 0.04, "{}", later.newest);
    let half = Grown::after(4, 0.693, 1);
    assert!((half.newest - 0.1).abs() < 0.03, "{}", half.newest);
}

#[test]
fn ids_have_the_form_that_the_gate_demands() {
    let mut chance = Chance::new(mixed(9));
    for _ in 0..100 {
        let (step, session) = (chance.step_id(), chance.session_id());
        for (id, version) in [(&step, '4'), (&session, '7')] {
            let bytes = id.as_bytes();
            assert_eq!(id.len(), 36, "{id}");
            assert_eq!([bytes[8], bytes[13], bytes[18], bytes[23]], [b'-'; 4], "{id}");
            assert_eq!(char::from(bytes[14]), version, "{id}");
            assert!(matches!(bytes[19], b'8' | b'9' | b'a' | b'b'), "{id}");
        }
    }
}
