//! The report of a lease.

use plimsoll_base::Bytes;
use plimsoll_machine::History;

/// The report of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The most that was used of each card, in the order of [`super::Lease::parts`].
    pub peaks: Vec<Peak>,
    /// How often bytes of its cards were refused to programs inside of it; none where that was not observed.
    pub refusals: Option<u64>,
    /// Whether the memory that was used came back; none where that was not observed.
    pub came_back: Option<bool>,
    /// The processes that still hold the lease, with the program; empty where the lease is free.
    pub left: Vec<(u32, String)>,
    /// The bytes of its cards that those still use; none where the driver does not say.
    pub used: Option<Bytes>,
    /// The use of its reserved bytes over time; empty where that was not observed.
    pub history: History,
}

/// The most that was used of a card, by each that observed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// The driver, looked at now and then.
    pub driver: Option<Bytes>,
    /// The ledger inside of the lease: of the shim, and of programs of ours.
    pub ledger: Option<Bytes>,
}

impl Peak {
    /// The most that was observed; none where nothing was.
    pub fn most(&self) -> Option<Bytes> {
        self.driver.max(self.ledger)
    }

    /// The observer.
    pub fn by(&self) -> Option<&'static str> {
        match self.most()? {
            most if self.driver == Some(most) => Some("driver"),
            _ => Some("ledger"),
        }
    }
}

impl Report {
    /// Whether the lease is free.
    pub fn is_free(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_by_one_that_observed_it() {
        let peak = |driver: Option<u64>, ledger: Option<u64>| Peak { driver: driver.map(Bytes), ledger: ledger.map(Bytes) };
        for (peak, most, by) in [
            (peak(None, None), None, None),
            (peak(Some(0), None), Some(0), Some("driver")),
            (peak(None, Some(0)), Some(0), Some("ledger")),
            (peak(Some(3), Some(4)), Some(4), Some("ledger")),
            (peak(Some(5), Some(4)), Some(5), Some("driver")),
        ] {
            assert_eq!((peak.most(), peak.by()), (most.map(Bytes), by));
        }
    }
}
