//! The words in which kernels leave faults: one for each queue of a run, in a piece of the card's memory that the device takes when it is
//! opened.

use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::{Context, Mapping, Trouble};

/// Words lie apart, each in a sector of its own.
const STEP: u64 = 32;

#[derive(Debug)]
pub(super) struct Words {
    mapping: Mapping,
    count: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Words below this number were given out before.
    begun: u32,
    free: Vec<u32>,
}

/// A word; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Word {
    words: Arc<Words>,
    number: u32,
}

impl Words {
    /// As many as fit what the card gives out at once.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Words>, Trouble> {
        let bytes = context.granularity;
        let mut mapping = Mapping::reserve(context, bytes)?;
        mapping.commit(0..bytes)?;
        Ok(Arc::new(Words { mapping, count: (bytes / STEP) as u32, state: Mutex::default() }))
    }

    /// The bytes that they take.
    pub fn bytes(&self) -> u64 {
        self.mapping.committed()
    }

    /// One that nobody has; none where all are given out.
    pub fn take(self: &Arc<Words>) -> Option<Word> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match state.free.pop() {
            None if state.begun == self.count => return None,
            None => {
                state.begun += 1;
                state.begun - 1
            }
            Some(number) => number,
        };
        Some(Word { words: self.clone(), number })
    }
}

impl Word {
    pub fn address(&self) -> u64 {
        self.words.mapping.start() + u64::from(self.number) * STEP
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        self.words.state.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.number);
    }
}
