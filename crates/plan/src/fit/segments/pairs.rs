//! Loops whose lists another loop reads in reverse.

use std::collections::BTreeSet;

use plimsoll_graph::IdVec;
use plimsoll_request::KernelRequest;
use plimsoll_request::gather::Gather;

use super::counts::Counts;
use super::{definitions_in, unguarded, uses_in};
use crate::access::replaced_row;
use crate::fit::bodies;
use crate::fit::problem::overwriting;
use crate::lir::{Arg, Home, Lir, RegionId, Trips, ValueId, Work, WorkId, WorkKind};
use crate::plan::DeviceId;

/// Loops of fewer iterations stay as they are.
const LEAST_TRIPS: u64 = 4;

/// Lists of tensors that take no more bytes stay as they are: they take as much as a counter does.
const LEAST_ROW: u64 = 64;

/// A list that a loop writes row by row, one in each iteration, and that one loop behind it alone reads, row by row.
#[derive(Clone, Debug)]
pub(super) struct List {
    /// Which of the values that the first loop carries.
    pub carried: usize,
    /// Where it is.
    pub device: DeviceId,
    /// The work of its body that writes a row.
    pub writer: WorkId,
    /// Which inputs of the loop behind it are the list.
    pub inputs: Vec<usize>,
    /// The works of the body of that loop which read rows.
    pub readers: Vec<WorkId>,
    /// Its bytes, and those of a row.
    pub bytes: u64,
    pub row: u64,
}

/// A loop, and the loop that reads its lists.
#[derive(Clone, Debug)]
pub(super) struct Loops {
    pub forward: WorkId,
    pub back: WorkId,
    pub trips: u64,
    pub lists: Vec<List>,
}

/// Two loops, of which the one behind reads in iteration `i` what the other one wrote in the iteration as far from its end.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub loops: Loops,
    /// The works of the body of the first loop that make the rows of the lists, and the state from which the next iteration makes them. In
    /// their order, without those that write the rows.
    pub works: Vec<WorkId>,
    /// This state: which of the values that the loop carries.
    pub state: BTreeSet<usize>,
    /// What these works read from around the loop: the numbers of inputs.
    pub imports: BTreeSet<usize>,
}

impl Loops {
    /// The devices of the two loops: that of the second one, then the others, ascending.
    pub fn devices(&self, lir: &Lir) -> Vec<DeviceId> {
        let first = lir.works[self.back].device;
        let mut others: BTreeSet<DeviceId> = [self.forward, self.back].iter().flat_map(|id| lir.devices(&lir.works[*id])).collect();
        others.remove(&first);
        std::iter::once(first).chain(others).collect()
    }

    /// Whether all shared loops in the two are of all of their devices.
    fn may_be_shared(&self, lir: &Lir) -> bool {
        let count = self.devices(lir).len();
        [self.forward, self.back]
            .iter()
            .map(|id| &lir.works[*id])
            .all(|work| lir.devices(work).count() == count || !work.regions().iter().any(|body| has_shared(lir, *body)))
    }
}

/// Whether a loop of several devices is in a region, or in a loop of it.
fn has_shared(lir: &Lir, region: RegionId) -> bool {
    let works = lir.regions[region].works.iter().map(|id| &lir.works[*id]);
    works.into_iter().any(|work| lir.is_shared(work) || work.regions().iter().any(|body| has_shared(lir, *body)))
}

impl Pair {
    /// Bytes of the state on a device.
    pub fn state_bytes<'a>(&'a self, lir: &'a Lir, device: DeviceId) -> impl Iterator<Item = u64> + 'a {
        let inputs = &lir.works[self.loops.forward].inputs;
        let state = self.state.iter().map(|carried| &lir.values[inputs[*carried].value]);
        state.filter(move |value| value.device == device).map(|value| value.bytes)
    }
}

/// Loops of the region at hand with such lists, of which some are on a device. Nothing is known of which rows they write and read.
pub(super) fn candidates(lir: &Lir, device: DeviceId) -> Vec<Loops> {
    let position = positions(lir);
    let uses = uses_in(lir, lir.here());
    let mut found = Vec::new();
    let is_loop = |work: &Work| is_plain_loop(lir, work, device);
    for (forward, work) in lir.all().filter(|(_, work)| is_loop(work)) {
        let WorkKind::Loop { body, carried, trips: Trips::Exactly(trips) } = work.kind else { continue };
        if trips < LEAST_TRIPS {
            continue;
        }
        let (inner_uses, params) = (uses_in(lir, body), lir.passed(body).collect::<Vec<_>>());
        // By the loop behind it.
        let mut of_back: Vec<(WorkId, Vec<List>)> = Vec::new();
        for index in 1..carried {
            let Some(list) = written(lir, work, (body, index, params[index]), &inner_uses).filter(|list| list.row > LEAST_ROW) else {
                continue;
            };
            let [back] = uses[work.outputs[index]][..] else { continue };
            if lir.values[work.outputs[index]].home != Home::Arena {
                continue;
            }
            let reader = &lir.works[back];
            let has_as_many = matches!(reader.kind, WorkKind::Loop { trips: Trips::Exactly(other), .. } if other == trips);
            if !is_loop(reader) || !has_as_many || position[back] <= position[forward] {
                continue;
            }
            let Some(list) = read(lir, reader, work.outputs[index], list, &uses) else { continue };
            match of_back.iter_mut().find(|(other, _)| *other == back) {
                Some((_, lists)) => lists.push(list),
                None => of_back.push((back, vec![list])),
            }
        }
        // One loop has one loop that runs it again.
        let bytes = |list: &List| if list.device == device { list.bytes } else { 0 };
        let most = of_back.into_iter().max_by_key(|(_, lists)| lists.iter().map(bytes).sum::<u64>());
        let loops = most.map(|(back, lists)| Loops { forward, back, trips, lists });
        found.extend(loops.filter(|loops| loops.lists.iter().any(|list| list.device == device) && loops.may_be_shared(lir)));
    }
    found
}

/// Whether a work is a loop that this device has a part in, which changes values of arenas and fetches alone, and reaches no file. It may be
/// passed over: then so is a loop that reads its lists.
fn is_plain_loop(lir: &Lir, work: &Work, device: DeviceId) -> bool {
    let WorkKind::Loop { body, carried, .. } = work.kind else { return false };
    let is_own = |output: &ValueId| matches!(lir.values[*output].home, Home::Arena | Home::Fetch(_));
    !work.is_beside
        && lir.devices(work).any(|other| other == device)
        && work.outputs.len() == carried
        && work.outputs.iter().all(is_own)
        && bodies::may_repeat(lir, body)
}

/// A carried value as a list that the body of a loop writes row by row and does not read. It is read nowhere yet.
fn written(lir: &Lir, work: &Work, (body, index, param): (RegionId, usize, ValueId), uses: &IdVec<ValueId, Vec<WorkId>>) -> Option<List> {
    let region = &lir.regions[body];
    let (view, result) = (&work.inputs[index], region.results[index]);
    let [writer] = uses[param][..] else { return None };
    let scatter = &lir.works[writer];
    let (gather, args) = gather(scatter)?;
    let (shape, _) = replaced_row(gather)?;
    let is_whole = result != param && scatter.outputs == [result] && uses[result].is_empty() && shape == view.shape.dims();
    let reads_it = scatter.inputs[0].value == param && scatter.inputs[1..].iter().all(|input| input.value != param);
    let as_expected = *args == [Arg::Output(0), Arg::Input(1), Arg::Input(2), Arg::Output(0)] && scatter.inputs.len() == 3;
    let is_twice = region.results.iter().filter(|other| **other == result).count() > 1;
    if !is_whole || !as_expected || !reads_it || !unguarded(scatter) || is_twice {
        return None;
    }
    let (bytes, rows) = (lir.values[param].bytes, *shape.first()?);
    Some(List {
        carried: index,
        device: lir.values[param].device,
        writer,
        inputs: Vec::new(),
        readers: Vec::new(),
        bytes,
        row: bytes.checked_div(rows)?,
    })
}

/// The list, if a loop only reads rows of it.
fn read(lir: &Lir, back: &Work, value: ValueId, list: List, uses: &IdVec<ValueId, Vec<WorkId>>) -> Option<List> {
    let WorkKind::Loop { body, carried, .. } = back.kind else { return None };
    let region = &lir.regions[body];
    let inner_uses = uses_in(lir, body);
    let params: Vec<ValueId> = lir.passed(body).collect();
    let mut list = list;
    for (index, _) in back.inputs.iter().enumerate().filter(|(_, view)| view.value == value) {
        let param = params[index];
        let stays = index >= carried || (index > 0 && region.results[index] == param && uses[back.outputs[index]].is_empty());
        let results = region.results.iter().filter(|result| **result == param).count();
        if !stays || results > usize::from(index < carried) {
            return None;
        }
        for &reader in &inner_uses[param] {
            let (Gather::Take { params: rows, indices, axis: 0, batch_dims: 0, .. }, args) = gather(&lir.works[reader])? else {
                return None;
            };
            let work = &lir.works[reader];
            let is_row = indices.is_empty() && *args == [Arg::Input(0), Arg::Input(1), Arg::Output(0)] && work.inputs.len() == 2;
            // An import is seen as its bytes.
            let is_list = rows.first().and_then(|rows| list.bytes.checked_div(*rows)) == Some(list.row) && work.inputs[1].value != param;
            if !is_row || !is_list || work.guard == Some(param) || lir.values[work.outputs[0]].bytes != list.row {
                return None;
            }
            list.readers.push(reader);
        }
        list.inputs.push(index);
    }
    Some(list)
}

/// The request of a kernel that reads or writes rows.
fn gather(work: &Work) -> Option<(&Gather, &Vec<Arg>)> {
    match &work.kind {
        WorkKind::Kernel { call, args } if call.variant.steps.len() == 1 => match &*call.request {
            KernelRequest::Gather(gather) => Some((gather, args)),
            _ => None,
        },
        _ => None,
    }
}

/// What these loops are, if counters show that they read each row as late as it was written early, and the first may run again where the
/// other one is.
pub(super) fn pair(lir: &Lir, loops: Loops, counts: &mut Counts<'_>) -> Option<Pair> {
    let forward = &lir.works[loops.forward];
    let index = |work: &WorkId| lir.works[*work].inputs[1].value;
    let written: Vec<ValueId> = loops.lists.iter().map(|list| index(&list.writer)).collect();
    let written = counts.in_each_iteration(loops.forward, &written)?;
    let read: Vec<(usize, ValueId)> =
        loops.lists.iter().enumerate().flat_map(|(number, list)| list.readers.iter().map(move |reader| (number, index(reader)))).collect();
    let values: Vec<ValueId> = read.iter().map(|(_, value)| *value).collect();
    let rows = counts.in_each_iteration(loops.back, &values)?;
    for (number, list) in loops.lists.iter().enumerate() {
        let rows: BTreeSet<i128> = written.iter().map(|row| row[number]).collect();
        let is_inside = |row: &i128| (0..i128::from(list.bytes / list.row)).contains(row);
        if rows.len() != written.len() || !rows.iter().all(is_inside) {
            return None;
        }
    }
    let is_reversed =
        written.iter().rev().zip(&rows).all(|(written, rows)| read.iter().zip(rows).all(|((list, _), row)| written[*list] == *row));
    if !is_reversed || written.len() != rows.len() {
        return None;
    }
    let WorkKind::Loop { body, carried, .. } = forward.kind else { return None };
    let (works, state, imports) = again(lir, body, carried, &loops.lists);
    // What it reads is as it was.
    let (position, overwriting) = (positions(lir), overwriting(lir));
    let mut writers = imports.iter().filter_map(|input| overwriting[forward.inputs[*input].value]);
    let is_kept = writers.all(|writer| position[writer] > position[loops.back]);
    is_kept.then_some(Pair { loops, works, state, imports })
}

/// The works of a body that make rows of lists, the state that they follow from, and what they read from around the loop.
fn again(lir: &Lir, body: RegionId, carried: usize, lists: &[List]) -> (Vec<WorkId>, BTreeSet<usize>, BTreeSet<usize>) {
    let definitions = definitions_in(lir, body);
    let region = &lir.regions[body];
    let mut needed: IdVec<WorkId, bool> = IdVec::filled(false, lir.works.len());
    let (mut state, mut imports) = (BTreeSet::new(), BTreeSet::new());
    let mut open: Vec<ValueId> = lists.iter().map(|list| lir.works[list.writer].inputs[2].value).collect();
    while let Some(value) = open.pop() {
        match (definitions[value], lir.values[value].home) {
            (Some(work), _) => {
                if !std::mem::replace(&mut needed[work], true) {
                    open.extend(lir.works[work].reads());
                }
            }
            (None, Home::Given { param, .. }) if (param as usize) < carried => {
                if state.insert(param as usize) {
                    open.push(region.results[param as usize]);
                }
            }
            (None, Home::Given { param, .. }) => _ = imports.insert(param as usize),
            (None, _) => {}
        }
    }
    (region.works.iter().copied().filter(|work| needed[*work]).collect(), state, imports)
}

/// By work: where it stands in the region at hand.
fn positions(lir: &Lir) -> IdVec<WorkId, usize> {
    let mut position = IdVec::filled(usize::MAX, lir.works.len());
    lir.region().works.iter().enumerate().for_each(|(index, id)| position[*id] = index);
    position
}
