//! Bytes of an argument, of shared memory or of locals, with who wrote and read each.

/// A thread's access of a byte: its block, its number, and how many barriers it had passed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// The block's number and 1; 0 is none.
    pub(crate) block: u32,
    pub(crate) thread: u32,
    pub(crate) epoch: u32,
}

const MANY: u32 = u32::MAX;
const ATOMIC: u32 = u32::MAX - 1;

impl Access {
    /// Whether it is not ordered with a plain access by `other`.
    fn races(self, other: Access) -> bool {
        self.block != 0 && (self.block != other.block || self.epoch == other.epoch && self.thread != other.thread)
    }
}

/// Bytes with what is known about each.
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    written: Vec<bool>,
    writes: Vec<Access>,
    reads: Vec<Access>,
}

impl Bytes {
    pub(crate) fn new(bytes: Vec<u8>, written: bool) -> Bytes {
        let len = bytes.len();
        Bytes { bytes, written: vec![written; len], writes: vec![Access::default(); len], reads: vec![Access::default(); len] }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    pub(crate) fn forget_accesses(&mut self) {
        self.writes.fill(Access::default());
        self.reads.fill(Access::default());
    }

    pub(crate) fn read(&mut self, at: usize, size: usize, by: Access) -> Result<u64, String> {
        let mut word = [0; 8];
        for (byte, into) in (at..at + size).zip(&mut word) {
            if !self.written[byte] {
                return Err("reads what was never written".to_string());
            }
            if self.writes[byte].races(by) {
                return Err(format!("race: thread {} of block {} wrote this", self.writes[byte].thread, self.writes[byte].block - 1));
            }
            let seen = &mut self.reads[byte];
            *seen = match *seen {
                Access { block: 0, .. } => by,
                Access { block, .. } if block != by.block => Access { block: MANY, ..by },
                Access { epoch, thread, .. } if epoch == by.epoch && thread != by.thread => Access { thread: MANY, ..by },
                _ => by,
            };
            *into = self.bytes[byte];
        }
        Ok(u64::from_le_bytes(word))
    }

    /// A volatile read: it is ordered with atomics.
    pub(crate) fn peek(&self, at: usize, size: usize, by: Access) -> Result<u64, String> {
        if (at..at + size).any(|byte| !self.written[byte]) {
            return Err("reads what was never written".to_string());
        }
        match self.writes[at..at + size].iter().find(|write| write.thread != ATOMIC && write.races(by)) {
            Some(write) => Err(format!("race: thread {} of block {} wrote this", write.thread, write.block - 1)),
            None => Ok(word(&self.bytes[at..at + size])),
        }
    }

    pub(crate) fn write(&mut self, at: usize, size: usize, value: u64, by: Access) -> Result<(), String> {
        for (byte, from) in (at..at + size).zip(value.to_le_bytes()) {
            if self.writes[byte].races(by) {
                return Err(format!("race: thread {} of block {} wrote this", self.writes[byte].thread, self.writes[byte].block - 1));
            }
            if self.reads[byte].races(by) {
                return Err("race: another thread reads this".to_string());
            }
            self.writes[byte] = by;
            self.written[byte] = true;
            self.bytes[byte] = from;
        }
        Ok(())
    }

    pub(crate) fn exchange(&mut self, at: usize, size: usize, by: Access, with: impl FnOnce(u64) -> u64) -> Result<u64, String> {
        let mut word = [0; 8];
        for (byte, into) in (at..at + size).zip(&mut word) {
            let plain = self.writes[byte].thread != ATOMIC && self.writes[byte].races(by);
            if plain || self.reads[byte].races(by) {
                return Err("race: a plain access of an atomic".to_string());
            }
            if !self.written[byte] {
                return Err("reads what was never written".to_string());
            }
            *into = self.bytes[byte];
        }
        let old = u64::from_le_bytes(word);
        for (byte, from) in (at..at + size).zip(with(old).to_le_bytes()) {
            self.bytes[byte] = from;
            self.writes[byte] = Access { thread: ATOMIC, ..by };
        }
        Ok(old)
    }
}

/// Bytes as a number, the lowest first.
pub(crate) fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}
