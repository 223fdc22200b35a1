//! The resources of a call, and whether they are back.

use std::fmt;
use std::time::{Duration, Instant};

use plimsoll_base::Bytes;
use plimsoll_machine::Machine;

use crate::lease::Lease;
use crate::tree;

/// A result, and its resources.
#[derive(Clone, Debug)]
pub struct Outcome<O> {
    /// The function's result.
    pub output: O,
    /// The memory before and after.
    pub report: Report,
}

/// The memory of the lease's cards and of the worker, before a call and after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The worker's process; 0 where there was none.
    pub pid: u32,
    /// From the call to its end.
    pub took: Duration,
    /// The cards of the lease; empty without one.
    pub cards: Vec<OnCard>,
    /// The worker's own memory before its first call, and after this one: zero where the process has ended.
    pub resident: (Bytes, Bytes),
    /// Whether the worker has ended.
    pub ended: bool,
}

/// A worker's part of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnCard {
    /// The card's name.
    pub card: String,
    /// How much of it the lease has.
    pub lease: Bytes,
    /// Reserved of that before the call, by this worker and its descendants.
    pub before: Bytes,
    /// The most that any program has used under the lease so far, by its ledger. None for a real card of which the ledger knows
    /// nothing: that was not observed.
    pub peak: Option<Bytes>,
    /// Reserved after the call.
    pub after: Bytes,
    /// For a real card and a call in a process of its own: the bytes that all programs under the lease use of it, before and after,
    /// as the driver says. None where it cannot say.
    pub driver: Option<(Bytes, Bytes)>,
}

impl Report {
    /// Whether the devices' memory is as before, as far as that was observed.
    pub fn all_back(&self) -> bool {
        self.came_back() != Some(false)
    }

    /// Whether the devices' memory is as before; none where that was not observed.
    pub fn came_back(&self) -> Option<bool> {
        let is_back = |card: &OnCard| {
            if card.after > card.before || card.driver.is_some_and(|(before, after)| after > before) {
                return Some(false);
            }
            (card.driver.is_some() || card.peak.is_some()).then_some(true)
        };
        let cards: Vec<Option<bool>> = self.cards.iter().map(is_back).collect();
        if cards.contains(&Some(false)) { Some(false) } else { cards.into_iter().collect::<Option<Vec<bool>>>().map(|_| true) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cards.is_empty() {
            return f.write_str("no cards");
        }
        for (index, card) in self.cards.iter().enumerate() {
            let OnCard { card, lease, before, peak, after, driver } = card;
            let peak = peak.map_or("peak not observed".into(), |peak| format!("at most {peak}"));
            write!(f, "{}{card}: {before} of {lease} before, {peak}, {after} after", if index > 0 { "; " } else { "" })?;
            if let Some((before, after)) = driver {
                write!(f, " (by the driver {before} and {after})")?;
            }
        }
        f.write_str(match self.came_back() {
            Some(true) => ": all memory is back",
            Some(false) => ": NOT all memory is back",
            None => ": whether all memory is back was not observed",
        })
    }
}

/// How long it may take until processes that were killed are gone.
const GONE: Duration = Duration::from_secs(1);

/// Looks at the reserved bytes under a lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    inside: Option<Machine>,
    cards: Vec<usize>,
    /// Whether all that is used stands in the ledger: on simulated cards.
    counts_all: bool,
}

impl Look {
    pub fn at(lease: Option<&Lease>) -> Look {
        let inside = lease.and_then(|lease| lease.inside().ok().flatten());
        let cards = lease.map(|lease| lease.parts().iter().map(|part| part.card).collect()).unwrap_or_default();
        let counts_all = lease.is_some_and(|lease| lease.cards().simulated().is_some());
        Look { inside, cards, counts_all }
    }

    /// Whether there is anything to look at.
    pub fn is_blind(&self) -> bool {
        self.inside.is_none()
    }

    /// The reserved bytes of each card: by descendants of a process, or by all.
    pub fn reserved(&self, from: Option<u32>) -> Vec<Bytes> {
        let Some(snapshot) = self.inside.as_ref().and_then(|inside| inside.look().ok()) else { return vec![Bytes::ZERO; self.cards.len()] };
        let of = |pid: u32| from.is_none_or(|from| tree::descends(pid, from));
        let entries: Vec<_> = snapshot.entries.iter().filter(|entry| of(entry.pid)).collect();
        let on = |card: &usize| {
            entries.iter().flat_map(|entry| &entry.shares).filter(|share| share.card == *card).map(|share| share.reserved).sum::<Bytes>()
        };
        self.cards.iter().map(on).collect()
    }

    /// The driver's figures, before and after a call: in time, since it takes a moment to notice that a process is gone.
    pub fn add_driver(report: &mut [OnCard], before: Option<Vec<Option<Bytes>>>, lease: Option<&Lease>) {
        let Some((before, lease)) = before.zip(lease) else { return };
        let begin = Instant::now();
        loop {
            let Some(after) = lease.driver_use() else { return };
            for ((on, before), after) in report.iter_mut().zip(&before).zip(after) {
                on.driver = before.zip(after);
            }
            if report.iter().all(|on| on.driver.is_none_or(|(before, after)| after <= before)) || begin.elapsed() > GONE {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The reserved bytes once processes that were ended with a worker are gone: they are not this program's to wait for.
    pub fn settled(&self, from: Option<u32>, before: &[Bytes]) -> Vec<Bytes> {
        let begin = Instant::now();
        loop {
            let after = self.reserved(from);
            if self.is_blind() || after.iter().zip(before).all(|(after, before)| after <= before) || begin.elapsed() > GONE {
                return after;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The report on the cards.
    pub fn report(&self, before: &[Bytes], after: &[Bytes]) -> Vec<OnCard> {
        let Some(inside) = &self.inside else { return Vec::new() };
        let on = |((card, before), after): ((&usize, &Bytes), &Bytes)| {
            let info = inside.cards().get(*card)?;
            let (name, lease) = (info.name.clone(), info.capacity);
            let peak = Some(inside.peak(*card)).filter(|peak| self.counts_all || *peak > Bytes::ZERO);
            Some(OnCard { card: name, lease, before: *before, peak, after: *after, driver: None })
        };
        self.cards.iter().zip(before).zip(after).filter_map(on).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_whether_all_is_back() {
        let card = OnCard {
            card: "Simulated GPU".into(),
            lease: Bytes(4 << 30),
            before: Bytes(0),
            peak: Some(Bytes(1 << 30)),
            after: Bytes(0),
            driver: None,
        };
        let report = Report { cards: vec![card.clone()], ..Report::default() };
        assert_eq!(report.to_string(), "Simulated GPU: 0 B of 4 GiB before, at most 1 GiB, 0 B after: all memory is back");
        let report = Report { cards: vec![OnCard { after: Bytes(1), ..card.clone() }], ..Report::default() };
        assert!(!report.all_back() && report.to_string().ends_with("NOT all memory is back"));
        let driver = Some((Bytes(1 << 20), Bytes(2 << 20)));
        let blind = Report { cards: vec![OnCard { peak: None, ..card.clone() }], ..Report::default() };
        assert_eq!(
            blind.to_string(),
            "Simulated GPU: 0 B of 4 GiB before, peak not observed, 0 B after: whether all memory is back was not observed"
        );
        assert!(blind.all_back() && blind.came_back().is_none());
        let seen = Report { cards: vec![OnCard { driver: Some((Bytes(1), Bytes(1))), ..blind.cards[0].clone() }], ..Report::default() };
        assert_eq!(seen.came_back(), Some(true));
        let report = Report { cards: vec![OnCard { driver, ..card }], ..Report::default() };
        assert!(!report.all_back() && report.to_string().contains("(by the driver 1 MiB and 2 MiB)"), "{report}");
        assert_eq!(Report::default().to_string(), "no cards");
    }
}
