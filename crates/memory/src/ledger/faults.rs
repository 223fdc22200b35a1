//! Memory that runs out on purpose, for tests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Ledger;

/// Refuses requests to ledgers by their number. Every reservation, every larger loan and every mapping of the ledgers that share it
/// is counted, from 0; for a file, every access to it. It fails where the number is in a range. For tests that let memory run out at every place.
#[derive(Debug, Default)]
pub struct Faults {
    asked: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    hit: AtomicU64,
}

impl Faults {
    /// Refuses those whose numbers are in `range`, instead of those of the range before.
    pub fn refuse(&self, range: Range<u64>) {
        // An empty range first: no reader sees a mixture of the two.
        self.end.store(0, Ordering::SeqCst);
        self.start.store(range.start, Ordering::SeqCst);
        self.end.store(range.end, Ordering::SeqCst);
    }

    /// Refuses nothing from now on.
    pub fn stop(&self) {
        self.refuse(0..0);
    }

    /// How often memory was asked for.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// How often it was refused.
    pub fn hit(&self) -> u64 {
        self.hit.load(Ordering::SeqCst)
    }

    /// Counts a request, and says whether it is refused.
    pub fn refuses_this(&self) -> bool {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        let refuses = self.start.load(Ordering::SeqCst) <= number && number < self.end.load(Ordering::SeqCst);
        self.hit.fetch_add(u64::from(refuses), Ordering::SeqCst);
        refuses
    }
}

impl Ledger {
    /// From now on `faults` decides the refusals of this ledger; only the first that is given counts.
    pub fn inject(&self, faults: &Arc<Faults>) {
        let _ = self.faults.set(faults.clone());
    }

    /// Whether the present request is to be refused.
    pub(crate) fn is_faulty(&self) -> bool {
        self.faults.get().is_some_and(|faults| faults.refuses_this())
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Bytes;

    use super::*;
    use crate::{Block, Loan};

    #[test]
    fn what_is_in_the_range_is_refused_and_leaves_nothing() {
        let ledger = Ledger::new("CPU:0", Some(Bytes(1 << 20)));
        let faults = Arc::new(Faults::default());
        ledger.inject(&faults);
        let mut loan = Loan::new(&ledger, "fed");
        // A block reserves, then maps; a loan asks where it grows.
        let ask = |loan: &mut Loan| {
            let block = Block::host(&ledger, Bytes(5000), "arena");
            let lent = loan.set(Bytes(100));
            let _ = loan.set(Bytes::ZERO);
            assert!(ledger.in_use() == Bytes(block.as_ref().map_or(0, |_| 8192)) && ledger.in_use() == ledger.mapped());
            (block.is_ok(), lent.is_ok())
        };
        assert_eq!((ask(&mut loan), faults.asked(), faults.hit()), ((true, true), 3, 0));
        for (range, expected) in [(3..4, (false, true)), (6..7, (false, true)), (10..11, (true, false)), (11..99, (false, false))] {
            faults.refuse(range);
            assert_eq!(ask(&mut loan), expected);
        }
        faults.stop();
        assert_eq!((ask(&mut loan), faults.hit()), ((true, true), 5));
    }
}
