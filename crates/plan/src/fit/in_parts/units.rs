//! What of a region may be done part by part: requests whose rows do not depend on each other, with all steps of their variants.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use plimsoll_device::{KernelCall, StepArg, Variant};
use plimsoll_graph::IdVec;
use plimsoll_graph::id::Id;
use plimsoll_request::{KernelRequest, Part, Rows};

use crate::Request;
use crate::fit::problem::is_here;
use crate::lir::{Arg, Lir, ValueId, Work, WorkId, WorkKind};
use crate::plan::DeviceId;

/// Numbers of parts, the first choice first. More parts take less memory and more time.
pub(super) const COUNTS: &[u64] = &[8, 16, 32, 4, 12, 6, 10, 5, 3, 2];

/// A request on the device, with the works that are the steps of its variant.
pub(super) struct Unit {
    /// In their order.
    pub works: Vec<WorkId>,
    pub call: KernelCall,
    /// What the request reads, then what it writes.
    pub arguments: Vec<ValueId>,
    pub inputs: usize,
    /// For each argument, whether some number of parts divides it.
    pub cut: Vec<bool>,
}

impl Unit {
    pub fn reads(&self) -> &[ValueId] {
        &self.arguments[..self.inputs]
    }

    pub fn writes(&self) -> &[ValueId] {
        &self.arguments[self.inputs..]
    }

    /// Whether a result is a sum over the rows.
    pub fn is_sum(&self) -> bool {
        self.cut[self.inputs..].contains(&false)
    }
}

/// The requests of a device in the region at hand that may be done in parts.
pub(in crate::fit) struct Units {
    pub(super) all: Vec<Unit>,
    /// By work: its unit.
    pub(super) of: IdVec<WorkId, Option<usize>>,
    /// The rows of the batch: most of what works touch has them, or a multiple of them.
    batch: Option<u64>,
}

impl Units {
    pub fn new(request: &Request<'_>, lir: &Lir, device: DeviceId) -> Units {
        let batch = batch(request, lir, device);
        let mut units = Units { all: Vec::new(), of: IdVec::filled(None, lir.works.len()), batch };
        let is_here = |value: &ValueId| is_here(lir, *value, device, lir.here());
        // Requests are shared by works that ask the same.
        let mut known: HashMap<(*const KernelRequest, *const Variant), Option<Divided>> = HashMap::new();
        let mut steps: HashMap<*const Variant, Vec<WorkId>> = HashMap::new();
        for (id, work) in lir.all() {
            let Some((call, _)) = is_plain(work, device).then(|| call(work)).flatten() else { continue };
            if work.outputs.is_empty() || !work.outputs.iter().all(is_here) {
                continue;
            }
            let works = steps.entry(Arc::as_ptr(&call.variant)).or_default();
            works.push(id);
            if works.len() < call.variant.steps.len() {
                continue;
            }
            let works = std::mem::take(works);
            let key = (Arc::as_ptr(&call.request), Arc::as_ptr(&call.variant));
            let divided = known.entry(key).or_insert_with(|| units.divided(request, device, call));
            if let Some(unit) = divided.as_ref().and_then(|divided| unit(lir, works, call, divided)) {
                unit.works.iter().for_each(|work| units.of[*work] = Some(units.all.len()));
                units.all.push(unit);
            }
        }
        units
    }

    /// Whether a work reads a value in such a way that it may have a slice of it.
    pub fn reads_slices(&self, work: WorkId, value: ValueId) -> bool {
        let unit = self.of[work].map(|unit| &self.all[unit]);
        unit.is_some_and(|unit| unit.reads().iter().zip(&unit.cut).all(|(read, is_cut)| *read != value || *is_cut))
    }

    /// Whether a work makes a value that may be made slice by slice. What is between the steps of a request may be, too.
    pub fn makes_slices(&self, work: WorkId, value: ValueId) -> bool {
        let unit = self.of[work].map(|unit| &self.all[unit]);
        unit.is_some_and(|unit| unit.writes().iter().zip(&unit.cut[unit.inputs..]).all(|(made, is_cut)| *made != value || *is_cut))
    }

    /// How rows are divided into so many parts, the first choice first. Where parts are not equal, parts of one number begin where those of
    /// another one do: both are powers of two.
    pub(super) fn ways(&self, count: u64) -> impl Iterator<Item = Rows> + use<> {
        let of_batch = self.batch.map(|all| Rows { all, parts: count });
        let of_batch = of_batch.filter(|rows| rows.is_even() || (count.is_power_of_two() && count <= rows.all));
        let is_even = self.batch.is_none_or(|all| all.is_multiple_of(count));
        of_batch.into_iter().chain(is_even.then(|| Rows::equal(count)))
    }

    /// How a device divides a request; none where it does not.
    fn divided(&self, request: &Request<'_>, device: DeviceId, first: &KernelCall) -> Option<Divided> {
        let (spec, library) = (&request.devices[device.index()], request.libraries[device.index()]);
        let ways = COUNTS.iter().flat_map(|count| self.ways(*count));
        let parts: Vec<Part> = ways.filter_map(|rows| library.part(spec, &first.request, &first.variant.numerics, rows)).collect();
        let mut cut = parts.first()?.cut.clone();
        parts.iter().for_each(|part| cut.iter_mut().zip(&part.cut).for_each(|(cut, other)| *cut |= other));
        let asked = library.arguments(&first.request).ok()?;
        let is_whole = cut.len() == asked.inputs.len() + asked.outputs.len() && !asked.updates_first;
        is_whole.then_some(Divided { cut, inputs: asked.inputs.len() })
    }

    /// Whether a work may be done in parts.
    pub fn has(&self, work: WorkId) -> bool {
        self.of[work].is_some()
    }
}

/// A request that a device divides.
struct Divided {
    /// For each argument, whether some number of parts divides it.
    cut: Vec<bool>,
    inputs: usize,
}

/// A request from the works that are its steps.
fn unit(lir: &Lir, works: Vec<WorkId>, first: &KernelCall, divided: &Divided) -> Option<Unit> {
    let Divided { cut, inputs } = divided;
    let mut arguments: Vec<Option<ValueId>> = vec![None; cut.len()];
    for (number, id) in works.iter().enumerate() {
        let (call, values) = call(&lir.works[*id])?;
        if call.step as usize != number {
            return None;
        }
        for (arg, value) in args_of(call, cut.len()).into_iter().zip(values) {
            if let StepArg::Argument(index) = arg {
                *arguments.get_mut(index as usize)? = Some(value);
            }
        }
    }
    let arguments = arguments.into_iter().collect::<Option<Vec<_>>>()?;
    Some(Unit { works, call: first.clone(), arguments, inputs: *inputs, cut: cut.clone() })
}

/// Whether a work of a device always runs among its works, and never fails.
fn is_plain(work: &Work, device: DeviceId) -> bool {
    work.device == device && work.guard.is_none() && !work.is_beside && !work.can_fail()
}

/// The largest number that divides the rows of works with three quarters of what all works with rows touch. None where there is none.
fn batch(request: &Request<'_>, lir: &Lir, device: DeviceId) -> Option<u64> {
    let library = request.libraries[device.index()];
    let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
    for (_, work) in lir.all().filter(|(_, work)| is_plain(work, device)) {
        let rows = call(work).filter(|(call, _)| call.step == 0).and_then(|(call, _)| library.rows(&call.request));
        if let Some(rows) = rows {
            let touched = work.reads_once().into_iter().chain(work.outputs.iter().copied()).map(|value| lir.values[value].bytes);
            let sum = bytes.entry(rows).or_default();
            *sum = touched.fold(*sum, u64::saturating_add);
        }
    }
    let all = bytes.values().copied().fold(0, u64::saturating_add);
    let divided = |by: u64| bytes.iter().filter(|(rows, _)| rows.is_multiple_of(by)).map(|(_, bytes)| *bytes).fold(0, u64::saturating_add);
    bytes.keys().rev().copied().find(|rows| divided(*rows) >= all - all / 4)
}

/// The kernel of a work, and its arguments; none where it has no kernel, or changes a variable in place.
fn call(work: &Work) -> Option<(&KernelCall, Vec<ValueId>)> {
    let call = work.prepared.as_ref()?.kernel.as_ref()?;
    let args = match &work.kind {
        WorkKind::Expr { .. } | WorkKind::Anchor { .. } => Arg::all(work.inputs.len(), work.outputs.len()),
        WorkKind::Kernel { args, .. } if args.first() != Some(&Arg::Output(0)) => args.clone(),
        _ => return None,
    };
    let value = |arg: Arg| match arg {
        Arg::Input(input) => work.inputs[input].value,
        Arg::Output(output) => work.outputs[output],
    };
    Some((call, args.into_iter().map(value).collect()))
}

/// The arguments of a step of a request with so many.
pub(super) fn args_of(call: &KernelCall, arguments: usize) -> Vec<StepArg> {
    call.step().args.clone().unwrap_or_else(|| (0..arguments as u32).map(StepArg::Argument).collect())
}
