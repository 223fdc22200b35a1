//! Plans that are made to fit: the smallest limit, and what less memory costs.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;
pub use plimsoll_plan::{CurvePoint, Fitting};

use crate::{Footprint, Need, Needs, Session, Signature};

/// So many times a limit that looks like the smallest is tried.
const MOST_TRIES: usize = 8;

impl Session {
    /// The smallest limit with which these runs, one after the other, are loaded and run. It is given to every device that has one; to
    /// every device, where none has. A file keeps its size. `footprint` is that of the runs as they are planned now. Without [`crate::Options::fit`] it says
    /// the answer.
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
        let mut limit = Bytes::ZERO;
        for _ in 0..MOST_TRIES {
            let least = self.with_limit(runs, footprint, limit, |file| file.limit)?.minimum_limit();
            // Of one device alone, the lowest plan is the plan for the limit that it needs.
            if least <= limit || holders <= 1 {
                return Ok(least.max(limit));
            }
            limit = least;
        }
        Ok(footprint.minimum_limit().max(limit))
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
