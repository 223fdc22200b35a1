//! A run by a plan from a file.

use std::path::Path;

use plimsoll::signature::{BoundPlan, Mismatch};
use plimsoll::{HostTensor, Session};

use super::fed;
use crate::failure::{Result, wrong_use};
use crate::models::Wanted;

/// The plan of a file, which has to feed, fetch and run what the command line says.
pub fn open(path: &Path, session: &Session, feeds: &[(String, HostTensor)], wanted: &Wanted) -> Result<BoundPlan> {
    let json = plimsoll::model::read_file(path)?;
    let plan = session.open_plan(&json).map_err(|error| error.context(path.display()))?;
    let made = plan.signature().fetches.join(", ");
    match plan.bind(session.graph(), &fed(feeds), &wanted.tensors(), &wanted.targets())? {
        Ok(bound) => Ok(bound),
        Err(mismatch) => wrong_use(match mismatch {
            Mismatch::NotGiven(feed) => format!("the plan takes {feed}: add --feed {feed}=FILE.npy"),
            Mismatch::OtherElements(feed) => format!("the plan is for other elements of {feed}"),
            Mismatch::NotTaken(feed) => format!("the plan does not take {feed}"),
            Mismatch::NotFetched(position) => {
                format!("the plan does not fetch {}: it fetches {made}", wanted.fetches[position].shown)
            }
            Mismatch::NotRun(target) => format!("the plan does not run {target}"),
        }),
    }
}
