//! Leases: a part of the machine's cards for a program and all that it starts.

pub(crate) mod activity;
mod cards;
mod environment;
mod outside;
mod report;
mod request;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::process::Command;
use std::time::{Duration, Instant};

use plimsoll_base::{Bytes, Result};
use plimsoll_cards::PhysicalDevice;
use plimsoll_machine::{Guarantee, LastUse, Machine, Member};

use crate::framework::Told;

pub use cards::Cards;
pub(crate) use outside::SeenCard;
pub use report::{Peak, Report};
pub use request::{Amount, Request, Which};

/// How long programs that end together with the one that is waited for may take to be gone.
const GOING: Duration = Duration::from_millis(200);

/// How long the driver may take to notice that processes are gone.
const GONE: Duration = Duration::from_secs(1);

/// A part of the machine's cards. It is held until it is dropped. A program may share it ([`Lease::inherit`]). Where
/// it was left to the program ([`Lease::end`]), the last process of the program's tree holds it, however that process ends.
#[derive(Debug)]
pub struct Lease {
    /// None where no card was asked for.
    member: Option<Member>,
    parts: Vec<Part>,
    cards: Cards,
    guarantee: Guarantee,
    /// The most that the driver was seen to say is used of each card.
    peaks: Vec<Option<Bytes>>,
    /// Processes that the driver was seen to list under the lease.
    users: BTreeSet<u32>,
    /// Whether programs see their share of a card as all of it.
    shows_share: bool,
    /// Whether frameworks are told their share.
    tells_frameworks: bool,
}

/// A lease's part of a card.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The card's number among those of [`Cards::all`], which the ledger has too.
    pub card: usize,
    /// The card.
    pub device: PhysicalDevice,
    /// Its number as CUDA counts on this machine, whatever CUDA_VISIBLE_DEVICES says.
    pub ordinal: u32,
    /// How much of it.
    pub bytes: Bytes,
}

impl Lease {
    /// Its cards, in the order in which a program under it sees them.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// How sure it is that programs keep to it: where the driver shows use, it is watched, else frameworks are told.
    pub fn guarantee(&self) -> Guarantee {
        self.guarantee
    }

    /// Says anew how sure it is. Where the ledger cannot be used others see the former record.
    pub(crate) fn set_guarantee(&mut self, guarantee: Guarantee) {
        if std::mem::replace(&mut self.guarantee, guarantee) != guarantee
            && let Some(member) = &self.member
        {
            let _ = member.set_guarantee(guarantee);
        }
    }

    /// Says that programs under the lease see their share of a card as all of it.
    pub(crate) fn show_share(&mut self) {
        self.shows_share = true;
    }

    /// Whether frameworks under the lease are told their share.
    pub(crate) fn tell_frameworks(&mut self, tells: bool) {
        self.tells_frameworks = tells;
    }

    /// The cards that it was taken from.
    pub fn cards(&self) -> &Cards {
        &self.cards
    }

    /// Lets the program that `command` starts, and all its descendants, share the lease, and tells it so. It inherits an open file
    /// description, with which nothing can be changed; the kernel closes it with the last of them. It gets the environment of
    /// [`Lease::told`]. Variables that were set on the command itself are left alone. Returns notes for people: the user's own
    /// settings that were not passed on as they are.
    ///
    /// # Errors
    /// Where the process has no handle left, and where the file of the lease cannot be made.
    pub fn inherit(&self, command: &mut Command) -> Result<Vec<String>> {
        self.inherit_seeing(command, self.shows_share)
    }

    /// As [`Lease::inherit`], for a program that sees its share of a card as all of it, or does not.
    pub(crate) fn inherit_seeing(&self, command: &mut Command, shows_share: bool) -> Result<Vec<String>> {
        if let Some(member) = &self.member {
            member.inherit(command)?;
        }
        let told = environment::told(self, shows_share, &|name| variable(command, name));
        for (name, value) in told.set {
            if !is_given(command, &name) {
                command.env(name, value);
            }
        }
        for name in told.removed {
            if !is_given(command, &name) {
                command.env_remove(name);
            }
        }
        Ok(told.warnings)
    }

    /// The variables that tell a program its lease: CUDA_VISIBLE_DEVICES and ours, and the settings of frameworks for a share
    /// ([`crate::framework`]). `variable` gives the program's environment.
    pub fn told(&self, variable: impl Fn(&str) -> Option<OsString>) -> Told {
        environment::told(self, self.shows_share, &variable)
    }

    /// The ledger of reservations inside of the lease; none where it has no cards.
    ///
    /// # Errors
    /// Where that cannot be used.
    pub fn inside(&self) -> Result<Option<Machine>> {
        self.member.as_ref().map(Member::inside).transpose()
    }

    /// Looks how much of each card is used under the lease now, shows it to others, and keeps the peaks. None for a card where it
    /// is unknown.
    pub fn look(&mut self) -> Vec<Option<Bytes>> {
        self.see(|_| None).into_iter().map(|seen| seen.bytes).collect()
    }

    /// As [`Lease::look`], with the processes. Where `counted` has the use of a card, that counts.
    pub(crate) fn see(&mut self, counted: impl Fn(&Part) -> Option<Bytes>) -> Vec<SeenCard> {
        let Some(member) = &self.member else { return Vec::new() };
        let mut all = outside::seen_under(&self.cards, member, &self.parts);
        let is_driver = self.cards.nvml().is_some();
        for ((part, seen), peak) in self.parts.iter().zip(&mut all).zip(&mut self.peaks) {
            seen.bytes = counted(part).or(seen.bytes);
            if let Some(used) = seen.bytes {
                member.set_used(part.card, used);
                // Use that was reported inside of the lease has a peak of its own.
                if is_driver {
                    *peak = (*peak).max(Some(used));
                }
            }
            self.users.extend(&seen.own);
        }
        all
    }

    /// Whether a process is under the lease.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.member.as_ref().is_some_and(|member| member.machine().slot_of(pid) == Some(member.slot().number()))
    }

    /// Shows others when the cards were last used.
    pub(crate) fn show_last_use(&self, last: LastUse) {
        if let Some(member) = &self.member {
            member.set_last_use(last);
        }
    }

    /// That other programs see the lease: the machine's ledger is where it was.
    ///
    /// # Errors
    /// FAILED_PRECONDITION where it was removed or replaced.
    pub fn check_place(&self) -> Result<()> {
        self.member.as_ref().map_or(Ok(()), Member::check_place)
    }

    /// The bytes of each card that are used under the lease, as the driver says. None where it cannot say, and for a lease of
    /// simulated cards as a whole.
    pub fn driver_use(&self) -> Option<Vec<Option<Bytes>>> {
        let member = self.member.as_ref().filter(|_| self.cards.nvml().is_some())?;
        Some(outside::seen_under(&self.cards, member, &self.parts).into_iter().map(|seen| seen.bytes).collect())
    }

    /// Leaves the lease to the programs that still share it, and returns the report. A command that was given the lease must have
    /// been dropped: it has it too.
    pub fn end(mut self) -> Report {
        let Some(member) = self.member.take() else { return Report { came_back: Some(true), ..Report::default() } };
        // It is not observed from now on.
        member.set_last_use(LastUse::default());
        let (slot, inside, history) = (member.slot(), member.used_inside().ok().flatten(), member.history());
        // First of all: others wait for it.
        member.detach();
        // Programs of ours, and the shim where a program came to it, write down all that they use.
        let counts = self.guarantee == Guarantee::Held || inside.is_some();
        let ledger = |part: &Part| {
            let most = |inside: &Machine| inside.peak(part.card).max(inside.most_reserved(part.card));
            counts.then(|| inside.as_ref().map_or(Bytes::ZERO, most))
        };
        // Between looks that saw nothing there may have been something.
        let seen = |driver: &Option<Bytes>| driver.filter(|most| *most > Bytes::ZERO);
        let peaks: Vec<Peak> =
            self.parts.iter().zip(&self.peaks).map(|(part, driver)| Peak { driver: seen(driver), ledger: ledger(part) }).collect();
        let is_observed = peaks.iter().any(|peak| peak.most().is_some());
        let refused = |inside: &Machine| self.parts.iter().map(|part| inside.refused(part.card)).sum();
        let refusals = counts.then(|| inside.as_ref().map_or(0, refused));
        let begin = Instant::now();
        while slot.is_held() && begin.elapsed() < GOING {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !slot.is_held() {
            let came_back = self.came_back(inside.as_ref(), counts).filter(|_| is_observed);
            return Report { peaks, refusals, came_back, history, ..Report::default() };
        }
        let left = slot.holders();
        let used = outside::used_by(&self.cards, &left, &self.parts);
        let came_back = used.map(|used| used == Bytes::ZERO);
        Report { peaks, refusals, came_back, left: left.into_iter().map(|pid| (pid, program(pid))).collect(), used, history }
    }

    /// Whether used memory is back, once no program has the lease.
    fn came_back(&self, inside: Option<&Machine>, counts: bool) -> Option<bool> {
        if self.cards.nvml().is_some() {
            if self.peaks.iter().any(Option::is_none) {
                return None;
            }
            let users: Vec<u32> = self.users.iter().copied().collect();
            let is_back = || outside::used_by(&self.cards, &users, &self.parts).map(|used| used == Bytes::ZERO);
            // The driver takes a moment to notice that a process is gone.
            let begin = Instant::now();
            while is_back() == Some(false) && begin.elapsed() < GONE {
                std::thread::sleep(Duration::from_millis(20));
            }
            return is_back();
        }
        let is_free = |inside: &Machine| Some(inside.look().ok()?.cards.iter().all(|card| card.reserved == Bytes::ZERO));
        counts.then_some(())?;
        inside.map_or(Some(true), is_free)
    }
}

/// Whether a command itself sets or removes a variable.
fn is_given(command: &Command, name: impl AsRef<OsStr>) -> bool {
    command.get_envs().any(|(given, _)| given == name.as_ref())
}

/// A variable as the program that a command starts would have it.
pub(crate) fn variable(command: &Command, name: &str) -> Option<OsString> {
    match command.get_envs().find(|(given, _)| *given == name) {
        Some((_, value)) => value.map(OsString::from),
        None => std::env::var_os(name),
    }
}

/// The system's name of a process.
fn program(pid: u32) -> String {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ")
}
