//! Networks that are built in, on towers.

use std::path::Path;

use plimsoll::{Bytes, Code, DeviceKind, Devices, Error, MemoryLimit, Options};
use plimsoll_train::data::{DataSet, cifar10, digits, mnist};
use plimsoll_train::model::{CIFAR10, DIGITS, MNIST, Model};
use plimsoll_train::{Config, Trainer};

use super::{Planned, TrainArgs};
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, Result, wrong_use};
use crate::output;

/// Towers where no number is given and there are no GPUs.
const DEFAULT_TOWERS: u32 = 2;

/// The cards that a training simulates where nothing names devices or towers: one for each of [`DEFAULT_TOWERS`].
const SIMULATED_CARDS: &str = "2x16GiB";

/// The memory of each of [`SIMULATED_CARDS`].
const SIMULATED_CARD: Bytes = Bytes(16 << 30);

/// Environment variables that name cards.
const NAMING_CARDS: [&str; 3] = ["PLIMSOLL_SIM_GPUS", "CUDA_VISIBLE_DEVICES", "PLIMSOLL_LEASE"];

/// A network with its examples.
pub struct Network {
    model: &'static Model,
    /// Lines for the device of the variables, for the other towers', and more for each image of a tower's batch.
    lines: [Bytes; 3],
}

/// The network of that name.
pub fn find(name: &str) -> Option<Network> {
    let mib = |mib: u64| Bytes(mib << 20);
    let kib = |kib: u64| Bytes(kib << 10);
    match name {
        "digits" => Some(Network { model: &DIGITS, lines: [mib(32), mib(16), kib(0)] }),
        "mnist" => Some(Network { model: &MNIST, lines: [mib(64), mib(32), kib(384)] }),
        "cifar10" => Some(Network { model: &CIFAR10, lines: [mib(64), mib(32), kib(384)] }),
        _ => None,
    }
}

impl Network {
    /// Whether the options make sense for the network.
    pub fn check(&self, args: &TrainArgs) -> Result<()> {
        let name = self.model.name;
        let names = [("--signature", args.signature.as_ref()), ("--target", args.target.first()), ("--fetch", args.fetch.as_ref())];
        let given = names.into_iter().chain([("--init", args.init.first())]).find_map(|(option, given)| Some((option, given?)));
        if let Some((option, given)) = given {
            return wrong_use(format!("{option} {given}: only models have it; the network for {name} is built in"));
        }
        if args.augment && name != CIFAR10.name {
            return wrong_use(format!("--augment: only for the images of cifar10, not for {name}"));
        }
        match (&args.data[..], name == DIGITS.name) {
            ([], true) => Ok(()),
            ([data, ..], true) => wrong_use(format!("--data {data}: the digits are built in")),
            ([_], false) => Ok(()),
            _ => wrong_use(format!("say where the images are: plimsoll train {name} --data FOLDER")),
        }
    }

    /// Plans its training.
    ///
    /// # Errors
    /// Wrong use for a batch that cannot be divided; the flaw of the data; RESOURCE_EXHAUSTED where it does not fit.
    pub fn plan(&self, args: &TrainArgs, options: &DeviceOptions) -> Result<Planned> {
        let resolved = options.resolve(None)?;
        let gpus = crate::load::gpus(&resolved)?;
        let is_open = args.towers.is_none() && gpus == 0 && !options.names_devices() && !environment_names_cards();
        let simulated = if is_open { self.simulated_cards(args, &resolved, options) } else { None };
        let (devices, config, is_simulated) = match simulated {
            Some((devices, config)) => (devices, config, true),
            None => {
                let default_towers = if gpus == 0 { DEFAULT_TOWERS } else { gpus };
                let config = config(args, args.towers.unwrap_or(default_towers));
                (crate::load::open(&self.with_defaults(resolved, &config, gpus), options)?, config, false)
            }
        };
        let data = self.data(args)?;
        let trainer = Trainer::new(&devices, self.model, data, &config).map_err(|error| match error.code() {
            Code::InvalidArgument => Failure::usage(error),
            _ => Failure::from(error),
        })?;
        Ok(Planned { devices, trainer, headline: self.headline(&config), has_test: true, is_simulated })
    }

    /// Two simulated cards with a tower on each, opened. None where they cannot be opened, which a note says: the ledger that
    /// they share with other programs cannot be used, or has no room.
    fn simulated_cards(&self, args: &TrainArgs, resolved: &Options, options: &DeviceOptions) -> Option<(Devices, Config)> {
        let config = config(args, DEFAULT_TOWERS);
        let mut resolved = self.with_defaults(resolved.clone(), &config, DEFAULT_TOWERS);
        let line = self.line(&config, 1).min(SIMULATED_CARD);
        let limit = |index| MemoryLimit { device: Some((DeviceKind::Gpu, index)), parts: vec![line] };
        resolved.memory_limits.extend((0..DEFAULT_TOWERS).map(limit));
        resolved.sim_gpus = Some(SIMULATED_CARDS.to_string());
        match crate::load::open_quietly(&resolved, options) {
            Ok(devices) => Some((devices, config)),
            Err(failure) => {
                output::note(format_args!("note: no simulated cards, the towers are on CPUs: {}", failure.error()));
                None
            }
        }
    }

    fn data(&self, args: &TrainArgs) -> Result<DataSet> {
        let folder = || {
            let data = args.data.first().map(Path::new);
            data.ok_or_else(|| Failure::usage(Error::invalid_argument("--data FOLDER is missing")))
        };
        let inputs = if args.augment { cifar10::Inputs::Distorted } else { cifar10::Inputs::Central };
        let data = match self.model.name {
            "cifar10" => cifar10::data_set(folder()?, inputs, args.seed),
            "mnist" => mnist::data_set(folder()?, mnist::Images::Hwc, args.seed),
            _ => digits::data_set(args.seed),
        };
        data.map_err(|error| match error.code() {
            Code::NotFound | Code::InvalidArgument => Failure::usage(error),
            _ => Failure::from(error),
        })
    }

    /// A logical CPU device for each tower where no number is said, and a line for each of them that has none. Where towers are
    /// on GPUs, one for the variables.
    fn with_defaults(&self, mut options: Options, config: &Config, gpus: u32) -> Options {
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

    /// The default line of a device: the device of the variables is number 0.
    fn line(&self, config: &Config, device: u32) -> Bytes {
        let each = if config.is_async { config.batch_size } else { config.batch_size / config.towers as u64 };
        let [variables, towers_own, more] = self.lines;
        Bytes(more.0.saturating_mul(each)) + if device == 0 { variables } else { towers_own }
    }

    fn headline(&self, config: &Config) -> String {
        let Model { name, layers, .. } = self.model;
        let optimizer = config.optimizer.unwrap_or(self.model.optimizer);
        let rate = config.learning_rate.unwrap_or(self.model.rate(optimizer));
        let Config { towers, batch_size, seed, .. } = *config;
        let each = batch_size / towers as u64;
        let towers = match (towers, config.is_async) {
            (1, _) => format!("1 tower of {batch_size} images a step"),
            (towers, false) => format!("{towers} towers of {each} images a step"),
            (towers, true) => format!("{towers} towers that each take steps of {batch_size} images"),
        };
        format!("{name}: {layers}, {towers}, {optimizer} {rate}, seed {seed}")
    }
}

/// The training that the arguments ask for, on so many towers.
fn config(args: &TrainArgs, towers: u32) -> Config {
    Config {
        towers: towers as usize,
        batch_size: args.batch_size,
        optimizer: args.optimizer,
        learning_rate: args.learning_rate,
        seed: args.seed,
        is_async: args.is_async,
    }
}

/// Whether the environment names cards, or names none on purpose.
fn environment_names_cards() -> bool {
    let environment = plimsoll::machine::environment();
    NAMING_CARDS.iter().any(|name| environment.get(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_limit_gets_the_default() {
        let limits_with = |gpus: u32, towers: usize, text: &str| {
            let options = if text.is_empty() { Options::new() } else { Options::new().memory_limit_flag(text).unwrap() };
            let config = Config { towers, batch_size: 128, optimizer: None, learning_rate: None, seed: 0, is_async: false };
            let options = find("digits").unwrap().with_defaults(options, &config, gpus);
            let mut limits: Vec<String> = options.memory_limits.iter().map(ToString::to_string).collect();
            limits.sort();
            limits.join(",")
        };
        let limits = |towers: usize, text: &str| limits_with(0, towers, text);
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
            assert_eq!(limits(towers, given), all, "{towers} {given}");
        }
    }
}
