//! Folded variables: computed before a run that reads them, from variables that are given back where files have them.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_base::{Error, Result};
use plimsoll_cards::Options;
use plimsoll_graph::Graph;
use plimsoll_ops::Registry;
use plimsoll_plan::{Folded, Freeze, Lines, Placement, Plan, PlanVariable, Request, Signature};

use super::Inner;
use crate::Devices;
use crate::cancellation::{self, Cancellation};
use crate::loaded::Loaded;
use crate::run::{How, Prepared};
use crate::signatures::key;

/// The folded variables of a graph, where the options want them.
///
/// # Errors
/// INVALID_ARGUMENT where each run is placed by itself; as [`plimsoll_plan::freeze`].
pub(super) fn freeze(options: &Options, graph: &mut Graph, registry: &Registry, called: &[String]) -> Result<Option<Freeze>> {
    if !options.freeze {
        return Ok(None);
    }
    if options.place_pruned_graph {
        let message =
            "freeze and place_pruned_graph: what is computed once is on the device of its reader, which each run would choose anew";
        return Err(Error::invalid_argument(message).with_remedy("leave out one of them"));
    }
    plimsoll_plan::freeze(graph, registry, called)
}

/// Holds weights of a graph as kernels of their devices read them best, where the options want that. Nobody else has the graph: its constants
/// are there once.
///
/// # Errors
/// As [`plimsoll_plan::in_panels`] and [`plimsoll_plan::hold_in_panels`].
pub(super) fn lay_out(
    devices: &Devices,
    graph: &mut Graph,
    freeze: Option<&mut Freeze>,
    registry: &Registry,
    placement: &Placement,
) -> Result<()> {
    if !devices.options().freeze {
        return Ok(());
    }
    let constants = plimsoll_plan::in_panels(graph, registry, placement, devices.specs(), &devices.libraries())?;
    let mut graphs: Vec<&mut Graph> = std::iter::once(graph).chain(freeze.map(|freeze| &mut freeze.rewired)).collect();
    plimsoll_plan::hold_in_panels(&mut graphs, &constants)
}

impl Inner {
    /// The graph that a plan of the signature is made of.
    pub(super) fn graph_for(&self, signature: &Signature) -> &Graph {
        match &self.freeze {
            Some(freeze) if freeze.applies(&self.graph, &self.registry, signature) => &freeze.rewired,
            _ => &self.graph,
        }
    }

    /// The plans that compute the folded variables that a plan reads. The lock of planning is held.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan_until`].
    pub(super) fn plans_before(&self, plan: &Plan, check: &plimsoll_plan::Check<'_>) -> Result<Vec<Arc<Plan>>> {
        let mut plans = Vec::new();
        for signature in self.signatures_before(plan) {
            let key = key(&signature);
            if let Some(found) = self.plans().find(&key, &[&signature]) {
                plans.push(found.plan);
                continue;
            }
            let mut plan = self.requested(&signature, |request| plimsoll_plan::plan_until(request, check))?;
            self.mark(&mut plan.variables);
            let plan = Arc::new(plan);
            self.plans().keep(&key, &signature, &plan, None);
            plans.push(plan);
        }
        Ok(plans)
    }

    /// As [`Inner::plans_before`], with the places that nodes would have. They are not kept.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan()`].
    pub(super) fn plans_before_with(&self, plan: &Plan, placement: &Placement) -> Result<Vec<Arc<Plan>>> {
        let (devices, libraries) = (self.devices.specs(), &self.devices.libraries()[..]);
        let (graph, registry, costs) = (&self.graph, &*self.registry, self.devices.costs());
        let planned = |signature: Signature| {
            let request = Request { graph, registry, devices, libraries, costs, placement, signature: &signature, lines: &Lines::NONE };
            let mut plan = plimsoll_plan::plan(&request)?;
            self.mark(&mut plan.variables);
            Ok(Arc::new(plan))
        };
        self.signatures_before(plan).into_iter().map(planned).collect()
    }

    /// The runs that compute the folded variables that a plan reads.
    fn signatures_before(&self, plan: &Plan) -> Vec<Signature> {
        let Some(freeze) = &self.freeze else { return Vec::new() };
        let keys: BTreeSet<&str> = plan.variables.iter().filter(|variable| !variable.written).map(|variable| &*variable.key).collect();
        let assigns = |group: Vec<&Folded>| group.into_iter().map(|folded| folded.assign.clone()).collect();
        let groups = freeze.groups(&keys).into_iter();
        groups.map(|group| Signature { targets: assigns(group), ..Signature::default() }).collect()
    }

    /// The plan with those of the plans before it that have to run now.
    pub(super) fn with_due<'a>(&self, plan: &'a Plan) -> Cow<'a, Plan> {
        if plan.before.is_empty() {
            return Cow::Borrowed(plan);
        }
        let due = plan.before.iter().filter(|before| self.is_due(before)).map(|before| {
            let mut before = Plan::clone(before);
            // What is there takes no more.
            before.variables.retain(|variable| self.variables().get(&variable.key).is_none());
            Arc::new(before)
        });
        Cow::Owned(Plan { before: due.collect(), ..plan.clone() })
    }

    /// Whether a plan computes a folded variable that is out of date.
    fn is_due(&self, before: &Plan) -> bool {
        let variables = self.variables();
        let mut written = before.variables.iter().filter(|variable| variable.written);
        written.any(|variable| variables.folded(&variable.key).is_some_and(|flag| flag.load(Ordering::Acquire) == 0))
    }

    /// Computes the folded variables that a plan reads and that are out of date. The lock of loading is held.
    ///
    /// # Errors
    /// As [`crate::Session::run`].
    pub(super) fn run_before(&self, plan: &Plan, cancellation: Option<&Cancellation>) -> Result<()> {
        let due: Vec<&Arc<Plan>> = plan.before.iter().filter(|before| self.is_due(before)).collect();
        if due.is_empty() {
            return Ok(());
        }
        // One reservation for all that stays.
        let holder = format!("{}: variables", self.holder);
        self.grants.make_room(|| self.variables().ensure(&plan.variables, self.devices.all(), &holder), cancellation)?;
        for before in due {
            let loaded = self.grants.make_room(|| self.try_load(before.clone(), cancellation), cancellation)?;
            let how = How { cancellation, ..How::default() };
            let done = Prepared::new(self, &loaded, None, &[], &mut [], how)?.admit()?.start()?.finish();
            drop(loaded);
            let read = |variable: &&PlanVariable| !variable.written && plan.variables.iter().all(|other| other.key != variable.key);
            self.variables().give_back(before.variables.iter().filter(read).map(|variable| variable.key.as_str()));
            self.grants.kept().arenas.clear();
            done?;
        }
        Ok(())
    }

    /// Computes the folded variables that a loaded plan reads, where a variable was changed since.
    ///
    /// # Errors
    /// As [`crate::Session::run`].
    pub(crate) fn refresh(&self, loaded: &Loaded, cancellation: Option<&Cancellation>) -> Result<()> {
        if !loaded.is_stale() {
            return Ok(());
        }
        self.grants.check_open()?;
        let _one = cancellation::lock(&self.loading, cancellation)?;
        self.run_before(&loaded.plan, cancellation)
    }
}
