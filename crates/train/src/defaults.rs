//! The devices and lines of a training where nothing names them.

use plimsoll::machine::MachineDescription;
use plimsoll::{Bytes, DeviceKind, Devices, Environment, MemoryLimit, Options, Result};

use crate::Config;
use crate::model::Model;

/// Towers where no number is given and there are no GPUs.
pub const TOWERS: u32 = 2;

/// More towers than this are not looked at on CPUs, unless there are more logical devices.
const MOST_ON_CPUS: u32 = 8;

/// The cards that a training simulates where nothing names devices or towers: one for each of [`TOWERS`].
const SIMULATED_CARDS: &str = "2x16GiB";

/// The memory of each of [`SIMULATED_CARDS`].
const SIMULATED_CARD: Bytes = Bytes(16 << 30);

/// Environment variables that name cards.
const NAMING_CARDS: [&str; 3] = ["PLIMSOLL_SIM_GPUS", "CUDA_VISIBLE_DEVICES", "PLIMSOLL_LEASE"];

/// The lines that suit a network: with room for its training, and little more.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// For the device of the variables, images aside.
    variables: Bytes,
    /// For another tower's device, images aside.
    tower: Bytes,
    /// More for each image of a tower's batch.
    image: Bytes,
}

impl Lines {
    /// For a network that is built in.
    pub fn of(model: &Model) -> Lines {
        let mib = |mib: u64| Bytes(mib << 20);
        match model.name {
            "digits" => Lines { variables: mib(32), tower: mib(16), image: Bytes::ZERO },
            _ => Lines { variables: mib(64), tower: mib(32), image: Bytes(384 << 10) },
        }
    }

    /// The options with a logical CPU device for each tower where no number is said, and a line for each of them that has none.
    /// Where towers are on GPUs, one for the variables.
    pub fn options(&self, mut options: Options, config: &Config, gpus: u32) -> Options {
        let towers = if gpus == 0 { config.towers as u32 } else { 1 };
        let count = *options.device_count.entry("CPU".to_string()).or_insert(towers as i32);
        for index in 0..towers.min(count.max(0) as u32) {
            // Several sizes for CPU:0 are for the devices from there on.
            let has_one = |limit: &MemoryLimit| match limit.device {
                Some((DeviceKind::Cpu, first)) => (0..limit.parts.len()).any(|part| first as usize + part == index as usize),
                _ => false,
            };
            if !options.memory_limits.iter().any(has_one) {
                let limit = MemoryLimit { device: Some((DeviceKind::Cpu, index)), parts: vec![self.line(config, index)] };
                options.memory_limits.push(limit);
            }
        }
        options
    }

    /// As [`Lines::options`], with a simulated card for each of [`TOWERS`].
    pub fn simulated(&self, options: Options, config: &Config) -> Options {
        let mut options = self.options(options, config, TOWERS);
        let line = self.line(config, 1).min(SIMULATED_CARD);
        let limit = |index| MemoryLimit { device: Some((DeviceKind::Gpu, index)), parts: vec![line] };
        options.memory_limits.extend((0..TOWERS).map(limit));
        options.sim_gpus = Some(SIMULATED_CARDS.to_string());
        options
    }

    /// The line of a device: the device of the variables is number 0.
    fn line(&self, config: &Config, device: u32) -> Bytes {
        let each = if config.is_async { config.batch_size } else { config.batch_size / config.towers as u64 };
        Bytes(self.image.0.saturating_mul(each)) + if device == 0 { self.variables } else { self.tower }
    }
}

/// How many logical GPUs the options make of this machine.
///
/// # Errors
/// As [`Devices::divide`].
pub fn gpus(options: &Options) -> Result<u32> {
    // The number of CPU devices may depend on it: options of those are checked when devices are opened.
    let mut options = options.clone();
    options.memory_limits.retain(|limit| !matches!(limit.device, Some((DeviceKind::Cpu, _))));
    Ok(Devices::divide(&options)?.of(DeviceKind::Gpu).count() as u32)
}

/// As [`gpus`], of a described machine.
///
/// # Errors
/// As [`Devices::described`].
pub fn gpus_of(options: &Options, machine: &MachineDescription) -> Result<u32> {
    let mut options = options.clone();
    options.memory_limits.retain(|limit| !matches!(limit.device, Some((DeviceKind::Cpu, _))));
    let devices = Devices::described(&options, machine)?;
    Ok(devices.division().map_or(0, |division| division.of(DeviceKind::Gpu).count()) as u32)
}

/// The most towers that are looked at on CPUs: one on each logical device where their number is given.
pub fn cpu_towers(options: &Options) -> u32 {
    let given = options.device_count.get(DeviceKind::Cpu.name());
    given.and_then(|count| u32::try_from(*count).ok()).filter(|count| *count > 0).unwrap_or(MOST_ON_CPUS)
}

/// Whether the environment names cards, or names none on purpose.
pub fn names_cards(environment: &Environment) -> bool {
    NAMING_CARDS.iter().any(|name| environment.get(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DIGITS;

    fn limits(options: &Options) -> String {
        let mut limits: Vec<String> = options.memory_limits.iter().map(ToString::to_string).collect();
        limits.sort();
        limits.join(",")
    }

    #[test]
    fn a_device_without_a_limit_gets_the_default() {
        let limits_with = |gpus: u32, towers: usize, text: &str| {
            let options = if text.is_empty() { Options::new() } else { Options::new().memory_limit_flag(text).unwrap() };
            limits(&Lines::of(&DIGITS).options(options, &Config { towers, ..Config::default() }, gpus))
        };
        assert_eq!(limits_with(2, 2, ""), "CPU:0=32MiB");
        for (towers, given, all) in [
            (2, "", "CPU:0=32MiB,CPU:1=16MiB"),
            (2, "CPU:0=64mb", "CPU:0=64MiB,CPU:1=16MiB"),
            (3, "CPU:1=64mb", "CPU:0=32MiB,CPU:1=64MiB,CPU:2=16MiB"),
            (2, "CPU:0=64MiB,CPU:1=1MiB", "CPU:0=64MiB,CPU:1=1MiB"),
            (2, "CPU:0=64MiB+1MiB", "CPU:0=64MiB+1MiB"),
            (2, "1GiB", "1GiB,CPU:0=32MiB,CPU:1=16MiB"),
            (1, "GPU:0=1GiB", "CPU:0=32MiB,GPU:0=1GiB"),
        ] {
            assert_eq!(limits_with(0, towers, given), all, "{towers} {given}");
        }
    }

    #[test]
    fn simulated_cards_have_a_tower_each() {
        let config = Config { batch_size: 64, ..Config::default() };
        let options = Lines::of(&crate::model::CIFAR10).simulated(Options::new(), &config);
        assert_eq!((limits(&options).as_str(), options.sim_gpus.as_deref()), ("CPU:0=76MiB,GPU:0=44MiB,GPU:1=44MiB", Some("2x16GiB")));
        assert_eq!(options.device_count["CPU"], 1);
        let huge = Config { batch_size: u64::MAX, ..config };
        assert!(limits(&Lines::of(&crate::model::CIFAR10).simulated(Options::new(), &huge)).ends_with("GPU:0=16GiB,GPU:1=16GiB"));
    }

    #[test]
    fn an_environment_may_name_cards_or_none() {
        assert!(!names_cards(&Environment::new().with("HOME", "/")));
        assert!(names_cards(&Environment::new().with("CUDA_VISIBLE_DEVICES", "")));
    }
}
