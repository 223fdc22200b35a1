//! Groups of nodes that go to one device, and the requests to each: TensorFlow's colocation graph.
//!
//! A union-find over the nodes. Its roots hold three names and the device types that all members support. *Assigned* is the device
//! that members have already. *Resource* is the request of members that make references or resources. Neither is ever overruled.
//! *Requested* is every other request of members. `requested` is always at least as specific as the other two.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::rc::Rc;

use plimsoll_base::{Error, Result};
use plimsoll_device::DeviceName;
use plimsoll_graph::{Graph, IdVec, Node, NodeId};
use plimsoll_ops::Registry;

use super::errors;
use super::kernels::{Devices, Types};
use crate::inline::Calls;

/// The facts that placement looks at, but for the graph.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub registry: &'a Registry,
    pub devices: &'a Devices,
    /// Whether soft placement is allowed.
    pub soft: bool,
    /// Whether notes are taken.
    pub log: bool,
    /// Which nodes came from which call.
    pub calls: &'a Calls,
}

/// A node, and where it is a root all that is known of its group.
#[derive(Clone)]
pub(super) struct Member {
    parent: NodeId,
    rank: u32,
    /// In how many bodies of calls its outermost member is.
    level: u32,
    pub types: Types,
    pub assigned: Rc<DeviceName>,
    pub resource: Rc<DeviceName>,
    pub requested: Rc<DeviceName>,
    /// The device that a member has got.
    pub assigned_to: Option<usize>,
    /// The devices that it can go to, once they are known.
    pub candidates: Option<Rc<[usize]>>,
}

/// Names as they are read, each once.
#[derive(Default)]
pub(super) struct Names<'a> {
    read: HashMap<&'a str, Option<Rc<DeviceName>>>,
}

impl<'a> Names<'a> {
    /// None where the text is no name.
    pub fn parse(&mut self, text: &'a str) -> Option<Rc<DeviceName>> {
        self.read.entry(text).or_insert_with(|| DeviceName::parse(text).ok().map(Rc::new)).clone()
    }
}

/// The groups of a graph.
pub(super) struct Groups<'a> {
    pub graph: &'a Graph,
    pub cx: Context<'a>,
    pub members: IdVec<NodeId, Member>,
    /// Groups by reference and resource edges alone.
    tied: IdVec<NodeId, NodeId>,
    /// The notes that TensorFlow would log.
    pub notes: Vec<String>,
}

/// Why two groups cannot be one.
pub(super) enum Conflict {
    /// Their names, in words.
    Names(String),
    /// No device type supports both.
    Types,
}

impl<'a> Groups<'a> {
    /// Every node alone, asking for nothing.
    pub fn new(graph: &'a Graph, cx: Context<'a>, types: IdVec<NodeId, Types>) -> Groups<'a> {
        let none = Rc::new(DeviceName::default());
        let member = |(id, types): (NodeId, &Types)| Member {
            parent: id,
            rank: 0,
            level: cx.calls.level(id),
            types: types.clone(),
            assigned: none.clone(),
            resource: none.clone(),
            requested: none.clone(),
            assigned_to: None,
            candidates: None,
        };
        Groups { graph, cx, members: types.iter().map(member).collect(), tied: graph.nodes().ids().collect(), notes: Vec::new() }
    }

    /// The root of a node's group.
    pub fn root(&mut self, id: NodeId) -> NodeId {
        let mut root = id;
        while self.members[root].parent != root {
            root = self.members[root].parent;
        }
        let mut node = id;
        while self.members[node].parent != root {
            node = std::mem::replace(&mut self.members[node].parent, root);
        }
        root
    }

    /// The root of a node's group, where nothing may change.
    pub fn root_of(&self, mut id: NodeId) -> NodeId {
        while self.members[id].parent != id {
            id = self.members[id].parent;
        }
        id
    }

    /// Whether reference and resource edges alone make these two one group.
    pub fn are_tied(&mut self, a: NodeId, b: NodeId) -> bool {
        self.tie(a) == self.tie(b)
    }

    fn tie(&mut self, mut id: NodeId) -> NodeId {
        while self.tied[id] != id {
            self.tied[id] = self.tied[self.tied[id]];
            id = self.tied[id];
        }
        id
    }

    /// Makes one group of the ends of an edge that carries a reference or a resource. Where requests differ the destination's
    /// is forgotten.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where assigned devices, devices of resources, or the types of devices do not go together.
    pub fn unite_along_edge(&mut self, source: NodeId, destination: NodeId) -> Result<()> {
        let (from, to) = (self.root(source), self.root(destination));
        self.outer_asks(from, to);
        self.follow_source(source, from, destination, to)?;
        let done = self.unite_roots(from, to);
        done.map_err(|conflict| {
            let (x, y) = (self.graph.node(source), self.graph.node(destination));
            let text = errors::cannot_colocate(self, x, y, from, to, &conflict);
            Error::invalid_argument(format!(
                "Nodes were connected by a reference or resource connection (requiring them to be on the same device), but the two \
                 nodes were assigned two different devices: {text}"
            ))
            .at_node(&y.name)
        })?;
        let (a, b) = (self.tie(source), self.tie(destination));
        self.tied[b] = a;
        Ok(())
    }

    fn follow_source(&mut self, source: NodeId, from: NodeId, destination: NodeId, to: NodeId) -> Result<()> {
        let (x, y) = (&self.members[from], &self.members[to]);
        let names = [("assigned", &x.assigned, &y.assigned), ("resource", &x.resource, &y.resource)];
        if let Some((what, a, b)) = names.into_iter().find(|(_, a, b)| !a.is_compatible(b)) {
            let (source, destination) = (self.graph.node(source), self.graph.node(destination));
            return Err(errors::incompatible_edge(what, a, b, source, destination));
        }
        if x.requested.is_compatible(&y.requested) {
            return Ok(());
        }
        let requested = x.requested.clone();
        if self.cx.log {
            self.notes.push(format!(
                "Ignoring device specification {} for node '{}' because the input edge from '{}' is a reference connection and already \
                 has a device field set to {requested}",
                y.requested,
                self.graph.node(destination).name,
                self.graph.node(source).name,
            ));
        }
        let member = &mut self.members[to];
        member.requested = requested;
        member.specialise_request();
        Ok(())
    }

    /// A body takes the requests around it where it is. When two groups become one, the inner one keeps only its assigned devices
    /// and the requests of the resources that it makes.
    fn outer_asks(&mut self, x: NodeId, y: NodeId) {
        let inner = match self.members[x].level.cmp(&self.members[y].level) {
            Ordering::Less => y,
            Ordering::Equal => return,
            Ordering::Greater => x,
        };
        let member = &mut self.members[inner];
        member.requested = Rc::default();
        member.specialise_request();
    }

    /// Makes one group of two nodes' groups.
    pub fn unite(&mut self, x: NodeId, y: NodeId) -> Result<(), Conflict> {
        let (x, y) = (self.root(x), self.root(y));
        self.outer_asks(x, y);
        self.unite_roots(x, y)
    }

    fn unite_roots(&mut self, x: NodeId, y: NodeId) -> Result<(), Conflict> {
        if x == y {
            return Ok(());
        }
        let (a, b) = (&self.members[x], &self.members[y]);
        let (new, old) = if a.rank < b.rank { (y, x) } else { (x, y) };
        let grows = u32::from(a.rank == b.rank);
        let mut merged = self.members[new].clone();
        let other = &self.members[old];
        merged.merge_names(other, self.cx.soft).map_err(|error| Conflict::Names(error.message().to_string()))?;
        // As in TensorFlow, the names stay merged where the types turn out not to go together.
        let types = common_types(&merged.types, &other.types);
        if let Some(types) = &types {
            merged.types = types.clone();
            merged.level = merged.level.min(other.level);
            merged.rank += grows;
        }
        self.members[new] = merged;
        if types.is_none() {
            return Err(Conflict::Types);
        }
        self.members[old].parent = new;
        Ok(())
    }

    /// A member of a group has got a device: all of it goes there.
    ///
    /// # Errors
    /// INTERNAL where the group is elsewhere already.
    pub fn limit_to(&mut self, id: NodeId, device: usize) -> Result<()> {
        let root = self.root(id);
        if self.members[root].assigned_to == Some(device) {
            return Ok(());
        }
        let name = &self.cx.devices.names[device];
        let member = &mut self.members[root];
        // A full name: the other name becomes it, or does not go together with it.
        let elsewhere = [&member.resource, &member.requested].into_iter().any(|own| !own.is_empty() && !own.may_be_in(name));
        if !member.assigned.is_compatible(name) || elsewhere {
            return Err(Error::internal(format!(
                "Constraining by assigned device should not cause an error. Original root's assigned device name: {}, resource device \
                 name: {}, requested device name: {}, node's assigned device name \"{name}\"",
                member.assigned, member.resource, member.requested
            ))
            .at_node(&self.graph.node(id).name));
        }
        (member.assigned, member.resource, member.requested) = (name.clone(), name.clone(), name.clone());
        member.assigned_to = Some(device);
        member.candidates = None;
        Ok(())
    }

    /// The node of a member.
    pub fn node(&self, id: NodeId) -> &'a Node {
        self.graph.node(id)
    }
}

/// Whether a name's job, replica and task may be those of another.
trait Address {
    fn may_be_in(&self, other: &DeviceName) -> bool;
}

impl Address for DeviceName {
    fn may_be_in(&self, other: &DeviceName) -> bool {
        fn part<T: PartialEq>(own: &Option<T>, other: &Option<T>) -> bool {
            own.is_none() || other.is_none() || own == other
        }
        part(&self.job, &other.job) && part(&self.replica, &other.replica) && part(&self.task, &other.task)
    }
}

impl Member {
    /// Assigned and resource names win over the requested one, part by part.
    fn specialise_request(&mut self) {
        for name in [self.assigned.clone(), self.resource.clone()] {
            if !name.is_empty() {
                Rc::make_mut(&mut self.requested).overlay(&name);
            }
        }
    }

    fn merge_names(&mut self, other: &Member, soft: bool) -> Result<()> {
        merge(&mut self.assigned, &other.assigned, false)?;
        merge(&mut self.resource, &other.resource, false)?;
        merge(&mut self.requested, &other.requested, soft)?;
        self.specialise_request();
        Ok(())
    }

    /// Adds the request of a called function to one of its arguments or results.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where names conflict.
    pub fn limit(&mut self, other: &Member, soft: bool) -> Result<()> {
        merge(&mut self.requested, &other.requested, soft)?;
        merge(&mut self.resource, &other.resource, false)?;
        if let Some(types) = common_types(&self.types, &other.types) {
            self.types = types;
        }
        Ok(())
    }

    /// The request without type and index, but for those that are assigned, or `with_resources` those of resources.
    pub fn softened(&self, with_resources: bool) -> DeviceName {
        let keeps = |part: fn(&DeviceName) -> bool| part(&self.assigned) || (with_resources && part(&self.resource));
        let mut name = (*self.requested).clone();
        if !keeps(|name| name.kind.is_some()) {
            name.kind = None;
        }
        if !keeps(|name| name.index.is_some()) {
            name.index = None;
        }
        name
    }
}

fn merge(own: &mut Rc<DeviceName>, other: &Rc<DeviceName>, soft: bool) -> Result<()> {
    if other.is_empty() || own == other {
        return Ok(());
    }
    if own.is_empty() {
        *own = other.clone();
        return Ok(());
    }
    Rc::make_mut(own).merge(other, soft)
}

/// The types that both support, none where there are none. Priorities are taken from the side that has some. Where both have and
/// do not agree, they are dropped, and the better type comes first.
pub(super) fn common_types(own: &Types, other: &Types) -> Option<Types> {
    if own == other {
        return Some(own.clone());
    }
    let with = |types: &Types, others: &Types| {
        let mut both: Vec<(u8, i32)> = types.iter().filter(|(kind, _)| others.iter().any(|(other, _)| other == kind)).copied().collect();
        both.sort_by_key(|(kind, priority)| (-priority, *kind));
        both
    };
    let (own, other) = (with(own, other), with(other, own));
    let has_priorities = |types: &[(u8, i32)]| types.iter().any(|(_, priority)| *priority != 0);
    let kinds = |types: &[(u8, i32)]| types.iter().map(|(kind, _)| *kind).collect::<Vec<_>>();
    let common = match (has_priorities(&own), has_priorities(&other)) {
        (_, false) => own,
        (false, true) => other,
        (true, true) if kinds(&own) == kinds(&other) => own,
        (true, true) => {
            let mut reset: Vec<(u8, i32)> = own.into_iter().map(|(kind, _)| (kind, 0)).collect();
            reset.sort_unstable();
            reset
        }
    };
    (!common.is_empty()).then(|| common.into())
}
