//! The listing as a page.

use plimsoll::Bytes;
use plimsoll::machine::{Guarantee, Process, SeenCard, UserId, View, Waiter as Waiting};
use plimsoll::page::Listing;
use plimsoll::page::listing::{Card, Holder, Use, Waiter};

/// What the page shows of a machine.
pub fn of(view: &View) -> Listing {
    let device = |part: &plimsoll::machine::Part| (part.device.name.short(), part.description.clone(), part.device.memory_limit);
    Listing {
        cards: view.cards.iter().enumerate().map(|(index, seen)| card(view, index, seen)).collect(),
        waiters: view.waiters.iter().map(|waiting| waiter(view, waiting)).collect(),
        devices: view.devices.iter().map(device).collect(),
        notes: view.warnings.iter().chain(&view.notes).cloned().collect(),
    }
}

fn card(view: &View, index: usize, seen: &SeenCard) -> Card {
    let device = &seen.device;
    let mut facts = vec![device.pci_bus_id.clone(), format!("compute capability {}", device.compute_capability)];
    if device.is_simulated() {
        facts.push("simulated".to_string());
    }
    facts.extend(seen.utilisation.map(|percent| format!("{percent} % busy")));
    facts.extend(seen.temperature.map(|celsius| format!("{celsius} °C")));
    facts.extend(seen.power.map(|watts| format!("{watts} W")));
    facts.extend(seen.outside.filter(|bytes| *bytes > Bytes::ZERO).map(|bytes| format!("{bytes} used without a lease")));
    facts.extend(seen.unused.as_ref().map(|why| format!("not used: {why}")));
    let holders = view.processes.iter().filter(|process| process.card == index);
    Card {
        label: view.label(index),
        name: device.name.clone(),
        facts,
        total: seen.total,
        free: seen.free,
        outside: seen.outside,
        holders: holders.map(holder).collect(),
    }
}

fn holder(process: &Process) -> Holder {
    Holder {
        pid: process.pid,
        name: named(&process.name, process.program.as_deref()),
        user: process.user.map(UserId::name),
        reserved: process.reserved,
        used: process.used,
        peak: process.peak,
        guarantee: process.guarantee.map(|guarantee| Guarantee::word(guarantee).to_string()),
        history: Use { step: process.history.step().as_secs_f64(), shares: process.history.shares().collect() },
    }
}

fn waiter(view: &View, waiting: &Waiting) -> Waiter {
    let asked: Vec<String> = waiting.asked.iter().map(|(card, bytes)| format!("{bytes} of GPU {}", view.label(*card))).collect();
    let join = if waiting.some > 0 { " or " } else { " and " };
    Waiter { pid: waiting.pid, name: named(&waiting.name, Some(&waiting.program)), asked: asked.join(join), why: waiting.why.clone() }
}

/// The name that a user gave, and the program.
fn named(name: &str, program: Option<&str>) -> String {
    match (name, program) {
        ("", Some(program)) => program.to_string(),
        (name, Some(program)) => format!("{name} ({program})"),
        (name, None) => name.to_string(),
    }
}
