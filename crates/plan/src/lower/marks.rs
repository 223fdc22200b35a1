//! The rules of TensorArrays: an element is written once, and read once where reads clear it; one that was not written is read as zeros
//! where the shape of elements is known, and fails otherwise.
//!
//! Where the graph does not show that the accesses to an array keep a rule, the run does: it keeps a byte for each element, the mark,
//! which an access sets and looks at. Marks are a state of the array, as tensors are the state of a stack: loops carry them.
//!
//! Of an array whose handle the graph does not lead back to a TensorArrayV3 of the same plan, no marks are kept.
//!
//! Source of the rules: TensorFlow's `kernels/tensor_array.h`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::{AttrsExt, Graph, HostTensor, Node, NodeId, Output, Shape};
use plimsoll_ops::list::list_at;
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;
use plimsoll_request::expr::{ExprBuilder, Scalar};
use plimsoll_request::gather::{Access, Gather, ScatterOp};

use super::Lowering;
use crate::alive::When;
use crate::frames::{FrameId, round, stays};
use crate::infer::Pruned;
use crate::lir::{Arg, Home, ValueId, View, WorkKind};
use crate::trips::{Most, count_of, most};
use crate::widen::stack_of;

/// Longer chains of nodes are not followed.
const MOST_STEPS: usize = 256;

/// More elements than these are not marked by one node.
const MOST_AT_ONCE: u64 = 1 << 20;

/// A TensorArray: the node that makes it, and the names of the gradients, of one of which it is.
type Array = (NodeId, Vec<String>);

/// The marks of an array for an access: of `Write` and `Read`.
type Mark = (Array, Access);

/// An access of a node to an array.
struct Visit {
    node: NodeId,
    /// The input that says which elements; all of them where there is none.
    index: Option<usize>,
    frame: Option<FrameId>,
    when: When,
    /// What the elements are in: from the first to the last that may be visited.
    span: Range<i128>,
    /// Whether it visits all of the span when the array's other accesses are made.
    is_whole: bool,
    /// Whether it visits no element twice.
    is_distinct: bool,
    /// The value that goes round which counts the elements.
    counter: Option<NodeId>,
}

/// What is known of the arrays of a plan, and the state of their marks.
#[derive(Default)]
pub(super) struct Marks {
    /// By node: the array, what it does with elements, the input that says with which.
    visits: HashMap<NodeId, (Array, Access, Option<usize>)>,
    /// The marks that are kept, each with the number of elements.
    kept: BTreeMap<Mark, u64>,
    /// Reads that look whether an element has been written.
    asks: HashSet<NodeId>,
    /// Reads of arrays that nothing writes.
    never_written: HashSet<NodeId>,
    state: HashMap<Mark, View>,
}

impl Marks {
    pub(super) fn new(graph: &Graph, pruned: &Pruned) -> Marks {
        let mut arrays: BTreeMap<Array, [Vec<Visit>; 2]> = BTreeMap::new();
        let mut marks = Marks::default();
        let made: HashSet<NodeId> = pruned.order.iter().copied().filter(|id| graph.node(*id).op == "TensorArrayV3").collect();
        for &id in pruned.order.iter().filter(|id| !made.is_empty() && pruned.alive.node(**id) != When::Never) {
            let node = graph.node(id);
            let Some((access, index)) = access(&node.op) else { continue };
            let Some(array) = node.inputs.first().and_then(|handle| array_of(graph, (pruned, &made), *handle)) else { continue };
            let visit = Visit::new(graph, pruned, (id, index), array.0);
            marks.visits.insert(id, (array.clone(), access, index));
            arrays.entry(array).or_default()[usize::from(access == Access::Read)].push(visit);
        }
        for (array, [writes, reads]) in arrays {
            let attrs = &graph.node(array.0).attrs;
            let is_gradient = !array.1.is_empty();
            let says = |name: &str, default: bool| attrs.bool(name).unwrap_or(default);
            if !is_gradient && writes.is_empty() {
                marks.never_written.extend(reads.iter().map(|read| read.node));
            }
            let Some(elements) = elements(graph, pruned, array.0, &[&writes, &reads]) else { continue };
            let has_shape = attrs.shape("element_shape").is_ok_and(|shape| shape.complete().is_some());
            let mut asks = Vec::new();
            if !is_gradient && !has_shape && !says("identical_element_shapes", false) {
                // An array that grows has room behind its last tensor.
                let of_tensors = |read: &&Visit| read.index.is_some() || !says("dynamic_size", false);
                let unsure = reads.iter().filter(of_tensors).filter(|read| !is_written(pruned, array.0, &writes, read));
                asks.extend(unsure.map(|read| read.node));
            }
            let looks_twice = |visits: &[Visit]| visits.iter().any(|visit| visit.is_test(pruned, array.0));
            if (!asks.is_empty() || !is_gradient && may_meet(&writes)) && !looks_twice(&writes) {
                marks.kept.insert((array.clone(), Access::Write), elements);
                marks.asks.extend(asks);
            }
            if (is_gradient || says("clear_after_read", true)) && may_meet(&reads) && !looks_twice(&reads) {
                marks.kept.insert((array, Access::Read), elements);
            }
        }
        marks
    }

    /// Whether a node reads an array that nothing writes.
    pub(super) fn is_never_written(&self, id: NodeId) -> bool {
        self.never_written.contains(&id)
    }

    /// The marks from around a loop that it looks at.
    pub(super) fn of_loop(&self, pruned: &Pruned, frame: FrameId) -> Vec<Mark> {
        let looks = |(array, access): &Mark| {
            let is_it = |(of, how, _): &(Array, Access, Option<usize>), node: &NodeId| {
                of == array && (how == access || *access == Access::Write && self.asks.contains(node))
            };
            self.visits.iter().any(|(node, visit)| is_it(visit, node) && pruned.frames.is_in(*node, frame))
        };
        self.kept.keys().filter(|mark| self.state.contains_key(*mark) && looks(mark)).cloned().collect()
    }

    pub(super) fn views(&self, marks: &[Mark]) -> Vec<View> {
        marks.iter().filter_map(|mark| self.state.get(mark).cloned()).collect()
    }

    /// The marks are in these values, as in the views.
    pub(super) fn set(&mut self, marks: &[Mark], (values, views): (&[ValueId], &[View])) {
        for ((mark, value), view) in marks.iter().zip(values).zip(views) {
            self.state.insert(mark.clone(), View { value: *value, ..view.clone() });
        }
    }
}

/// What an operation does with elements of the TensorArray at input 0, and the input that says with which.
fn access(op: &str) -> Option<(Access, Option<usize>)> {
    match op {
        "TensorArrayReadV3" | "TensorArrayGatherV3" => Some((Access::Read, Some(1))),
        "TensorArrayConcatV3" => Some((Access::Read, None)),
        "TensorArrayWriteV3" | "TensorArrayScatterV3" => Some((Access::Write, Some(1))),
        "TensorArraySplitV3" => Some((Access::Write, None)),
        _ => None,
    }
}

/// The array that a handle stands for, if this plan makes it.
fn array_of(graph: &Graph, (pruned, made): (&Pruned, &HashSet<NodeId>), handle: Output) -> Option<Array> {
    let (mut here, mut sources) = (handle, Vec::new());
    for _ in 0..MOST_STEPS {
        let node = graph.node(here.node);
        here = match (node.op.as_str(), here.index) {
            ("Identity" | "Enter" | "Switch" | "Exit", _) => *node.inputs.first()?,
            ("Merge", 0) => round(graph, here.node).filter(|(_, next)| stays(graph, here.node, *next))?.0,
            ("TensorArrayGradV3", 0) => {
                sources.push(node.attrs.text("source").ok()?.to_string());
                *node.inputs.first()?
            }
            ("TensorArrayV3", 0) if made.contains(&here.node) => return Some((here.node, sources)),
            _ => return None,
        };
        if pruned.feeds.contains(&here) {
            return None;
        }
    }
    None
}

/// How many elements an array has at most.
fn elements(graph: &Graph, pruned: &Pruned, array: NodeId, visits: &[&[Visit]; 2]) -> Option<u64> {
    let mut most = pruned.facts[array].get(1)?.list.as_ref()?.room;
    if !graph.node(array).attrs.bool("dynamic_size").unwrap_or(false) {
        return most;
    }
    for visit in visits.iter().flat_map(|visits| visits.iter()) {
        let inputs = graph.node(visit.node).inputs.iter().filter_map(|input| pruned.facts[input.node].get(input.index as usize));
        let list = pruned.facts[visit.node].iter().chain(inputs).filter_map(|fact| fact.list.as_ref());
        most = most.max(Some(list.map(|list| list.block_rows()).try_fold(0, |most, rows| rows.map(|rows| rows.max(most)))?));
    }
    most
}

impl Visit {
    fn new(graph: &Graph, pruned: &Pruned, (node, index): (NodeId, Option<usize>), array: NodeId) -> Visit {
        let frame = pruned.frames.of(node);
        let mut visit = Visit {
            node,
            index,
            frame,
            when: pruned.alive.node(node),
            span: 0..i128::MAX,
            is_whole: false,
            is_distinct: false,
            counter: None,
        };
        let home = pruned.frames.of(array);
        let Some(index) = index.map(|index| graph.node(node).inputs[index]) else {
            (visit.is_whole, visit.is_distinct) = (true, frame == home);
            return visit;
        };
        if frame == home {
            visit.is_whole = visit.when == When::Always;
            let fact = pruned.facts[index.node].get(index.index as usize);
            if let Some(known) = fact.and_then(|fact| fact.value.as_ref()?.to_i64s()) {
                let distinct: HashSet<i64> = known.iter().copied().collect();
                let (first, last) = (known.iter().min().copied().unwrap_or(0), known.iter().max().copied().unwrap_or(-1));
                visit.span = i128::from(first)..i128::from(last) + 1;
                visit.is_distinct = distinct.len() == known.len();
                visit.is_whole &= visit.span.end - visit.span.start == distinct.len() as i128;
            } else {
                let is_one =
                    fact.and_then(|fact| fact.shape.complete()).and_then(|shape| shape.elements().ok()).is_some_and(|count| count < 2);
                visit.is_distinct = is_one || graph.node(index.node).op == "Range";
                visit.is_whole = false;
            }
        } else if let Some((counter, span, is_exact)) = frame.and_then(|frame| counted(graph, pruned, index, frame, home)) {
            let test = frame.and_then(|frame| pruned.frames.get(frame).test);
            let is_body = |sides: &[(Output, bool)]| test.is_some_and(|node| sides == [(Output { node, index: 0 }, true)]);
            visit.is_whole = is_exact && matches!(&visit.when, When::Under(sides) if is_body(sides));
            (visit.span, visit.is_distinct, visit.counter) = (span, true, Some(counter));
        }
        visit
    }

    /// Whether it is in the condition of a loop around it, which is computed elsewhere than in the loop's body, too.
    fn is_test(&self, pruned: &Pruned, array: NodeId) -> bool {
        let Some(frame) = self.frame.filter(|frame| Some(*frame) != pruned.frames.of(array)) else { return false };
        let test = pruned.frames.get(frame).test.map(|test| Output { node: test, index: 0 });
        match &self.when {
            When::Under(sides) => !sides.iter().any(|(predicate, side)| Some(*predicate) == test && *side),
            _ => true,
        }
    }

    /// Whether it may visit an element that another one visits.
    fn meets(&self, other: &Visit) -> bool {
        if self.span.end <= other.span.start || other.span.end <= self.span.start {
            return false;
        }
        // In one iteration they exclude each other, and in different ones they visit different elements.
        let together =
            self.frame == other.frame && (self.counter.is_some() && self.counter == other.counter || self.is_once() && other.is_once());
        !(together && self.when.and(&other.when) == When::Never)
    }

    /// Whether it runs at most once for each time that the array is made.
    fn is_once(&self) -> bool {
        self.counter.is_none() && self.is_distinct
    }
}

/// The value that goes round in a loop which an index counts; what it is in; and whether it takes every number of it. A loop inside of
/// another one begins anew, unless the array is made there.
fn counted(graph: &Graph, pruned: &Pruned, index: Output, frame: FrameId, home: Option<FrameId>) -> Option<(NodeId, Range<i128>, bool)> {
    let looked = pruned.frames.get(frame);
    if looked.parent != home {
        return None;
    }
    if let Some((first, step)) = count_of(graph, &pruned.facts, looked, index) {
        let counter = crate::trips::round_of(graph, &pruned.facts, looked, index)?.merge;
        let Some(first) = first else { return Some((counter, 0..i128::MAX, false)) };
        let (trips, is_exact) = match most(graph, &pruned.facts, looked) {
            Most::Known { trips, exactly } => (i128::from(trips), exactly && step == 1),
            _ => return Some((counter, first..i128::MAX, false)),
        };
        return Some((counter, first..first.saturating_add(step.saturating_mul(trips)), is_exact));
    }
    // What was pushed on a stack is popped once.
    let pop = source(graph, index);
    let node = graph.node(pop);
    let stack = (node.op == "StackPopV2").then(|| stack_of(graph, *node.inputs.first()?)).flatten()?;
    let of = |op: &str| {
        let is_of = |id: &&NodeId| {
            graph.node(**id).op == op && graph.node(**id).inputs.first().and_then(|handle| stack_of(graph, *handle)) == Some(stack)
        };
        let mut nodes = pruned.order.iter().filter(is_of);
        nodes.next().copied().filter(|_| nodes.next().is_none())
    };
    let (push, _) = (of("StackPushV2")?, of("StackPopV2")?);
    let pushed = pruned.frames.of(push)?;
    let (_, span, _) = counted(graph, pruned, graph.node(push).inputs[1], pushed, pruned.frames.of(stack))?;
    Some((pop, span, false))
}

/// The node that a tensor is the same as.
fn source(graph: &Graph, tensor: Output) -> NodeId {
    let mut here = tensor.node;
    for _ in 0..MOST_STEPS {
        let node = graph.node(here);
        match (node.op.as_str(), node.inputs.first()) {
            ("Identity", Some(input)) => here = input.node,
            _ => break,
        }
    }
    here
}

/// Whether an element may be visited twice.
fn may_meet(visits: &[Visit]) -> bool {
    if visits.iter().any(|visit| !visit.is_distinct) {
        return true;
    }
    let mut sorted: Vec<&Visit> = visits.iter().collect();
    sorted.sort_by_key(|visit| visit.span.start);
    sorted.iter().enumerate().any(|(at, visit)| {
        let later = sorted[at + 1..].iter().take_while(|other| other.span.start < visit.span.end);
        // Where many are in the same place, they are not looked at in pairs.
        later.clone().count() > MOST_STEPS || later.into_iter().any(|other| visit.meets(other))
    })
}

/// Whether the graph shows that each element that a node reads has been written.
fn is_written(pruned: &Pruned, array: NodeId, writes: &[Visit], read: &Visit) -> bool {
    let home = pruned.frames.of(array);
    // Of two accesses in one loop the graph does not say here which one is first at an element.
    let is_before = |write: &&Visit| write.is_whole && (write.frame == home || write.frame != read.frame);
    let mut spans: Vec<&Range<i128>> = writes.iter().filter(is_before).map(|write| &write.span).collect();
    spans.sort_by_key(|span| span.start);
    let reached = spans.iter().fold(read.span.start, |reached, span| if span.start <= reached { reached.max(span.end) } else { reached });
    let length = || pruned.facts[array].get(1).and_then(|fact| fact.list.as_ref()?.length).map(i128::from);
    let end = if read.span.end == i128::MAX { length() } else { Some(read.span.end) };
    end.is_some_and(|end| reached >= end)
}

impl Lowering<'_> {
    /// An access to a TensorArray: fails where the rules of TensorArrays are broken.
    pub(super) fn check_access(&mut self, id: NodeId, node: &Node) -> Result<()> {
        let Some((array, access, index)) = self.marks.visits.get(&id).cloned() else { return self.check_unwritten(id, node) };
        if self.marks.asks.contains(&id) {
            self.look_at((array.clone(), Access::Write), Access::ReadWritten, (id, node, index))?;
        }
        self.look_at((array, access), access, (id, node, index))
    }

    /// A tensor of a TensorArray may be written once: fails where an earlier stage has written all of them.
    fn check_unwritten(&mut self, id: NodeId, node: &Node) -> Result<()> {
        if !matches!(access(&node.op), Some((Access::Write, _))) {
            return Ok(());
        }
        let fact = |input: &Output| self.pruned.facts[input.node].get(input.index as usize).cloned();
        let facts = node.inputs.iter().map(fact).collect::<Option<Vec<_>>>().unwrap_or_default();
        let list = facts.get(list_at(&facts, 3)).and_then(|fact| fact.list.as_ref());
        if list.is_some_and(|list| list.is_full && list.length != Some(0)) {
            self.fail(id, Requirement::Unwritten)?;
        }
        Ok(())
    }

    /// The marks of the arrays that a node makes: no element has one.
    pub(super) fn new_marks(&mut self, id: NodeId) -> Result<()> {
        let made: Vec<(Mark, u64)> =
            self.marks.kept.iter().filter(|((array, _), _)| array.0 == id).map(|(mark, elements)| (mark.clone(), *elements)).collect();
        for (mark, elements) in made.into_iter().filter(|(_, elements)| *elements > 0) {
            let mut builder = ExprBuilder::new();
            let zero = builder.constant(Scalar::U8(0));
            let shape = Shape::from(vec![elements]);
            let kind = WorkKind::Expr { expr: builder.finish(vec![zero]), shape: shape.clone() };
            let view = self.made(id, kind, Vec::new(), DataType::Uint8, shape)?;
            self.marks.state.insert(mark, view);
        }
        Ok(())
    }

    /// Looks at the marks of an array, and sets them.
    fn look_at(&mut self, mark: Mark, access: Access, (id, node, index): (NodeId, &Node, Option<usize>)) -> Result<()> {
        let Some(marks) = self.marks.state.get(&mark).cloned() else { return Ok(()) };
        let indices = match index {
            Some(index) => self.read_input(id, node, index)?,
            None => {
                let count = marks.shape.elements()?;
                if count > MOST_AT_ONCE {
                    return Err(Error::unimplemented(format!(
                        "not yet: {count} tensors of a TensorArray at once, in more than one access"
                    )));
                }
                let all: Vec<i32> = (0..count as i32).collect();
                self.constant_of(id, &HostTensor::from_slice(vec![count], &all)?)?
            }
        };
        let is_in_place = self.may_change(id, marks.value);
        let guard = self.branches.guard.filter(|_| !is_in_place);
        let (indices, update) = match guard {
            Some(guard) => self.where_alive(id, guard, indices)?,
            None => (indices, self.constant_of(id, &HostTensor::scalar(1u8))?),
        };
        let request = KernelRequest::Gather(Gather::Scatter {
            op: ScatterOp::Mark(access),
            data_type: DataType::Uint8,
            index_type: indices.data_type,
            shape: marks.shape.to_vec(),
            indices: indices.shape.elements()?,
            depth: 1,
            scalar_updates: true,
            ignore: false,
            in_place: is_in_place,
        });
        let inputs = vec![marks.clone(), indices, update];
        let value = if is_in_place {
            let value = self.lir.next_version(marks.value, id);
            self.note_newest(value);
            let args = vec![Arg::Output(0), Arg::Input(1), Arg::Input(2), Arg::Output(0)];
            self.work(id, WorkKind::Request { request: Arc::new(request), args }, inputs, vec![value], true);
            value
        } else {
            // Marks are there whether or not the node is alive.
            let value = self.lir.value(self.device(id), Home::Arena, marks.shape.elements()?, id);
            let around = self.branches.guard.take();
            self.work(id, WorkKind::request(request, 3, 1), inputs, vec![value], true);
            self.branches.guard = around;
            value
        };
        self.marks.state.insert(mark, View { value, ..marks });
        Ok(())
    }

    /// A tensor that the plan knows, for a node.
    fn constant_of(&mut self, id: NodeId, tensor: &HostTensor) -> Result<View> {
        let name = self.request.graph.node(id).name.clone();
        let value = self.lir.constant(tensor, self.device(id), Output { node: id, index: 0 }, &name)?;
        Ok(View { value, data_type: tensor.data_type(), shape: tensor.shape().clone() })
    }

    /// Indices, and what marks are to become there. Where the node is not alive the indices are 0 and nothing changes.
    fn where_alive(&mut self, id: NodeId, guard: ValueId, indices: View) -> Result<(View, View)> {
        let alive = View { value: guard, data_type: DataType::Bool, shape: Shape::scalar() };
        let around = self.branches.guard.take();
        let mut builder = ExprBuilder::new();
        let (is_alive, index) = (builder.input(DataType::Bool)?, builder.input(indices.data_type)?);
        let zero = builder.constant(if indices.data_type == DataType::Int64 { Scalar::I64(0) } else { Scalar::I32(0) });
        let chosen = builder.select(is_alive, index, zero)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![chosen]), shape: indices.shape.clone() };
        let (data_type, shape) = (indices.data_type, indices.shape.clone());
        let indices = self.made(id, kind, vec![alive.clone(), indices], data_type, shape)?;
        let mut builder = ExprBuilder::new();
        let is_alive = builder.input(DataType::Bool)?;
        let (one, zero) = (builder.constant(Scalar::U8(1)), builder.constant(Scalar::U8(0)));
        let update = builder.select(is_alive, one, zero)?;
        let kind = WorkKind::Expr { expr: builder.finish(vec![update]), shape: Shape::scalar() };
        let update = self.made(id, kind, vec![alive], DataType::Uint8, Shape::scalar())?;
        self.branches.guard = around;
        Ok((indices, update))
    }

    /// The marks behind a loop, which may have been passed over.
    pub(super) fn leave_marks(&mut self, test: NodeId, marks: &[Mark], (outputs, views): (&[ValueId], &[View])) -> Result<()> {
        let Some(guard) = self.branches.guard.take() else {
            self.marks.set(marks, (outputs, views));
            return Ok(());
        };
        let works = self.lir.works.len();
        let mut left = Vec::with_capacity(marks.len());
        for (output, before) in outputs.iter().zip(views) {
            let mut builder = ExprBuilder::new();
            let (ran, after, old) = (builder.input(DataType::Bool)?, builder.input(DataType::Uint8)?, builder.input(DataType::Uint8)?);
            let chosen = builder.select(ran, after, old)?;
            let kind = WorkKind::Expr { expr: builder.finish(vec![chosen]), shape: before.shape.clone() };
            let ran = View { value: guard, data_type: DataType::Bool, shape: Shape::scalar() };
            let after = View { value: *output, ..before.clone() };
            left.push(self.made(test, kind, vec![ran, after, before.clone()], DataType::Uint8, before.shape.clone())?.value);
        }
        self.take_in(works)?;
        self.branches.guard = Some(guard);
        self.marks.set(marks, (&left, views));
        Ok(())
    }
}
