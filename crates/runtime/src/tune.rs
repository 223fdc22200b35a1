//! Times the ways that cards have to compute the products and convolutions of plans: the table that their libraries choose by.
//!
//! Each device that has a [`Tuner`](plimsoll_device::Tuner) takes one block of memory, under its line: that of the largest request with the largest
//! scratch of its ways. What does not fit under the line is left out, and said. Ways of a request are timed in turn, so that a card that becomes
//! slower meanwhile is slower for all of them.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_device::{
    Bindings, BufferRef, Command, Device, KernelCall, Place, Program, Timed, Tuned, TunedFor, TunedPart, TunedRequest, Tuner, Variant, Work,
};
use plimsoll_graph::id::Id;
use plimsoll_memory::Block;
use plimsoll_plan::Plan;

use crate::Devices;

/// How often a program that is timed has its call: that many are one graph.
const CALLS: usize = 4;
/// Seconds that a round takes at least, and the most runs of it.
const ROUND: f64 = 2e-3;
const MOST_RUNS: f64 = 256.0;
/// Bytes that are written at once.
const PIECE: usize = 1 << 20;

/// How things are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HowToTune {
    /// The most engines of another library for each request, those that it predicts to be fast.
    pub engines: usize,
    /// How often each way is timed; the median counts.
    pub rounds: u32,
}

impl Default for HowToTune {
    fn default() -> HowToTune {
        HowToTune { engines: 8, rounds: 5 }
    }
}

/// What was timed.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The table: what devices had before, and what was timed.
    pub table: Tuned,
    /// Each device on which something was timed, or was known.
    pub devices: Vec<TunedDevice>,
    /// Requests and ways that were not timed, as sentences.
    pub left_out: Vec<String>,
}

/// A device whose kernels were timed.
#[derive(Clone, Debug, PartialEq)]
pub struct TunedDevice {
    /// Its full name.
    pub name: String,
    /// What the times are for.
    pub of: TunedFor,
    /// Requests that were timed, and those that the table had.
    pub timed: usize,
    /// As above.
    pub known: usize,
    /// Requests whose fastest way is another one than without the times.
    pub changed: usize,
    /// The line, where there is one.
    pub limit: Option<Bytes>,
    /// The most bytes that were to be in use at once, before anything was timed; and those that were.
    pub promised: Bytes,
    /// As above.
    pub measured: Bytes,
}

/// A request that is to be timed.
struct Wanted {
    key: String,
    what: String,
    ways: Vec<KernelCall>,
    /// Offsets and bytes of its arguments.
    args: Vec<(u64, u64)>,
    /// How many of them are read.
    inputs: usize,
    /// Where scratch begins.
    scratch: u64,
}

impl Wanted {
    fn of(device: &dyn Device, tuner: &dyn Tuner, call: &KernelCall, engines: usize) -> Result<Option<Wanted>> {
        let request = Arc::new(Tuned::subject(&call.request));
        let variants = tuner.candidates(&request, engines)?;
        let is_one = |variant: &Variant| variant.steps.len() == 1 && variant.steps[0].args.is_none() && variant.steps[0].per_worker == 0;
        let variants: Vec<Variant> = variants.into_iter().filter(is_one).collect();
        if variants.is_empty() {
            return Ok(None);
        }
        let arguments = device.library().arguments(&request)?;
        let slot = |bytes: u64| device.spec().slot(Bytes(bytes)).0;
        let (mut args, mut next) = (Vec::new(), 0u64);
        for &bytes in arguments.inputs.iter().chain(&arguments.outputs) {
            args.push((next, bytes));
            next = next.checked_add(slot(bytes)).ok_or_else(|| Error::invalid_argument("arguments of that many bytes"))?;
        }
        let ways = variants.into_iter().map(|variant| KernelCall { request: request.clone(), variant: Arc::new(variant), step: 0 });
        let (key, what) = (Tuned::key(&request)?, request.summary());
        Ok(Some(Wanted { key, what, ways: ways.collect(), args, inputs: arguments.inputs.len(), scratch: next }))
    }

    /// Bytes of it with that way.
    fn bytes(&self, way: &KernelCall) -> u64 {
        self.scratch.saturating_add(way.step().scratch)
    }

    fn program(&self, way: &KernelCall) -> Program {
        let here = |(offset, bytes): (u64, u64)| BufferRef { place: Place::Arena(0), offset, bytes };
        let scratch = Some(way.step().scratch).filter(|bytes| *bytes > 0).map(|bytes| here((self.scratch, bytes)));
        let command = Command {
            work: Work::Kernel(way.clone()),
            args: self.args.iter().copied().map(here).collect(),
            scratch,
            worker_scratch: None,
            guard: None,
            waits: Vec::new(),
            label: self.what.as_str().into(),
        };
        Program { commands: vec![command; CALLS] }
    }
}

/// Times the ways of devices to compute the products and convolutions of these plans, which were made for them. What the table of the devices
/// ([`Options::tuned`](plimsoll_cards::Options::tuned)) has is not timed again. Nothing of it stays on the devices. `shown` is called with each request
/// before it is timed.
///
/// # Errors
/// FAILED_PRECONDITION where no device is one on which ways are timed, with the reason; RESOURCE_EXHAUSTED where other programs have the room that
/// the line would allow; the errors of a device that is lost.
pub fn tune(devices: &Devices, plans: &[Plan], how: HowToTune, shown: &dyn Fn(&str)) -> Result<Tuning> {
    if devices.all().iter().all(|device| device.tuner().is_none()) {
        let error = Error::failed_precondition("there is no card here on which kernels could be timed: tune is for NVIDIA cards");
        let remedy = devices.division().and_then(|division| division.obstacle.clone());
        return Err(error.with_remedy(remedy.unwrap_or_else(|| "for predictions on processors there is `plimsoll calibrate`".to_string())));
    }
    let mut calls: Vec<Vec<&KernelCall>> = vec![Vec::new(); devices.all().len()];
    plans.iter().for_each(|plan| collect(plan, &mut calls));
    let before = devices.options().tuned.as_deref().cloned().unwrap_or_else(|| Tuned::of([]));
    let mut tuning = Tuning { table: before, devices: Vec::new(), left_out: Vec::new() };
    for (device, calls) in devices.all().iter().zip(calls) {
        let Some(tuner) = device.tuner() else { continue };
        let on = On { device: &**device, tuner, of: tuner.tuned_for(), how };
        on.tune(&calls, &mut tuning, shown)?;
    }
    Ok(tuning)
}

/// The calls of a plan and of those behind it, by device.
fn collect<'a>(plan: &'a Plan, calls: &mut [Vec<&'a KernelCall>]) {
    for queue in &plan.queues {
        let of_queue = queue.program.commands.iter().filter_map(|command| match &command.work {
            Work::Kernel(call) if call.step == 0 => Some(call),
            _ => None,
        });
        calls[queue.device.index()].extend(of_queue);
    }
    if let Some(later) = &plan.later {
        later.within.iter().chain(&later.plans).for_each(|plan| collect(plan, calls));
    }
}

/// A way of a request that is timed.
struct Way {
    name: String,
    timed: Box<dyn Timed>,
    /// Of its program in a round.
    runs: u32,
    /// Of a call, one for each round.
    seconds: Vec<f64>,
}

impl Way {
    fn round(&mut self) -> Result<()> {
        let seconds = self.timed.seconds(self.runs)?;
        self.seconds.push(seconds / (f64::from(self.runs) * CALLS as f64));
        Ok(())
    }

    /// Its name, and the median.
    fn median(mut self) -> (String, f64) {
        self.seconds.sort_by(f64::total_cmp);
        (self.name, self.seconds[self.seconds.len() / 2].max(1e-9))
    }
}

/// A device whose kernels are timed.
struct On<'a> {
    device: &'a dyn Device,
    tuner: &'a dyn Tuner,
    of: TunedFor,
    how: HowToTune,
}

impl On<'_> {
    fn tune(&self, calls: &[&KernelCall], tuning: &mut Tuning, shown: &dyn Fn(&str)) -> Result<()> {
        let name = self.device.spec().name.to_string();
        let (mut seen, mut known, mut wanted) = (BTreeSet::new(), 0, Vec::new());
        for call in calls {
            let key = Tuned::key(&call.request)?;
            if !seen.insert(key.clone()) {
                continue;
            }
            if tuning.table.part(&self.of).is_some_and(|part| part.contains_key(&key)) {
                known += 1;
                continue;
            }
            wanted.extend(Wanted::of(self.device, self.tuner, call, self.how.engines)?);
        }
        let room = self.room()?;
        let short = self.device.spec().name.short();
        for request in &mut wanted {
            let mut left = Vec::new();
            for way in std::mem::take(&mut request.ways) {
                match room {
                    Some(room) if request.bytes(&way) > room.0 => {
                        left.push(format!("{} ({})", way.variant.name, Bytes(request.bytes(&way))))
                    }
                    _ => request.ways.push(way),
                }
            }
            if let (Some(room), false) = (room, left.is_empty()) {
                tuning.left_out.push(format!(
                    "{}: {short} has no room under its line, which leaves {room}, for {}",
                    request.what,
                    left.join(", ")
                ));
            }
        }
        wanted.retain(|request| !request.ways.is_empty());
        let most = wanted.iter().flat_map(|request| request.ways.iter().map(|way| request.bytes(way))).max().unwrap_or(0);
        let usage = self.device.usage();
        let promised = usage.in_use + Bytes(most).round_up(self.device.spec().granularity);
        self.device.reset_peak();
        let mut part = TunedPart::new();
        let mut changed = 0;
        if !wanted.is_empty() {
            let block = self.device.allocate(Bytes(most), "arguments of what is timed")?;
            for request in &wanted {
                shown(&format!("{short}: {}", request.what));
                let times = self.times(request, &block, &mut tuning.left_out)?;
                let Some((fastest, _)) = times.iter().min_by(|one, other| one.1.total_cmp(&other.1)) else { continue };
                let chosen = self.device.library().variants(self.device.spec(), &request.ways[0].request)?;
                changed += usize::from(chosen.first().is_some_and(|variant| *variant.name != **fastest));
                part.insert(request.key.clone(), TunedRequest::new(&request.what, times));
            }
        }
        let measured = self.device.usage().measured_peak;
        tuning.devices.push(TunedDevice {
            name,
            of: self.of.clone(),
            timed: part.len(),
            known,
            changed,
            limit: self.device.spec().memory_limit,
            promised,
            measured,
        });
        tuning.table = tuning.table.with(&Tuned::of([(self.of.clone(), part)]));
        Ok(())
    }

    /// The bytes that the line leaves; none where there is no line.
    fn room(&self) -> Result<Option<Bytes>> {
        let spec = self.device.spec();
        let left = self.device.reach()?.map(|reach| reach - self.device.usage().in_use);
        Ok(left.map(|left| Bytes(left.0 / spec.granularity * spec.granularity)))
    }

    /// The ways of a request with the median of their times.
    fn times(&self, request: &Wanted, block: &Block, left_out: &mut Vec<String>) -> Result<Vec<(String, f64)>> {
        self.fill(request, block)?;
        let bindings = Bindings { arenas: vec![block.address()], ..Bindings::default() };
        let mut ways = Vec::new();
        for way in &request.ways {
            match self.begin(request, way, &bindings) {
                Ok(way) => ways.push(way),
                Err(error) if matches!(error.code(), Code::Unavailable | Code::ResourceExhausted) => return Err(error),
                // An engine that plans and does not run.
                Err(error) => left_out.push(format!("{}: {}: {error}", request.what, way.variant.name)),
            }
        }
        for _ in 0..self.how.rounds.max(1) {
            ways.iter_mut().try_for_each(Way::round)?;
        }
        Ok(ways.into_iter().map(Way::median).collect())
    }

    fn begin(&self, request: &Wanted, way: &KernelCall, bindings: &Bindings) -> Result<Way> {
        let mut timed = self.tuner.prepare(&Arc::new(request.program(way)), bindings)?;
        // The first run loads what is loaded lazily.
        timed.seconds(1)?;
        let runs = (ROUND / timed.seconds(1)?.max(1e-9)).ceil().clamp(1.0, MOST_RUNS) as u32;
        Ok(Way { name: way.variant.name.to_string(), timed, runs, seconds: Vec::new() })
    }

    /// Writes numbers between 0.008 and 2, of both signs, in each type of floats, where a request reads. Cards multiply zeros faster.
    fn fill(&self, request: &Wanted, block: &Block) -> Result<()> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut word = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = (state >> 40) as u16;
            (0x3C00 | bits & 0x3FF | bits & 0x8000).to_le_bytes()
        };
        let piece: Vec<u8> = (0..PIECE / 2).flat_map(|_| word()).collect();
        for &(offset, bytes) in &request.args[..request.inputs] {
            for at in (0..bytes).step_by(PIECE) {
                block.write(offset + at, &piece[..(bytes - at).min(PIECE as u64) as usize])?;
            }
        }
        Ok(())
    }
}
