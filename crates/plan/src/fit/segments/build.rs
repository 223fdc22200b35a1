//! Two loops whose lists are not kept: the one forward keeps its state at every k-th iteration, and the one behind it becomes a loop over
//! segments of k iterations, from the last one on. Each makes the rows of its iterations again, and reads them.

use std::collections::{BTreeMap, HashMap};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::Shape;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Scalar};
use plimsoll_request::gather::Gather;

use super::body::{Making, single, take, with};
use super::pairs::{List, Pair};
use crate::lir::{Arg, Lir, RegionId, Trips, ValueId, View, WorkId, WorkKind};
use crate::prepare::choose_one;

/// A pair of loops that is being changed.
struct Segments<'a> {
    pair: &'a Pair,
    /// Iterations of a segment, and how many segments there are.
    length: u64,
    count: u64,
    top: RegionId,
    /// The bodies, the numbers of carried values and the inputs of the two loops as they were.
    forward: (RegionId, usize, Vec<View>),
    back: (RegionId, usize, Vec<View>),
}

/// The works of the region at hand that are new, each with the one that it comes before.
pub(super) type Before = Vec<(WorkId, WorkId)>;

/// Changes a pair of loops of the region at hand.
///
/// # Errors
/// UNIMPLEMENTED where the device lacks a kernel; INTERNAL where the loops are not such a pair.
pub(super) fn segment(making: &mut Making<'_>, pair: &Pair, length: u64) -> Result<Before> {
    let lir = &making.lir;
    let of = |id: WorkId| match lir.works[id].kind {
        WorkKind::Loop { body, carried, .. } => Ok((body, carried, lir.works[id].inputs.clone())),
        _ => Err(Error::internal("a pair of loops that are none")),
    };
    let (forward, back) = (of(pair.loops.forward)?, of(pair.loops.back)?);
    let count = pair.loops.trips.div_ceil(length);
    let segments = Segments { pair, length, count, top: lir.here(), forward, back };
    let mut before = Vec::new();
    let kept = segments.keep(making, &mut before)?;
    segments.over(making, &kept, &mut before)?;
    making.lir.enter(segments.top);
    Ok(before)
}

impl Segments<'_> {
    /// An int32 that a number is.
    fn int(number: u64) -> Result<i32> {
        i32::try_from(number).map_err(|_| Error::unimplemented("segments of so many iterations"))
    }

    /// The works that `make` adds to the plan's own region, before one.
    fn ahead<T>(making: &mut Making<'_>, of: WorkId, before: &mut Before, make: impl FnOnce(&mut Making<'_>) -> Result<T>) -> Result<T> {
        let first = making.lir.region().works.len();
        let made = make(making)?;
        let new = making.lir.region_mut().works.split_off(first);
        before.extend(new.into_iter().map(|work| (work, of)));
        Ok(made)
    }

    fn list(&self, carried: usize) -> Option<&List> {
        self.pair.loops.lists.iter().find(|list| list.carried == carried)
    }

    /// The first loop without its lists. It counts, and writes its state into rows: those that come out of it, by what it carries.
    fn keep(&self, making: &mut Making<'_>, before: &mut Before) -> Result<BTreeMap<usize, View>> {
        let (forward, (old, carried, inputs)) = (self.pair.loops.forward, &self.forward);
        making.node = making.lir.works[forward].nodes[0];
        let rows = |state: &usize| -> (usize, View) {
            let view = &inputs[*state];
            let shape = Shape::from([&[self.count], view.shape.dims()].concat());
            (*state, View { shape, ..view.clone() })
        };
        let rows: Vec<(usize, View)> = self.pair.state.iter().map(rows).collect();
        // What it carries: what it did, the count, and the rows.
        let stays: Vec<usize> = (0..*carried).filter(|index| self.list(*index).is_none()).collect();
        let mut given: Vec<View> = stays.iter().map(|index| inputs[*index].clone()).collect();
        let (counter, first) = (given.len(), given.len() + 1);
        let new = Self::ahead(making, forward, before, |making| {
            let mut new = vec![making.number(&[], |builder, _| Ok(builder.constant(Scalar::I32(0))))?];
            for (_, view) in &rows {
                new.push(making.zeros(view.data_type, &view.shape)?);
            }
            Ok(new)
        })?;
        let outputs = making.outputs(&new);
        given.extend(new);
        let now_carried = given.len();
        given.extend(inputs[*carried..].iter().cloned());
        let mut body = making.body(&given);
        let olds: Vec<ValueId> = making.lir.passed(*old).collect();
        let imports = (*carried..inputs.len()).zip(now_carried..);
        for (was, is) in stays.iter().copied().zip(0..).chain(imports) {
            body.values.insert(olds[was], body.params[is]);
        }
        let (count, length) = (body.params[counter], Self::int(self.length)?);
        let is_first = making.number(&[count], |builder, of| {
            let rest = with(builder, BinaryOp::FloorMod, of[0], length)?;
            with(builder, BinaryOp::Equal, rest, 0)
        })?;
        let segment = making.number(&[count], |builder, of| with(builder, BinaryOp::FloorDiv, of[0], length))?;
        let mut versions = Vec::new();
        for (number, (state, view)) in rows.iter().enumerate() {
            let row = View { value: body.values[&olds[*state]], ..inputs[*state].clone() };
            let rows = View { value: body.params[first + number], ..view.clone() };
            let (work, version) = making.put(rows, segment.value, row)?;
            making.lir.works[work].guard = Some(is_first.value);
            versions.push(version);
        }
        for work in making.lir.regions[*old].works.clone() {
            if !self.pair.loops.lists.iter().any(|list| list.writer == work) {
                making.again(&mut body, work)?;
            }
        }
        let next = making.next(count, &[count], |builder, of| with(builder, BinaryOp::Add, of[0], 1))?;
        let mut results =
            stays.iter().map(|index| making.own(&mut body, making.lir.regions[*old].results[*index])).collect::<Result<Vec<_>>>()?;
        results.push(next);
        results.extend(versions);
        making.end(results, self.top);
        let work = &mut making.lir.works[forward];
        let kept =
            rows.iter().zip(&outputs[1..]).map(|((state, view), output)| (*state, View { value: *output, ..view.clone() })).collect();
        work.outputs = stays.iter().map(|index| work.outputs[*index]).chain(outputs).collect();
        work.inputs = given;
        work.kind = WorkKind::Loop { body: body.region, carried: now_carried, trips: Trips::Exactly(self.pair.loops.trips) };
        making.prepare(forward)?;
        Ok(kept)
    }

    /// The loop over segments, in the place of the second loop.
    fn over(&self, making: &mut Making<'_>, kept: &BTreeMap<usize, View>, before: &mut Before) -> Result<()> {
        let (back, (_, carried, inputs)) = (self.pair.loops.back, &self.back);
        making.node = making.lir.works[back].nodes[0];
        let last = Self::int(self.count - 1)?;
        // It carries whether there is another segment, the number of the segment, and what the loop carries.
        let mut given = Self::ahead(making, back, before, |making| {
            let is_there = making.number(&[], |builder, _| Ok(builder.constant(Scalar::Bool(true))))?;
            Ok(vec![is_there, making.number(&[], |builder, _| Ok(builder.constant(Scalar::I32(last))))?])
        })?;
        let outputs = making.outputs(&given);
        let is_list = |index: &usize| self.pair.loops.lists.iter().any(|list| list.inputs.contains(index));
        let stays: Vec<usize> = (0..*carried).filter(|index| !is_list(index)).collect();
        given.extend(stays.iter().map(|index| inputs[*index].clone()));
        let now_carried = given.len();
        // What is read of around the loops, each once.
        let imports = (*carried..inputs.len()).filter(|index| !is_list(index)).map(|index| &inputs[index]);
        let of_forward = self.pair.imports.iter().map(|index| &self.forward.2[*index]);
        let mut places: HashMap<ValueId, usize> = HashMap::new();
        for view in kept.values().chain(of_forward).chain(imports) {
            places.entry(view.value).or_insert_with(|| {
                given.push(view.clone());
                given.len() - 1
            });
        }
        let body = making.body(&given);
        let inside = |view: &View| View { value: body.params[places[&view.value]], ..view.clone() };
        let (test, segment) = (body.params[0], body.params[1]);
        let (length, trips) = (Self::int(self.length)?, Self::int(self.pair.loops.trips)?);
        let limit = making.number(&[segment], |builder, of| {
            let begun = with(builder, BinaryOp::Mul, of[0], length)?;
            let all = builder.constant(Scalar::I32(trips));
            let left = builder.binary(BinaryOp::Sub, all, begun)?;
            with(builder, BinaryOp::Minimum, left, length)
        })?;
        let mut states = Vec::new();
        for (state, rows) in kept {
            states.push(making.take(inside(rows), segment, &self.forward.2[*state])?);
        }
        let imported: Vec<View> = self.pair.imports.iter().map(|index| inside(&self.forward.2[*index])).collect();
        let (done, lists) = self.forward_again(making, body.region, (limit.value, &states, &imported))?;
        let of_back: Vec<View> = (*carried..inputs.len()).filter(|index| !is_list(index)).map(|index| inside(&inputs[index])).collect();
        let states: Vec<View> =
            stays.iter().zip(&body.params[2..]).map(|(index, param)| View { value: *param, ..inputs[*index].clone() }).collect();
        let versions = self.backward(making, body.region, (done, &lists), (&stays, &states, &of_back))?;
        let again = making.next(test, &[segment], |builder, of| with(builder, BinaryOp::Greater, of[0], 0))?;
        let next = making.next(segment, &[segment], |builder, of| with(builder, BinaryOp::Sub, of[0], 1))?;
        making.end([again, next].into_iter().chain(versions).collect(), self.top);
        let work = &mut making.lir.works[back];
        work.outputs = outputs.into_iter().chain(stays.iter().map(|index| work.outputs[*index])).collect();
        work.inputs = given;
        work.kind = WorkKind::Loop { body: body.region, carried: now_carried, trips: Trips::Exactly(self.count) };
        making.prepare(back)?;
        self.hold_writers(&mut making.lir);
        Ok(())
    }

    /// The iterations of a segment forward: how many there were, and the rows of the lists, by list.
    fn forward_again(
        &self,
        making: &mut Making<'_>,
        around: RegionId,
        (limit, states, imported): (ValueId, &[View], &[View]),
    ) -> Result<(ValueId, Vec<View>)> {
        let (old, _, inputs) = &self.forward;
        let is_there = making.number(&[], |builder, _| Ok(builder.constant(Scalar::Bool(true))))?;
        let none = making.number(&[], |builder, _| Ok(builder.constant(Scalar::I32(0))))?;
        let mut given = vec![is_there, none];
        given.extend(states.iter().cloned());
        let first_list = given.len();
        for list in &self.pair.loops.lists {
            let view = &inputs[list.carried];
            given.push(making.zeros(view.data_type, &self.few(&view.shape))?);
        }
        let carried = given.len();
        let outputs = making.outputs(&given);
        given.push(single(limit, DataType::Int32));
        given.extend(imported.iter().cloned());
        let mut body = making.body(&given);
        let olds: Vec<ValueId> = making.lir.passed(*old).collect();
        let imports = self.pair.imports.iter().copied().zip(carried + 1..);
        for (was, is) in self.pair.state.iter().copied().zip(2..).chain(imports) {
            body.values.insert(olds[was], body.params[is]);
        }
        let (test, index, limit) = (body.params[0], body.params[1], body.params[carried]);
        let mut versions: Vec<Option<ValueId>> = vec![None; self.pair.loops.lists.len()];
        for work in making.lir.regions[*old].works.clone() {
            if self.pair.works.contains(&work) {
                making.again(&mut body, work)?;
            } else if let Some(number) = self.pair.loops.lists.iter().position(|list| list.writer == work) {
                let row = making.lir.works[work].inputs[2].clone();
                let row = View { value: making.own(&mut body, row.value)?, ..row };
                let rows = View { value: body.params[first_list + number], ..given[first_list + number].clone() };
                versions[number] = Some(making.put(rows, index, row)?.1);
            }
        }
        let again = making.next(test, &[index, limit], |builder, of| {
            let next = with(builder, BinaryOp::Add, of[0], 1)?;
            builder.binary(BinaryOp::Less, next, of[1])
        })?;
        let next = making.next(index, &[index], |builder, of| with(builder, BinaryOp::Add, of[0], 1))?;
        let mut results = vec![again, next];
        for state in &self.pair.state {
            results.push(making.own(&mut body, making.lir.regions[*old].results[*state])?);
        }
        results.extend(versions.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| Error::internal("a list that no work writes"))?);
        making.end(results, around);
        let views = |number: usize| View { value: outputs[first_list + number], ..given[first_list + number].clone() };
        let lists = (0..self.pair.loops.lists.len()).map(views).collect();
        let done = outputs[1];
        making.repeat(body.region, (carried, self.of_segments()), given, outputs)?;
        Ok((done, lists))
    }

    /// The iterations of a segment back, of which there are as many: the next versions of what the loop carries.
    fn backward(
        &self,
        making: &mut Making<'_>,
        around: RegionId,
        (done, lists): (ValueId, &[View]),
        (stays, states, imported): (&[usize], &[View], &[View]),
    ) -> Result<Vec<ValueId>> {
        let (old, carried, inputs) = &self.back;
        let is_there = making.number(&[], |builder, _| Ok(builder.constant(Scalar::Bool(true))))?;
        let mut given = vec![is_there, single(done, DataType::Int32)];
        let mut outputs = making.outputs(&given);
        let versions: Vec<ValueId> = states.iter().map(|state| making.lir.next_version(state.value, making.node)).collect();
        outputs.extend(&versions);
        given.extend(states.iter().cloned());
        let now_carried = given.len();
        given.extend(lists.iter().cloned());
        given.extend(imported.iter().cloned());
        let mut body = making.body(&given);
        let olds: Vec<ValueId> = making.lir.passed(*old).collect();
        let is_list = |index: &usize| self.pair.loops.lists.iter().any(|list| list.inputs.contains(index));
        let imports = (*carried..inputs.len()).filter(|index| !is_list(index)).zip(now_carried + lists.len()..);
        for (was, is) in stays.iter().copied().zip(2..).chain(imports) {
            body.values.insert(olds[was], body.params[is]);
        }
        let of_lists = self.pair.loops.lists.iter().zip(now_carried..);
        for (old, new) in of_lists.flat_map(|(list, is)| list.inputs.iter().map(move |was| (*was, is))) {
            body.values.insert(olds[old], body.params[new]);
        }
        let (test, left) = (body.params[0], body.params[1]);
        let row = making.number(&[left], |builder, of| with(builder, BinaryOp::Sub, of[0], 1))?;
        for work in making.lir.regions[*old].works.clone() {
            let new = making.again(&mut body, work)?;
            if let Some(number) = self.pair.loops.lists.iter().position(|list| list.readers.contains(&work)) {
                self.read_row(making, new, (&lists[number], row.value))?;
            }
        }
        let again = making.next(test, &[left], |builder, of| with(builder, BinaryOp::Greater, of[0], 1))?;
        let next = making.next(left, &[left], |builder, of| with(builder, BinaryOp::Sub, of[0], 1))?;
        let mut results = vec![again, next];
        for index in stays {
            results.push(making.own(&mut body, making.lir.regions[*old].results[*index])?);
        }
        making.end(results, around);
        making.repeat(body.region, (now_carried, self.of_segments()), given, outputs)?;
        Ok(versions)
    }

    /// A work that read a row of a whole list reads one of a segment's.
    fn read_row(&self, making: &mut Making<'_>, id: WorkId, (list, row): (&View, ValueId)) -> Result<()> {
        let WorkKind::Kernel { call, .. } = &making.lir.works[id].kind else { return Err(Error::internal("no kernel reads a list")) };
        let KernelRequest::Gather(Gather::Take { element, params, .. }) = &*call.request else {
            return Err(Error::internal("a list that is not read by its rows"));
        };
        let shape = self.few(&Shape::from(params.clone()));
        let call = choose_one(making.request, making.device, take(*element, &shape))?;
        let work = &mut making.lir.works[id];
        work.inputs[0].shape.clone_from(&shape);
        if work.inputs[0].shape.bytes(work.inputs[0].data_type)? != list.shape.bytes(list.data_type)? {
            work.inputs[0] = View { value: work.inputs[0].value, ..list.clone() };
        }
        work.inputs[1] = single(row, DataType::Int32);
        work.kind = WorkKind::Kernel { call, args: Arg::all(2, 1) };
        making.prepare(id)
    }

    /// The shape of the rows of a segment.
    fn few(&self, shape: &Shape) -> Shape {
        std::iter::once(self.length).chain(shape.iter().skip(1).copied()).collect()
    }

    /// What overwrites operands of the first loop waits for the second one, which reads them again.
    fn hold_writers(&self, lir: &mut Lir) {
        let overwriting = crate::fit::problem::overwriting(lir);
        for input in &self.pair.imports {
            if let Some(writer) = overwriting[self.forward.2[*input].value] {
                let after = &mut lir.works[writer].after;
                after.push(self.pair.loops.back);
                after.sort_unstable();
                after.dedup();
            }
        }
    }

    fn of_segments(&self) -> Trips {
        Trips::InAll { trips: self.pair.loops.trips, runs: self.count }
    }
}
