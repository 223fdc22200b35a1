//! Plans that are made to fit: the smallest limit, and what less memory costs.

use plimsoll_base::{Bytes, Result};
use plimsoll_graph::id::Id;
pub use plimsoll_plan::{CurvePoint, Fitting};

use crate::{Footprint, Session, Signature};

/// So many times a limit that looks like the smallest is tried.
const MOST_TRIES: usize = 8;

impl Session {
    /// The smallest limit with which these runs, one after the other, are loaded and run. It is given to every device that has one; to
    /// every device, where none has. `footprint` is that of the runs as they are planned now. Without [`crate::Options::fit`] it says
    /// the answer.
    ///
    /// # Errors
    /// As [`Session::plan_signature`].
    pub fn minimum_limit(&self, runs: &[Signature], footprint: &Footprint) -> Result<Bytes> {
        if !self.inner().devices().options().fit {
            return Ok(footprint.minimum_limit());
        }
        let needs = footprint.needs();
        let is_limited = needs.iter().any(|need| need.limit.is_some() && need.peak > Bytes::ZERO);
        let given: Vec<bool> = needs.iter().map(|need| need.limit.is_some() || !is_limited).collect();
        let holders = needs.iter().zip(&given).filter(|(need, is_given)| **is_given && need.peak > Bytes::ZERO).count();
        let mut limit = Bytes::ZERO;
        for _ in 0..MOST_TRIES {
            let lines = given.iter().map(|is_given| is_given.then_some(limit)).collect();
            let session = self.inner().with_lines(lines)?;
            let mut fitted = plimsoll_plan::Footprint::new(session.devices().specs());
            for run in runs {
                fitted.add(&session.plan_signature(run)?);
            }
            let least = fitted.minimum_limit();
            // Of one device alone, the lowest plan is the plan for the limit that it needs.
            if least <= limit || holders <= 1 {
                return Ok(least.max(limit));
            }
            limit = least;
        }
        Ok(footprint.minimum_limit().max(limit))
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
