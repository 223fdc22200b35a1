//! The device options, the same on every command, named after ConfigProto.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plimsoll::formats::read_config;
use plimsoll::{Bytes, DeviceKind, DeviceName, MemoryLimit, Options, PlacementMode, config, model};

use crate::failure::{Failure, OrUsage, Result, not_yet, wrong_use};
use crate::output;

/// What is said of devices on the command line.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Device options")]
pub struct DeviceOptions {
    /// A ConfigProto, text or binary; the options below override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which physical GPUs are seen, in which order, as 3,2 (not yet)
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub visible_devices: Option<String>,
    /// The share of each GPU's memory that is reserved (not yet)
    #[arg(long, value_name = "FRACTION")]
    pub memory_fraction: Option<f64>,
    /// A hard limit for each device: CPU:0=64MiB,CPU:1=64MiB
    #[arg(long, value_name = "LIMITS", value_delimiter = ',')]
    pub memory_limit: Vec<String>,
    /// Reserve nothing beforehand (not yet)
    #[arg(long)]
    pub allow_growth: bool,
    /// Touch what is reserved at once (not yet)
    #[arg(long)]
    pub preallocate: bool,
    /// Wait for memory that others hold, at most that long (not yet)
    #[arg(long, value_name = "DURATION", num_args = 0..=1, default_missing_value = "forever")]
    pub wait: Option<String>,
    /// Whether a node may go to another device than it asks for [default: true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub soft_placement: Option<bool>,
    /// Say for every node where it goes
    #[arg(long)]
    pub log_placement: bool,
    /// How nodes come to devices (auto: not yet)
    #[arg(long, value_enum, value_name = "HOW")]
    pub placement: Option<Placement>,
    /// Whether a plan that is too big is made to fit (on: not yet) [default: off]
    #[arg(long, value_enum, value_name = "SWITCH", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub fit: Option<Switch>,
    /// Threads that compute at the same time; 0 is one for every core
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub intra_op: Option<i32>,
    /// Queues that advance at the same time; 0 is as many as there are threads
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub inter_op: Option<i32>,
    /// Logical devices of each type: CPU=2,GPU=0
    #[arg(long, value_name = "COUNTS", value_delimiter = ',')]
    pub device_count: Vec<String>,
    /// Simulated GPUs, as 2x4GiB (not yet)
    #[arg(long, value_name = "SPEC")]
    pub sim_gpus: Option<String>,
}

/// How nodes come to devices: by TensorFlow's rules, or by measured cost and memory.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Placement {
    Tensorflow,
    Auto,
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
    /// Wrong use: values that make no sense, files that cannot be read, and what is not built yet.
    pub fn resolve(&self, case_config: Option<&Path>) -> Result<Options> {
        self.refuse_later_work()?;
        let mut options = Options::new();
        options.fit = false;
        for path in case_config.into_iter().chain(self.config.as_deref()) {
            let bytes = model::read_file(path).or_usage()?;
            let config = read_config(&bytes).map_err(|error| Failure::usage(error.context(path.display())))?;
            for note in config::apply(&config, &mut options).or_usage()? {
                output::note(format_args!("note: {}: {note}", path.display()));
            }
        }
        for count in &self.device_count {
            let parsed = count.split_once('=').and_then(|(kind, count)| Some((kind.trim(), count.trim().parse::<i32>().ok()?)));
            match parsed {
                Some((kind @ "CPU", count)) if count > 0 => options.device_count.insert(kind.to_string(), count),
                Some((kind @ "GPU", count)) if count >= 0 => options.device_count.insert(kind.to_string(), count),
                _ => return wrong_use(format!("--device-count {count}: write CPU=2 or CPU=2,GPU=0")),
            };
        }
        for limit in &self.memory_limit {
            options.memory_limits.push(parse_limit(limit)?);
        }
        options.soft_placement = self.soft_placement.unwrap_or(options.soft_placement);
        options.log_placement |= self.log_placement;
        options.placement = PlacementMode::TensorFlow;
        options.intra_op = self.intra_op.unwrap_or(options.intra_op);
        options.inter_op = self.inter_op.unwrap_or(options.inter_op);
        Ok(options)
    }

    fn refuse_later_work(&self) -> Result<()> {
        let environment = std::env::var_os("PLIMSOLL_SIM_GPUS").is_some_and(|value| !value.is_empty());
        let asked = [
            (self.visible_devices.is_some(), "--visible-devices: GPUs are not supported"),
            (self.memory_fraction.is_some(), "--memory-fraction: GPUs are not supported"),
            (self.allow_growth, "--allow-growth: GPUs are not supported"),
            (self.preallocate, "--preallocate: GPUs are not supported"),
            (self.wait.is_some(), "--wait: memory is not shared between programs"),
            (self.sim_gpus.is_some(), "--sim-gpus: there are no simulated GPUs"),
            (environment, "PLIMSOLL_SIM_GPUS: there are no simulated GPUs"),
            (matches!(self.placement, Some(Placement::Auto)), "--placement auto: nodes go where TensorFlow puts them"),
            (self.fit == Some(Switch::On), "--fit: a plan that is too big is refused, as with --fit=off"),
        ];
        asked.into_iter().find(|(is_asked, _)| *is_asked).map_or(Ok(()), |(_, what)| Err(not_yet(what)))
    }
}

/// `CPU:0=64MiB`.
fn parse_limit(text: &str) -> Result<MemoryLimit> {
    let Some((device, size)) = text.split_once('=') else {
        if text.parse::<Bytes>().is_err() {
            return wrong_use(format!("--memory-limit {text}: write DEVICE=SIZE, as CPU:0=64MiB"));
        }
        return wrong_use(format!("--memory-limit {text} would limit every GPU, and there is none: write CPU:0={text}"));
    };
    let name = DeviceName::parse_full_or_local(device.trim()).or_usage()?;
    if name.index.is_some_and(|index| !DeviceName::local(name.kind.as_deref().unwrap_or_default(), index).satisfies(&name)) {
        return wrong_use(format!("--memory-limit {text}: '{device}' is no device of this process; write CPU:0={size}"));
    }
    let kind = name.kind.as_deref().and_then(DeviceKind::from_name);
    match (kind, name.index) {
        (Some(DeviceKind::Gpu), _) => Err(not_yet(&format!("--memory-limit {text}: GPUs are not supported"))),
        (Some(DeviceKind::Cpu), Some(index)) if !size.contains('+') => {
            let bytes = size.parse::<Bytes>().or_else(|error| wrong_use(format!("--memory-limit {text}: {error}")))?;
            Ok(MemoryLimit { device: Some((DeviceKind::Cpu, index)), parts: vec![bytes] })
        }
        (Some(DeviceKind::Cpu), Some(_)) => {
            wrong_use(format!("--memory-limit {text}: processors are divided with --device-count, as CPU=2"))
        }
        _ => wrong_use(format!("--memory-limit {text}: '{device}' is no device; write CPU:0=64MiB")),
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!((options.device_count["CPU"], options.soft_placement, options.intra_op, options.fit), (2, false, 3, false));
    }

    #[test]
    fn a_bare_size_is_answered_with_the_form_for_each_device() {
        let error = parse_limit("2GiB").unwrap_err();
        assert!(error.error().message().contains("write CPU:0=2GiB"), "{error:?}");
        for text in ["CPU:0=64", "CPU:0= 64 MiB"] {
            assert!(parse_limit(text).is_ok(), "{text}");
        }
        for text in ["CPU=1", "/job:worker/cpu:0=1MiB", "CPU:0=", "CPU:0=x", "CPU:0=1+1", "x", "=1", "TPU:0=1", "GPU:0=1GiB"] {
            assert!(parse_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn later_work_is_refused() {
        let changes: [fn(&mut DeviceOptions); 8] = [
            |o| o.visible_devices = Some("-1".into()),
            |o| o.memory_fraction = Some(0.4),
            |o| o.allow_growth = true,
            |o| o.preallocate = true,
            |o| o.wait = Some("forever".into()),
            |o| o.sim_gpus = Some("2x4GiB".into()),
            |o| o.placement = Some(Placement::Auto),
            |o| o.fit = Some(Switch::On),
        ];
        for change in changes {
            let failure = options(change).resolve(None).unwrap_err();
            assert!(failure.error().message().starts_with("not yet: "), "{failure:?}");
        }
        assert!(options(|o| o.fit = Some(Switch::Off)).resolve(None).is_ok());
    }
}
