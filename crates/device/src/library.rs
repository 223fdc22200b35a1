//! The kernels of a kind of device: which of them answer a request, at which cost.
//!
//! A [`Library`] is a pure function of a [`KernelRequest`] and a [`DeviceSpec`], which names the instruction set. It is an input of
//! planning, one for each device, so a plan can be made for a machine that is not here. A plan takes the cheapest [`Variant`] and
//! names it in its text. A variant of two steps becomes two commands with a buffer between them.
//!
//! Code is made later: `Device::load` asks its [`CpuLibrary`], which refuses instruction sets that the processor lacks. Constants are
//! folded by the portable kernels ([`Evaluate`]), to the same bits on every machine.

use std::fmt;
use std::sync::Arc;

use plimsoll_base::{Bytes, Panels, Result};
use plimsoll_request::{Arguments, KernelRequest, Part, Rows};
use serde::{Deserialize, Serialize};

use crate::{Cost, DeviceSpec, Load, Prepared};

/// Separates two numerics in the [`Variant::numerics`] of a way that computes an epilogue itself and so has bits of its own. Before it are the
/// numerics of the way whose place it takes: a plan that wants those takes it, too.
pub const FINISHED: char = '>';

/// One way to compute a request: one kernel, or several one after the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// Its name in the library.
    pub name: Arc<str>,
    /// Variants of one numerics give the same bits for the same request.
    pub numerics: Arc<str>,
    /// Bytes of each buffer between its kernels.
    pub between: Vec<u64>,
    /// The kernels, in order; at least one.
    pub steps: Vec<Step>,
    /// The argument that they read in another order than row-major, if there is one: a constant that is held so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laid_out: Option<LaidOut>,
}

/// An argument of a request that is read in panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaidOut {
    /// The number of the request's argument: one of its inputs.
    pub argument: u32,
    /// Its columns.
    pub panels: Panels,
}

/// An argument of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepArg {
    /// That argument of the request, where inputs come before outputs.
    Argument(u32),
    /// That buffer between the steps. The first step that names it writes it.
    Between(u32),
}

/// One kernel of a variant, as far as a plan needs to know it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its arguments. None: those of the request, all of them, in order.
    pub args: Option<Vec<StepArg>>,
    /// Into how many pieces the work is cut; at least 1.
    pub chunks: u32,
    /// Bytes of scratch that all pieces share, undefined at the start.
    pub scratch: u64,
    /// Bytes of scratch for each worker, undefined at the start of each piece.
    pub per_worker: u64,
    /// `(input, output)`: the output may be written where the input lies, if this is the input's last reader. Counted among what
    /// the step reads, and what it writes.
    pub in_place: Vec<(usize, usize)>,
    /// Its cost.
    pub cost: Cost,
    /// The part of its work that a table of costs prices by class. Devices without a table need none.
    #[serde(default)]
    pub load: Load,
    /// The seconds that its library predicts, where that knows the device better than tables of costs by class do: of a real card.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
}

impl Step {
    /// The step that calls a kernel.
    pub fn of(prepared: &Prepared, args: Option<Vec<StepArg>>, load: Load) -> Step {
        let Prepared { chunks, scratch, per_worker, cost, ref in_place, .. } = *prepared;
        Step { args, chunks, scratch, per_worker, in_place: in_place.clone(), cost, load, seconds: None }
    }

    /// The slices of scratch of a call's threads: `(slices, bytes of each, a multiple of 64)`. With `threads` threads no more take
    /// part than there are pieces.
    pub fn worker_slices(&self, threads: u32, alignment: u64) -> (u32, u64) {
        let bytes = Bytes(self.per_worker).round_up(alignment).0;
        if bytes == 0 { (0, 0) } else { (threads.min(self.chunks).max(1), bytes) }
    }
}

/// A call of one step of a variant, in a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelCall {
    /// The computation.
    pub request: Arc<KernelRequest>,
    /// How.
    pub variant: Arc<Variant>,
    /// Which of its steps.
    pub step: u32,
}

impl Variant {
    /// The same without predictions of its library: these follow from what it was measured by, and say nothing about what is computed.
    #[must_use]
    pub fn without_seconds(&self) -> Variant {
        let steps = self.steps.iter().map(|step| Step { seconds: None, ..step.clone() });
        Variant { steps: steps.collect(), ..self.clone() }
    }

    /// Whether it is a way of these numerics, or one that finishes an epilogue in its place.
    pub fn is_of(&self, numerics: &str) -> bool {
        self.numerics.strip_prefix(numerics).is_some_and(|rest| rest.is_empty() || rest.starts_with(FINISHED))
    }
}

impl KernelCall {
    /// The step.
    pub fn step(&self) -> &Step {
        &self.variant.steps[self.step as usize]
    }
}

/// The kernels of a kind of device. An input of planning: a pure function of the request and the specification, here and on
/// every other machine.
pub trait Library: Send + Sync + fmt::Debug {
    /// The ways to compute a request, at least one.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the device cannot compute it; INVALID_ARGUMENT for sizes that make no sense.
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>>;

    /// Whether a variant of a plan is one of a request's. A library may know more than it answers with: another way to compute that it can be
    /// asked for by name.
    ///
    /// # Errors
    /// As [`Library::variants`].
    fn has(&self, spec: &DeviceSpec, request: &KernelRequest, variant: &Variant) -> Result<bool> {
        match variant.laid_out {
            None => Ok(self.variants(spec, request)?.contains(variant)),
            Some(laid_out) => Ok(self.laid_out(spec, request, laid_out)?.contains(variant)),
        }
    }

    /// The panels in which the device's kernels read a constant matrix of so many columns best. It is the right operand of a product, or the
    /// filter of a convolution, all of whose taps and channels are rows. None where that is row-major.
    fn panels(&self, _spec: &DeviceSpec, _columns: u64) -> Option<Panels> {
        None
    }

    /// The ways to compute a request that read an argument in panels; each has the numerics of one of [`Library::variants`]. Most
    /// requests have none.
    ///
    /// # Errors
    /// As [`Library::variants`].
    fn laid_out(&self, _spec: &DeviceSpec, _request: &KernelRequest, _laid_out: LaidOut) -> Result<Vec<Variant>> {
        Ok(Vec::new())
    }

    /// The bytes of a request's arguments: a plan from a file is held against them.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for sizes that make no sense; UNIMPLEMENTED where they are not known.
    fn arguments(&self, request: &KernelRequest) -> Result<Arguments> {
        request.arguments()
    }

    /// Whether the device gains by computing two requests at once. The second is the only reader of the first's results.
    fn takes(&self, _spec: &DeviceSpec, _first: &KernelRequest, _second: &KernelRequest) -> bool {
        false
    }

    /// Whether the device computes what follows an anchor together with it, of a type of which the element that the anchor writes is rounded by that: an
    /// epilogue on it works on sums that are not rounded, and so has other bits than a work of its own. The request has the epilogue.
    fn finishes(&self, _spec: &DeviceSpec, _request: &KernelRequest) -> bool {
        false
    }

    /// The requests of parts of a request's rows. Their variants of these numerics give results the bits that they have in the whole.
    fn part(&self, _spec: &DeviceSpec, _request: &KernelRequest, _numerics: &str, _rows: Rows) -> Option<Part> {
        None
    }

    /// The rows of a request that [`Library::part`] may divide, whatever their number.
    fn rows(&self, _request: &KernelRequest) -> Option<u64> {
        None
    }
}

/// A library of code for this processor.
pub trait CpuLibrary: Library {
    /// The code of a call.
    ///
    /// # Errors
    /// UNIMPLEMENTED where the library or the processor does not have it; INTERNAL where the variant is not the library's.
    fn code(&self, spec: &DeviceSpec, call: &KernelCall) -> Result<Prepared>;
}

/// Computes requests on values at hand, with the same bits on every machine: constants are folded through it.
pub trait Evaluate: Send + Sync + fmt::Debug {
    /// The outputs of a request, of so many bytes each. Inputs are as long as the request says.
    ///
    /// # Errors
    /// The library's error for the request; the kernel's fault.
    fn evaluate(&self, request: &KernelRequest, inputs: &[&[u8]], outputs: &[u64]) -> Result<Vec<Vec<u8>>>;
}
