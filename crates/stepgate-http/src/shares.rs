//! Shares of something that there is little of: requests under way, or memory for bodies.
//!
//! One rule, without a number to choose: a holder may have as much as is still free. One holder that takes all it can
//! gets half, two get a third each, and the next one always finds something.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use stepgate_core::ids::PrincipalId;
use stepgate_core::lock;

use crate::network::Network;

/// What a share is counted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Holder {
    /// A principal that has shown a token or a login.
    Principal(PrincipalId),
    /// Where a caller comes from that has shown none.
    Network(Network),
}

/// Whether a holder may use what is reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Agents, and callers without a token.
    Ordinary,
    /// Operators and auditors.
    Reserve,
}

/// A bounded amount, and who has how much of it.
pub(crate) struct Shares {
    most: u64,
    /// What agents leave free. At most half, so that there is something to share.
    reserved: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    sum: u64,
    by: HashMap<Holder, u64>,
}

/// What one request holds, until it is dropped.
pub(crate) struct Share {
    shares: Arc<Shares>,
    holder: Holder,
    rank: Rank,
    amount: u64,
}

impl Shares {
    pub(crate) fn new(most: u64, reserved: u64) -> Arc<Self> {
        Arc::new(Self { most, reserved: reserved.min(most / 2), held: Mutex::default() })
    }

    /// A share of nothing, which can grow.
    pub(crate) fn begin(self: &Arc<Self>, holder: Holder, rank: Rank) -> Share {
        Share { shares: Arc::clone(self), holder, rank, amount: 0 }
    }

    /// A share of one; none where the holder has no more to get.
    pub(crate) fn take(self: &Arc<Self>, holder: Holder, rank: Rank) -> Option<Share> {
        let mut share = self.begin(holder, rank);
        share.grow(1).then_some(share)
    }
}

impl Share {
    /// Takes so much more. False, and nothing is taken, where the holder would have more than is then still free.
    pub(crate) fn grow(&mut self, amount: u64) -> bool {
        let open = match self.rank {
            Rank::Ordinary => self.shares.most - self.shares.reserved,
            Rank::Reserve => self.shares.most,
        };
        let mut held = lock::locked(&self.shares.held);
        let own = held.by.get(&self.holder).copied().unwrap_or_default().saturating_add(amount);
        let sum = held.sum.saturating_add(amount);
        // One more than is left then: the last of a pool can be taken.
        let is_fair = open.checked_sub(sum).is_some_and(|free| own <= free.saturating_add(1));
        if !is_fair {
            return false;
        }
        held.sum = sum;
        held.by.insert(self.holder.clone(), own);
        self.amount += amount;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut held = lock::locked(&self.shares.held);
        held.sum = held.sum.saturating_sub(self.amount);
        if let Some(own) = held.by.get_mut(&self.holder) {
            *own = own.saturating_sub(self.amount);
            if *own == 0 {
                held.by.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests;
