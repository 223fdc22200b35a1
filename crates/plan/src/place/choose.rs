//! A device for every node: the best of what its group can have, with TensorFlow's three rules of thumb.

use std::collections::HashMap;
use std::rc::Rc;

use plimsoll_base::Result;
use plimsoll_device::DeviceName;
use plimsoll_graph::{AttrsExt, IdVec, NodeId};

use super::errors;
use super::groups::{Groups, Member};
use super::join::Joined;
use super::kernels::Types;
use super::signature::{Signatures, sources};
use crate::inline::CALLER_DEVICE;

/// What choosing comes to.
pub(super) struct Choice {
    /// By node; none for what is not placed yet.
    pub devices: IdVec<NodeId, Option<usize>>,
    /// The nodes in the order in which they got them.
    pub order: Vec<NodeId>,
    /// The node that a node follows, where it does.
    pub follows: IdVec<NodeId, Option<NodeId>>,
}

struct Chooser<'a, 'b> {
    groups: &'b mut Groups<'a>,
    signatures: &'b Signatures<'a>,
    choice: Choice,
    /// Candidates by what is asked for and the types that are supported.
    known: HashMap<(Rc<DeviceName>, Types), Rc<[usize]>>,
}

/// Chooses. `order` is the graph's.
///
/// # Errors
/// INVALID_ARGUMENT "Cannot assign a device for operation …" for a node without candidates.
pub(super) fn choose(joined: &mut Joined<'_>, order: &[NodeId]) -> Result<Choice> {
    let count = joined.groups.graph.nodes().len();
    let choice = Choice { devices: IdVec::filled(None, count), order: Vec::with_capacity(count), follows: IdVec::filled(None, count) };
    let Joined { groups, signatures, assigned, .. } = joined;
    let mut chooser = Chooser { groups, signatures, choice, known: HashMap::new() };
    // What is assigned is seen by all, also by those that come before it.
    chooser.choice.devices = assigned.clone();
    let mut later = Vec::new();
    for &id in order {
        if let Some(device) = assigned[id] {
            chooser.assign(id, device)?;
        } else if chooser.is_generator(id) {
            later.push(id);
        } else {
            let followed = chooser.producer_to_follow(id);
            chooser.place(id, followed)?;
        }
    }
    for id in later {
        let followed = chooser.consumers_to_follow(id);
        chooser.place(id, followed)?;
    }
    Ok(chooser.choice)
}

impl Chooser<'_, '_> {
    /// A node goes where another one is, if it can, and else to the first of its candidates.
    fn place(&mut self, id: NodeId, followed: Option<NodeId>) -> Result<()> {
        let candidates = self.candidates(id)?;
        let there = followed.and_then(|other| self.choice.devices[other]).filter(|device| candidates.contains(device));
        // It would have come to the same place anyway: then it follows nobody.
        self.choice.follows[id] = followed.filter(|_| there.is_some_and(|device| device != candidates[0]));
        let device = there.or_else(|| self.callers(id, &candidates)).unwrap_or(candidates[0]);
        self.assign(id, device)
    }

    /// Of the candidates, the first that the call prefers in whose body a node is.
    fn callers(&self, id: NodeId, candidates: &[usize]) -> Option<usize> {
        let asked = DeviceName::parse(self.groups.node(id).attrs.text(CALLER_DEVICE).ok()?).ok()?;
        candidates.iter().copied().find(|device| self.groups.cx.devices.names[*device].satisfies(&asked))
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
        self.signatures.inputs[id].is_empty() && matches!(&*self.signatures.outputs[id], [only] if !only.is_ref)
    }

    /// The node that this one reads, if it looks only at the shape, or hands on between two that ask for the same device.
    fn producer_to_follow(&self, id: NodeId) -> Option<NodeId> {
        let node = self.groups.node(id);
        match node.op.as_str() {
            "Shape" | "Size" | "Rank" => sources(node).next(),
            "Identity" | "RefIdentity" if node.device.is_empty() => {
                let mut producers = sources(node);
                let (producer, None) = (producers.next()?, producers.next()) else { return None };
                let consumer = match self.signatures.consumers(id) {
                    [] => "",
                    [only] => &self.groups.node(*only).device,
                    _ => return None,
                };
                (self.groups.node(producer).device == consumer).then_some(producer)
            }
            _ => None,
        }
    }

    /// One of the consumers, if they are all in one place.
    fn consumers_to_follow(&self, id: NodeId) -> Option<NodeId> {
        let consumers = self.signatures.consumers(id);
        let first = *consumers.first()?;
        let there = self.choice.devices[first];
        consumers.iter().all(|consumer| self.choice.devices[*consumer] == there).then_some(first)
    }
}
