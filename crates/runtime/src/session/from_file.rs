//! A plan from a file, for the session that has checked it.

use std::sync::Arc;

use plimsoll_plan::{Plan, Signature};

use super::Inner;

/// A plan from a file that a session has checked: see [`super::Session::open_plan`].
#[derive(Clone)]
pub struct CheckedPlan {
    pub(super) session: Arc<Inner>,
    pub(super) signature: Signature,
    pub(super) plan: Arc<Plan>,
}

impl CheckedPlan {
    /// The feeds, fetches and targets. Where a feed has elements, the plan holds for these elements only.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }
}
