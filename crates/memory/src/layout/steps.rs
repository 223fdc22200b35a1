//! Counted work.

/// How much work may still be done. A step looks at one thing: a buffer, or a piece of occupied memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    done: u64,
    most: u64,
}

impl Steps {
    pub fn new(most: u64) -> Steps {
        Steps { done: 0, most }
    }

    pub fn done(&self) -> u64 {
        self.done
    }

    pub fn left(&self) -> u64 {
        self.most.saturating_sub(self.done)
    }

    pub fn spend(&mut self, steps: u64) {
        self.done = self.done.saturating_add(steps);
    }

    /// Some of what is left, to be spent on one thing; [`Steps::spend`] what it did.
    pub fn part(&self, most: u64) -> Steps {
        Steps::new(most.min(self.left()))
    }
}
