//! The options that divide a machine into logical devices, named after TensorFlow's ConfigProto.

mod environment;
mod gpu;
mod limits;
mod parse;
mod resolve;
mod spill;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{Bf16Instructions, Costs, DeviceKind, Tuned};

pub use environment::Environment;
pub use gpu::{GpuConfig, VirtualDevices};
pub(crate) use resolve::MOST;
pub use spill::Spill;

/// How nodes come to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlacementMode {
    /// By TensorFlow's rules.
    #[default]
    TensorFlow,
    /// By TensorFlow's rules, but where nothing is asked for by size: whole models, in their order, on the first device with room
    /// for them, and a model that fits on none in contiguous pieces. This needs the runs beforehand. The facade's `Several` opens
    /// such models; a graph that is opened by itself goes where TensorFlow's rules put it.
    FirstFit,
    /// By TensorFlow's rules, but where nothing is asked for by predicted time under the lines: the step is run on paper with each
    /// candidate. As with [`PlacementMode::FirstFit`], this needs the runs beforehand.
    Auto,
    /// The same for a stream of steps, several of which run at once, each with a lane of its own: the part of the machine that has most
    /// to do has as little as can be.
    AutoThroughput,
}

impl PlacementMode {
    /// Whether it needs the runs beforehand.
    pub fn looks_at_runs(self) -> bool {
        self != PlacementMode::TensorFlow
    }
}

/// Whether cuDNN computes products and convolutions on NVIDIA cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CudnnMode {
    /// Where it is found, and predicted to be faster than the project's own kernels.
    #[default]
    Auto,
    /// Wherever it has an engine within the limits. Cards are not used where it is not found.
    Always,
    /// Nowhere; it is not loaded.
    Never,
}

/// How products and convolutions of floats are computed on processors. Read and printed as `float32` and `bf16`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatmulPrecision {
    /// Operands are floats.
    #[default]
    Float32,
    /// Operands may be rounded to bf16 (7 bits behind the first), where the processor has instructions for that and it is predicted to be
    /// faster. Sums are floats. An operand is at most 2^-8 off, relative to itself.
    Bf16,
}

impl MatmulPrecision {
    /// The instructions that round, of those that a processor has; none where operands stay floats.
    pub fn instructions(self, has: Option<Bf16Instructions>) -> Option<Bf16Instructions> {
        has.filter(|_| self == MatmulPrecision::Bf16)
    }
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MatmulPrecision::Float32 => "float32",
            MatmulPrecision::Bf16 => "bf16",
        })
    }
}

impl FromStr for MatmulPrecision {
    type Err = Error;

    /// # Errors
    /// INVALID_ARGUMENT for another word.
    fn from_str(text: &str) -> Result<MatmulPrecision> {
        let all = [MatmulPrecision::Float32, MatmulPrecision::Bf16];
        let known = all.into_iter().find(|precision| precision.to_string() == text);
        known.ok_or_else(|| Error::invalid_argument(format!("a precision of products called {text:?}")).with_remedy("float32 or bf16"))
    }
}

/// A memory limit as it was given. Prints as it is written: `GPU:0=1GiB+1GiB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The device; `None` is every GPU.
    pub device: Option<(DeviceKind, u32)>,
    /// One size for each logical device that the device is divided into; at least one.
    pub parts: Vec<Bytes>,
}

/// Options of devices, set before they are opened.
///
/// The fields are public so that a ConfigProto or a command line can fill them; the methods of the same names are for
/// programs: `Options::new().limit("CPU:0", "64MiB").intra_op(2)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Memory limits, at most one for a device. That of one GPU counts before that of every GPU.
    pub memory_limits: Vec<MemoryLimit>,
    /// Which of the cards that the process sees are used, in which order: `3,2`; `-1` and the empty text hide all. Counts before
    /// the list of [`Options::gpu`].
    pub visible_devices: Option<String>,
    /// The share of all of each card's memory that is reserved, overhead beside it.
    pub memory_fraction: Option<f64>,
    /// Reserve nothing beforehand. Said either way, it counts before TF_FORCE_GPU_ALLOW_GROWTH and [`Options::gpu`].
    pub allow_growth: Option<bool>,
    /// Touch reserved bytes at once.
    pub preallocate: bool,
    /// Wait for memory that others hold, at most that long; [`Duration::MAX`] is without end.
    pub wait: Option<Duration>,
    /// Memory that a session keeps for its next run is given back when it has not run for so long; never, if this is not set.
    pub idle_release: Option<Duration>,
    /// Whether a node may go to another device than the one it names where that has no kernel or is not there. On, as in
    /// TensorFlow 2; a ConfigProto says it explicitly.
    pub soft_placement: bool,
    /// Whether every placement is logged.
    pub log_placement: bool,
    /// Whether the nodes that a run needs are placed before the first such run, instead of all nodes when a session is made.
    pub place_pruned_graph: bool,
    /// How nodes come to devices.
    pub placement: PlacementMode,
    /// Whether a plan that takes more than the limits of its devices is made to fit them: some of its ops run again instead of their
    /// results waiting, and some results wait in a slower memory. The results are the same.
    pub fit: bool,
    /// A file in which values of processors wait where a plan is made to fit: see [`Options::spill`].
    pub spill: Option<Spill>,
    /// Whether convolutions do all multiplications, also where Winograd's form is faster. That has errors of up to 1e-5 of the largest
    /// result, beside about 1e-6.
    pub exact_convolutions: bool,
    /// How products and convolutions of floats are computed on processors.
    pub matmul_precision: MatmulPrecision,
    /// Whether cuDNN computes products and convolutions on NVIDIA cards.
    pub cudnn: CudnnMode,
    /// Whether cuDNN may round floats to TF32 (10 bits behind the first), as TensorFlow does unless
    /// `tf.config.experimental.enable_tensor_float_32_execution(False)`. Here they stay whole where nothing is said.
    pub tensor_float_32: bool,
    /// The most bytes of workspace for an engine of cuDNN; TF_CUDNN_WORKSPACE_LIMIT_IN_MB or 32 MiB, if it is not set.
    pub cudnn_workspace: Option<Bytes>,
    /// Folders of NVIDIA's libraries, as a path variable lists them: they count before PLIMSOLL_CUDA_LIBS.
    pub cuda_libraries: Option<String>,
    /// Threads that compute at the same time; 0 is one for every core this process may use.
    pub intra_op: i32,
    /// Queues of one run that advance at the same time; 0 is as many as there are threads, and less than 0 is 1, as
    /// TensorFlow then stays on the caller's thread.
    pub inter_op: i32,
    /// How many logical devices of a type: exactly so many CPUs, at most so many of another type.
    pub device_count: BTreeMap<String, i32>,
    /// Device types or names: if some name types, no other devices but CPUs are made.
    pub device_filters: Vec<String>,
    /// A ConfigProto's options for GPUs, with TensorFlow's meaning. The options above override it.
    pub gpu: GpuConfig,
    /// Simulated GPUs: `2x4GiB`.
    pub sim_gpus: Option<String>,
    /// What kernels take, for predictions and decisions; those of this version where there are none.
    pub costs: Option<Arc<Costs>>,
    /// Times that were measured on cards: there products and convolutions are computed by the fastest of the ways that were timed. Parts of the table
    /// for other cards, versions of cuDNN or bounds are not used, and a note says so.
    pub tuned: Option<Arc<Tuned>>,
    /// Whether tensors that a graph computes from variables and constants alone are computed once, and kept in variables of their
    /// own: a batch norm behind a convolution becomes part of its filter and a bias. They count under the lines as all variables
    /// do. They are computed again after a run or a restore has changed a variable; a run that assigns such a variable is made of
    /// the graph as written. Variables that only these tensors are computed from are given back where their files have them.
    pub freeze: bool,
    /// Sizes that share memory. The size of a run is the first dimension of the feeds whose placeholders leave it open. A run of such
    /// a size counts for the next of these, and takes the arena of that: a session that runs many sizes keeps few arenas, its
    /// peak stays the same within a bucket, and does not fall as sizes grow. Each size has a plan of its own, which computes what
    /// that size asks for; nothing is padded. Empty: each size takes what it needs.
    pub buckets: Vec<u64>,
    /// How many fusions a plan may have at most; none is no limit. For looking for the one that is wrong.
    pub fusions: Option<usize>,
    /// The first mistake made with a builder method, reported by [`Options::resolve`].
    mistake: Option<Error>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_limits: Vec::new(),
            visible_devices: None,
            memory_fraction: None,
            allow_growth: None,
            preallocate: false,
            wait: None,
            idle_release: None,
            soft_placement: true,
            log_placement: false,
            place_pruned_graph: false,
            placement: PlacementMode::TensorFlow,
            fit: true,
            spill: None,
            exact_convolutions: false,
            matmul_precision: MatmulPrecision::Float32,
            cudnn: CudnnMode::Auto,
            tensor_float_32: false,
            cudnn_workspace: None,
            cuda_libraries: None,
            intra_op: 0,
            inter_op: 0,
            device_count: BTreeMap::new(),
            device_filters: Vec::new(),
            gpu: GpuConfig::default(),
            sim_gpus: None,
            costs: None,
            tuned: None,
            freeze: false,
            buckets: Vec::new(),
            fusions: None,
            mistake: None,
        }
    }
}

impl Options {
    /// One CPU device, all cores, no limit.
    pub fn new() -> Options {
        Options::default()
    }

    /// Limits `device` (`CPU:0`, `/gpu:1`) to `size` (`64MiB`; `1GiB+1GiB` makes two logical devices). A mistake in the texts
    /// is reported when the devices are opened.
    pub fn limit(mut self, device: &str, size: &str) -> Options {
        match MemoryLimit::parse(&format!("{device}={size}")) {
            Ok(limit) => self.memory_limits.push(limit),
            Err(error) => self.mistake = self.mistake.or(Some(error)),
        }
        self
    }

    /// Adds the limits of a `--memory-limit`: `2GiB` for every GPU, or `GPU:0=1GiB+1GiB,CPU:0=64MiB`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the option, its value, and the values that it may have.
    pub fn memory_limit_flag(mut self, text: &str) -> Result<Options> {
        self.memory_limits.extend(MemoryLimit::parse_list(text)?);
        Ok(self)
    }

    /// Adds the counts of a `--device-count`: `CPU=2,GPU=0`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the option, its value, and the values that it may have.
    pub fn device_count_flag(mut self, text: &str) -> Result<Options> {
        self.device_count.extend(parse::device_counts(text)?);
        Ok(self)
    }

    /// Which physical GPUs are seen, in which order: `3,2`.
    pub fn visible_devices(mut self, list: impl Into<String>) -> Options {
        self.visible_devices = Some(list.into());
        self
    }

    /// Makes a file of that size (`8GiB`) in a folder, in which values of processors wait where a plan is made to fit. It has no name,
    /// is made with all of its bytes when the devices are opened, and is gone with them. A mistake in the texts is reported then.
    pub fn spill(mut self, folder: &str, size: &str) -> Options {
        match format!("{folder}={size}").parse() {
            Ok(spill) => self.spill = Some(spill),
            Err(error) => self.mistake = self.mistake.or(Some(error)),
        }
        self
    }

    /// Gives back memory that a session keeps for its next run when it has not run for so long.
    pub fn idle_release(mut self, after: Duration) -> Options {
        self.idle_release = Some(after);
        self
    }

    /// Simulated GPUs: `2x4GiB`.
    pub fn sim_gpus(mut self, cards: impl Into<String>) -> Options {
        self.sim_gpus = Some(cards.into());
        self
    }

    /// Folders of NVIDIA's libraries: `/opt/cuda/lib:/opt/cudnn/lib`.
    pub fn cuda_libraries(mut self, folders: impl Into<String>) -> Options {
        self.cuda_libraries = Some(folders.into());
        self
    }

    /// The environment with these options' folders of NVIDIA's libraries.
    #[must_use]
    pub fn with_libraries(&self, environment: &Environment) -> Environment {
        match &self.cuda_libraries {
            Some(folders) => environment.clone().with("PLIMSOLL_CUDA_LIBS", folders),
            None => environment.clone(),
        }
    }

    /// The most bytes of workspace for an engine of cuDNN, by these options or TensorFlow's variable; none where neither says.
    pub fn cudnn_workspace_in(&self, environment: &Environment) -> Option<Bytes> {
        let named = || environment.number("TF_CUDNN_WORKSPACE_LIMIT_IN_MB").and_then(|mebibytes| u64::try_from(mebibytes).ok());
        self.cudnn_workspace.or_else(|| named().map(|mebibytes| Bytes(mebibytes.saturating_mul(1 << 20))))
    }

    /// Sizes that share memory: `[1, 8, 64]`.
    pub fn buckets(mut self, sizes: impl Into<Vec<u64>>) -> Options {
        self.buckets = sizes.into();
        self
    }

    /// So many logical devices of that kind.
    pub fn device_count(mut self, kind: DeviceKind, count: u32) -> Options {
        self.device_count.insert(kind.name().into(), i32::try_from(count).unwrap_or(i32::MAX));
        self
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty;)*) => {
        impl Options {
            $($(#[$doc])* pub fn $name(mut self, $name: $type) -> Options {
                self.$name = $name.into();
                self
            })*
        }
    };
}

setters! {
    /// The share of each GPU's memory that is reserved.
    memory_fraction: f64;
    /// Whether nothing is reserved beforehand.
    allow_growth: bool;
    /// Whether reserved bytes are touched at once.
    preallocate: bool;
    /// How long memory that others hold is waited for.
    wait: Duration;
    /// Whether a node may go to another device than the one it names.
    soft_placement: bool;
    /// Whether every placement is logged.
    log_placement: bool;
    /// Whether only the nodes that a run needs are placed.
    place_pruned_graph: bool;
    /// Whether what is computed from variables and constants alone is computed once.
    freeze: bool;
    /// How nodes come to devices.
    placement: PlacementMode;
    /// Whether a plan that is too big is made to fit.
    fit: bool;
    /// Whether convolutions do all multiplications.
    exact_convolutions: bool;
    /// How products and convolutions of floats are computed on processors.
    matmul_precision: MatmulPrecision;
    /// Whether cuDNN computes products and convolutions on NVIDIA cards.
    cudnn: CudnnMode;
    /// Whether cuDNN may round floats to TF32.
    tensor_float_32: bool;
    /// The most bytes of workspace for an engine of cuDNN.
    cudnn_workspace: Bytes;
    /// Threads that compute at the same time; 0 is one for every core.
    intra_op: i32;
    /// Queues of one run that advance at the same time; 0 is as many as there are threads.
    inter_op: i32;
}

/// A size as it may be read again, exactly: `64MiB`.
fn exact(bytes: Bytes) -> String {
    let text = bytes.to_string().replace(' ', "");
    if text.parse() == Ok(bytes) { text } else { format!("{}B", bytes.0) }
}

impl fmt::Display for MemoryLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((kind, index)) = self.device {
            write!(f, "{kind}:{index}=")?;
        }
        let parts: Vec<String> = self.parts.iter().map(|&part| exact(part)).collect();
        f.write_str(&parts.join("+"))
    }
}
