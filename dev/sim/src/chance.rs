//! Chance that repeats: everything random in a simulation comes from here, and from the seed.

/// A stream of numbers that the seed fixes.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    /// The stream of a seed. Neighbouring seeds have streams that have nothing in common.
    pub(crate) fn of(seed: u64) -> Self {
        let mut chance = Self(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1));
        chance.next();
        chance
    }

    /// A stream of its own, which leaves this one as it is.
    pub(crate) fn aside(&self) -> Self {
        Self(stirred(self.0 ^ 0x5ca1_ab1e_0ddb_a11d))
    }

    /// The next number: a counter, well stirred.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        stirred(self.0)
    }

    /// A number below this one; 0 where it is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// A number from `start` up to and without `end`.
    pub(crate) fn between(&mut self, start: u64, end: u64) -> u64 {
        start + self.below(end.saturating_sub(start))
    }

    /// Whether something happens that happens so often in a thousand.
    pub(crate) fn happens(&mut self, in_thousand: u64) -> bool {
        self.below(1000) < in_thousand
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, among: &[T], otherwise: T) -> T {
        let at = usize::try_from(self.below(among.len() as u64)).unwrap_or(0);
        among.get(at).copied().unwrap_or(otherwise)
    }
}

/// A number whose bits all depend on all bits of this one.
pub(crate) fn stirred(number: u64) -> u64 {
    let mut stirred = number;
    stirred = (stirred ^ (stirred >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    stirred = (stirred ^ (stirred >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    stirred ^ (stirred >> 31)
}
