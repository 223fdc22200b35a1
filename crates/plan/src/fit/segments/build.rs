//! Two loops whose lists are not kept: the one forward keeps its state at every k-th iteration, and the one behind it becomes a loop over
//! segments of k iterations, from the last one on. Each makes the rows of its iterations again, and reads them.
//!
//! The loops may be of several devices. Each device counts for itself; whether there is another iteration it is told by the loop's own device,
//! as in all loops.

use std::collections::{BTreeMap, HashMap};

use plimsoll_base::{DataType, Error, Result};
use plimsoll_graph::Shape;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{BinaryOp, Scalar};
use plimsoll_request::gather::Gather;

use super::body::{Body, Making, single, take, with};
use super::pairs::{List, Pair};
use crate::lir::{Arg, Lir, RegionId, Trips, ValueId, View, WorkId, WorkKind};
use crate::plan::DeviceId;
use crate::prepare::choose_one;

/// A pair of loops that is being changed.
struct Segments<'a> {
    pair: &'a Pair,
    /// Iterations of a segment, and how many segments there are.
    length: u64,
    count: u64,
    /// The region of the loops.
    around: RegionId,
    /// The loops as they were.
    forward: Was,
    back: Was,
    /// The devices of the loop over segments and of those in it, its own first.
    devices: Vec<DeviceId>,
}

/// A loop as it was.
struct Was {
    body: RegionId,
    carried: usize,
    inputs: Vec<View>,
    /// How many other devices have it: the last values that it carries are their conditions.
    partners: usize,
}

impl Was {
    fn new(lir: &Lir, id: WorkId) -> Result<Was> {
        let WorkKind::Loop { body, carried, .. } = lir.works[id].kind else { return Err(Error::internal("a pair of loops that are none")) };
        Ok(Was { body, carried, inputs: lir.works[id].inputs.clone(), partners: lir.regions[body].partners.len() })
    }

    /// What it carries but for the conditions of other devices.
    fn own(&self) -> std::ops::Range<usize> {
        0..self.carried - self.partners
    }

    fn tests(&self) -> std::ops::Range<usize> {
        self.carried - self.partners..self.carried
    }

    fn imports(&self) -> std::ops::Range<usize> {
        self.carried..self.inputs.len()
    }
}

/// The works of the region at hand that are new, each with the one that it comes before.
pub(super) type Before = Vec<(WorkId, WorkId)>;

/// Changes a pair of loops of the region at hand.
///
/// # Errors
/// UNIMPLEMENTED where a device lacks a kernel; INTERNAL where the loops are not such a pair.
pub(super) fn segment(making: &mut Making<'_>, pair: &Pair, length: u64) -> Result<Before> {
    let lir = &making.lir;
    let (forward, back) = (Was::new(lir, pair.loops.forward)?, Was::new(lir, pair.loops.back)?);
    let devices = pair.loops.devices(lir);
    let count = pair.loops.trips.div_ceil(length);
    let segments = Segments { pair, length, count, around: lir.here(), forward, back, devices };
    let mut before = Vec::new();
    let kept = segments.keep(making, &mut before)?;
    segments.over(making, &kept, &mut before)?;
    making.lir.enter(segments.around);
    Ok(before)
}

impl Segments<'_> {
    /// An int32 that a number is.
    fn int(number: u64) -> Result<i32> {
        i32::try_from(number).map_err(|_| Error::unimplemented("segments of so many iterations"))
    }

    /// The works that `make` adds to the region of the loops, before one. They run where that one does.
    fn ahead<T>(making: &mut Making<'_>, of: WorkId, before: &mut Before, make: impl FnOnce(&mut Making<'_>) -> Result<T>) -> Result<T> {
        let first = making.lir.region().works.len();
        making.guard = making.lir.works[of].guard;
        let made = make(making);
        making.guard = None;
        let made = made?;
        let new = making.lir.region_mut().works.split_off(first);
        before.extend(new.into_iter().map(|work| (work, of)));
        Ok(made)
    }

    fn list(&self, carried: usize) -> Option<&List> {
        self.pair.loops.lists.iter().find(|list| list.carried == carried)
    }

    /// Whether an input of the second loop is a list.
    fn is_list(&self, input: usize) -> bool {
        self.pair.loops.lists.iter().any(|list| list.inputs.contains(&input))
    }

    /// An int32 on each of these devices.
    fn on_each(making: &mut Making<'_>, devices: &[DeviceId], number: i32) -> Result<Vec<View>> {
        devices.iter().map(|device| making.number_on(*device, &[], |builder, _| Ok(builder.constant(Scalar::I32(number))))).collect()
    }

    /// A bool and its copies on the other devices.
    fn told(&self, making: &mut Making<'_>, first: View) -> Result<Vec<View>> {
        let others = self.devices[1..].iter().map(|device| making.copy(&first, *device)).collect::<Result<Vec<_>>>()?;
        Ok([vec![first], others].concat())
    }

    /// That there is an iteration, on each device.
    fn begins(&self, making: &mut Making<'_>) -> Result<Vec<View>> {
        let first = making.number_on(self.devices[0], &[], |builder, _| Ok(builder.constant(Scalar::Bool(true))))?;
        self.told(making, first)
    }

    /// The next versions of the bools of all devices, the one of the loop's own device first.
    fn tell(making: &mut Making<'_>, tests: &[ValueId], again: ValueId) -> Result<Vec<ValueId>> {
        let others = tests[1..].iter().map(|test| making.copy_over(*test, again)).collect::<Result<Vec<_>>>()?;
        Ok([vec![again], others].concat())
    }

    /// The next versions of counters.
    fn count(making: &mut Making<'_>, counters: &[ValueId], op: BinaryOp) -> Result<Vec<ValueId>> {
        counters.iter().map(|counter| making.next(*counter, &[*counter], |builder, of| with(builder, op, of[0], 1))).collect()
    }

    /// The counter of a device.
    fn counter_of(&self, making: &Making<'_>, counters: &[ValueId], near: ValueId) -> Result<ValueId> {
        let device = making.lir.values[near].device;
        let is_there = |counter: &&ValueId| making.lir.values[**counter].device == device;
        counters.iter().find(is_there).copied().ok_or_else(|| Error::internal("a device that does not count"))
    }

    /// The first loop without its lists. It counts, and writes its state into rows: those that come out of it, by what it carries.
    fn keep(&self, making: &mut Making<'_>, before: &mut Before) -> Result<BTreeMap<usize, View>> {
        let (forward, was) = (self.pair.loops.forward, &self.forward);
        making.node = making.lir.works[forward].nodes[0];
        let rows = |state: &usize| -> (usize, View) {
            let view = &was.inputs[*state];
            let shape = Shape::from([&[self.count], view.shape.dims()].concat());
            (*state, View { shape, ..view.clone() })
        };
        let rows: Vec<(usize, View)> = self.pair.state.iter().map(rows).collect();
        // State is kept where it is.
        let mut devices: Vec<DeviceId> = rows.iter().map(|(_, view)| making.lir.values[view.value].device).collect();
        devices.sort_unstable();
        devices.dedup();
        // What it carries: what it did, the counts, the rows, and the conditions of other devices.
        let stays: Vec<usize> = was.own().filter(|index| self.list(*index).is_none()).collect();
        let (counters, first) = (stays.len()..stays.len() + devices.len(), stays.len() + devices.len());
        let new = Self::ahead(making, forward, before, |making| {
            let mut new = Self::on_each(making, &devices, 0)?;
            for (_, view) in &rows {
                new.push(making.zeros(view)?);
            }
            Ok(new)
        })?;
        let outputs = making.outputs(&new);
        let of_was = |range: &[usize]| range.iter().map(|index| was.inputs[*index].clone()).collect::<Vec<_>>();
        let tests: Vec<usize> = was.tests().collect();
        let mut given = [of_was(&stays), new, of_was(&tests)].concat();
        let (now_carried, first_test) = (given.len(), given.len() - tests.len());
        given.extend(was.inputs[was.imports()].iter().cloned());
        let mut body = making.body(&given);
        let olds: Vec<ValueId> = making.lir.passed(was.body).collect();
        let moved = stays.iter().copied().zip(0..).chain(tests.iter().copied().zip(first_test..)).chain(was.imports().zip(now_carried..));
        for (was, is) in moved {
            body.values.insert(olds[was], body.params[is]);
        }
        let (counters, length) = (body.params[counters].to_vec(), Self::int(self.length)?);
        let mut of_counter = HashMap::new();
        for counter in &counters {
            let is_first = making.number(&[*counter], |builder, of| {
                let rest = with(builder, BinaryOp::FloorMod, of[0], length)?;
                with(builder, BinaryOp::Equal, rest, 0)
            })?;
            let segment = making.number(&[*counter], |builder, of| with(builder, BinaryOp::FloorDiv, of[0], length))?;
            of_counter.insert(*counter, (is_first.value, segment.value));
        }
        let mut versions = Vec::new();
        for (number, (state, view)) in rows.iter().enumerate() {
            let row = View { value: body.values[&olds[*state]], ..was.inputs[*state].clone() };
            let rows = View { value: body.params[first + number], ..view.clone() };
            let (is_first, segment) = of_counter[&self.counter_of(making, &counters, rows.value)?];
            let (work, version) = making.put(rows, segment, row)?;
            making.lir.works[work].guard = Some(is_first);
            versions.push(version);
        }
        for work in making.lir.regions[was.body].works.clone() {
            if !self.pair.loops.lists.iter().any(|list| list.writer == work) {
                making.again(&mut body, work)?;
            }
        }
        let next = Self::count(making, &counters, BinaryOp::Add)?;
        let mut results = Self::results(making, &mut body, was, &stays)?;
        results.extend(next);
        results.extend(versions);
        results.extend(Self::results(making, &mut body, was, &tests)?);
        making.lir.region_mut().partners = making.lir.regions[was.body].partners.clone();
        making.end(results, self.around);
        let work = &mut making.lir.works[forward];
        let kept = rows.iter().zip(&outputs[devices.len()..]);
        let kept = kept.map(|((state, view), output)| (*state, View { value: *output, ..view.clone() })).collect();
        let of_was = |range: &[usize]| range.iter().map(|index| work.outputs[*index]).collect::<Vec<_>>();
        work.outputs = [of_was(&stays), outputs, of_was(&tests)].concat();
        work.inputs = given;
        work.kind = WorkKind::Loop { body: body.region, carried: now_carried, trips: Trips::Exactly(self.pair.loops.trips) };
        making.prepare(forward)?;
        Ok(kept)
    }

    /// What a body hands on of what a loop carried.
    fn results(making: &mut Making<'_>, body: &mut Body, was: &Was, carried: &[usize]) -> Result<Vec<ValueId>> {
        carried.iter().map(|index| making.own(body, making.lir.regions[was.body].results[*index])).collect()
    }

    /// The loop over segments, in the place of the second loop.
    fn over(&self, making: &mut Making<'_>, kept: &BTreeMap<usize, View>, before: &mut Before) -> Result<()> {
        let (back, was) = (self.pair.loops.back, &self.back);
        making.node = making.lir.works[back].nodes[0];
        let last = Self::int(self.count - 1)?;
        // It carries whether there is another segment, the number of the segment, what the loop carries, and the conditions of other devices.
        let is_shared = self.devices.len() > 1;
        // Several devices have no guard: a condition around the loop says whether it begins.
        let guard = making.lir.works[back].guard.take_if(|_| is_shared);
        let begins = guard.map_or_else(|| was.inputs[0].clone(), |guard| single(guard, DataType::Bool));
        let (mut tests, counters) = Self::ahead(making, back, before, |making| {
            let tests = if is_shared {
                let first = making.copy(&begins, self.devices[0])?;
                self.told(making, first)?
            } else {
                self.begins(making)?
            };
            Ok((tests, Self::on_each(making, &self.devices, last)?))
        })?;
        let outputs_of_tests = making.outputs(&tests);
        let outputs_of_counters = making.outputs(&counters);
        let stays: Vec<usize> = was.own().filter(|index| !self.is_list(*index)).collect();
        let others = tests.split_off(1);
        let mut given = [tests, counters].concat();
        let first = given.len();
        given.extend(stays.iter().map(|index| was.inputs[*index].clone()));
        let first_test = given.len();
        given.extend(others);
        let now_carried = given.len();
        // What is read of around the loops, each once.
        let imports = was.imports().filter(|index| !self.is_list(*index)).map(|index| &was.inputs[index]);
        let of_forward = self.pair.imports.iter().map(|index| &self.forward.inputs[*index]);
        let mut places: HashMap<ValueId, usize> = HashMap::new();
        for view in kept.values().chain(of_forward).chain(imports) {
            places.entry(view.value).or_insert_with(|| {
                given.push(view.clone());
                given.len() - 1
            });
        }
        let body = making.body(&given);
        let inside = |view: &View| View { value: body.params[places[&view.value]], ..view.clone() };
        let tests: Vec<ValueId> = [&body.params[..1], &body.params[first_test..now_carried]].concat();
        let counters = &body.params[1..first];
        let (length, trips) = (Self::int(self.length)?, Self::int(self.pair.loops.trips)?);
        let limit = making.number(&counters[..1], |builder, of| {
            let begun = with(builder, BinaryOp::Mul, of[0], length)?;
            let all = builder.constant(Scalar::I32(trips));
            let left = builder.binary(BinaryOp::Sub, all, begun)?;
            with(builder, BinaryOp::Minimum, left, length)
        })?;
        let mut states = Vec::new();
        for (state, rows) in kept {
            let rows = inside(rows);
            let segment = self.counter_of(making, counters, rows.value)?;
            states.push(making.take(rows, segment, &self.forward.inputs[*state])?);
        }
        let imported: Vec<View> = self.pair.imports.iter().map(|index| inside(&self.forward.inputs[*index])).collect();
        let (done, lists) = self.forward_again(making, body.region, (limit.value, &states, &imported))?;
        let of_back: Vec<View> = was.imports().filter(|index| !self.is_list(*index)).map(|index| inside(&was.inputs[index])).collect();
        let states: Vec<View> =
            stays.iter().zip(&body.params[first..]).map(|(index, param)| View { value: *param, ..was.inputs[*index].clone() }).collect();
        let versions = self.backward(making, body.region, (&done, &lists), (&stays, &states, &of_back))?;
        let again = making.next(tests[0], &counters[..1], |builder, of| with(builder, BinaryOp::Greater, of[0], 0))?;
        let mut told = Self::tell(making, &tests, again)?;
        let next = Self::count(making, counters, BinaryOp::Sub)?;
        let others = told.split_off(1);
        self.share(making);
        making.end([told, next, versions, others].concat(), self.around);
        let work = &mut making.lir.works[back];
        let of_was = stays.iter().map(|index| work.outputs[*index]).collect();
        work.outputs = [outputs_of_tests[..1].to_vec(), outputs_of_counters, of_was, outputs_of_tests[1..].to_vec()].concat();
        work.inputs = given;
        work.kind = WorkKind::Loop { body: body.region, carried: now_carried, trips: Trips::Exactly(self.count) };
        making.prepare(back)?;
        self.hold_writers(&mut making.lir);
        Ok(())
    }

    /// The devices of the second loop and of what it holds have the body at hand.
    fn share(&self, making: &mut Making<'_>) {
        making.lir.region_mut().partners = self.devices[1..].to_vec();
    }

    /// The iterations of a segment forward: how many there were, by device, and the rows of the lists, by list.
    fn forward_again(
        &self,
        making: &mut Making<'_>,
        around: RegionId,
        (limit, states, imported): (ValueId, &[View], &[View]),
    ) -> Result<(Vec<ValueId>, Vec<View>)> {
        let was = &self.forward;
        let mut given = self.begins(making)?;
        let others = given.split_off(1);
        given.extend(Self::on_each(making, &self.devices, 0)?);
        let first = given.len();
        given.extend(states.iter().cloned());
        let first_list = given.len();
        for list in &self.pair.loops.lists {
            let view = &was.inputs[list.carried];
            given.push(making.zeros(&View { shape: self.few(&view.shape), ..view.clone() })?);
        }
        let first_test = given.len();
        given.extend(others);
        let carried = given.len();
        let outputs = making.outputs(&given);
        given.push(single(limit, DataType::Int32));
        given.extend(imported.iter().cloned());
        let mut body = making.body(&given);
        let olds: Vec<ValueId> = making.lir.passed(was.body).collect();
        let imports = self.pair.imports.iter().copied().zip(carried + 1..);
        for (was, is) in self.pair.state.iter().copied().zip(first..).chain(imports) {
            body.values.insert(olds[was], body.params[is]);
        }
        let tests: Vec<ValueId> = [&body.params[..1], &body.params[first_test..carried]].concat();
        let (counters, limit) = (body.params[1..first].to_vec(), body.params[carried]);
        let mut versions: Vec<Option<ValueId>> = vec![None; self.pair.loops.lists.len()];
        for work in making.lir.regions[was.body].works.clone() {
            if self.pair.works.contains(&work) {
                making.again(&mut body, work)?;
            } else if let Some(number) = self.pair.loops.lists.iter().position(|list| list.writer == work) {
                let row = making.lir.works[work].inputs[2].clone();
                let row = View { value: making.own(&mut body, row.value)?, ..row };
                let rows = View { value: body.params[first_list + number], ..given[first_list + number].clone() };
                let index = self.counter_of(making, &counters, rows.value)?;
                versions[number] = Some(making.put(rows, index, row)?.1);
            }
        }
        let again = making.next(tests[0], &[counters[0], limit], |builder, of| {
            let next = with(builder, BinaryOp::Add, of[0], 1)?;
            builder.binary(BinaryOp::Less, next, of[1])
        })?;
        let mut results = Self::tell(making, &tests, again)?;
        let others = results.split_off(1);
        results.extend(Self::count(making, &counters, BinaryOp::Add)?);
        for state in &self.pair.state {
            results.push(making.own(&mut body, making.lir.regions[was.body].results[*state])?);
        }
        results.extend(versions.into_iter().collect::<Option<Vec<_>>>().ok_or_else(|| Error::internal("a list that no work writes"))?);
        results.extend(others);
        self.share(making);
        making.end(results, around);
        let views = |number: usize| View { value: outputs[first_list + number], ..given[first_list + number].clone() };
        let lists = (0..self.pair.loops.lists.len()).map(views).collect();
        let done = outputs[1..first].to_vec();
        making.repeat(body.region, (carried, self.of_segments()), given, outputs)?;
        Ok((done, lists))
    }

    /// The iterations of a segment back, of which there are as many: the next versions of what the loop carries.
    fn backward(
        &self,
        making: &mut Making<'_>,
        around: RegionId,
        (done, lists): (&[ValueId], &[View]),
        (stays, states, imported): (&[usize], &[View], &[View]),
    ) -> Result<Vec<ValueId>> {
        let was = &self.back;
        let mut given = self.begins(making)?;
        let others = given.split_off(1);
        given.extend(done.iter().map(|done| single(*done, DataType::Int32)));
        let first = given.len();
        let mut outputs = making.outputs(&given);
        let versions: Vec<ValueId> = states.iter().map(|state| making.lir.next_version(state.value, making.node)).collect();
        outputs.extend(&versions);
        outputs.extend(making.outputs(&others));
        given.extend(states.iter().cloned());
        let first_test = given.len();
        given.extend(others);
        let now_carried = given.len();
        given.extend(lists.iter().cloned());
        given.extend(imported.iter().cloned());
        let mut body = making.body(&given);
        let olds: Vec<ValueId> = making.lir.passed(was.body).collect();
        let imports = was.imports().filter(|index| !self.is_list(*index)).zip(now_carried + lists.len()..);
        for (was, is) in stays.iter().copied().zip(first..).chain(imports) {
            body.values.insert(olds[was], body.params[is]);
        }
        let of_lists = self.pair.loops.lists.iter().zip(now_carried..);
        for (old, new) in of_lists.flat_map(|(list, is)| list.inputs.iter().map(move |was| (*was, is))) {
            body.values.insert(olds[old], body.params[new]);
        }
        let tests: Vec<ValueId> = [&body.params[..1], &body.params[first_test..now_carried]].concat();
        let left = body.params[1..first].to_vec();
        let mut rows = Vec::new();
        for left in &left {
            rows.push(making.number(&[*left], |builder, of| with(builder, BinaryOp::Sub, of[0], 1))?.value);
        }
        // The other devices are told by new copies.
        let dropped: Vec<ValueId> = was.tests().map(|test| making.lir.regions[was.body].results[test]).collect();
        for work in making.lir.regions[was.body].works.clone() {
            if making.lir.works[work].outputs.iter().any(|output| dropped.contains(output)) {
                continue;
            }
            let new = making.again(&mut body, work)?;
            if let Some(number) = self.pair.loops.lists.iter().position(|list| list.readers.contains(&work)) {
                let row = self.counter_of(making, &rows, lists[number].value)?;
                self.read_row(making, new, (&lists[number], row))?;
            }
        }
        let again = making.next(tests[0], &left[..1], |builder, of| with(builder, BinaryOp::Greater, of[0], 1))?;
        let mut results = Self::tell(making, &tests, again)?;
        let others = results.split_off(1);
        results.extend(Self::count(making, &left, BinaryOp::Sub)?);
        results.extend(Self::results(making, &mut body, was, stays)?);
        results.extend(others);
        self.share(making);
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
        let call = choose_one(making.request, making.lir.works[id].device, take(*element, &shape))?;
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
            if let Some(writer) = overwriting[self.forward.inputs[*input].value] {
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
