//! Plans of runs in stages: see [`plimsoll_plan::Later`].

use std::sync::Arc;

use plimsoll_base::{Code, Error, Kind, Result};
use plimsoll_graph::HostTensor;
use plimsoll_plan::{Late, Later, Plan, Signature};

use super::Inner;
use crate::cancellation::{self, Cancellation};
use crate::loaded::Loaded;
use crate::signatures::key;

/// So many plans are made before a run in stages begins; where there are more, its peak is open.
const MOST_PLANS: usize = 16;

/// A plan, or the positions of the feeds whose elements it lacks.
enum Planned {
    Plan(Arc<Plan>),
    Lacks(Vec<usize>, Error),
}

impl Inner {
    /// The plan of a signature: of its first stage, where it runs in several.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub(super) fn planned_in_stages(&self, signature: &Signature, cancellation: Option<&Cancellation>) -> Result<Arc<Plan>> {
        match self.stage(signature, cancellation, &mut MOST_PLANS.clone())? {
            Planned::Plan(plan) => Ok(plan),
            Planned::Lacks(_, error) => Err(error),
        }
    }

    /// As [`Inner::planned_in_stages`], with the elements of these feeds where it lacks them; and its signature.
    pub(super) fn planned_with(
        &self,
        signature: &Signature,
        feeds: &[&HostTensor],
        cancellation: Option<&Cancellation>,
    ) -> Result<(Signature, Arc<Plan>)> {
        let mut signature = signature.clone();
        loop {
            match self.stage(&signature, cancellation, &mut MOST_PLANS.clone())? {
                Planned::Plan(plan) => return Ok((signature, plan)),
                Planned::Lacks(positions, error) => {
                    let before = signature.feeds.iter().filter(|feed| feed.value.is_some()).count();
                    for position in positions {
                        signature.feeds[position].value = feeds.get(position).map(|feed| (*feed).clone());
                    }
                    if signature.feeds.iter().filter(|feed| feed.value.is_some()).count() == before {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The rest of a run whose first stages have made these tensors, ready to run. `feeds` are those of its signature.
    pub fn rest(
        &self,
        later: &Later,
        made: &[HostTensor],
        feeds: &[&HostTensor],
        cancellation: Option<&Cancellation>,
    ) -> Result<Arc<Loaded>> {
        let signature = later.signature(made);
        let key = key(&signature);
        if let Some(loaded) = self.plans().loaded(&key, &[&signature]) {
            return Ok(loaded);
        }
        let _one = cancellation::lock(&self.loading, cancellation)?;
        if let Some(loaded) = self.plans().loaded(&key, &[&signature]) {
            return Ok(loaded);
        }
        let (signature, plan) = self.planned_with(&signature, feeds, cancellation)?;
        match self.plans().loaded(&key, &[&signature]) {
            Some(loaded) => Ok(loaded),
            None => self.load(&key, &signature, plan, cancellation),
        }
    }

    /// The plan of a signature; `left` counts the plans that may still be made for it.
    fn stage(&self, signature: &Signature, cancellation: Option<&Cancellation>, left: &mut usize) -> Result<Planned> {
        *left = left.saturating_sub(1);
        let error = match self.planned(signature, cancellation) {
            Err(error) if error.kind() == Kind::NeedsValues => error,
            plan => return plan.map(Planned::Plan),
        };
        let split = match self.requested_of(&self.graph, signature, |request| plimsoll_plan::late(request, &error))? {
            Some(Late::Stage(split)) => split,
            Some(Late::Feeds(positions)) => return Ok(Planned::Lacks(positions, error)),
            None => return Err(error),
        };
        let first = self.planned(&split.first, cancellation)?;
        let plans = self.rests(&split.later, cancellation, left)?;
        let later = Some(Arc::new(split.later.with_plans(plans)));
        let plan = Arc::new(Plan { later, ..Plan::clone(&first) });
        self.plans().keep(&key(signature), signature, &plan, None);
        Ok(Planned::Plan(plan))
    }

    /// All plans that the rest of a run may have, where these are few; else none.
    ///
    /// # Errors
    /// Where the rest cannot be planned for any values, why.
    fn rests(&self, later: &Later, cancellation: Option<&Cancellation>, left: &mut usize) -> Result<Vec<Arc<Plan>>> {
        let alternatives = later.alternatives()?;
        if alternatives.len() > *left {
            return Ok(Vec::new());
        }
        let (mut plans, mut refused) = (Vec::new(), None);
        for signature in &alternatives {
            match self.stage(signature, cancellation, left) {
                Ok(Planned::Plan(plan)) if plan.later.as_ref().is_none_or(|later| !later.plans.is_empty()) => plans.push(plan),
                Ok(_) => return Ok(Vec::new()),
                // A run that takes this way ends there.
                Err(error) if error.code() == Code::InvalidArgument => refused = Some(error),
                Err(error) => return Err(error),
            }
        }
        refused.filter(|_| plans.is_empty()).map_or(Ok(plans), Err)
    }
}
