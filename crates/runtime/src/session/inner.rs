//! Plans of a graph: each is made once, completed with what files have and what runs before it, and loaded.

use std::sync::{Arc, PoisonError};

use plimsoll_base::{Error, Kind, Result};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, HostTensor};
use plimsoll_plan::{Footprint, PlaceOptions, Placement, Plan, PlanVariable, Request, Signature};

use super::{Inner, stages};
use crate::cancellation;
use crate::grants::Grants;
use crate::loaded::Loaded;
use crate::plans::Plans;
use crate::signatures::{key, with_values};
use crate::stored;
use crate::{Cancellation, Devices};

impl Inner {
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    pub fn grants(&self) -> &Grants {
        &self.grants
    }

    pub(super) fn plans(&self) -> &Plans {
        &self.grants.kept().plans
    }

    /// The plan of a signature, which is planned once.
    pub(super) fn planned(&self, signature: &Signature, cancellation: Option<&Cancellation>) -> Result<Arc<Plan>> {
        let key = key(signature);
        let find = || self.plans().find(&key, &[signature]).map(|found| found.plan);
        if let Some(plan) = find() {
            return Ok(plan);
        }
        let _one = cancellation::lock(&self.planning, cancellation)?;
        if let Some(plan) = find() {
            return Ok(plan);
        }
        let has_values = signature.feeds.iter().any(|feed| feed.value.is_some());
        if let Some(error) = self.plans().needs_values(&key).filter(|_| !has_values) {
            return Err(error);
        }
        let check = || cancellation.and_then(Cancellation::error).map_or(Ok(()), Err);
        let planned = self.plan_sized(signature, &check);
        if let Err(error) = &planned
            && error.kind() == Kind::NeedsValues
            && !has_values
        {
            self.plans().keep_needs_values(&key, error);
        }
        let plan = Arc::new(self.completed(planned?, &check)?);
        self.observe(&plan);
        self.plans().keep(&key, signature, &plan, None);
        Ok(plan)
    }

    /// The plan of a run with such feeds: made with the elements of small integer feeds if it cannot be made without them, else of a
    /// run in stages.
    pub(super) fn planned_for(
        &self,
        signature: &Signature,
        feeds: &[(&str, &HostTensor)],
        cancellation: Option<&Cancellation>,
    ) -> Result<(Signature, Arc<Plan>)> {
        let valued = Signature { feeds: with_values(signature, feeds), ..signature.clone() };
        if let Some(found) = self.plans().find(&key(signature), &[signature, &valued]) {
            return Ok((found.signature, found.plan));
        }
        let needs_values = |error: &Error| error.kind() == Kind::NeedsValues;
        let (mut planned, mut kept) = (self.planned(signature, cancellation), signature);
        if planned.as_ref().is_err_and(needs_values) && valued.feeds.iter().any(|feed| feed.value.is_some()) {
            (planned, kept) = (self.planned(&valued, cancellation), &valued);
        }
        match planned {
            Err(error) if stages::may_help(&error) => {
                let tensors: Vec<&HostTensor> = feeds.iter().map(|(_, tensor)| *tensor).collect();
                self.planned_with(signature, &tensors, cancellation)
            }
            plan => plan.map(|plan| (kept.clone(), plan)),
        }
    }

    /// As [`Inner::completed`], with the places that nodes would have.
    pub(super) fn completed_with(&self, mut plan: Plan, placement: &Placement) -> Result<Plan> {
        self.mark(&mut plan.variables);
        plan.before = self.plans_before_with(&plan, placement)?;
        Ok(plan)
    }

    /// The plan with what files have of its variables, and what runs before it.
    pub(super) fn completed(&self, mut plan: Plan, check: &plimsoll_plan::Check<'_>) -> Result<Plan> {
        self.mark(&mut plan.variables);
        self.note_variables(&plan);
        plan.before = self.plans_before(&plan, check)?;
        Ok(plan)
    }

    pub(super) fn observe(&self, plan: &Plan) {
        if let Some(observer) = self.observer.get() {
            observer(&self.graph, plan);
        }
    }

    /// Marks the variables whose values are in files.
    pub(super) fn mark(&self, variables: &mut [PlanVariable]) {
        if let Some(stored) = &self.stored {
            stored::mark(variables, &**stored);
        }
    }

    /// Calls `make` with the request of a signature, placed.
    pub(super) fn requested<T>(&self, signature: &Signature, make: impl FnOnce(&Request<'_>) -> Result<T>) -> Result<T> {
        self.requested_of(self.graph_for(signature), signature, make)
    }

    /// As [`Inner::requested`], of the graph as written or the one that reads folded variables.
    pub(super) fn requested_of<T>(&self, graph: &Graph, signature: &Signature, make: impl FnOnce(&Request<'_>) -> Result<T>) -> Result<T> {
        let (registry, devices) = (&*self.registry, self.devices.specs());
        let libraries = self.devices.libraries();
        let costs = self.devices.costs();
        let (placement, lines) = (&self.placement, &self.lines());
        let request = Request { graph, registry, devices, libraries: &libraries, costs, placement, signature, lines };
        let Some(before) = &self.placed_before else {
            let seated = plimsoll_plan::seated(&request, &self.calls);
            return make(&Request { placement: seated.as_ref().unwrap_or(placement), ..request });
        };
        let placement = {
            let mut before = before.lock().unwrap_or_else(PoisonError::into_inner);
            let options = PlaceOptions::new(self.devices.options().soft_placement);
            let placement =
                plimsoll_plan::place_pruned(&request, &PlaceOptions { assigned: before.clone(), calls: self.calls.clone(), ..options })?;
            before.extend(plimsoll_plan::stateful(&request, &placement));
            placement
        };
        make(&Request { placement: &placement, ..request })
    }

    pub(super) fn load(
        &self,
        key: &str,
        signature: &Signature,
        plan: Arc<Plan>,
        cancellation: Option<&Cancellation>,
    ) -> Result<Arc<Loaded>> {
        self.grants.check_open()?;
        let mut ready = plan.clone();
        if self.stored.is_some() {
            self.forget_loaded(&mut Arc::make_mut(&mut ready).variables);
        }
        let mut footprint = Footprint::new(self.devices.specs());
        if ready.later.is_some() {
            let variables = self.variables();
            let (keys, resident) = (variables.all().map(|(key, _)| key.clone()), variables.resident(self.devices.all()));
            footprint = footprint.with_variables(keys, resident);
        }
        footprint.add(&self.with_due(&ready));
        footprint.check()?;
        self.forget_searches();
        // Reading, placing and planning leave free memory behind: the step should not come on top of it.
        plimsoll_memory::trim_heap();
        self.run_before(&ready, cancellation)?;
        let loaded = Arc::new(self.grants.make_room(|| self.try_load(ready.clone(), cancellation), cancellation)?);
        self.plans().keep(key, signature, &plan, Some(&loaded));
        Ok(loaded)
    }

    pub(super) fn try_load(&self, plan: Arc<Plan>, cancellation: Option<&Cancellation>) -> Result<Loaded> {
        self.variables().ensure(&plan.variables, self.devices.all(), &format!("{}: variables", self.holder))?;
        let host = self.placement.host.index();
        if let Some(stored) = &self.stored {
            self.load_stored(&plan.variables, &**stored, &self.devices.all()[host])?;
        }
        let loaded = {
            let (devices, variables, constants) = (self.devices.all(), self.variables(), &self.grants.kept().constants);
            self.grants.check_open()?;
            Loaded::new(plan, host, devices, &variables, constants, &self.holder, &self.checkpoints)?
        };
        // They stay until other plans need the room.
        loaded.constants().take(cancellation)?;
        Ok(loaded)
    }

    pub(super) fn release_unused(&self) {
        self.grants.kept().release();
        self.devices.all().iter().for_each(|device| device.release_unused());
    }
}
