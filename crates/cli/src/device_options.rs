//! The device options, the same on every command, named after ConfigProto.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use plimsoll::costs::Costs;
use plimsoll::formats::read_config;
use plimsoll::machine::{CudnnMode, MachineDescription, MatmulPrecision};
use plimsoll::tuned::Tuned;
use plimsoll::{Bytes, Error, Options, PlacementMode, config, model};

use crate::failure::{Failure, OrUsage, Result, wrong_use};

/// The options of devices on the command line.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Device options")]
pub struct DeviceOptions {
    /// A ConfigProto, text or binary; the options below override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The physical GPUs to use, in this order, as 3,2
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub visible_devices: Option<String>,
    /// The share of each GPU's memory that is reserved
    #[arg(long, value_name = "FRACTION")]
    pub memory_fraction: Option<f64>,
    /// A hard limit for each device: CPU:0=64MiB,GPU:0=1GiB+1GiB; a size alone limits every GPU
    #[arg(long, value_name = "LIMITS", value_delimiter = ',')]
    pub memory_limit: Vec<String>,
    /// Reserve no memory beforehand
    #[arg(long)]
    pub allow_growth: bool,
    /// Touch reserved memory at once
    #[arg(long)]
    pub preallocate: bool,
    /// Wait for memory that others hold, at most this long: 500ms, 30s, 5min
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "forever")]
    pub wait: Option<String>,
    /// Give back memory kept for the next run when a session has been idle this long: 500ms, 30s, 5min
    #[arg(long, value_name = "DURATION", visible_alias = "give-back-when-idle")]
    pub idle_release: Option<String>,
    /// Whether a node may go to another device than it asks for [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub soft_placement: Option<bool>,
    /// Print where every node goes, and which device is on which card
    #[arg(long)]
    pub log_placement: bool,
    /// How nodes are assigned to devices: by TensorFlow's rules; first-fit: whole models in their order on the first device with room for
    /// them, cards first, a model that fits on none in pieces; auto: where the predicted step is the shortest under all limits;
    /// auto:throughput: where a stream of steps is the fastest [default: tensorflow]
    #[arg(long, value_enum, value_name = "HOW")]
    pub placement: Option<Placement>,
    /// Whether a plan that is over a limit is made to fit: some of its ops run again, the results are the same [default: on]
    #[arg(long, value_enum, value_name = "SWITCH", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub fit: Option<Switch>,
    /// A file in this folder, of this size, in which values of processors wait where a plan is made to fit: /var/tmp=8GiB
    #[arg(long, value_name = "FOLDER=SIZE")]
    pub spill: Option<String>,
    /// Convolutions do all multiplications, also where a form with fewer is faster: results are a few bits closer to exact ones
    #[arg(long)]
    pub exact_convolutions: bool,
    /// How products and convolutions of floats are computed on processors; bf16: operands may be rounded to bf16 where the processor has
    /// instructions for that and it is predicted to be faster, sums are floats [default: float32]
    #[arg(long, value_enum, value_name = "PRECISION")]
    pub matmul_precision: Option<Precision>,
    /// Whether cuDNN computes products and convolutions on NVIDIA cards: where it is predicted to be faster than kernels of Plimsoll, wherever it
    /// can, or nowhere [default: auto]
    #[arg(long, value_enum, value_name = "WHERE")]
    pub cudnn: Option<Cudnn>,
    /// cuDNN may round floats to TF32, as TensorFlow does unless it is told not to
    #[arg(long)]
    pub tensor_float_32: bool,
    /// The most workspace for an engine of cuDNN: 64MiB [default: TF_CUDNN_WORKSPACE_LIMIT_IN_MB, or 32MiB]
    #[arg(long, value_name = "SIZE")]
    pub cudnn_workspace: Option<String>,
    /// Folders of NVIDIA's libraries, as a path variable lists them; they count before PLIMSOLL_CUDA_LIBS
    #[arg(long, value_name = "FOLDERS")]
    pub cuda_libraries: Option<String>,
    /// Threads that compute at the same time; 0 is one for every core
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub intra_op: Option<i32>,
    /// Queues that advance at the same time; 0 is as many as there are threads
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub inter_op: Option<i32>,
    /// A table of costs for decisions, that `plimsoll calibrate` wrote: from measured kernels, or from profiles of earlier runs (`calibrate --from`);
    /// the one of this version, if it is left out
    #[arg(long, value_name = "FILE")]
    pub costs: Option<PathBuf>,
    /// A table of times that `plimsoll tune` wrote: on cards of its kind products and convolutions are computed by the fastest of the ways in it
    #[arg(long, value_name = "FILE")]
    pub tuned: Option<PathBuf>,
    /// At most so many fusions in each plan, to find the one that is wrong: `plan --after fuse` numbers them
    #[arg(long, value_name = "N", hide = true)]
    pub fusions: Option<usize>,
    /// Logical devices of each type: CPU=2,GPU=0
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub device_count: Vec<String>,
    /// Simulated GPUs, as 2x4GiB; with ,speed=FACTOR they are timed on a virtual clock
    #[arg(long, value_name = "SPEC")]
    pub sim_gpus: Option<String>,
    /// Plan for the machine that a file describes, which need not be here, in place of this one: `devices --describe FILE` writes it
    /// there. For plan, place and train --largest-batch
    #[arg(long, value_name = "FILE")]
    pub devices: Option<PathBuf>,
    /// Whether what is computed from variables and constants alone is computed once; an option of some commands.
    #[arg(skip)]
    pub freeze: bool,
    /// Whether standard output is for one JSON document.
    #[arg(skip)]
    pub json: bool,
}

/// How nodes come to devices: by TensorFlow's rules, by size, or by measured cost and memory.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Placement {
    Tensorflow,
    FirstFit,
    Auto,
    #[value(name = "auto:throughput")]
    AutoThroughput,
}

/// What operands of products are.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Precision {
    Float32,
    Bf16,
}

/// Where cuDNN computes products and convolutions.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Cudnn {
    Auto,
    Always,
    Never,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

impl DeviceOptions {
    /// The options: those of a recorded case's ConfigProto, then those of `--config`, then the flags; the later overrides.
    ///
    /// # Errors
    /// Wrong use: values that make no sense, files that cannot be read, and `--devices`, for commands that need the machine.
    pub fn resolve(&self, case_config: Option<&Path>) -> Result<Options> {
        if let Some(path) = &self.devices {
            let message =
                format!("--devices {}: the machine that it describes is not here, and this command does more than plan", path.display());
            let remedy = "use plan, place or train --largest-batch, or leave the option out";
            return Err(Failure::usage(Error::invalid_argument(message).with_remedy(remedy)));
        }
        self.resolve_for_any_machine(case_config)
    }

    /// The machine that `--devices` describes.
    ///
    /// # Errors
    /// Wrong use for a file that cannot be read, and for one that describes no machine.
    pub fn described(&self) -> Result<Option<MachineDescription>> {
        let Some(path) = &self.devices else { return Ok(None) };
        let json = model::read_file(path).or_usage()?;
        let machine = MachineDescription::from_json(&json).map_err(|error| Failure::usage(error.context(path.display())))?;
        Ok(Some(machine))
    }

    /// As [`DeviceOptions::resolve`], for commands that take a machine that is not here.
    ///
    /// # Errors
    /// As [`DeviceOptions::resolve`], but for `--devices`.
    pub fn resolve_for_any_machine(&self, case_config: Option<&Path>) -> Result<Options> {
        let mut options = Options::new();
        for path in case_config.into_iter().chain(self.config.as_deref()) {
            let bytes = model::read_file(path).or_usage()?;
            let config = read_config(&bytes).map_err(|error| Failure::usage(error.context(path.display())))?;
            config::apply(&config, &mut options).or_usage()?;
        }
        let mut counted = HashSet::new();
        for count in &self.device_count {
            let parsed = count.split_once('=').and_then(|(kind, count)| Some((kind.trim(), count.trim().parse::<i32>().ok()?)));
            match parsed {
                Some((kind @ "CPU", count)) if count > 0 => options.device_count.insert(kind.to_string(), count),
                Some((kind @ "GPU", count)) if count >= 0 => options.device_count.insert(kind.to_string(), count),
                _ => return wrong_use(format!("--device-count {count}: write CPU=2 or CPU=2,GPU=0")),
            };
            if !counted.insert(parsed.map(|(kind, _)| kind)) {
                return wrong_use(format!("--device-count {}: a type has two counts, leave one of them out", self.device_count.join(",")));
            }
        }
        for limit in &self.memory_limit {
            options = options.memory_limit_flag(limit).or_usage()?;
        }
        options.visible_devices = self.visible_devices.clone().or(options.visible_devices);
        options.memory_fraction = self.memory_fraction.or(options.memory_fraction);
        options.allow_growth = self.allow_growth.then_some(true).or(options.allow_growth);
        options.preallocate |= self.preallocate;
        options.wait = self.wait.as_deref().map(|text| duration("--wait", text)).transpose()?.or(options.wait);
        let idle_release = self.idle_release.as_deref().map(|text| duration("--idle-release", text)).transpose()?;
        options.idle_release = idle_release.or(options.idle_release);
        options.sim_gpus = self.sim_gpus.clone().or(options.sim_gpus);
        options.soft_placement = self.soft_placement.unwrap_or(options.soft_placement);
        options.log_placement |= self.log_placement;
        options.placement = match self.placement {
            Some(Placement::FirstFit) => PlacementMode::FirstFit,
            Some(Placement::Auto) => PlacementMode::Auto,
            Some(Placement::AutoThroughput) => PlacementMode::AutoThroughput,
            _ => PlacementMode::TensorFlow,
        };
        options.exact_convolutions |= self.exact_convolutions;
        options.matmul_precision = match self.matmul_precision {
            Some(Precision::Float32) => MatmulPrecision::Float32,
            Some(Precision::Bf16) => MatmulPrecision::Bf16,
            None => options.matmul_precision,
        };
        options.cudnn = match self.cudnn {
            Some(Cudnn::Auto) => CudnnMode::Auto,
            Some(Cudnn::Always) => CudnnMode::Always,
            Some(Cudnn::Never) => CudnnMode::Never,
            None => options.cudnn,
        };
        options.tensor_float_32 |= self.tensor_float_32;
        let size = |text: &str| {
            let wrong = |error| Error::invalid_argument(format!("--cudnn-workspace {text}: {error}")).with_remedy("write a size: 64MiB");
            Bytes::of_limit(text).map_err(wrong)
        };
        options.cudnn_workspace = self.cudnn_workspace.as_deref().map(size).transpose().or_usage()?.or(options.cudnn_workspace);
        options.cuda_libraries = self.cuda_libraries.clone().or(options.cuda_libraries);
        options.intra_op = self.intra_op.unwrap_or(options.intra_op);
        options.inter_op = self.inter_op.unwrap_or(options.inter_op);
        options.freeze = self.freeze;
        options.fit = self.fit.map_or(options.fit, |fit| fit == Switch::On);
        options.spill = self.spill.as_deref().map(str::parse).transpose().or_usage()?.or(options.spill);
        options.fusions = self.fusions.or(options.fusions);
        if let Some(path) = &self.costs {
            options.costs = Some(Arc::new(read_costs(path)?));
        }
        if let Some(path) = &self.tuned {
            let bytes = model::read_file(path).or_usage()?;
            let tuned =
                std::str::from_utf8(&bytes).map_err(|_| Error::invalid_argument("not a table of times: no text")).and_then(Tuned::parse);
            options.tuned = Some(Arc::new(tuned.map_err(|error| Failure::usage(error.context(path.display())))?));
        }
        Ok(options)
    }

    /// Whether an option names devices, their memory, or a rule by which nodes come to them.
    pub fn names_devices(&self) -> bool {
        let DeviceOptions { config, visible_devices, memory_fraction, memory_limit, placement, device_count, sim_gpus, spill, .. } = self;
        config.is_some()
            || visible_devices.is_some()
            || memory_fraction.is_some()
            || !memory_limit.is_empty()
            || placement.is_some()
            || !device_count.is_empty()
            || sim_gpus.is_some()
            || spill.is_some()
            || self.allow_growth
            || self.preallocate
    }
}

/// A file of tables of costs.
pub fn read_costs(path: &Path) -> Result<Costs> {
    let json = model::read_file(path).or_usage()?;
    Costs::from_json(&json).map_err(|error| Failure::usage(error.context(path.display())))
}

/// `500ms`, `30s`, `5min`, `forever`.
pub fn duration(option: &str, text: &str) -> Result<Duration> {
    if text == "forever" {
        return Ok(Duration::MAX);
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let unit = match &text[digits..] {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = text[..digits].parse::<f64>().map_or(f64::NAN, |number| number * unit);
    Duration::try_from_secs_f64(seconds).or_else(|_| wrong_use(format!("{option} {text}: write 500ms, 30s, 5min or forever")))
}

#[cfg(test)]
mod tests {
    use plimsoll::{DeviceKind, MemoryLimit};

    use super::*;

    fn options(change: impl FnOnce(&mut DeviceOptions)) -> DeviceOptions {
        let mut options = DeviceOptions::default();
        change(&mut options);
        options
    }

    #[test]
    fn flags_become_options() {
        let given = options(|o| {
            o.memory_limit = vec!["CPU:0=64MiB".into(), "/cpu:1=1GiB".into()];
            o.device_count = vec!["CPU=2".into()];
            o.soft_placement = Some(false);
            o.intra_op = Some(3);
        });
        let options = given.resolve(None).unwrap();
        assert_eq!(options.memory_limits[1], MemoryLimit { device: Some((DeviceKind::Cpu, 1)), parts: vec![Bytes(1 << 30)] });
        assert_eq!((options.device_count["CPU"], options.soft_placement, options.intra_op, options.fit), (2, false, 3, true));
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        let limited = |text: &str| options(|o| o.memory_limit = vec![text.into()]).resolve(None);
        for text in ["CPU:0=64B", "CPU:0=0", "CPU:0=2000000", "CPU:0= 64 MiB", "GPU:0=1GiB+1GiB", "2GiB"] {
            assert!(limited(text).is_ok(), "{text}");
        }
        for text in ["CPU:0=64", "CPU=1", "CPU:0=", "CPU:0=x", "x", "=1", "TPU:0=1"] {
            assert!(limited(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_device_type_is_counted_once() {
        let counted = |counts: &[&str]| options(|o| o.device_count = counts.iter().map(ToString::to_string).collect()).resolve(None);
        assert!(counted(&["CPU=2", "GPU=1"]).is_ok());
        let failure = counted(&["CPU=2", "GPU=1", "CPU=3"]).unwrap_err();
        assert!(failure.error().message().starts_with("--device-count CPU=2,GPU=1,CPU=3: a type has two counts"), "{failure:?}");
    }

    #[test]
    fn the_precision_of_products_becomes_an_option() {
        let of = |precision| options(|o| o.matmul_precision = precision).resolve(None).unwrap().matmul_precision;
        assert_eq!([None, Some(Precision::Float32)].map(of), [MatmulPrecision::Float32; 2]);
        assert_eq!(of(Some(Precision::Bf16)), MatmulPrecision::Bf16);
    }

    #[test]
    fn flags_of_cudnn_become_options() {
        let given = options(|o| {
            o.cudnn = Some(Cudnn::Always);
            o.tensor_float_32 = true;
            o.cudnn_workspace = Some("64MiB".into());
            o.cuda_libraries = Some("/a:/b".into());
        });
        let given = given.resolve(None).unwrap();
        assert_eq!((given.cudnn, given.tensor_float_32), (CudnnMode::Always, true));
        assert_eq!((given.cudnn_workspace, given.cuda_libraries.as_deref()), (Some(Bytes(64 << 20)), Some("/a:/b")));
        let none = options(|_| {}).resolve(None).unwrap();
        assert_eq!((none.cudnn, none.tensor_float_32, none.cudnn_workspace), (CudnnMode::Auto, false, None));
        let failure = options(|o| o.cudnn_workspace = Some("much".into())).resolve(None).unwrap_err();
        assert!(failure.error().message().starts_with("--cudnn-workspace much: "), "{failure:?}");
    }

    #[test]
    fn plans_are_made_to_fit_unless_they_may_not() {
        for (given, fits) in [(None, true), (Some(Switch::On), true), (Some(Switch::Off), false)] {
            assert_eq!(options(|o| o.fit = given).resolve(None).unwrap().fit, fits);
        }
    }

    #[test]
    fn gpu_flags_become_options() {
        let given = options(|o| {
            o.visible_devices = Some("3,1".into());
            o.memory_fraction = Some(0.4);
            o.allow_growth = true;
            o.wait = Some("1.5min".into());
            o.idle_release = Some("20ms".into());
            o.placement = Some(Placement::FirstFit);
            o.sim_gpus = Some("4x1GiB".into());
        });
        let options = given.resolve(None).unwrap();
        assert_eq!(
            (options.visible_devices.as_deref(), options.memory_fraction, options.allow_growth),
            (Some("3,1"), Some(0.4), Some(true))
        );
        assert_eq!((options.wait, options.sim_gpus.as_deref()), (Some(Duration::from_secs(90)), Some("4x1GiB")));
        assert_eq!((options.idle_release, options.placement), (Some(Duration::from_millis(20)), PlacementMode::FirstFit));
        for (text, expected) in [("forever", Duration::MAX), ("20ms", Duration::from_millis(20)), ("2", Duration::from_secs(2))] {
            assert_eq!(duration("--wait", text).unwrap(), expected);
        }
        for text in ["", "s", "-1s", "1d", "1e400h", "ten"] {
            assert!(duration("--wait", text).is_err(), "{text}");
        }
    }
}
