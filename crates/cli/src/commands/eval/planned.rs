//! A run by a plan from a file: its feeds and fetches are those of the command line, in an order of their own.

use std::path::Path;

use plimsoll::{Callable, Footprint, HostTensor, OpenedPlan, Output, Session};

use crate::failure::{Result, wrong_use};
use crate::models::Wanted;

/// A plan from a file, for the feeds and fetches of the command line.
pub struct Planned {
    plan: OpenedPlan,
    /// For each feed of the plan, its position on the command line.
    feeds: Vec<usize>,
    /// For each fetch of the command line, its position in the plan.
    fetches: Vec<usize>,
}

impl Planned {
    /// The plan of a file, which has to feed, fetch and run what the command line says.
    pub fn open(path: &Path, session: &Session, feeds: &[(String, HostTensor)], wanted: &Wanted) -> Result<Planned> {
        let json = plimsoll::model::read_file(path)?;
        let plan = session.open_plan(&json).map_err(|error| error.context(path.display()))?;
        let signature = plan.signature();
        let tensor = |name: &str| session.graph().tensor(name);
        let given = feeds.iter().map(|(name, _)| tensor(name)).collect::<plimsoll::Result<Vec<Output>>>()?;
        let mut positions = Vec::with_capacity(given.len());
        for feed in &signature.feeds {
            let wanted = tensor(&feed.tensor)?;
            let Some(position) = given.iter().position(|given| *given == wanted) else {
                return wrong_use(format!("the plan takes {}: add --feed {}=FILE.npy", feed.tensor, feed.tensor));
            };
            if feed.value.as_ref().is_some_and(|value| *value != feeds[position].1) {
                return wrong_use(format!("the plan is for other elements of {}", feed.tensor));
            }
            positions.push(position);
        }
        if let Some(extra) = (0..feeds.len()).find(|position| !positions.contains(position)) {
            return wrong_use(format!("the plan does not take {}", feeds[extra].0));
        }
        let made = signature.fetches.iter().map(|name| tensor(name)).collect::<plimsoll::Result<Vec<Output>>>()?;
        let mut fetches = Vec::with_capacity(wanted.fetches.len());
        for fetch in &wanted.fetches {
            let asked = tensor(&fetch.tensor)?;
            let Some(position) = made.iter().position(|made| *made == asked) else {
                return wrong_use(format!("the plan does not fetch {}: it fetches {}", fetch.shown, signature.fetches.join(", ")));
            };
            fetches.push(position);
        }
        if let Some(target) = wanted.targets.iter().find(|target| !signature.targets.contains(target)) {
            return wrong_use(format!("the plan does not run {target}"));
        }
        Ok(Planned { plan, feeds: positions, fetches })
    }

    /// Counts the plan's memory.
    pub fn add_to(&self, footprint: &mut Footprint) {
        footprint.add(self.plan.plan());
    }

    /// The plan, ready to run.
    pub fn callable(&self, session: &Session) -> plimsoll::Result<Callable> {
        session.callable_of(&self.plan)
    }

    /// The feeds of the command line in the plan's order.
    pub fn feeds<'a>(&self, given: &[&'a HostTensor]) -> Vec<&'a HostTensor> {
        self.feeds.iter().map(|position| given[*position]).collect()
    }

    /// The results in the order of the command line.
    pub fn fetches(&self, made: &[HostTensor]) -> Vec<HostTensor> {
        self.fetches.iter().map(|position| made[*position].clone()).collect()
    }
}
