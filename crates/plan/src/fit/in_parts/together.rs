//! Works in parts that compute the same are one: what several of them need is made once for each part. A gradient by a filter and one by a
//! bias read the same gradient, and both sum over the rows.

use std::collections::{BTreeMap, BTreeSet};

use super::{Joined, Joins, LEAST_LONGER, MOST_UNITS};
use crate::lir::{ValueId, WorkId};

impl Joins<'_> {
    /// Makes one work of those in parts that compute something in common, those first that save most time, while none takes more than so many
    /// bytes. Predicted seconds that it saves.
    pub(super) fn together(&mut self, most: u64) -> f64 {
        let mut all = 0.0;
        while let Some((saved, (one, other), joined)) = self.best_pair(most) {
            self.joined[other] = None;
            joined.own.iter().for_each(|unit| self.owner[*unit] = one);
            self.joined[one] = Some(joined);
            all += saved;
        }
        all
    }

    /// The two that save most as one.
    fn best_pair(&self, most: u64) -> Option<(f64, (usize, usize), Joined)> {
        let mut computing: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, joined) in self.joined.iter().enumerate() {
            let in_parts = joined.as_ref().filter(|joined| joined.parts.is_some());
            in_parts.iter().flat_map(|joined| &joined.units).for_each(|unit| computing.entry(*unit).or_default().push(index));
        }
        let of_unit = |those: &Vec<usize>| {
            let pair = |at: usize| those[at + 1..].iter().map(move |other| (those[at], *other)).collect::<Vec<_>>();
            (0..those.len()).flat_map(pair).collect::<Vec<_>>()
        };
        let pairs: BTreeSet<(usize, usize)> = computing.values().flat_map(of_unit).collect();
        let joined = pairs.into_iter().filter_map(|pair| {
            let (saved, joined) = self.of_two(pair, most)?;
            Some((saved, pair, joined))
        });
        joined.max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(&one.1)))
    }

    /// Two as one, and the seconds that it saves. None where it saves none, takes more than so many bytes, or can stand nowhere.
    fn of_two(&self, (one, other): (usize, usize), most: u64) -> Option<(f64, Joined)> {
        let pair = [one, other];
        let (one, other) = (self.joined[one].as_ref()?, self.joined[other].as_ref()?);
        let (first, second) = if self.position[one.at] < self.position[other.at] { (one, other) } else { (other, one) };
        let last = *second.units.last()?;
        let units = self.in_order(first.units.iter().chain(&second.units).copied(), last);
        let roots: Vec<usize> = first.roots.iter().chain(&second.roots).copied().collect();
        let own: BTreeSet<usize> = first.own.union(&second.own).copied().collect();
        if units.len() > MOST_UNITS {
            return None;
        }
        let may_move = |at: WorkId| units.iter().all(|unit| self.may_move(*unit, at, own.contains(unit)));
        let counts = [first.count().max(second.count()), first.count().min(second.count())];
        let (count, work) =
            counts.into_iter().find_map(|count| Some((count, self.chains.work((&units, &roots), count, self.is_for_line)?)))?;
        let is_first = may_move(first.at) && self.is_ready(&work, &own, first.at);
        let may_wait = || may_move(second.at) && self.writes(first).into_iter().all(|value| self.is_read_behind(value, &pair, second.at));
        let at = if is_first { first.at } else { Some(second.at).filter(|_| may_wait())? };
        let bytes = super::while_it_runs(self.chains.request, self.chains.lir, &work, self.device);
        let before = self.seconds(first) + self.seconds(second);
        let joined = Joined { units, roots, own, at, parts: Some((count, work)), bytes };
        let saved = before - self.seconds(&joined);
        (saved > before * LEAST_LONGER && bytes <= most).then_some((saved, joined))
    }

    /// Whether all that read a value, but for these two, stand behind a work.
    fn is_read_behind(&self, value: ValueId, pair: &[usize], at: WorkId) -> bool {
        let is_other = |work: &&WorkId| self.chains.units.of[**work].is_none_or(|unit| !pair.contains(&self.owner[unit]));
        let works = self.uses[value].iter().filter(is_other);
        let in_parts = self.readers(value).into_iter().flatten().filter(|index| !pair.contains(index));
        let stand = in_parts.filter_map(|index| self.joined[index].as_ref()).map(|joined| &joined.at);
        works.chain(stand).all(|work| self.position[*work] > self.position[at])
    }
}
