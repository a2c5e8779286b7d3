//! Random numbers, always the same for a seed.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }
}

pub(crate) fn random(seed: u64) -> Random {
    Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
