//! Loops. A frame becomes a work that holds the region of its body. The condition is computed twice: before the work, for the first
//! iteration, and at the end of the body, for the next one.
//!
//! What the body reads of the regions around it is a parameter, made when a work first reads it. What goes round is a parameter whose
//! next version the body writes, in place, as it writes a variable.

mod bring;

use std::collections::{HashMap, HashSet};

use plimsoll_base::{Error, Result};
use plimsoll_device::DeviceKind;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, Node, NodeId, Output};
use plimsoll_ops::{ListFact, Lower};
use plimsoll_request::expr::ExprBuilder;

use super::branch::Branches;
use super::invariant::Invariants;
use super::list::{Length, List};
use super::same::{One, Same};
use super::{Lowering, Meaning};
use crate::alive::When;
use crate::condition::Condition;
use crate::frames::{Frame, FrameId, Item, Round, stays};
use crate::lir::{Home, Region, RegionId, Trips, ValueId, VariableId, View, WorkId, WorkKind};
use crate::plan::DeviceId;
use crate::trips::{Most, most_behind};

/// A loop whose body is being lowered.
pub(super) struct Inside {
    frame: FrameId,
    region: RegionId,
    work: WorkId,
    carried: usize,
    /// The devices of its nodes, where they are several.
    devices: Vec<DeviceId>,
    /// Of what it carries: the newest version, where the body has made one.
    newest: HashMap<Home, ValueId>,
    /// The parameters of values from around the loop, by the device that reads them: each is the same in every iteration.
    imports: HashMap<(ValueId, DeviceId), ValueId>,
    /// The variables that the body reads or writes.
    variables: Vec<Brought>,
    /// The variables whose flags it writes, with the version before the loop.
    flagged: Vec<(VariableId, ValueId)>,
    branches: Branches,
    initialized: IdVec<VariableId, Condition>,
}

/// A variable in a loop. Its parameter is no import: what was read of it before the loop stays when the body writes it.
struct Brought {
    variable: VariableId,
    /// The version before the loop.
    before: ValueId,
    is_written: bool,
}

impl Inside {
    /// The device where the loop has what a work on `device` reads, or what is there.
    fn near(&self, own: DeviceId, device: DeviceId) -> DeviceId {
        if self.devices.contains(&device) { device } else { own }
    }

    fn has(&self, variable: VariableId) -> bool {
        self.variables.iter().any(|brought| brought.variable == variable)
    }
}

impl Lowering<'_> {
    /// A loop.
    ///
    /// # Errors
    /// UNIMPLEMENTED for loops of forms that TensorFlow does not write.
    pub(super) fn repeat(&mut self, id: FrameId) -> Result<()> {
        let pruned = self.pruned;
        let frame = pruned.frames.get(id);
        let Some(test) = frame.test else { return Err(Error::unimplemented("not yet: a loop without a LoopCond")) };
        let is_dead = frame.enters.iter().any(|enter| pruned.alive.node(*enter) == When::Never);
        let (device, devices) = if is_dead { (self.host, Vec::new()) } else { self.loop_devices(id, frame) };
        let parts = Parts::new(self, id, frame, test)?;
        let condition = self.begin(frame)?;
        if condition == Condition::NEVER {
            frame.exits.iter().for_each(|exit| _ = self.branches.nodes.insert(*exit, Condition::NEVER));
            return Ok(());
        }
        self.guard_by(condition, test)?;
        let guard = self.branches.guard;
        // Inside, what comes in is alive.
        frame.enters.iter().for_each(|enter| _ = self.branches.nodes.remove(enter));
        for round in &frame.rounds {
            self.give(round.merge, round.first)?;
        }
        self.items(&parts.test)?;
        let first = self.read(Output { node: test, index: 0 }, device)?;
        let (invariants, body) = self.hoist((id, frame), parts.body, condition, first.clone())?;
        let goes: Vec<Round> = frame.rounds.iter().copied().filter(|round| !stays(self.request.graph, round.merge, round.next)).collect();
        self.guard_by(condition, test)?;
        let near = |at: DeviceId| if devices.contains(&at) { at } else { device };
        let mut inputs = vec![first];
        // Where the body has each of them.
        let mut places = vec![device];
        let mut slots: Vec<Slots> = Vec::with_capacity(goes.len());
        // For each, a node where it is.
        let mut homes: Vec<NodeId> = Vec::with_capacity(goes.len());
        for round in &goes {
            let name = &self.request.graph.node(round.merge).name;
            let list_home = self.list_home(*round);
            let (slot, views) = self.slots(*round, list_home, &invariants, inputs.len()).map_err(|error| error.at_node(name))?;
            let home = if matches!(slot, Slots::Rows { .. } | Slots::Growing(_)) { list_home } else { round.merge };
            slots.push(slot);
            homes.push(home);
            inputs.extend(views);
            places.resize(inputs.len(), near(self.device(home)));
        }
        // Each with a node that pushes or pops: the state of a stack is where these are. In a loop of one device all is there.
        let stacks: Vec<(NodeId, NodeId)> =
            self.stacks_of(id).into_iter().map(|(stack, user)| (stack, if devices.is_empty() { test } else { user })).collect();
        let first_of_stacks = inputs.len();
        for (stack, user) in &stacks {
            inputs.extend(self.stack_views(*stack, *user)?);
            places.resize(inputs.len(), near(self.device(*user)));
        }
        let stack_slots: Vec<Slots> = (0..stacks.len()).map(|index| Slots::Growing(first_of_stacks + 2 * index)).collect();
        let marks = self.marks.of_loop(pruned, id);
        let first_of_marks = inputs.len();
        inputs.extend(self.marks.views(&marks));
        let carried = inputs.len();
        places.resize(carried, near(self.device(test)));
        let views = inputs.clone();
        let bytes = |lowering: &Self, view: &View| lowering.lir.values[view.value].bytes;
        let mut outputs: Vec<ValueId> = Vec::with_capacity(carried);
        for (view, place) in views.iter().zip(&places) {
            outputs.push(self.lir.value(*place, Home::Arena, bytes(self, view), test));
        }
        let region = self.lir.regions.push(Region::default());
        let trips = match most_behind(self.request.graph, self.pruned, frame) {
            Most::Known { trips, exactly: true } => Trips::Exactly(trips),
            Most::Known { trips, exactly: false } => Trips::AtMost(trips),
            Most::Said(_) | Most::Open => Trips::Open,
        };
        let kind = WorkKind::Loop { body: region, carried, trips };
        let work = self.lir.work(kind, device, vec![test], inputs, outputs.clone());
        (self.lir.works[work].guard, self.lir.works[work].is_root) = (guard, true);
        self.settle_loop(work, &frame.enters, &frame.exits);
        let around = self.lir.enter(region);
        let given = |(param, (view, place)): (u32, (&View, &DeviceId))| self.given((region, *place), param, view.value);
        let params: Vec<ValueId> = (0..).zip(views.iter().zip(&places)).map(given).collect();
        self.inside.push(Inside {
            frame: id,
            region,
            work,
            carried,
            devices,
            newest: HashMap::new(),
            imports: HashMap::new(),
            variables: Vec::new(),
            flagged: Vec::new(),
            branches: self.branches.clone(),
            initialized: self.written.clone(),
        });
        (self.branches.guard, self.branches.bools) = (None, HashMap::new());
        self.guard_by(Condition::ALWAYS, test)?;
        for (round, slot) in goes.iter().zip(&slots) {
            let meaning = slot.meaning(&params, &views);
            self.meanings.insert(Output { node: round.merge, index: 0 }, meaning);
        }
        self.set_stacks(&stacks, &stack_slots, (&params, &views));
        self.marks.set(&marks, (&params[first_of_marks..carried], &views[first_of_marks..]));
        self.forget(&parts.test_nodes);
        if parts.body_reads_test {
            self.items(&parts.test)?;
        }
        self.items(&body)?;
        let mut results: Vec<(Round, Meaning)> = Vec::new();
        for round in &goes {
            let next = self.meaning(self.request.graph.node(round.next).inputs[0])?.clone();
            results.push((*round, next));
        }
        // The condition of the next iteration looks at what that one is given.
        self.forget(&parts.test_nodes);
        for (round, meaning) in &results {
            self.meanings.insert(Output { node: round.merge, index: 0 }, meaning.clone());
        }
        self.items(&parts.test)?;
        self.guard_by(Condition::ALWAYS, test)?;
        let mut latest: Vec<ValueId> = params.iter().map(|param| self.newest(*param)).collect();
        let again = self.read(Output { node: test, index: 0 }, device)?;
        latest[0] = self.hand_on(test, &again, params[0])?;
        for (((round, _), slot), home) in results.iter().zip(&slots).zip(&homes) {
            for (index, next) in self.handed_on(*round, *home, slot)? {
                let (given, wanted) = ((next.data_type, &next.shape), (views[index].data_type, &views[index].shape));
                if given != wanted {
                    let message = format!("not yet: a loop that is given {}{} and hands on {}{}", wanted.0, wanted.1, given.0, given.1);
                    return Err(Error::unimplemented(message).at_node(&self.request.graph.node(round.merge).name));
                }
                latest[index] = self.hand_on(*home, &next, params[index])?;
            }
        }
        for ((stack, user), slot) in stacks.iter().zip(&stack_slots) {
            let Slots::Growing(first) = *slot else { continue };
            for (index, view) in (first..).zip(self.stack_views(*stack, *user)?) {
                latest[index] = self.hand_on(*user, &view, params[index])?;
            }
        }
        for (index, view) in (first_of_marks..).zip(self.marks.views(&marks)) {
            latest[index] = self.hand_on(test, &view, params[index])?;
        }
        self.lir.region_mut().results = latest;
        self.end(around, test)?;
        self.forget(&parts.nodes);
        self.set_stacks(&stacks, &stack_slots, (&outputs, &views));
        self.leave_marks(test, &marks, (&outputs[first_of_marks..carried], &views[first_of_marks..]))?;
        self.leave(frame, (&goes, &slots), (&outputs, &views), condition)
    }

    /// What a loop carries of a value that goes round, from the parameter `first` on, and how it begins. A list is where `home` is.
    fn slots(&mut self, round: Round, home: NodeId, invariants: &Invariants, first: usize) -> Result<(Slots, Vec<View>)> {
        let merge = Output { node: round.merge, index: 0 };
        let works = self.lir.works.len();
        if let Some(Same { item, length }) = self.same_in_loop(round, invariants)? {
            let (length, views) = match self.list_fact(merge)?.length {
                Some(length) => (Length::Known(length), Vec::new()),
                None => (length.clone(), vec![self.number(round.merge, &length)?]),
            };
            self.take_in(works)?;
            return Ok((Slots::Same { item, length, first: (!views.is_empty()).then_some(first) }, views));
        }
        if let (Meaning::Known(_), Ok(ListFact { length: None, .. })) = (self.meaning(merge)?, self.list_fact(merge)) {
            return Err(Error::needs_values("not yet: a gradient of a TensorArray of a size that is known only when the graph runs"));
        }
        let Ok(list) = self.list_like(merge, merge) else {
            return Ok((Slots::Value(first), vec![self.read(merge, self.device(round.merge))?]));
        };
        let rows = self.rows(home, &list, merge)?;
        let (slots, views) = match self.list_fact(merge)?.length {
            Some(length) => (Slots::Rows { first, length }, vec![rows]),
            None => (Slots::Growing(first), vec![rows, self.number(home, &list.length)?]),
        };
        self.take_in(works)?;
        Ok((slots, views))
    }

    /// The node whose device has a list that goes round: the one that writes it last in the body, or else the one that it enters by.
    fn list_home(&self, round: Round) -> NodeId {
        let graph = self.request.graph;
        let mut at = graph.node(round.next).inputs.first().map(|input| input.node);
        while let Some(node) = at {
            match graph.node(node).op.as_str() {
                "Identity" => at = graph.node(node).inputs.first().map(|input| input.node),
                "TensorArrayWriteV3" | "TensorListSetItem" | "TensorListPushBack" | "TensorListPopBack" => return node,
                _ => break,
            }
        }
        round.merge
    }

    /// The rows and the length of a stack as they are now, for a node.
    fn stack_views(&mut self, stack: NodeId, id: NodeId) -> Result<[View; 2]> {
        let works = self.lir.works.len();
        let list = self.stacks.get(&stack).cloned().ok_or_else(|| Error::internal("a stack without a state"))?;
        let views = [self.rows(id, &list, Output { node: stack, index: 0 })?, self.number(id, &list.length)?];
        self.take_in(works)?;
        Ok(views)
    }

    /// The state of stacks is in these values.
    fn set_stacks(&mut self, stacks: &[(NodeId, NodeId)], slots: &[Slots], (values, views): (&[ValueId], &[View])) {
        for ((stack, _), slot) in stacks.iter().zip(slots) {
            if let Meaning::List(list) = slot.meaning(values, views) {
                self.stacks.insert(*stack, list);
            }
        }
    }

    /// What the next iteration is given, by parameter. A list is where `home` is.
    fn handed_on(&mut self, round: Round, home: NodeId, slots: &Slots) -> Result<Vec<(usize, View)>> {
        let merge = Output { node: round.merge, index: 0 };
        let works = self.lir.works.len();
        let views = match slots {
            &Slots::Value(first) => vec![(first, self.read(merge, self.device(round.merge))?)],
            Slots::Same { item, first, .. } => {
                let Meaning::Same(next) = self.meaning(merge)?.clone() else {
                    return Err(not_that(&self.request.graph.node(round.merge).name));
                };
                if !next.item.is(item) {
                    return Err(not_that(&self.request.graph.node(round.merge).name));
                }
                match first {
                    Some(first) => vec![(*first, self.number(round.merge, &next.length)?)],
                    None => Vec::new(),
                }
            }
            &Slots::Rows { first, .. } => {
                let list = self.list(merge)?;
                vec![(first, self.rows(home, &list, merge)?)]
            }
            &Slots::Growing(first) => {
                let list = self.list(merge)?;
                vec![(first, self.rows(home, &list, merge)?), (first + 1, self.number(home, &list.length)?)]
            }
        };
        self.take_in(works)?;
        Ok(views)
    }

    /// The device of a loop, and all of its devices where they are several: those of the nodes in it that compute something. A card comes
    /// first where there is one.
    fn loop_devices(&mut self, id: FrameId, frame: &Frame) -> (DeviceId, Vec<DeviceId>) {
        let (request, pruned) = (self.request, self.pruned);
        let nodes: Vec<NodeId> = pruned.frames.nodes(id).collect();
        let computes = |node: &&NodeId| {
            let rules = request.registry.get(&request.graph.node(**node).op);
            !rules.is_none_or(|rules| {
                matches!(rules.lower, Lower::Alias | Lower::Switch | Lower::Merge | Lower::Const | Lower::Nothing | Lower::Variable)
            })
        };
        // The outermost loop has seen to those in it.
        let is_outermost = frame.parent.is_none();
        let workers = &self.workers;
        let on = |node: NodeId| if is_outermost { request.placement.devices[node] } else { workers[node] };
        let is_card = |node: NodeId| request.devices[on(node).index()].kind == DeviceKind::Gpu;
        let working: Vec<NodeId> = nodes.iter().filter(computes).copied().collect();
        let first = working.iter().copied().find(|node| is_card(*node)).or(working.first().copied()).unwrap_or(frame.enters[0]);
        let device = on(first);
        // What is on the host beside a card only because TensorFlow has no kernel for the card goes with the rest.
        // A variable is written where it is.
        let writes = |node: NodeId| {
            let rules = request.registry.get(&request.graph.node(node).op);
            rules.is_some_and(|rules| matches!(rules.lower, Lower::Assign | Lower::Update(_) | Lower::UpdateInPlace(_)))
        };
        let may_go = |node: NodeId| {
            is_outermost
                && is_card(first)
                && on(node) == request.placement.host
                && request.graph.node(node).device.is_empty()
                && !writes(node)
        };
        let mut devices: Vec<DeviceId> = working.iter().filter(|node| !may_go(**node)).map(|node| on(*node)).collect();
        devices.push(device);
        devices.sort_unstable();
        devices.dedup();
        // What computes nothing is where its values are.
        let place = |node: NodeId| if devices.len() == 1 || may_go(node) || !devices.contains(&on(node)) { device } else { on(node) };
        let places: Vec<DeviceId> = nodes.iter().map(|node| place(*node)).collect();
        nodes.into_iter().zip(places).for_each(|(node, place)| self.workers[node] = place);
        (device, if devices.len() > 1 { devices } else { Vec::new() })
    }

    /// Gives the Enters their meanings. When they are all alive.
    fn begin(&mut self, frame: &Frame) -> Result<Condition> {
        let mut all = Condition::ALWAYS;
        for &enter in &frame.enters {
            let node = self.request.graph.node(enter);
            let first = self.lir.works.len();
            if self.enter(enter, node, Lower::Alias)? && !self.is_settled(enter, 0) {
                self.alias(enter, node.inputs[0], 0)?;
            }
            self.settle_effects(enter, node, first)?;
            self.take_in(first)?;
            let alive = self.branches.nodes.get(&enter).copied().unwrap_or(Condition::ALWAYS);
            all = self.branches.and(all, alive)?;
        }
        Ok(all)
    }

    /// A Merge is what comes in.
    fn give(&mut self, merge: NodeId, first: Output) -> Result<()> {
        let works = self.lir.works.len();
        let meaning = self.meaning(first)?.clone();
        self.meanings.insert(Output { node: merge, index: 0 }, meaning);
        self.settle_effects(merge, self.request.graph.node(merge), works)
    }

    /// Parameter `param` of a region: what the work that holds it has there.
    fn given(&mut self, (region, device): (RegionId, DeviceId), param: u32, outer: ValueId) -> ValueId {
        let (bytes, node) = (self.lir.values[outer].bytes, self.lir.values[outer].node);
        self.lir.param(device, Home::Given { region, param }, bytes, node)
    }

    /// The next version of a parameter that goes round; the parameter itself where it stays.
    fn hand_on(&mut self, node: NodeId, next: &View, param: ValueId) -> Result<ValueId> {
        let home = |value: ValueId| self.lir.values[value].home;
        if home(next.value) == home(param) && self.is_newest(next.value) {
            return Ok(next.value);
        }
        let mut builder = ExprBuilder::new();
        let kind = match builder.input(next.data_type) {
            // Only a kernel's result is worth joining with the kernel; the rest is a plain copy, and so is what goes to another device.
            Ok(value)
                if self.lir.values[next.value].home == Home::Arena
                    && self.lir.values[next.value].device == self.lir.values[param].device
                    && self.device(node) == self.lir.values[param].device =>
            {
                WorkKind::Expr { expr: builder.finish(vec![value]), shape: next.shape.clone() }
            }
            _ => WorkKind::Copy,
        };
        let version = self.lir.next_version(self.newest(param), node);
        self.note_newest(version);
        let first = self.lir.works.len();
        self.work(node, kind, vec![next.clone()], vec![version], true);
        self.take_in(first)?;
        Ok(version)
    }

    /// Ends the body: the region around it is at hand again.
    fn end(&mut self, around: RegionId, test: NodeId) -> Result<()> {
        let Some(inside) = self.inside.pop() else { return Err(Error::internal("a loop ends that has not begun")) };
        self.lir.enter(around);
        self.branches = inside.branches;
        // What the body found out of variables holds in the body.
        for (variable, condition) in inside.initialized.iter() {
            self.written[variable] = *condition;
        }
        for Brought { variable, before, is_written } in inside.variables {
            self.versions[variable] = before;
            if is_written {
                let after = self.lir.next_version(before, test);
                self.lir.works[inside.work].outputs.push(after);
                self.versions[variable] = after;
            }
        }
        for (variable, before) in inside.flagged {
            let after = self.lir.next_version(before, test);
            self.lir.works[inside.work].outputs.push(after);
            self.branches.set_flag(variable, after)?;
        }
        self.take_in(inside.work.index())
    }

    /// Gives the Exits their meanings.
    fn leave(
        &mut self,
        frame: &Frame,
        (goes, slots): (&[Round], &[Slots]),
        (outputs, views): (&[ValueId], &[View]),
        condition: Condition,
    ) -> Result<()> {
        for &exit in &frame.exits {
            let source = self.request.graph.node(exit).inputs[0];
            let merge = self.request.graph.node(source.node).inputs.first().map(|merge| merge.node);
            let round = frame.rounds.iter().find(|round| Some(round.merge) == merge && source.index == 0);
            let Some(round) = round else {
                let message = "not yet: a value that leaves a loop and does not go round in it";
                return Err(Error::unimplemented(message).at_node(&self.request.graph.node(exit).name));
            };
            let meaning = match goes.iter().position(|other| other.merge == round.merge) {
                Some(index) => self.with_length(exit, slots[index].meaning(outputs, views)),
                None => self.meaning(round.first)?.clone(),
            };
            self.meanings.insert(Output { node: exit, index: 0 }, meaning);
            if condition != Condition::ALWAYS {
                self.branches.nodes.insert(exit, condition);
            }
        }
        Ok(())
    }

    /// What leaves a loop; the length of a list may be known by then.
    fn with_length(&self, exit: NodeId, meaning: Meaning) -> Meaning {
        match (meaning, self.list_fact(Output { node: exit, index: 0 })) {
            (Meaning::List(List { rows, .. }), Ok(ListFact { length: Some(length), .. })) => {
                Meaning::List(List { rows, length: Length::Known(length) })
            }
            (Meaning::Same(same), Ok(ListFact { length: Some(length), .. })) => {
                Meaning::Same(Same { length: Length::Known(length), ..same })
            }
            (meaning, _) => meaning,
        }
    }

    /// The newest version of a value that the loop at hand carries.
    fn newest(&self, param: ValueId) -> ValueId {
        let home = self.lir.values[param].home;
        self.inside.last().and_then(|inside| inside.newest.get(&home)).copied().unwrap_or(param)
    }

    /// Whether a node may change a value in place: the loop at hand carries it, on the node's device.
    pub(super) fn may_change(&self, id: NodeId, value: ValueId) -> bool {
        self.is_newest(value) && self.lir.values[value].device == self.device(id)
    }

    /// Whether a value is one that the loop at hand carries, and no newer version has been made.
    fn is_newest(&self, value: ValueId) -> bool {
        let Some(inside) = self.inside.last() else { return false };
        match self.lir.values[value].home {
            Home::Given { region, param } if region == inside.region => (param as usize) < inside.carried && self.newest(value) == value,
            _ => false,
        }
    }

    /// A version that a work of the loop at hand makes.
    pub(super) fn note_newest(&mut self, version: ValueId) {
        let home = self.lir.values[version].home;
        if let Some(inside) = self.inside.last_mut() {
            inside.newest.insert(home, version);
        }
    }

    /// Nodes have no meaning any more.
    fn forget(&mut self, nodes: &HashSet<NodeId>) {
        self.meanings.retain(|output, _| !nodes.contains(&output.node));
    }

    /// Whether a node is a Switch that ends the loop at hand.
    pub(super) fn is_loop_switch(&self, node: &Node) -> bool {
        let Some(inside) = self.inside.last() else { return false };
        let test = self.pruned.frames.get(inside.frame).test;
        matches!(node.op.as_str(), "Switch" | "RefSwitch") && node.inputs.get(1).map(|input| input.node) == test
    }

    /// Whether a node is outside of the loop that is being lowered.
    pub(super) fn is_outside(&self, node: NodeId) -> bool {
        self.inside.last().is_some_and(|inside| !self.pruned.frames.is_in(node, inside.frame))
    }
}

/// [`Lowering::same_in_loop`] has looked at each push.
fn not_that(name: &str) -> Error {
    Error::internal("a list of one tensor has become another list in an iteration").at_node(name)
}

/// What a loop carries of a value that goes round: the number of the first parameter.
enum Slots {
    Value(usize),
    /// The rows of a list that has the same length in each iteration.
    Rows {
        first: usize,
        length: u64,
    },
    /// The rows of a list, and its length.
    Growing(usize),
    /// The length of a list of one tensor, unless it is always this one.
    Same {
        item: One,
        length: Length,
        first: Option<usize>,
    },
}

impl Slots {
    /// What is carried, in these values.
    fn meaning(&self, values: &[ValueId], views: &[View]) -> Meaning {
        let view = |index: usize| View { value: values[index], ..views[index].clone() };
        match self {
            &Slots::Value(first) => Meaning::Value(view(first)),
            Slots::Same { item, length, first } => {
                let length = first.map_or(length.clone(), |first| Length::Value(view(first)));
                Meaning::Same(Same { item: item.clone(), length })
            }
            &Slots::Rows { first, length } => Meaning::List(List { rows: Some(view(first)), length: Length::Known(length) }),
            &Slots::Growing(first) => Meaning::List(List { rows: Some(view(first)), length: Length::Value(view(first + 1)) }),
        }
    }
}

/// The parts of a frame.
struct Parts {
    /// What decides whether there is a next iteration, in order.
    test: Vec<Item>,
    test_nodes: HashSet<NodeId>,
    /// The rest of an iteration, in order.
    body: Vec<Item>,
    body_reads_test: bool,
    /// All nodes but Enters and Exits.
    nodes: HashSet<NodeId>,
}

impl Parts {
    fn new(lowering: &Lowering<'_>, id: FrameId, frame: &Frame, test: NodeId) -> Result<Parts> {
        let (graph, frames) = (lowering.request.graph, &lowering.pruned.frames);
        let merges: HashSet<NodeId> = frame.rounds.iter().map(|round| round.merge).collect();
        let ends: HashSet<NodeId> = frame.enters.iter().copied().chain(merges.iter().copied()).collect();
        let mut test_nodes: HashSet<NodeId> = HashSet::new();
        let mut open = vec![test];
        while let Some(node) = open.pop() {
            if ends.contains(&node) || !frames.is_in(node, id) || !test_nodes.insert(node) {
                continue;
            }
            if frame.switches.contains(&node) && graph.node(node).inputs.get(1).is_some_and(|input| input.node == test) {
                return Err(Error::unimplemented("not yet: a loop whose condition follows from its body"));
            }
            open.extend(graph.node(node).inputs.iter().map(|input| input.node).chain(graph.node(node).controls.iter().copied()));
        }
        let in_test = |item: &Item| match item {
            Item::Node(node) => test_nodes.contains(node),
            Item::Loop(inner) => frames.get(*inner).enters.iter().any(|enter| test_nodes.contains(enter)),
        };
        let is_own = |item: &&Item| match item {
            Item::Node(node) => !ends.contains(node) && !frame.exits.contains(node),
            Item::Loop(_) => true,
        };
        let (test, body): (Vec<Item>, Vec<Item>) = frame.items.iter().filter(is_own).partition(|item| in_test(item));
        let nodes: HashSet<NodeId> = frames.nodes(id).collect();
        let beyond = nodes.iter().filter(|node| !test_nodes.contains(node) && !ends.contains(node));
        let reads = |node: &NodeId| {
            let is_switch = frame.switches.contains(node);
            graph.node(*node).inputs.iter().take(if is_switch { 1 } else { usize::MAX }).any(|input| test_nodes.contains(&input.node))
        };
        let body_reads_test = beyond.clone().any(reads);
        let nodes = nodes.iter().copied().filter(|node| !frame.enters.contains(node) && !frame.exits.contains(node)).collect();
        Ok(Parts { test, test_nodes, body, body_reads_test, nodes })
    }
}
