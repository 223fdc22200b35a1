//! The need of a device, held against its line: the one place where a peak is compared with a limit, and said.
//!
//! A limit is parsed in `cards/src/options/parse.rs` and becomes `DeviceSpec::memory_limit`. Here it is compared with a peak, and
//! `memory/src/ledger` enforces it on every reservation.

use plimsoll_base::{Bytes, Error, Result, Shortage};
use plimsoll_device::DeviceKind;

use crate::plan::{Certainty, DevicePlan, Holder, PeakParts, Plan};

/// The need of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    /// The full name.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The line, where one was asked for.
    pub limit: Option<Bytes>,
    /// The machine's memory, of which devices that are processors take their parts together; none for other devices.
    pub machine: Option<Bytes>,
    /// The most that is held at once.
    pub peak: Bytes,
    /// The parts of the peak: they add up to it.
    pub parts: PeakParts,
    /// How sure the peak is.
    pub certainty: Certainty,
    /// The largest holders at that time, largest first; some entries only.
    pub holders: Vec<Holder>,
}

impl Need {
    /// The part of a plan on one device.
    pub fn of(device: &DevicePlan) -> Need {
        Need {
            name: device.name.clone(),
            kind: device.kind,
            limit: device.limit,
            machine: device.machine,
            peak: device.peak.total(),
            parts: device.peak,
            certainty: device.certainty.clone(),
            holders: device.holders.clone(),
        }
    }

    /// Bytes that are missing under the line.
    pub fn shortfall(&self) -> Bytes {
        over(self.peak, self.limit)
    }

    /// The three largest holders in words; empty where there are none.
    pub fn largest(&self) -> String {
        let holders: Vec<String> = self.holders.iter().take(3).map(|holder| format!("{} ({})", holder.name, holder.bytes)).collect();
        holders.join(", ")
    }

    /// Whether the peak stays under the line.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED of the kind `NoRoom`: the least limit, the shortfall, the three largest holders, and a remedy.
    pub fn check(&self) -> Result<()> {
        self.refuse("", "feed a smaller batch, or move nodes to another device")
    }

    /// As [`Need::check`]; `which` follows the bytes that are needed, `else_do` the advice to raise the limit.
    pub(crate) fn refuse(&self, which: &str, else_do: &str) -> Result<()> {
        let Some(limit) = self.limit.filter(|_| self.shortfall() > Bytes::ZERO) else { return Ok(()) };
        let holders = match self.largest() {
            none if none.is_empty() => none,
            largest => format!("; at the peak {largest} take most"),
        };
        let message = format!(
            "{} are needed{which} and the limit is {}: {} short{holders}",
            counted(self.peak),
            counted(limit),
            plain(self.shortfall())
        );
        let holders = self.holders.iter().map(|holder| (holder.name.clone(), holder.bytes)).collect();
        let shortage = Shortage { requested: self.peak, used: Bytes::ZERO, limit: Some(limit), holders };
        let remedy = format!("raise the limit to {}, {else_do}", plain(self.peak));
        Err(Error::no_room(message, shortage).on_device(&self.name).with_remedy(remedy))
    }
}

/// Bytes of `peak` above a line.
pub(crate) fn over(peak: Bytes, limit: Option<Bytes>) -> Bytes {
    limit.map_or(Bytes::ZERO, |limit| peak - limit)
}

/// `1 byte`, `7 bytes`.
fn plain(bytes: Bytes) -> String {
    format!("{} {}", bytes.0, if bytes.0 == 1 { "byte" } else { "bytes" })
}

/// `8192 bytes (8 KiB)`.
fn counted(bytes: Bytes) -> String {
    if bytes.0 < 1024 { plain(bytes) } else { format!("{} ({bytes})", plain(bytes)) }
}

/// The needs of several devices, held against their lines and the machine's memory.
pub trait Needs {
    /// The parts of the devices.
    fn all(&self) -> &[Need];

    /// The part of the machine's memory that processors take together, if the machine's memory is known.
    fn machine(&self) -> Option<Need> {
        let (mut sum, mut holders): (Option<Need>, Vec<Holder>) = (None, Vec::new());
        for need in self.all().iter().filter(|need| need.machine.is_some()) {
            holders.extend(need.holders.iter().cloned());
            sum = Some(match sum {
                None => Need { name: "the machine".to_string(), limit: need.machine, ..need.clone() },
                Some(sum) => Need { peak: sum.peak + need.peak, parts: sum.parts.plus(&need.parts), ..sum },
            });
        }
        sort(&mut holders);
        sum.map(|sum| Need { holders, ..sum })
    }

    /// Bytes that are missing: under the lines of all devices together or, where it is more, of the machine.
    fn shortfall(&self) -> Bytes {
        let lines = self.all().iter().map(Need::shortfall).sum::<Bytes>();
        lines.max(self.machine().map_or(Bytes::ZERO, |machine| machine.shortfall()))
    }

    /// Which devices are given a limit where one is looked for: those that have one. Where none has, or those that have hold nothing,
    /// every device. A file keeps its size.
    fn are_limited(&self) -> Vec<bool> {
        let limited = self.all().iter().any(|need| need.kind.computes() && need.limit.is_some() && need.peak > Bytes::ZERO);
        self.all().iter().map(|need| need.kind.computes() && (need.limit.is_some() || !limited)).collect()
    }

    /// The smallest limit that is enough, given to every device that [`Needs::are_limited`] says.
    fn minimum_limit(&self) -> Bytes {
        let limited = self.all().iter().zip(self.are_limited()).filter(|(_, is_limited)| *is_limited);
        limited.map(|(need, _)| need.peak).max().unwrap_or_default()
    }

    /// Whether every need stays under its line, and those of processors together in the machine's memory.
    ///
    /// # Errors
    /// As [`Need::check`], for the first device where it does not.
    fn check(&self) -> Result<()> {
        self.all().iter().try_for_each(Need::check)?;
        let Some(machine) = self.machine() else { return Ok(()) };
        machine.refuse("", "which takes a larger machine, or feed a smaller batch")
    }
}

impl Needs for [Need] {
    fn all(&self) -> &[Need] {
        self
    }
}

/// Whether every device's peak stays under its line.
///
/// # Errors
/// As [`Needs::check`].
pub fn check_limits(plan: &Plan) -> Result<()> {
    plan.devices.iter().map(Need::of).collect::<Vec<_>>().check()
}

/// The largest first.
pub(crate) fn sort(holders: &mut [Holder]) {
    holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
}
