//! Leases: a part of the machine's cards for a program and all that it starts.

mod cards;
mod environment;
mod outside;
mod request;

use std::ffi::OsString;
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Result};
use plimsoll_device::PhysicalDevice;
use plimsoll_memory::machine::{Guarantee, Machine, Member};

use crate::framework::Told;

pub use cards::Cards;
pub use outside::subtract;
pub use request::{Amount, Request, Which};

/// How long programs that end together with the one that is waited for may take to be gone.
const GOING: Duration = Duration::from_millis(200);

/// A part of the machine's cards. It is held until it is dropped, or, once a program shares it ([`Lease::inherit`]) and it was
/// left to it ([`Lease::end`]), until the last process of that program's tree is gone, however it ends.
#[derive(Debug)]
pub struct Lease {
    /// None where no card was asked for.
    member: Option<Member>,
    parts: Vec<Part>,
    cards: Cards,
    guarantee: Guarantee,
    peaks: Vec<Bytes>,
}

/// What a lease has of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The card's number among those of [`Cards::all`], which the ledger has too.
    pub card: usize,
    /// What it is.
    pub device: PhysicalDevice,
    /// Its number as CUDA counts on this machine, whatever CUDA_VISIBLE_DEVICES says.
    pub ordinal: u32,
    /// How much of it.
    pub bytes: Bytes,
}

/// What came of a lease.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The most that was used of each card, as far as it was seen, in the order of [`Lease::parts`].
    pub peaks: Vec<Bytes>,
    /// Who still holds the lease, with the program; empty where everything is back.
    pub left: Vec<(u32, String)>,
    /// What those still use of its cards, where the driver says.
    pub used: Bytes,
}

impl Report {
    /// Whether all memory came back.
    pub fn all_back(&self) -> bool {
        self.left.is_empty()
    }
}

impl Lease {
    /// Its cards, in the order in which a program under it sees them.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How sure it is that programs keep to it: what the driver shows is watched, else frameworks are told.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Says anew how sure it is. Where the ledger cannot be used others see what was said before.
    pub(crate) fn set_guarantee(&mut self, guarantee: Guarantee) {
        if std::mem::replace(&mut self.guarantee, guarantee) != guarantee
            && let Some(member) = &self.member
        {
            let _ = member.set_guarantee(guarantee);
        }
    }

    /// The cards that it was taken from.
    pub fn cards(&self) -> &Cards {
        &self.cards
    }

    /// Lets the program that `command` starts, and all that it starts, share the lease, and tells it so: it inherits an open file
    /// description, which the kernel closes with the last of them and with which nothing can be changed, and gets the environment of
    /// [`Lease::told`]. What was set on the command itself is left alone. Returns what people are to know: the user's own settings
    /// that were not passed on as they are.
    ///
    /// # Errors
    /// Where the process has no handle left, and where the file of the lease cannot be made.
    pub fn inherit(&self, command: &mut Command) -> Result<Vec<String>> {
        if let Some(member) = &self.member {
            member.inherit(command)?;
        }
        let given: Vec<_> = command.get_envs().map(|(name, value)| (name.to_os_string(), value.map(OsString::from))).collect();
        let given = |name: &str| given.iter().find(|(set, _)| set == name).map(|(_, value)| value.clone());
        let told = self.told(|name| given(name).unwrap_or_else(|| std::env::var_os(name)));
        command.envs(told.set.into_iter().filter(|(name, _)| given(name).is_none()));
        for name in told.removed.iter().filter(|name| given(name).is_none()) {
            command.env_remove(name);
        }
        Ok(told.warnings)
    }

    /// What a program's environment becomes by which it learns of the lease: CUDA_VISIBLE_DEVICES and our variables, and what
    /// frameworks are told of a share ([`crate::framework`]). `variable` says what the program's environment would be.
    pub fn told(&self, variable: impl Fn(&str) -> Option<OsString>) -> Told {
        environment::told(self, &variable)
    }

    /// The ledger of what programs reserve inside of the lease; none where it has no cards.
    ///
    /// # Errors
    /// Where that cannot be used.
    pub fn inside(&self) -> Result<Option<Machine>> {
        self.member.as_ref().map(Member::inside).transpose()
    }

    /// Looks how much of each card is used under the lease now, shows it to others, and keeps the peaks. None for a card of which
    /// nobody can say.
    pub fn look(&mut self) -> Vec<Option<Bytes>> {
        let Some(member) = &self.member else { return Vec::new() };
        let uses = outside::used_under(&self.cards, member, &self.parts);
        for ((part, used), peak) in self.parts.iter().zip(&uses).zip(&mut self.peaks) {
            if let Some(used) = used {
                member.set_used(part.card, *used);
                *peak = (*peak).max(*used);
            }
        }
        uses
    }

    /// That other programs see the lease: the machine's ledger is where it was.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where it was removed or replaced.
    pub fn check_place(&self) -> Result<()> {
        self.member.as_ref().map_or(Ok(()), Member::check_place)
    }

    /// What the driver says is used of each card under the lease; none where it cannot say, and for a lease of simulated cards as a
    /// whole.
    pub fn driver_use(&self) -> Option<Vec<Option<Bytes>>> {
        let member = self.member.as_ref().filter(|_| self.cards.nvml().is_some())?;
        Some(outside::used_under(&self.cards, member, &self.parts))
    }

    /// Leaves the lease to the programs that still share it, and says what came of it. A command that was given the lease must
    /// have been dropped: it has it too.
    pub fn end(mut self) -> Report {
        let Some(member) = self.member.take() else { return Report::default() };
        let (slot, inside) = (member.slot(), member.used_inside().ok().flatten());
        // First of all: others wait for it.
        member.detach();
        for (part, peak) in self.parts.iter().zip(&mut self.peaks) {
            *peak = (*peak).max(inside.as_ref().map_or(Bytes::ZERO, |inside| inside.peak(part.card)));
        }
        let begin = Instant::now();
        while slot.is_held() && begin.elapsed() < GOING {
            std::thread::sleep(Duration::from_millis(2));
        }
        let peaks = std::mem::take(&mut self.peaks);
        if !slot.is_held() {
            return Report { peaks, ..Report::default() };
        }
        let left = slot.holders();
        let used = outside::used_by(&self.cards, &left, &self.parts);
        Report { peaks, left: left.into_iter().map(|pid| (pid, program(pid))).collect(), used }
    }
}

/// What the system calls a process.
fn program(pid: u32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ")
}
