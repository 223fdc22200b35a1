//! Plans that are made to fit: the smallest limit, and what less memory costs.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;
pub use plimsoll_plan::{CurvePoint, Fitting};

use crate::{Footprint, Need, Needs, Session, Signature};

/// So many times a limit that looks like the smallest is tried, until one is enough.
const MOST_TRIES: usize = 8;

/// So many limits below one that is enough are tried.
const LOWER_TRIES: usize = 4;

impl Session {
    /// The smallest limit with which these runs, one after the other, are loaded and run. It is given to every device that has one; to
    /// every device, where none has. A file keeps its size. Of several devices it is the smallest of a few limits that are tried.
    /// `footprint` is that of the runs as they are planned now. Without [`crate::Options::fit`] it says the answer.
    ///
    /// # Errors
    /// As [`Session::plan_signature`].
    pub fn minimum_limit(&self, runs: &[Signature], footprint: &Footprint) -> Result<Bytes> {
        if !self.inner().devices().options().fit {
            return Ok(footprint.minimum_limit());
        }
        let needs = footprint.needs();
        let given = needs.are_limited();
        let holders = needs.iter().zip(&given).filter(|(need, is_given)| **is_given && need.peak > Bytes::ZERO).count();
        let takes = |limit| -> Result<Bytes> { Ok(self.with_limit(runs, footprint, limit, |file| file.limit)?.minimum_limit()) };
        // Of one device alone, the lowest plan is the plan for the limit that it needs.
        if holders <= 1 { takes(Bytes::ZERO) } else { smallest(takes, footprint.minimum_limit()) }
    }

    /// [`Session::minimum_limit`] will be asked: planning under a limit may search beforehand what that takes. No plan changes by it.
    pub fn expect_minimum(&self) {
        self.inner().expect_least();
    }

    /// Where the runs do not fit: the size that a file needs so that a smaller limit is enough, and about which limit is then. None where
    /// there is no file, and where a larger one does not help.
    ///
    /// # Errors
    /// As [`Session::plan_signature`].
    pub fn larger_file(&self, runs: &[Signature], footprint: &Footprint) -> Result<Option<(Bytes, Bytes)>> {
        let is_file = |need: &Need| !need.kind.computes();
        let Some(file) = footprint.needs().iter().find(|need| is_file(need)).filter(|_| footprint.needs().shortfall() > Bytes::ZERO) else {
            return Ok(None);
        };
        let least = self.with_limit(runs, footprint, Bytes::ZERO, |file| file.limit)?;
        let fitted = self.with_limit(runs, footprint, Bytes::ZERO, |_| None)?;
        let size = fitted.needs().iter().find(|need| is_file(need)).map_or(Bytes::ZERO, |need| need.peak);
        let helps = Some(size) > file.limit && fitted.minimum_limit() < least.minimum_limit();
        Ok(helps.then(|| (size, fitted.minimum_limit())))
    }

    /// What the runs take where the devices that are given a limit have this one, and files what `of_file` says.
    fn with_limit(
        &self,
        runs: &[Signature],
        footprint: &Footprint,
        limit: Bytes,
        of_file: impl Fn(&Need) -> Option<Bytes>,
    ) -> Result<plimsoll_plan::Footprint> {
        let line = |(need, is_given): (&Need, bool)| if need.kind.computes() { is_given.then_some(limit) } else { of_file(need) };
        let lines = footprint.needs().iter().zip(footprint.needs().are_limited()).map(line).collect();
        let session = self.inner().with_lines(lines)?;
        let mut fitted = plimsoll_plan::Footprint::new(session.devices().specs());
        for run in runs {
            fitted.add(&session.plan_signature(run)?);
        }
        Ok(fitted)
    }

    /// For each device whose memory a run can do with less of: its full name and, for lines from the least that it can take to what the
    /// plan takes as it is, the time of a step.
    ///
    /// # Errors
    /// As [`Session::plan_signature`]; UNIMPLEMENTED for a run in stages.
    pub fn curves(&self, signature: &Signature) -> Result<Vec<(String, Vec<CurvePoint>)>> {
        let specs = self.inner().devices().specs();
        let curves = self.inner().curves(signature)?;
        Ok(curves.into_iter().map(|(device, points)| (specs[device.index()].name.to_string(), points)).collect())
    }
}

/// The smallest of a few limits that are enough, where `takes` says what the devices take under a limit: what one takes may depend on what
/// another one may take. `otherwise` where none is found.
fn smallest(takes: impl Fn(Bytes) -> Result<Bytes>, otherwise: Bytes) -> Result<Bytes> {
    let (mut below, mut limit) = (Bytes::ZERO, Bytes::ZERO);
    let mut taken = takes(limit)?;
    for _ in 0..MOST_TRIES {
        if taken > limit {
            (below, limit) = (limit, taken);
            taken = takes(limit)?;
        }
    }
    if taken > limit {
        return Ok(otherwise.max(taken));
    }
    for _ in 0..LOWER_TRIES {
        if limit - below <= Bytes(1) {
            break;
        }
        let lower = if below < taken && taken < limit { taken } else { Bytes(below.0 + (limit - below).0 / 2) };
        taken = takes(lower)?;
        if taken <= lower {
            limit = lower;
        } else if taken < limit {
            below = lower;
        } else {
            break;
        }
    }
    Ok(limit)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The smallest limit where devices take what `takes` says, and how many limits were tried.
    fn of(takes: impl Fn(u64) -> u64) -> (u64, usize) {
        let tries = Cell::new(0);
        let counted = |limit: Bytes| {
            tries.set(tries.get() + 1);
            Ok(Bytes(takes(limit.0)))
        };
        (smallest(counted, Bytes(5_000)).unwrap().0, tries.get())
    }

    #[test]
    fn what_takes_the_same_under_all_limits_needs_one_more_try() {
        assert_eq!(of(|_| 1_800), (1_800, 3));
        assert_eq!(of(|_| 0), (0, 1));
    }

    #[test]
    fn less_is_enough_where_one_device_takes_more_so_that_another_takes_less() {
        let takes = |limit: u64| if limit < 400 { 1_800 } else { limit.clamp(804, 1_700) };
        assert_eq!(of(takes), (804, 6));
        // Not found within the tries.
        assert_eq!(of(|limit| if limit < 1_790 { 1_800 } else { limit }), (1_800, 3));
    }

    #[test]
    fn a_limit_that_is_enough_is_looked_for_from_below() {
        assert_eq!(of(|limit| (limit + 100).min(350)).0, 350);
        assert_eq!(of(|limit| limit + 1_000).0, 9_000, "none is found");
        assert_eq!(of(|limit| limit + 1).0, 5_000, "none is found");
    }
}
