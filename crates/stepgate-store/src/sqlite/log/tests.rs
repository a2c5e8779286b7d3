use super::State;

/// A log that should start over at 160 pages: pieces of 40, a rest of at most 10, overdue at 640.
fn state() -> State {
    State::new(160)
}

#[test]
fn the_thread_copies_when_a_piece_is_there_and_nothing_else_does() {
    let mut state = state();
    state.grow(39);
    assert!(!state.has_piece());
    state.grow(40);
    assert!(state.has_piece());
    state.is_held = true;
    assert!(!state.has_piece());
    state.is_held = false;
    assert_eq!(state.begin_piece(), 0);
    assert!(!state.has_piece());
    state.finish_piece(Some(40), 0);
    assert!(!state.has_piece());
    state.grow(80);
    assert!(state.has_piece());
}

#[test]
fn what_a_reader_keeps_from_being_copied_is_tried_again_only_with_a_new_piece() {
    let mut state = state();
    state.grow(50);
    state.begin_piece();
    state.finish_piece(Some(10), 0);
    assert!(!state.has_piece(), "nothing has changed");
    state.grow(89);
    assert!(!state.has_piece());
    state.grow(90);
    assert!(state.has_piece());
}

#[test]
fn the_writer_copies_the_short_rest_of_a_long_log() {
    let mut state = state();
    state.grow(159);
    state.copied = 150;
    assert!(!state.tries_now(), "not long");
    state.grow(161);
    assert!(!state.tries_now(), "the rest is long");
    state.grow(165);
    state.copied = 155;
    state.is_copying = true;
    assert!(!state.tries_now(), "the thread copies");
    state.is_copying = false;
    assert!(state.tries_now());
    assert!(!state.tries_now(), "it has not grown since");
    (state.pages, state.copied) = (175, 165);
    assert!(state.tries_now());
}

#[test]
fn the_writer_copies_all_of_a_log_that_the_disk_cannot_follow() {
    let mut state = state();
    state.grow(639);
    assert!(!state.tries_now());
    state.grow(640);
    state.is_copying = true;
    assert!(state.tries_now());
}

#[test]
fn what_was_copied_of_the_log_before_a_restart_does_not_count() {
    let mut state = state();
    state.grow(200);
    let restarts = state.begin_piece();
    state.grow(5);
    state.finish_piece(Some(200), restarts);
    assert_eq!((state.copied, state.rest()), (0, 5));
    // As long as the one before it: only a log that has started over does not get longer.
    state.finish_piece(Some(5), state.restarts);
    state.grow(5);
    assert_eq!(state.rest(), 5);
}
