//! The blocks of a plan: feeds, fetches, variables and constants are those of the graph and the signature.

use plimsoll_base::{Bytes, DataType, Result};
use plimsoll_device::Place;
use plimsoll_graph::id::Id;
use plimsoll_graph::{NodeId, PartialShape, Shape};

use plimsoll_ops::Fact;

use super::{Checked, wrong};
use crate::lower::{state_key, variable_key};
use crate::plan::{DeviceId, PlanVariable, VariableKind};
use crate::request::is_unset;

impl Checked<'_> {
    pub(super) fn blocks(&self) -> Result<()> {
        let plan = self.plan;
        if plan.devices.len() != self.devices.len() {
            return Err(wrong(format!("a plan for {} devices, and there are {}", plan.devices.len(), self.devices.len())));
        }
        self.spec(plan.host)?;
        let softened = plan.softened.iter().map(|softened| (softened.node, softened.device));
        let mut placed = plan.nodes.iter().copied().chain(softened);
        placed.try_for_each(|(node, device)| self.require_node(node).and_then(|()| self.spec(device).map(|_| ())))?;
        self.ends()?;
        plan.variables.iter().try_for_each(|variable| self.variable(variable).map_err(|error| error.at_node(&variable.name)))?;
        let mut keys: Vec<&str> = plan.variables.iter().map(|variable| variable.key.as_str()).collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong("two variables are one"));
        }
        self.constants()
    }

    /// The feeds and fetches.
    fn ends(&self) -> Result<()> {
        let (plan, pruned) = (self.plan, self.pruned);
        if !plan.feeds.iter().map(|feed| feed.tensor).eq(pruned.feeds.iter().copied()) || plan.fetches.len() != pruned.fetches.len() {
            return Err(wrong("it feeds or fetches other tensors than its signature"));
        }
        for feed in &plan.feeds {
            let fact = &pruned.facts[feed.tensor.node][feed.tensor.index as usize];
            let name = || self.graph.tensor_name(feed.tensor);
            if !is_of(fact, feed.data_type, &feed.shape) {
                return Err(wrong(format!("{} is fed as {}{}", name(), feed.data_type, feed.shape)));
            }
            let bytes = match &fact.value {
                Some(value) => Bytes(value.byte_len()),
                None => feed.shape.bytes(feed.data_type)?,
            };
            self.require_bytes(&name(), feed.bytes, bytes)?;
        }
        if !plan.fetches.iter().map(|fetch| &fetch.name).eq(&self.signature.fetches) {
            return Err(wrong("its fetches have other names than those of its signature"));
        }
        let lengths = &self.signature.lengths;
        for (position, (fetch, tensor)) in plan.fetches.iter().zip(&pruned.fetches).enumerate() {
            let fact = pruned.facts[tensor.node].get(tensor.index as usize);
            let is_its_own = match lengths.contains(&position) {
                true => fetch.data_type == DataType::Int32 && fetch.shape == Shape::scalar(),
                false => fact.is_some_and(|fact| is_of(fact, fetch.data_type, &fetch.shape)),
            };
            if !is_its_own {
                return Err(wrong(format!("{} is fetched as {}{}", fetch.name, fetch.data_type, fetch.shape)));
            }
            self.require_bytes(&fetch.name, fetch.bytes, fetch.shape.bytes(fetch.data_type)?)?;
        }
        Ok(())
    }

    fn variable(&self, variable: &PlanVariable) -> Result<()> {
        if !self.spec(variable.device)?.kind.computes() {
            return Err(wrong("it is in a file"));
        }
        self.require_bytes("it", variable.bytes, variable.shape.bytes(variable.data_type)?)?;
        variable.read_first_by.map_or(Ok(()), |node| self.require_node(node))?;
        let id = self.graph.find(&variable.name).ok_or_else(|| wrong("the graph has no such variable"))?;
        let node = self.graph.node(id);
        let is_its_own = match variable.kind {
            VariableKind::State => {
                variable.key == state_key(node)
                    && variable.data_type == DataType::Uint8
                    && variable.initial.as_ref().is_some_and(|initial| initial.len() as u64 == variable.bytes.0)
            }
            kind => variable.key == variable_key(node) && variable.initial.is_none() && self.declares(id, kind, variable),
        };
        if is_its_own { Ok(()) } else { Err(wrong("it is another variable in the graph")) }
    }

    /// Whether a node declares a variable of that kind, type and shape.
    fn declares(&self, node: NodeId, kind: VariableKind, variable: &PlanVariable) -> bool {
        let Some(fact) = self.pruned.facts[node].first() else { return false };
        let (data_type, shape, is_its_kind) = match &fact.handle {
            Some((data_type, shape)) => (*data_type, shape, kind == VariableKind::Resource),
            None => (fact.data_type, &fact.shape, kind == VariableKind::Reference && fact.is_ref),
        };
        is_its_kind && data_type == variable.data_type && agrees(&variable.shape, shape)
    }

    fn constants(&self) -> Result<()> {
        for (constant, value) in self.plan.constants.iter().zip(&self.plan.values) {
            if value.data_type() != constant.data_type || *value.shape() != constant.shape {
                return Err(wrong(format!("constant {} is not {}{}", constant.name, constant.data_type, constant.shape)));
            }
            self.require_bytes(&constant.name, constant.bytes, Bytes(value.byte_len()))?;
            constant.device.map_or(Ok(()), |device| self.spec(device).map(|_| ()))?;
            if constant.panels.is_some_and(|panels| !panels.divide(value.elements())) {
                return Err(wrong(format!("constant {} cannot be in such panels", constant.name)));
            }
        }
        Ok(())
    }

    fn require_bytes(&self, name: &str, said: Bytes, bytes: Bytes) -> Result<()> {
        if said == bytes { Ok(()) } else { Err(wrong(format!("{name} takes {} bytes, not {}", bytes.0, said.0))) }
    }

    /// The device whose memory a block is in; none for a block in the graph's memory. And its bytes.
    pub(super) fn block(&self, place: Place) -> Result<(Option<DeviceId>, Bytes)> {
        let plan = self.plan;
        let found = match place {
            Place::Arena(index) => {
                plan.devices.get(index as usize).map(|device| (Some(DeviceId::from_index(index as usize)), device.arena))
            }
            Place::Variable(index) => plan.variables.get(index as usize).map(|variable| (Some(variable.device), variable.bytes)),
            Place::VariableFlag(index) => plan.variables.get(index as usize).map(|_| (Some(plan.host), Bytes(1))),
            Place::Constant(index) => plan.constants.get(index as usize).map(|constant| (constant.device, constant.bytes)),
            Place::Feed(index) => plan.feeds.get(index as usize).map(|feed| (Some(plan.host), feed.bytes)),
            Place::Fetch(index) => plan.fetches.get(index as usize).map(|fetch| (Some(plan.host), fetch.bytes)),
        };
        found.ok_or_else(|| wrong(format!("there is no {place:?}")))
    }
}

/// Whether a tensor has this type and shape; whether a list has such rows (see [`crate::Signature::lists`]).
fn is_of(fact: &Fact, data_type: DataType, shape: &Shape) -> bool {
    match &fact.list {
        None => data_type == fact.data_type && agrees(shape, &fact.shape),
        Some(list) => {
            let is_unset = is_unset(shape) && (list.item.complete().is_none() || shape.first() == Some(&0));
            data_type == list.stored_type() && (is_unset || agrees(shape, &list.rows(shape.first().copied())))
        }
    }
}

/// Whether a shape is one of those that a partial one allows.
fn agrees(shape: &Shape, partial: &PartialShape) -> bool {
    partial.0.as_ref().is_none_or(|dims| {
        dims.len() == shape.rank() && dims.iter().zip(shape.dims()).all(|(known, dim)| known.is_none_or(|known| known == *dim))
    })
}
