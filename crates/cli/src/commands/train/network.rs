//! Networks that are built in, on towers.

use std::path::Path;

use plimsoll::{Code, Devices, Error, Options};
use plimsoll_train::data::{DataSet, cifar10, digits, mnist};
use plimsoll_train::defaults::{self, Lines};
use plimsoll_train::model::{CIFAR10, DIGITS, Model};
use plimsoll_train::{Config, Trainer};

use super::{Planned, Towers, TrainArgs};
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, Result, wrong_use};
use crate::load::Machine;
use crate::output;

/// A network with the lines that suit it.
pub struct Network {
    model: &'static Model,
    lines: Lines,
}

impl Network {
    /// A network that is built in.
    pub fn new(model: &'static Model) -> Network {
        Network { model, lines: Lines::of(model) }
    }

    /// Whether the options make sense for the network.
    pub fn check(&self, args: &TrainArgs) -> Result<()> {
        let name = self.model.name;
        let names = [
            ("--tags", args.tags.as_ref()),
            ("--signature", args.signature.as_ref()),
            ("--target", args.target.first()),
            ("--fetch", args.fetch.as_ref()),
        ];
        let given = names.into_iter().chain([("--init", args.init.first())]).find_map(|(option, given)| Some((option, given?)));
        if let Some((option, given)) = given {
            return wrong_use(format!("{option} {given}: only models have it; the network for {name} is built in"));
        }
        if args.held_out.is_some() {
            return wrong_use(format!("--held-out: only models have it; the data set for {name} has test examples"));
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
    pub fn plan(&self, args: &TrainArgs, options: &DeviceOptions, machine: &Machine) -> Result<Planned> {
        let resolved = machine.resolve(options)?;
        let gpus = machine.gpus(&resolved)?;
        let is_named = machine.is_described() || options.names_devices() || defaults::names_cards(&plimsoll::machine::environment());
        let is_open = args.towers.is_none() && gpus == 0 && !is_named;
        let simulated = if is_open { self.simulated_cards(args, &resolved, options) } else { None };
        let (devices, config, is_simulated) = match simulated {
            Some((devices, config)) => (devices, config, true),
            None => {
                let (towers, on) = match args.towers {
                    Some(Towers::Auto) => self.replicas(args, (options, machine), &resolved, gpus)?,
                    Some(Towers::Count(towers)) => (towers, Vec::new()),
                    None if gpus == 0 => (defaults::TOWERS, Vec::new()),
                    None => (gpus, Vec::new()),
                };
                let config = config(args, towers, on);
                (machine.open(&self.lines.options(resolved, &config, gpus), options)?, config, false)
            }
        };
        let trainer = self.trainer(args, &devices, &config)?;
        Ok(Planned { devices, trainer, headline: self.headline(&config), has_test: true, is_simulated })
    }

    fn trainer(&self, args: &TrainArgs, devices: &Devices, config: &Config) -> Result<Trainer> {
        let data = self.data(args)?;
        Trainer::new(devices, self.model, data, config).map_err(|error| match error.code() {
            Code::InvalidArgument => Failure::usage(error),
            _ => Failure::from(error),
        })
    }

    /// How many towers make the predicted step the shortest, and on which GPUs; notes compare the numbers.
    fn replicas(
        &self,
        args: &TrainArgs,
        (options, machine): (&DeviceOptions, &Machine),
        resolved: &Options,
        gpus: u32,
    ) -> Result<(u32, Vec<u32>)> {
        if args.is_async {
            return wrong_use("--towers auto: only for towers that step together, not with --async".to_string());
        }
        let most = if gpus == 0 { defaults::cpu_towers(resolved) } else { gpus };
        let open = |config: &Config| machine.open_quietly(&self.lines.options(resolved.clone(), config, gpus), options);
        let plan = |towers: u32, on: &[u32]| {
            let config = config(args, towers, on.to_vec());
            let seconds = self.trainer(args, &open(&config)?, &config)?.predicted_seconds()?;
            seconds.ok_or_else(|| {
                Failure::from(Error::unimplemented("--towers auto: nothing is known of the time of a step on these devices"))
            })
        };
        let seconds = |towers, on: &[u32]| plan(towers, on).map_err(|failure| failure.error().clone());
        let order = match gpus {
            0 => Vec::new(),
            _ => plimsoll_train::fastest_first(open(&config(args, 1, Vec::new()))?.specs(), |gpu| seconds(1, &[gpu]))?,
        };
        let (chosen, mut all) = plimsoll_train::replicas(most, &order, seconds)?;
        all.iter().for_each(output::note);
        let chosen = all.swap_remove(chosen);
        Ok((chosen.towers, chosen.gpus))
    }

    /// Two simulated cards with a tower on each, opened. None where they cannot be opened, which a note says: the ledger that
    /// they share with other programs cannot be used, or has no room.
    fn simulated_cards(&self, args: &TrainArgs, resolved: &Options, options: &DeviceOptions) -> Option<(Devices, Config)> {
        let config = config(args, defaults::TOWERS, Vec::new());
        let resolved = self.lines.simulated(resolved.clone(), &config);
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

    fn headline(&self, config: &Config) -> String {
        let Model { name, layers, .. } = self.model;
        let optimizer = config.optimizer.unwrap_or(self.model.optimizer);
        let rate = config.learning_rate.unwrap_or(self.model.rate(optimizer));
        let Config { towers, batch_size, seed, .. } = *config;
        let on = plimsoll_train::on_gpus(&config.gpus);
        let each = batch_size / towers as u64;
        let towers = match (towers, config.is_async) {
            (1, _) => format!("1 tower of {batch_size} images a step"),
            (towers, false) => format!("{towers} towers of {each} images a step"),
            (towers, true) => format!("{towers} towers that each take steps of {batch_size} images"),
        };
        format!("{name}: {layers}, {towers}{on}, {optimizer} {rate}, seed {seed}")
    }
}

/// The training that the arguments ask for, on so many towers, on these GPUs where some are chosen.
fn config(args: &TrainArgs, towers: u32, gpus: Vec<u32>) -> Config {
    Config {
        towers: towers as usize,
        gpus,
        batch_size: args.batch_size,
        optimizer: args.optimizer,
        learning_rate: args.learning_rate,
        seed: args.seed,
        is_async: args.is_async,
    }
}
