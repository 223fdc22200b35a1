//! Which cards a program may open, and how the machine is divided.

use plimsoll_base::{Error, Result};
use plimsoll_cards::{Division, Environment, Options, PhysicalDevice, leaves_cards_out, resolve};
use plimsoll_device::DeviceKind;
use plimsoll_machine::{Machine, StateDir};

use super::nvidia::Nvidia;

/// The cards of a machine before they are opened: simulated ones where they are asked for, else those of NVIDIA's driver.
pub(crate) struct Found {
    /// All of them, whichever the program sees; the lease's part of them under a lease.
    pub cards: Vec<PhysicalDevice>,
    /// Their ledger; none where it was not needed yet.
    pub ledger: Option<Machine>,
    pub division: Division,
    /// What opens them; none for simulated ones, and where no GPU is made of them.
    pub nvidia: Option<Nvidia>,
}

impl Found {
    /// Looks for them, unless a program with these options and variables has no use for any. Nothing is taken of a card.
    ///
    /// # Errors
    /// Those of [`resolve`] for options that make no sense, and for GPUs that are named and cannot be used; those of a lease that has
    /// ended.
    pub fn look(options: &Options, environment: &Environment) -> Result<Found> {
        let simulated = options.simulated_cards(environment)?;
        if simulated.is_empty() && leaves_cards_out(options, environment) {
            return Found::none(options, environment);
        }
        Found::look_at_all(options, environment)
    }

    /// As [`Found::look`], also where the program has no use for them.
    ///
    /// # Errors
    /// As [`Found::look`].
    pub fn look_at_all(options: &Options, environment: &Environment) -> Result<Found> {
        let mut cards = options.simulated_cards(environment)?;
        if cards.is_empty() {
            return Found::real(options, environment);
        }
        let is_leased = environment.get("PLIMSOLL_LEASE").is_some_and(|token| !token.is_empty());
        let ledger = is_leased.then(|| PhysicalDevice::leased_ledger(&mut cards, &StateDir::find()?, environment)).transpose()?;
        let division = resolve(&cards, options, environment)?;
        Ok(Found { cards, ledger, division, nvidia: None })
    }

    fn real(options: &Options, environment: &Environment) -> Result<Found> {
        let (nvml, mut cards) = match Nvidia::cards(environment) {
            Ok(Some(seen)) => seen,
            Ok(None) => return Found::none(options, environment),
            Err(error) => return Found::without(&error, options, environment),
        };
        let is_leased = environment.get("PLIMSOLL_LEASE").is_some_and(|token| !token.is_empty());
        if !is_leased {
            let division = resolve(&cards, options, environment)?;
            if division.of(DeviceKind::Gpu).next().is_none() {
                return Ok(Found { cards, ledger: None, division, nvidia: None });
            }
        }
        let ledger = match StateDir::find().and_then(|state| PhysicalDevice::leased_ledger(&mut cards, &state, environment)) {
            Ok(ledger) => ledger,
            Err(error) if is_leased => return Err(error),
            Err(error) => return Found::without(&error, options, environment),
        };
        nvml.count_ours_as_available(&mut cards, &ledger);
        let division = resolve(&cards, options, environment)?;
        if division.of(DeviceKind::Gpu).next().is_none() {
            return Ok(Found { cards, ledger: Some(ledger), division, nvidia: None });
        }
        match nvml.ready(&mut cards, division, options, environment)? {
            Ok((nvidia, mut division)) => {
                division.notes.extend_from_slice(&nvidia.notes);
                Ok(Found { cards, ledger: Some(ledger), division, nvidia: Some(nvidia) })
            }
            Err(error) => Found::without(&error, options, environment),
        }
    }

    /// A machine without cards.
    fn none(options: &Options, environment: &Environment) -> Result<Found> {
        let division = resolve(&[], options, environment)?;
        Ok(Found { cards: Vec::new(), ledger: None, division, nvidia: None })
    }

    /// The machine without its real cards, which cannot be used.
    ///
    /// # Errors
    /// As [`Found::look`].
    pub fn without(why: &Error, options: &Options, environment: &Environment) -> Result<Found> {
        let remedy = why.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
        let obstacle = format!("NVIDIA cards are not used: {}{remedy}", why.message());
        let mut division = resolve(&[], options, environment).map_err(|error| error.with_remedy(&obstacle))?;
        division.obstacle = Some(obstacle);
        Ok(Found { cards: Vec::new(), ledger: None, division, nvidia: None })
    }
}
