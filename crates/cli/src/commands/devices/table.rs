//! The listing as a table, in the form that people know from nvidia-smi.

use plimsoll::Bytes;
use plimsoll::machine::Reserve;
use plimsoll::machine::{Guarantee, LastUse, Part, Process, Scope, SeenCard, UserId, View, Waiter};

use super::screen::ago;
use crate::output::plain;

/// Characters between the left and the right edge, and the columns of the upper table.
const WIDTH: usize = 95;
const LEFT: usize = 43;
const MIDDLE: usize = 26;
const RIGHT: usize = 24;

const UNKNOWN: &str = "N/A";

/// The listing; with findings and reasons if it is `verbose`.
pub fn of(view: &View, verbose: bool) -> String {
    let mut lines = Vec::new();
    cards(view, &mut lines);
    lines.push(String::new());
    devices(view, &mut lines);
    lines.push(String::new());
    processes(view, &mut lines);
    if !view.waiters.is_empty() {
        lines.push(String::new());
        waiters(view, &mut lines);
    }
    lines.extend(view.ledger.as_ref().map(ledger));
    lines.extend(view.warnings.iter().map(|warning| format!("warning: {}", plain(warning))));
    if verbose {
        lines.extend(view.notes.iter().map(|note| format!("note: {}", plain(note))));
        lines.extend(view.start_log.iter().map(|line| format!("log: {}", plain(line))));
    }
    lines.join("\n")
}

/// Whose leases are shown.
fn ledger(scope: &Scope) -> String {
    match scope {
        Scope::Machine { folder, group, user, priorities } => plain(&format!(
            "Ledger: the machine's, shared by the group {group} ({}); user {}, priorities {priorities}",
            folder.display(),
            user.name()
        )),
        Scope::User { why: Some(why) } => plain(&format!("Ledger: this user's own; {why}")),
        Scope::User { why: None } => "Ledger: this user's own; plimsoll setup makes one for all users".into(),
    }
}

fn cards(view: &View, lines: &mut Vec<String>) {
    let rule = |ends: char| format!("{ends}{}+{}+{}{ends}", "-".repeat(LEFT), "-".repeat(MIDDLE), "-".repeat(RIGHT));
    let driver = view.driver.clone().unwrap_or_default();
    let version = |version: &Option<String>| version.clone().unwrap_or_else(|| UNKNOWN.into());
    let cuda = driver.cuda.map(|(major, minor)| format!("{major}.{minor}"));
    let program = concat!("plimsoll ", env!("CARGO_PKG_VERSION"));
    let versions =
        format!("Driver Version: {:<13} NVML: {:<14} CUDA Version: {:<5}", version(&driver.driver), version(&driver.nvml), version(&cuda));
    lines.push(edge());
    lines.push(row(&spread(program, &versions, WIDTH - 2)));
    if view.cards.is_empty() {
        lines.push(edge().replace('+', "|"));
        lines.push(row(" No GPUs were found"));
        let why = view.no_driver.as_deref().map(plain).unwrap_or_default();
        lines.extend(wrapped(&why, WIDTH - 3).iter().map(|line| row(&format!(" {line}"))));
        lines.push(edge());
        return;
    }
    lines.push(rule('|'));
    let head = [
        (spread("GPU  Name", "Capability", LEFT - 2), "Bus-Id".to_string(), spread("GPU-Util", "Compute", RIGHT - 2)),
        (spread("Fan  Temp   Perf", "Pwr:Usage/Cap", LEFT - 2), right("Memory-Usage", MIDDLE - 2), right("Free", RIGHT - 2)),
        ("UUID".to_string(), right("Reserved", MIDDLE - 2), spread("CUDA-Id", "Peers", RIGHT - 2)),
    ];
    lines.extend(head.iter().map(|(a, b, c)| columns(a, b, c)));
    lines.push(rule('|').replace('-', "="));
    for (place, card) in view.cards.iter().enumerate() {
        lines.extend(card_rows(&view.label(place), card));
        lines.push(rule('+'));
    }
}

fn card_rows(label: &str, card: &SeenCard) -> [String; 3] {
    let device = &card.device;
    let known = |value: Option<String>| value.unwrap_or_else(|| UNKNOWN.into());
    let number = |value: Option<u32>, unit: &str| known(value.map(|value| format!("{value}{unit}")));
    let (fan, temperature, power) = (number(card.fan, "%"), number(card.temperature, "C"), number(card.power, "W"));
    let state = known(card.performance_state.map(|state| format!("P{state}")));
    let compute = match (&card.unused, device.is_simulated()) {
        (None, true) => "simulated",
        (Some(_), true) => "simulated, unused",
        (None, false) => "yes",
        (Some(_), false) => "unused",
    };
    let peers: Vec<String> = device.peers.iter().map(u32::to_string).collect();
    let capability = device.compute_capability.to_string();
    let reserved = match card.outside.filter(|outside| *outside > Bytes::ZERO) {
        Some(outside) => format!("{}, others {}", taken(card.reserved), taken(Some(outside))),
        None => taken(card.reserved),
    };
    [
        columns(
            &spread(&format!("{label:>3}  {}", plain(&device.name)), &capability, LEFT - 2),
            &device.pci_bus_id,
            &spread(&number(card.utilisation, "%"), compute, RIGHT - 2),
        ),
        columns(
            &spread(&format!("{fan:>3}  {temperature:>4}   {state:>4}"), &format!("{power} / {}", number(card.power_limit, "W")), LEFT - 2),
            &right(&format!("{} / {}", taken(card.used), there(card.total)), MIDDLE - 2),
            &right(&there(card.free), RIGHT - 2),
        ),
        columns(
            &device.uuid,
            &right(&reserved, MIDDLE - 2),
            &spread(
                &card.cuda_ordinal.map_or("hidden".into(), |ordinal| ordinal.to_string()),
                &if peers.is_empty() { "none".into() } else { peers.join(",") },
                RIGHT - 2,
            ),
        ),
    ]
}

fn devices(view: &View, lines: &mut Vec<String>) {
    let cells = |[name, gpu, limit, overhead, reserved, hardware]: [&str; 6]| {
        format!(" {name:<11} {gpu:>4} {limit:>13} {overhead:>13}   {reserved:<12}  {hardware}")
    };
    title("Logical devices:", &cells(["Device", "GPU", "Limit", "Overhead", "Reserved", "Hardware"]), lines);
    for part in &view.devices {
        let Part { device, description, card } = part;
        let hardware = match device.card.as_ref() {
            Some(card) => format!("{} {}", card.device.pci_bus_id, card.device.name),
            None => description.clone(),
        };
        let reserved = match device.reserve {
            Reserve::Whole => "at once",
            Reserve::Growth => "as it grows",
            Reserve::Plan => "as planned",
        };
        let gpu = card.map_or("-".into(), |card| view.label(card));
        let limit = device.memory_limit.map_or("no limit".into(), |limit| limit.to_string());
        let overhead = if device.overhead == Bytes::ZERO { "-".into() } else { device.overhead.to_string() };
        lines.push(row(&cells([&device.name.short(), &gpu, &limit, &overhead, reserved, &plain(&hardware)])));
    }
    lines.push(edge());
}

/// Characters of a program among the processes.
const PROGRAM: usize = 26;

/// Characters of the waiters' programs.
const WAITING: usize = 38;

fn processes(view: &View, lines: &mut Vec<String>) {
    let cells = |[gpu, pid, kind, program, rung, reserved, used, peak]: [&str; 8]| {
        format!("{gpu:>4} {pid:>8}   {kind:>4}   {program:<PROGRAM$} {rung:<11} {reserved:>9} {used:>9} {peak:>9}")
    };
    title("Processes:", &cells(["GPU", "PID", "Type", "Process name", "Rung", "Reserved", "Used", "Peak"]), lines);
    for process in &view.processes {
        let Process { pid, name, reserved, used, peak, .. } = process;
        let [reserved, used, peak] = [reserved, used, peak].map(|bytes| taken(*bytes));
        let (pid, program) = (pid.to_string(), program(process.program.as_deref(), &named(process.user, name), PROGRAM));
        let rung = process.guarantee.map_or("-", Guarantee::word);
        lines.push(row(&cells([&view.label(process.card), &pid, process.kind.short(), &program, rung, &reserved, &used, &peak])));
        // Programs of ours hold themselves, and report their use.
        if process.guarantee.is_some_and(|guarantee| guarantee != Guarantee::Held) {
            lines.push(row(&format!("{:22}{}", "", last_use(process.last_use))));
        }
    }
    if view.processes.is_empty() {
        lines.push(row(" No running processes found"));
    }
    lines.push(edge());
}

fn last_use(last: LastUse) -> String {
    let ago = |time| match time {
        Some(time) => format!("{} ago", ago(Some(time))),
        None => "not observed".into(),
    };
    match last {
        LastUse { card: None, memory: None } => "last use not observed".into(),
        LastUse { card, memory } => format!("card last used: {}; memory last changed: {}", ago(card), ago(memory)),
    }
}

fn waiters(view: &View, lines: &mut Vec<String>) {
    let cells = |[turn, pid, priority, program]: [&str; 4]| format!("{turn:>5} {pid:>8}   {priority:>8}   {program}");
    title("Waiting:", &spread(&cells(["Turn", "PID", "Priority", "Process name"]), "Asked of GPU", WIDTH - 2), lines);
    for waiter in &view.waiters {
        let Waiter { pid, name, priority, why, .. } = waiter;
        let asked: Vec<String> =
            waiter.asked.iter().map(|(card, bytes)| format!("{} of {}", taken(Some(*bytes)), view.label(*card))).collect();
        let asked = match waiter.some {
            0 => asked.join(", "),
            some => format!("{some} of: {}", asked.join(", ")),
        };
        let program = program(Some(&waiter.program), &named(waiter.user, name), WAITING);
        let text = cells([&(waiter.ahead + 1).to_string(), &pid.to_string(), &priority.to_string(), &program]);
        lines.push(row(&spread(&text, &asked, WIDTH - 2)));
        lines.extend(wrapped(&plain(why), WIDTH - 2 - 17).iter().map(|line| row(&format!("{:17}{line}", ""))));
    }
    lines.push(edge());
}

fn edge() -> String {
    format!("+{}+", "-".repeat(WIDTH))
}

fn title(name: &str, head: &str, lines: &mut Vec<String>) {
    lines.extend([edge(), row(name), row(head), format!("|{}|", "=".repeat(WIDTH))]);
}

/// A line between the edges, cut where it is too long.
fn row(text: &str) -> String {
    format!("| {} |", fit(text, WIDTH - 2))
}

fn columns(a: &str, b: &str, c: &str) -> String {
    format!("| {} | {} | {} |", fit(a, LEFT - 2), fit(b, MIDDLE - 2), fit(c, RIGHT - 2))
}

/// The text in exactly so many characters.
fn fit(text: &str, width: usize) -> String {
    format!("{:<width$}", cut(text, width))
}

fn right(text: &str, width: usize) -> String {
    format!("{text:>width$}")
}

/// One text at the left, one at the right.
fn spread(left: &str, right: &str, width: usize) -> String {
    let room = width.saturating_sub(right.chars().count() + 1);
    format!("{} {right}", fit(left, room))
}

/// At most so many characters; dots say that there were more.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_string();
    }
    let kept: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{}...", kept.trim_end())
}

/// The text in lines of at most so many characters, broken at blanks.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| line.chars().count() + 1 + word.chars().count() <= width) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_string()),
        }
    }
    lines
}

/// A name in listings, with the user where users share the ledger.
pub(super) fn named(user: Option<UserId>, name: &str) -> String {
    let user = user.map(UserId::name).unwrap_or_default();
    [user.as_str(), name].iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(": ")
}

/// A program in so many characters: without its folder if that would not fit.
fn program(program: Option<&str>, name: &str, width: usize) -> String {
    let Some(program) = program else { return "[Not Found]".into() };
    let name = if name.is_empty() { String::new() } else { format!("[{}] ", plain(name)) };
    let whole = format!("{name}{}", plain(program));
    if whole.chars().count() <= width {
        return whole;
    }
    let (command, arguments) = program.split_once(' ').unwrap_or((program, ""));
    let command = command.rsplit('/').next().unwrap_or(command);
    cut(plain(&format!("{name}{command} {arguments}")).trim_end(), width)
}

/// Memory that is there, in nvidia-smi's unit.
fn there(bytes: Option<Bytes>) -> String {
    bytes.map_or(UNKNOWN.into(), |bytes| format!("{}MiB", bytes.0 >> 20))
}

/// Memory that is taken: rounded up, so that nothing which is some looks like none.
fn taken(bytes: Option<Bytes>) -> String {
    bytes.map_or(UNKNOWN.into(), |bytes| format!("{}MiB", bytes.0.div_ceil(1 << 20)))
}

#[cfg(test)]
mod tests;
