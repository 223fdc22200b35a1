//! A plan from a file for the feeds, fetches and targets of a caller, whose order need not be the plan's.

use plimsoll_base::Result;
use plimsoll_graph::{Graph, HostTensor, Output};

use crate::{Callable, Fed, OpenedPlan, Plan, Session};

/// A plan from a file, for feeds and fetches in the order of a caller.
pub struct BoundPlan {
    plan: OpenedPlan,
    /// For each feed of the plan, its position at the caller's.
    feeds: Vec<usize>,
    /// For each fetch of the caller, its position in the plan.
    fetches: Vec<usize>,
}

/// A difference between a plan and the run that it is to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// The plan takes a feed of this name, and none is given.
    NotGiven(String),
    /// The plan is for other elements of this feed.
    OtherElements(String),
    /// The plan does not take this feed.
    NotTaken(String),
    /// The plan does not fetch the tensor at this position.
    NotFetched(usize),
    /// The plan does not run this operation.
    NotRun(String),
}

impl OpenedPlan {
    /// The plan for these feeds, fetches and targets of a graph, which it has to take, to fetch and to run.
    ///
    /// # Errors
    /// As [`Graph::tensor`], for a name of a feed or fetch. Inside: the first difference.
    pub fn bind(self, graph: &Graph, feeds: &[Fed<'_>], fetches: &[&str], targets: &[&str]) -> Result<Result<BoundPlan, Mismatch>> {
        let signature = self.signature();
        let outputs = |names: &mut dyn Iterator<Item = &str>| names.map(|name| graph.tensor(name)).collect::<Result<Vec<Output>>>();
        let taken = outputs(&mut signature.feeds.iter().map(|feed| feed.tensor.as_str()))?;
        let given = outputs(&mut feeds.iter().map(|(name, _)| *name))?;
        let made = outputs(&mut signature.fetches.iter().map(String::as_str))?;
        let asked = outputs(&mut fetches.iter().copied())?;
        let mut feed_positions = Vec::with_capacity(taken.len());
        for (feed, tensor) in signature.feeds.iter().zip(&taken) {
            let Some(position) = given.iter().position(|given| given == tensor) else {
                return Ok(Err(Mismatch::NotGiven(feed.tensor.clone())));
            };
            if feed.value.as_ref().is_some_and(|value| *value != feeds[position].1) {
                return Ok(Err(Mismatch::OtherElements(feed.tensor.clone())));
            }
            feed_positions.push(position);
        }
        if let Some(extra) = (0..feeds.len()).find(|position| !feed_positions.contains(position)) {
            return Ok(Err(Mismatch::NotTaken(feeds[extra].0.to_string())));
        }
        let mut fetch_positions = Vec::with_capacity(asked.len());
        for (position, tensor) in asked.iter().enumerate() {
            match made.iter().position(|made| made == tensor) {
                Some(made) => fetch_positions.push(made),
                None => return Ok(Err(Mismatch::NotFetched(position))),
            }
        }
        if let Some(target) = targets.iter().find(|target| !signature.targets.iter().any(|run| run == *target)) {
            return Ok(Err(Mismatch::NotRun((*target).to_string())));
        }
        Ok(Ok(BoundPlan { plan: self, feeds: feed_positions, fetches: fetch_positions }))
    }
}

impl BoundPlan {
    /// The plan.
    pub fn plan(&self) -> &Plan {
        self.plan.plan()
    }

    /// The plan, ready to run in the session that opened it: with feeds and fetches in the plan's order.
    ///
    /// # Errors
    /// As [`Session::callable_of`].
    pub fn callable(&self, session: &Session) -> Result<Callable> {
        session.callable_of(&self.plan)
    }

    /// The caller's feeds in the plan's order.
    pub fn feeds<'a>(&self, given: &[&'a HostTensor]) -> Vec<&'a HostTensor> {
        self.feeds.iter().map(|position| given[*position]).collect()
    }

    /// The results in the caller's order.
    pub fn fetches(&self, made: &[HostTensor]) -> Vec<HostTensor> {
        self.fetches.iter().map(|position| made[*position].clone()).collect()
    }
}
