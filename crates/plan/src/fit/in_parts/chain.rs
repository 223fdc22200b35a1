//! A chain of requests as one work in parts.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::{KernelCall, LaidOut, StepArg, Variant};
use plimsoll_graph::id::Id;
use plimsoll_memory::layout::{self, Buffer};
use plimsoll_request::{Fold, KernelRequest, Part, Rows, Sums};

use super::units::{Unit, Units, args_of};
use crate::Request;
use crate::fit::problem::is_here;
use crate::lir::{Home, Lir, PartArg, PartCut, PartOf, PartStep, Parts, ValueId, View, When, Work, WorkId, WorkKind};
use crate::prepare::{Prepare, in_ticks};

/// What a chain is made of.
pub(super) struct Chains<'a> {
    pub request: &'a Request<'a>,
    pub lir: &'a Lir,
    pub units: &'a Units,
    /// By unit and parts: what is known of a part.
    known: RefCell<HashMap<(usize, Rows), Known>>,
}

/// A part of a request; none where it cannot be divided so.
type Known = Option<Rc<Divided>>;

/// A part of a request.
struct Divided {
    request: Arc<KernelRequest>,
    variant: Arc<Variant>,
    /// The same for a part with a row more, where there are such parts.
    larger: Option<(Arc<KernelRequest>, Arc<Variant>)>,
    /// Calls for each part.
    calls: u64,
    /// For each argument, whether the part has a part of it.
    cut: Vec<bool>,
    /// Of a sum over the rows.
    sums: Option<DividedSums>,
}

/// What parts of a sum over the rows have in the place of its result.
struct DividedSums {
    /// How many sums, and the bytes of all.
    count: u64,
    bytes: u64,
    /// What is called once, before the first part, and behind the last one: requests of one step.
    begin: Option<KernelCall>,
    end: Option<KernelCall>,
    /// Where each is added to those before: what begins one, adds one, and ends with the sum of all.
    fold: Option<(Option<KernelCall>, KernelCall, KernelCall)>,
}

/// A step, while its chain is made.
struct Draft {
    step: PartStep,
    /// What it reads and writes, in the order of its arguments.
    reads: Vec<PartArg>,
    writes: Vec<PartArg>,
}

/// A chain while it is made.
struct Making<'a> {
    of: &'a Chains<'a>,
    align: u64,
    rows: Rows,
    is_folded: bool,
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
    /// Where values are that have been made.
    made: HashMap<ValueId, PartArg>,
    /// The bytes of what is between steps, of one part.
    between: Vec<u64>,
    /// Those that have sums of all parts.
    sums: Vec<usize>,
    drafts: Vec<Draft>,
}

impl<'a> Chains<'a> {
    pub fn new(request: &'a Request<'a>, lir: &'a Lir, units: &'a Units) -> Chains<'a> {
        Chains { request, lir, units, known: RefCell::default() }
    }

    /// A part of a unit, by the fastest variant of the same numerics.
    fn divided(&self, unit: usize, rows: Rows) -> Option<Rc<Divided>> {
        if let Some(known) = self.known.borrow().get(&(unit, rows)) {
            return known.clone();
        }
        let divided = self.divide(&self.units.all[unit], rows).map(Rc::new);
        self.known.borrow_mut().insert((unit, rows), divided.clone());
        divided
    }

    fn divide(&self, unit: &Unit, rows: Rows) -> Option<Divided> {
        let device = self.lir.works[*unit.works.first()?].device.index();
        let (spec, library) = (&self.request.devices[device], self.request.libraries[device]);
        let Part { request, larger, calls, cut, sums } = library.part(spec, &unit.call.request, &unit.call.variant.numerics, rows)?;
        let numerics = Some(&*unit.call.variant.numerics);
        let seconds = |variant: &Variant| variant.steps.iter().map(|step| self.request.costs.step_seconds(spec, step)).sum::<f64>();
        // An argument that the whole reads in panels is the same for each part.
        let fastest_of =
            |request: &KernelRequest, numerics: Option<&str>, laid_out: Option<LaidOut>, is_alike: &dyn Fn(&Variant) -> bool| {
                let variants = match laid_out {
                    None => library.variants(spec, request),
                    Some(laid_out) => library.laid_out(spec, request, laid_out),
                };
                let variants = variants.ok()?.into_iter();
                let is_same = |variant: &Variant| numerics.is_none_or(|numerics| *variant.numerics == *numerics);
                let same = variants.filter(|variant| is_same(variant) && !variant.steps.is_empty());
                same.filter(|variant| is_alike(variant)).min_by(|one, other| seconds(one).total_cmp(&seconds(other))).map(Arc::new)
            };
        let once = |request: Option<KernelRequest>, numerics: Option<&str>| match request {
            None => Some(None),
            Some(request) => {
                let variant = fastest_of(&request, numerics, None, &|_| true)
                    .filter(|variant| variant.steps.len() == 1 && variant.steps[0].args.is_none())?;
                Some(Some(KernelCall { request: Arc::new(request), variant, step: 0 }))
            }
        };
        // Sums begin with the same bits by any variant.
        let sums = match sums {
            None => None,
            Some(Sums { count, bytes, begin, end, fold }) => {
                let folded = |Fold { begin, add, end }: Fold| {
                    let add = once(Some(add), None)??;
                    let is_over = add.step().in_place.contains(&(0, 0));
                    is_over.then_some((once(begin, None)?, add, once(Some(end), numerics)??))
                };
                Some(DividedSums { count, bytes, begin: once(begin, None)?, end: once(end, numerics)?, fold: fold.and_then(folded) })
            }
        };
        let laid_out = unit.call.variant.laid_out;
        let variant = fastest_of(&request, numerics, laid_out, &|_| true)?;
        let larger = match larger {
            None => None,
            Some(request) => {
                let other = fastest_of(&request, numerics, laid_out, &|other| are_alike(&variant, other))?;
                Some((Arc::new(request), other))
            }
        };
        // Steps that are behind one another belong to one call.
        let is_whole = calls == 1 || variant.steps.len() == 1;
        is_whole.then_some(Divided { variant, request: Arc::new(request), larger, calls, cut, sums })
    }

    /// Units one behind another in so many parts: one work with the results of `roots`, of which the last unit is one. Where it stands and what
    /// it waits for, its caller says. None where their rows cannot be divided so, or where another than a root sums over them.
    /// With `is_folded` sums are added one by one where they may be.
    pub fn work(&self, (units, roots): (&[usize], &[usize]), count: u64, is_folded: bool) -> Option<Work> {
        self.units.ways(count).find_map(|rows| self.divided_so((units, roots), rows, is_folded))
    }

    fn divided_so(&self, (units, roots): (&[usize], &[usize]), rows: Rows, is_folded: bool) -> Option<Work> {
        let last = &self.units.all[*units.last()?];
        let root = &self.lir.works[*last.works.last()?];
        let inside: HashSet<ValueId> = units.iter().flat_map(|unit| self.units.all[*unit].writes()).copied().collect();
        let mut making = Making {
            of: self,
            align: self.request.devices[root.device.index()].alignment,
            rows,
            is_folded,
            inputs: Vec::new(),
            outputs: roots.iter().flat_map(|root| self.units.all[*root].writes()).copied().collect(),
            made: HashMap::new(),
            between: Vec::new(),
            sums: Vec::new(),
            drafts: Vec::new(),
        };
        for number in roots {
            let unit = &self.units.all[*number];
            let cut = &self.divided(*number, rows)?.cut[unit.inputs..];
            if !unit.writes().iter().zip(cut).all(|(output, is_cut)| !is_cut || self.is_divided(*output, rows, root)) {
                return None;
            }
        }
        units.iter().try_for_each(|unit| making.add(*unit, &inside))?;
        let (mut nodes, inputs, outputs) = (root.nodes.clone(), making.inputs.clone(), making.outputs.clone());
        let parts = making.finish()?;
        nodes.extend(parts.steps.iter().rev().flat_map(|step| step.nodes.iter().copied()));
        let mut named = HashSet::new();
        nodes.retain(|node| named.insert(*node));
        let prepared = Some(Prepare { kernel: None, seconds: parts.seconds(), shared: parts.scratch, slices: 0 });
        let view = |value: &ValueId| View::of_bytes(*value, self.lir.values[*value].bytes);
        let kind = WorkKind::Parts(Arc::new(parts));
        Some(Work { kind, nodes, inputs: inputs.iter().map(view).collect(), outputs, prepared, after: Vec::new(), ..root.clone() })
    }

    /// Whether parts of a value begin where buffers may begin.
    fn is_divided(&self, value: ValueId, rows: Rows, root: &Work) -> bool {
        let align = self.request.devices[root.device.index()].alignment;
        let bytes = self.lir.values[value].bytes;
        let row = (bytes > 0 && bytes.is_multiple_of(rows.all)).then(|| bytes / rows.all);
        let begins = |row: u64| row.is_multiple_of(align) || (1..rows.parts).all(|part| (rows.first(part) * row).is_multiple_of(align));
        row.is_some_and(begins)
    }

    /// Whether a part of a value may be read where that is.
    fn is_readable(&self, value: ValueId, rows: Rows, root: &Work) -> bool {
        let is_fed = matches!(self.lir.values[value].home, Home::Feed(_)) && self.lir.values[value].device == root.device;
        (is_fed || is_here(self.lir, value, root.device, self.lir.here())) && self.is_divided(value, rows, root)
    }
}

/// Whether two variants have steps with the same arguments.
fn are_alike(one: &Variant, other: &Variant) -> bool {
    let args = |variant: &Variant| variant.steps.iter().map(|step| step.args.clone()).collect::<Vec<_>>();
    one.name == other.name && one.between.len() == other.between.len() && args(one) == args(other)
}

impl Making<'_> {
    /// Adds the steps of a request. `inside` are the values that the chain makes.
    fn add(&mut self, unit: usize, inside: &HashSet<ValueId>) -> Option<()> {
        let lir = self.of.lir;
        let divided = self.of.divided(unit, self.rows)?;
        let unit = &self.of.units.all[unit];
        let last: WorkId = *unit.works.last()?;
        let root = &lir.works[last];
        let mut places = Vec::with_capacity(unit.arguments.len());
        for (index, (value, is_cut)) in unit.arguments.iter().zip(&divided.cut).enumerate() {
            let is_read = index < unit.inputs;
            places.push(match self.made.get(value) {
                // Where a call begins within a part, a buffer has to begin.
                Some(_) if is_read && divided.calls > 1 && !self.has_aligned_rows(*value) => return None,
                Some(place) if is_read && *is_cut => *place,
                Some(_) => return None,
                None if is_read && inside.contains(value) => return None,
                None if is_read => self.input(*value, *is_cut, (divided.calls, root))?,
                None => match &divided.sums {
                    Some(sums) if !is_cut => match &sums.fold {
                        Some(_) if self.is_folded => self.folded(sums)?,
                        _ => self.sums(sums, *value, divided.calls)?,
                    },
                    _ if !is_cut => return None,
                    _ => self.result(*value)?,
                },
            });
        }
        let fold =
            divided.sums.as_ref().filter(|_| self.is_folded).and_then(|sums| Some((self.rows.parts / sums.count, sums.fold.clone()?)));
        if let Some((every, (Some(begin), ..))) = &fold {
            self.draft(begin.clone(), (Vec::new(), vec![*places.last()?]), (When::First(*every), root));
        } else if let Some(call) = divided.sums.as_ref().filter(|_| fold.is_none()).and_then(|sums| sums.begin.clone()) {
            let all = PartArg::whole(places.last()?.of);
            self.draft(call, (Vec::new(), vec![all]), (When::Before, root));
        }
        let first = self.between.len();
        let larger = |index: usize| divided.larger.as_ref().map_or(0, |(_, variant)| variant.between[index]);
        self.between.extend(divided.variant.between.iter().enumerate().map(|(index, bytes)| larger(index).max(*bytes)));
        for number in 0..divided.variant.steps.len() as u32 {
            let of = |(request, variant): (&Arc<_>, &Arc<_>)| KernelCall {
                request: Arc::clone(request),
                variant: Arc::clone(variant),
                step: number,
            };
            let call = of((&divided.request, &divided.variant));
            let larger = divided.larger.as_ref().map(|(request, variant)| of((request, variant)));
            let (mut args, mut reads, mut writes) = (Vec::new(), Vec::new(), Vec::new());
            for arg in args_of(&call, places.len()) {
                let (place, is_read) = match arg {
                    StepArg::Argument(index) => (*places.get(index as usize)?, (index as usize) < unit.inputs),
                    StepArg::Between(index) => {
                        let (index, of) = (index as usize, PartOf::Between(first + index as usize));
                        let own = |variant: &Variant| variant.between[index];
                        let place = match &divided.larger {
                            Some((_, larger)) => PartArg::first(of, own(&divided.variant), own(larger)),
                            None => PartArg::whole(of),
                        };
                        (place, self.drafts.iter().any(|draft| draft.writes.contains(&place)))
                    }
                };
                args.push(place);
                if is_read { reads.push(place) } else { writes.push(place) }
            }
            let is_made_once = |place: &PartArg| match place.of {
                PartOf::Input(_) => place.cut == PartCut::Whole,
                PartOf::Output(_) => false,
                PartOf::Between(_) => self.drafts.iter().any(|draft| draft.step.when == When::Before && draft.writes.contains(place)),
            };
            let writes_between = |place: &PartArg| matches!(place.of, PartOf::Between(index) if index >= first) && !places.contains(place);
            // What is made for parts of several sizes is made for each: its form may depend on them.
            let is_once = larger.is_none() && reads.iter().all(is_made_once) && writes.iter().all(writes_between);
            let when = if is_once { When::Before } else { When::Each };
            let step = PartStep { calls: divided.calls, ..self.step((call, larger), args, (when, root)) };
            self.drafts.push(Draft { step, reads, writes });
        }
        if let Some((every, (_, add, end))) = fold {
            let half = |is_second: bool| PartArg::fixed(places[places.len() - 1].of, is_second);
            self.draft(add, (vec![half(false), half(true)], vec![half(false)]), (When::Last(every), root));
            let output = self.output(*unit.arguments.last()?)?;
            self.draft(end, (vec![half(false)], vec![PartArg::whole(output)]), (When::Behind, root));
        } else if let Some(call) = divided.sums.as_ref().and_then(|sums| sums.end.clone()) {
            let all = PartArg::whole(places.last()?.of);
            let output = self.output(*unit.arguments.last()?)?;
            self.draft(call, (vec![all], vec![PartArg::whole(output)]), (When::Behind, root));
        }
        Some(())
    }

    /// Adds a step whose arguments are what it reads, then what it writes.
    fn draft(&mut self, call: KernelCall, (reads, writes): (Vec<PartArg>, Vec<PartArg>), at: (When, &Work)) {
        let step = self.step((call, None), [&reads[..], &writes[..]].concat(), at);
        self.drafts.push(Draft { step, reads, writes });
    }

    /// A step of a work, with its kernels for the smaller parts and for the larger ones. Where its scratch is, is not known yet.
    fn step(&self, (call, larger): (KernelCall, Option<KernelCall>), args: Vec<PartArg>, (when, root): (When, &Work)) -> PartStep {
        let request = self.of.request;
        let spec = &request.devices[root.device.index()];
        let of = |call: &KernelCall| {
            let (slices, bytes) = call.step().worker_slices(spec.threads, spec.alignment);
            let shared = spec.slot(Bytes(call.step().scratch)).0;
            (shared, bytes.saturating_mul(u64::from(slices)), in_ticks(request.costs.step_seconds(spec, call.step())))
        };
        let (mut shared, mut slices, seconds) = of(&call);
        let larger = larger.map(|call| {
            let (own, of_threads, seconds) = of(&call);
            (shared, slices) = (shared.max(own), slices.max(of_threads));
            (call, seconds)
        });
        PartStep { call, larger, calls: 1, args, nodes: root.nodes.clone(), when, scratch: (0, shared, slices), seconds }
    }

    /// A value as an output of the chain; none where it is none.
    fn output(&self, value: ValueId) -> Option<PartOf> {
        self.outputs.iter().position(|output| *output == value).map(PartOf::Output)
    }

    /// The sums in the place of a value: a result of the chain.
    fn sums(&mut self, sums: &DividedSums, value: ValueId, calls: u64) -> Option<PartArg> {
        let (bytes, count) = (sums.bytes, sums.count.max(1));
        let is_divided = bytes.is_multiple_of(count) && (count == 1 || (bytes / count).is_multiple_of(self.align));
        let output = self.output(value)?;
        if !is_divided || !self.rows.parts.checked_mul(calls)?.is_multiple_of(count) {
            return None;
        }
        let of = match sums.end {
            None if bytes != self.of.lir.values[value].bytes => return None,
            None => output,
            Some(_) => {
                self.between.push(bytes);
                self.sums.push(self.between.len() - 1);
                PartOf::Between(self.between.len() - 1)
            }
        };
        Some(PartArg::slices(of, count))
    }

    /// Two of the sums in the place of a result: that of those before, and the next one.
    fn folded(&mut self, sums: &DividedSums) -> Option<PartArg> {
        let one =
            sums.bytes.checked_div(sums.count).filter(|one| sums.bytes.is_multiple_of(sums.count) && one.is_multiple_of(self.align))?;
        let every = self.rows.parts.checked_div(sums.count).filter(|_| self.rows.parts.is_multiple_of(sums.count))?;
        self.between.push(one.checked_mul(2)?);
        self.sums.push(self.between.len() - 1);
        Some(PartArg::half(PartOf::Between(self.between.len() - 1), every))
    }

    /// A value from outside.
    fn input(&mut self, value: ValueId, is_cut: bool, (calls, root): (u64, &Work)) -> Option<PartArg> {
        if is_cut && !self.of.is_readable(value, self.rows.times(calls)?, root) {
            return None;
        }
        let known = self.inputs.iter().position(|input| *input == value);
        let index = known.unwrap_or_else(|| {
            self.inputs.push(value);
            self.inputs.len() - 1
        });
        let of = PartOf::Input(index);
        Some(if is_cut { PartArg::rows(of) } else { PartArg::whole(of) })
    }

    /// Whether each row of a value has as many bytes as a buffer may.
    fn has_aligned_rows(&self, value: ValueId) -> bool {
        let bytes = self.of.lir.values[value].bytes;
        bytes.is_multiple_of(self.rows.all) && (bytes / self.rows.all).is_multiple_of(self.align)
    }

    /// A value that the chain makes. None where its rows have no whole number of bytes.
    fn result(&mut self, value: ValueId) -> Option<PartArg> {
        let place = match self.output(value) {
            Some(output) => PartArg::rows(output),
            None => {
                let bytes = self.of.lir.values[value].bytes;
                let row = bytes.is_multiple_of(self.rows.all).then(|| bytes / self.rows.all)?;
                self.between.push(row.checked_mul(self.rows.most())?);
                PartArg::rows(PartOf::Between(self.between.len() - 1))
            }
        };
        self.made.insert(value, place);
        Some(place)
    }

    /// Packs what is between the steps, and their scratch.
    fn finish(mut self) -> Option<Parts> {
        self.drafts.sort_by_key(|draft| draft.step.when.stage());
        let align = self.align;
        let mut buffers: Vec<Buffer> = Vec::with_capacity(self.between.len() + self.drafts.len());
        for (index, bytes) in self.between.iter().enumerate() {
            let names = |draft: &Draft| draft.step.args.iter().any(|arg| arg.of == PartOf::Between(index));
            let first = self.drafts.iter().position(names)?;
            let (first, last) = match self.drafts[first].step.when {
                // All parts are at it.
                _ if self.sums.contains(&index) => (0, self.drafts.len() - 1),
                When::Before => (first, self.drafts.len() - 1),
                _ => (first, self.drafts.iter().rposition(names)?),
            };
            buffers.push(Buffer { first: first as u32, last: last as u32, bytes: *bytes, align });
        }
        for (at, draft) in self.drafts.iter().enumerate() {
            let (_, shared, slices) = draft.step.scratch;
            buffers.push(Buffer { first: at as u32, last: at as u32, bytes: shared.saturating_add(slices), align });
        }
        let packed = layout::pack(&buffers);
        for (draft, offset) in self.drafts.iter_mut().zip(&packed.offsets[self.between.len()..]) {
            draft.step.scratch.0 = *offset;
        }
        let in_place = self.in_place();
        let between = packed.offsets.iter().copied().zip(self.between).collect();
        let scratch = Bytes(packed.peak).round_up(align).0;
        Some(Parts { rows: self.rows, steps: self.drafts.into_iter().map(|draft| draft.step).collect(), between, scratch, in_place })
    }

    /// The outputs that may be written where an input lies: nothing reads the part's bytes of that behind their writer.
    fn in_place(&self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (output, result) in self.outputs.iter().enumerate() {
            let to = PartArg::rows(PartOf::Output(output));
            let writes = |draft: &Draft| draft.writes.contains(&to);
            let Some(writer) = self.drafts.iter().position(writes) else { continue };
            for (index, value) in self.inputs.iter().enumerate() {
                let from = PartArg::rows(PartOf::Input(index));
                let reads = |draft: &Draft| draft.reads.iter().any(|read| read.of == from.of);
                let is_cut = self.drafts.iter().all(|draft| draft.reads.iter().all(|read| read.of != from.of || *read == from));
                let bytes = |value: ValueId| self.of.lir.values[value].bytes;
                let last = self.drafts.iter().rposition(reads);
                let draft = &self.drafts[writer];
                let may = || {
                    let read = draft.reads.iter().position(|read| *read == from);
                    let written = draft.writes.iter().position(|write| *write == to);
                    let once = draft.reads.iter().filter(|read| **read == from).count() == 1;
                    let larger = draft.step.larger.as_ref().map(|(call, _)| call);
                    let mut calls = std::iter::once(&draft.step.call).chain(larger);
                    once && read.zip(written).is_some_and(|pair| calls.all(|call| call.step().in_place.contains(&pair)))
                };
                if is_cut && bytes(*value) == bytes(*result) && last.is_some_and(|last| last < writer || (last == writer && may())) {
                    pairs.push((index, output));
                }
            }
        }
        pairs
    }
}
