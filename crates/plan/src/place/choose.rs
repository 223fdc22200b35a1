//! A device for every node: the best candidate of its group, with TensorFlow's three rules of thumb.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use plimsoll_base::Result;
use plimsoll_device::DeviceName;
use plimsoll_graph::{IdVec, NodeId};

use super::errors;
use super::groups::{Groups, Member};
use super::join::Joined;
use super::kernels::Types;
use super::signature::{Signatures, sources};

/// The result of choosing.
pub(super) struct Choice {
    /// By node; none for nodes that are not placed yet.
    pub devices: IdVec<NodeId, Option<usize>>,
    /// The nodes in the order in which they got them.
    pub order: Vec<NodeId>,
    /// The node that a node follows, where it does.
    pub follows: IdVec<NodeId, Option<NodeId>>,
    /// The nodes that are where they are because their call is there.
    pub with_call: BTreeSet<NodeId>,
}

struct Chooser<'a, 'b> {
    groups: &'b mut Groups<'a>,
    signatures: &'b Signatures<'a>,
    choice: Choice,
    /// Candidates by requests and supported types.
    known: HashMap<(Rc<DeviceName>, Types), Rc<[usize]>>,
}

/// Chooses. `order` is the graph's.
///
/// # Errors
/// INVALID_ARGUMENT "Cannot assign a device for operation …" for a node without candidates.
pub(super) fn choose(joined: &mut Joined<'_>, order: &[NodeId]) -> Result<Choice> {
    let count = joined.groups.graph.nodes().len();
    let choice = Choice {
        devices: IdVec::filled(None, count),
        order: Vec::with_capacity(count),
        follows: IdVec::filled(None, count),
        with_call: BTreeSet::new(),
    };
    let Joined { groups, signatures, assigned, .. } = joined;
    let mut chooser = Chooser { groups, signatures, choice, known: HashMap::new() };
    // An assigned device is seen by all, also by those that come before it.
    chooser.choice.devices = assigned.clone();
    let calls = chooser.groups.cx.calls;
    if calls.is_empty() {
        chooser.all(order, assigned)?;
        return Ok(chooser.choice);
    }
    // A body is placed when its call is.
    let mut levels: BTreeMap<u32, Vec<NodeId>> = BTreeMap::new();
    order.iter().for_each(|id| levels.entry(calls.level(*id)).or_default().push(*id));
    for nodes in levels.values() {
        chooser.all(nodes, assigned)?;
    }
    Ok(chooser.choice)
}

impl Chooser<'_, '_> {
    /// Places these nodes, those that make one value out of nothing last.
    fn all(&mut self, nodes: &[NodeId], assigned: &IdVec<NodeId, Option<usize>>) -> Result<()> {
        let mut later = Vec::new();
        for &id in nodes {
            if let Some(device) = assigned[id] {
                self.assign(id, device)?;
            } else if self.is_generator(id) {
                later.push(id);
            } else {
                let followed = self.producer_to_follow(id);
                self.place(id, followed)?;
            }
        }
        for id in later {
            let followed = self.consumers_to_follow(id);
            self.place(id, followed)?;
        }
        Ok(())
    }

    /// A node goes where another one is, if it can, and else to the first of its candidates.
    fn place(&mut self, id: NodeId, followed: Option<NodeId>) -> Result<()> {
        let candidates = self.candidates(id)?;
        let part = self.groups.cx.calls.part(id);
        let caller = part.call.and_then(|call| self.choice.devices[call]).filter(|device| candidates.contains(device));
        // The call's device comes first among the candidates of its body.
        let first = caller.unwrap_or(candidates[0]);
        let followed = followed.filter(|_| !(part.is_bound && caller.is_some()));
        let there = followed.and_then(|other| self.choice.devices[other]).filter(|device| candidates.contains(device));
        // It would have come to the same place anyway: then it follows no other.
        self.choice.follows[id] = followed.filter(|_| there.is_some_and(|device| device != first));
        let device = there.unwrap_or(first);
        let asks = |call: NodeId| device != candidates[0] || !self.groups.node(call).device.is_empty();
        if Some(device) == caller && self.choice.follows[id].is_none() && part.call.is_some_and(asks) {
            self.choice.with_call.insert(id);
        }
        self.assign(id, device)
    }

    fn assign(&mut self, id: NodeId, device: usize) -> Result<()> {
        self.choice.devices[id] = Some(device);
        self.choice.order.push(id);
        self.groups.limit_to(id, device)
    }

    /// The devices that a node's group can go to, at least one.
    fn candidates(&mut self, id: NodeId) -> Result<Rc<[usize]>> {
        let root = self.groups.root(id);
        if let Some(candidates) = &self.groups.members[root].candidates {
            return Ok(candidates.clone());
        }
        let member = self.groups.members[root].clone();
        let mut found = self.matching(&member.requested, &member.types);
        if found.is_empty() && self.groups.cx.soft {
            found = self.softened(&member, root);
        }
        if found.is_empty() {
            return Err(errors::no_candidate(self.groups, id, root, &|node| self.choice.devices[node]));
        }
        self.groups.members[root].candidates = Some(found.clone());
        Ok(found)
    }

    fn matching(&mut self, asked: &Rc<DeviceName>, types: &Types) -> Rc<[usize]> {
        let devices = self.groups.cx.devices;
        self.known.entry((asked.clone(), types.clone())).or_insert_with(|| devices.candidates(asked, types)).clone()
    }

    /// Without the type and number asked for: first those of resources stay, then not even they.
    fn softened(&mut self, member: &Member, root: NodeId) -> Rc<[usize]> {
        let found = self.matching(&Rc::new(member.softened(true)), &member.types);
        if !found.is_empty() {
            return found;
        }
        let found = self.matching(&Rc::new(member.softened(false)), &member.types);
        if !found.is_empty() && self.groups.cx.log {
            let names: Vec<&str> = found.iter().map(|device| self.groups.cx.devices.full[*device].as_str()).collect();
            let info = errors::debug_info(self.groups, root, &|node| self.choice.devices[node]);
            self.groups.notes.push(format!(
                "Failed to place the graph without changing the devices of some resources. Some of the operations (that had to be \
                 colocated with resource generating operations) are not supported on the resources' devices. Current candidate devices \
                 are [\n  {}].\nSee below for details of this colocation group:{info}",
                names.join("\n  ")
            ));
        }
        found
    }

    /// Whether a node makes one value out of nothing: it waits until its consumers have devices.
    fn is_generator(&self, id: NodeId) -> bool {
        self.groups.cx.calls.part(id).is_generator
            || self.signatures.inputs[id].is_empty() && matches!(&*self.signatures.outputs[id], [only] if !only.is_ref)
    }

    /// The node that this one reads, if it looks only at the shape, or hands on between two that ask for the same device.
    fn producer_to_follow(&self, id: NodeId) -> Option<NodeId> {
        let node = self.groups.node(id);
        match node.op.as_str() {
            "Shape" | "Size" | "Rank" => sources(node).next().map(|producer| self.at_the_call(id, producer)),
            "Identity" | "RefIdentity" if node.device.is_empty() => {
                let mut producers = sources(node);
                let (producer, None) = (producers.next()?, producers.next()) else { return None };
                let consumer = match self.signatures.consumers(id) {
                    [] => "",
                    [only] => self.asked_beside(id, *only),
                    _ => return None,
                };
                (self.asked_beside(id, producer) == consumer).then(|| self.seen(id, producer))
            }
            _ => None,
        }
    }

    /// One of the consumers, if they are all in one place.
    fn consumers_to_follow(&self, id: NodeId) -> Option<NodeId> {
        let mut consumers = self.signatures.consumers(id).iter().map(|consumer| self.at_the_call(id, *consumer));
        let first = consumers.next()?;
        let there = self.choice.devices[first];
        consumers.all(|consumer| self.choice.devices[consumer] == there).then_some(first)
    }

    /// Another node as a node sees it. Arguments and results of the call in whose body it is are where the call is.
    fn at_the_call(&self, id: NodeId, other: NodeId) -> NodeId {
        let call = self.groups.cx.calls.part(id).call.filter(|_| self.outside(id, other));
        call.unwrap_or_else(|| self.seen(id, other))
    }

    /// Another node as a node sees it: the call, if it is in the body of one.
    fn seen(&self, id: NodeId, other: NodeId) -> NodeId {
        let calls = self.groups.cx.calls;
        if calls.is_empty() { other } else { calls.seen_from(calls.level(id), other) }
    }

    /// Whether another node is around the call in whose body a node is.
    fn outside(&self, id: NodeId, other: NodeId) -> bool {
        let calls = self.groups.cx.calls;
        calls.level(other) < calls.level(id)
    }

    /// The request of a neighbour. Arguments and results of a call ask for nothing.
    fn asked_beside(&self, id: NodeId, other: NodeId) -> &str {
        if self.outside(id, other) { "" } else { &self.groups.node(self.seen(id, other)).device }
    }
}
