//! A circuit breaker: a server that fails repeatedly gets no calls for a while.
//!
//! ```text
//! closed ──failures in a row──▶ open ──the pause is over──▶ half open ──an answer──▶ closed
//!                                 ▲                            │
//!                                 └─────────a failure──────────┘
//! ```

use std::time::{Duration, Instant};

/// Whether calls are sent to a server.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures_max: u32,
    pause: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen { is_tried: bool },
}

/// Whether a call may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Pass,
    /// It may, as the trial that shows whether the server works again.
    Trial,
    Refused,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, pause: Duration) -> Self {
        Self { failures_max, pause, state: State::Closed { failures: 0 } }
    }

    pub(crate) fn admit(&mut self, now: Instant) -> Admission {
        match self.state {
            State::Closed { .. } => Admission::Pass,
            State::Open { until } if now < until => Admission::Refused,
            State::HalfOpen { is_tried: true } => Admission::Refused,
            State::Open { .. } | State::HalfOpen { is_tried: false } => {
                self.state = State::HalfOpen { is_tried: true };
                Admission::Trial
            }
        }
    }

    /// The trial call is over, sent or not.
    pub(crate) fn trial_is_over(&mut self) {
        if let State::HalfOpen { is_tried } = &mut self.state {
            *is_tried = false;
        }
    }

    /// The server answered, with any result.
    pub(crate) fn answered(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        let failures = match self.state {
            State::Closed { failures } => failures.saturating_add(1),
            State::HalfOpen { .. } => self.failures_max,
            State::Open { .. } => return,
        };
        self.state = match failures >= self.failures_max {
            true => State::Open { until: now + self.pause },
            false => State::Closed { failures },
        };
    }

    /// The server broke the protocol or a rate limit: the breaker opens at once, whatever the server did before.
    pub(crate) fn trip(&mut self, now: Instant) {
        self.state = State::Open { until: now + self.pause };
    }

    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests;
