//! Networks that are built in, on towers.

use plimsoll::{Bytes, Code, DeviceKind, Devices, MemoryLimit, Options};
use plimsoll_train::{Config, Trainer};

use super::{Planned, TrainArgs};
use crate::device_options::DeviceOptions;
use crate::failure::{Failure, OrUsage, Result, not_yet, wrong_use};

/// Towers, where no number is said.
const DEFAULT_TOWERS: u32 = 2;
/// The line of the device that holds the variables, where no other is said.
const DEFAULT_LIMIT: Bytes = Bytes(32 << 20);
/// The line of the other towers' devices.
const DEFAULT_TOWER_LIMIT: Bytes = Bytes(16 << 20);

/// Whether the options are built, and make sense for the digits.
pub fn check(args: &TrainArgs) -> Result<()> {
    if args.is_async {
        return Err(not_yet("--async: towers wait for each other in every step"));
    }
    if let Some(data) = args.data.first() {
        return wrong_use(format!("--data {data}: the digits are built in"));
    }
    let names = [("--signature", args.signature.as_ref()), ("--target", args.target.first()), ("--fetch", args.fetch.as_ref())];
    match names.into_iter().chain([("--init", args.init.first())]).find_map(|(option, name)| Some((option, name?))) {
        Some((option, name)) => wrong_use(format!("{option} {name}: only models have it; the digits' network is built in")),
        None => Ok(()),
    }
}

/// The training of the digits.
pub fn digits(args: &TrainArgs, options: &DeviceOptions) -> Result<Planned> {
    let config = Config {
        towers: args.towers.unwrap_or(DEFAULT_TOWERS) as usize,
        batch_size: args.batch_size,
        optimizer: args.optimizer.unwrap_or_default(),
        learning_rate: args.learning_rate,
        seed: args.seed,
    };
    let options = with_defaults(options.resolve(None)?, config.towers as u32);
    let devices = Devices::open(&options).or_usage()?;
    let trainer = Trainer::digits(&devices, &config).map_err(|error| match error.code() {
        Code::InvalidArgument => Failure::usage(error),
        _ => Failure::from(error),
    })?;
    Ok(Planned { devices, trainer, headline: headline(&config), has_test: true })
}

/// A logical CPU device for each tower where no number is said, and a line for each where none is.
fn with_defaults(mut options: Options, towers: u32) -> Options {
    let count = *options.device_count.entry("CPU".to_string()).or_insert(towers as i32);
    if options.memory_limits.is_empty() {
        let limit = |index| if index == 0 { DEFAULT_LIMIT } else { DEFAULT_TOWER_LIMIT };
        let line = |index| MemoryLimit { device: Some((DeviceKind::Cpu, index)), parts: vec![limit(index)] };
        options.memory_limits = (0..towers.min(count.max(0) as u32)).map(line).collect();
    }
    options
}

fn headline(config: &Config) -> String {
    let rate = config.learning_rate.unwrap_or(config.optimizer.default_learning_rate());
    let towers = match config.towers {
        1 => "1 tower".to_string(),
        towers => format!("{towers} towers"),
    };
    let each = config.batch_size / config.towers as u64;
    format!("digits: 64-128-64-10, {towers} of {each} images a step, {} {rate}, seed {}", config.optimizer, config.seed)
}
