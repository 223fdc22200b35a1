//! The listing as JSON. Sizes are bytes, times are seconds since 1970; `card` is a place in `cards`; null is an unknown value.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll::machine::Reserve;
use plimsoll::machine::{Guarantee, Process, Scope, SeenCard, UserId, View, Waiter};
use serde::Serialize;

#[derive(Serialize)]
struct Document<'a> {
    driver: Option<DriverEntry<'a>>,
    cards: Vec<CardEntry<'a>>,
    devices: Vec<DeviceEntry<'a>>,
    ledger: Option<&'static str>,
    shared: Option<SharedEntry>,
    processes: Vec<ProcessEntry<'a>>,
    waiters: Vec<WaiterEntry<'a>>,
    log: &'a [String],
    warnings: &'a [String],
    notes: &'a [String],
}

/// The ledger that users share.
#[derive(Serialize)]
struct SharedEntry {
    folder: String,
    group: String,
    user: String,
    priority_min: i32,
    priority_max: i32,
}

#[derive(Serialize)]
struct DriverEntry<'a> {
    driver_version: Option<&'a str>,
    nvml_version: Option<&'a str>,
    cuda_version: Option<String>,
}

#[derive(Serialize)]
struct CardEntry<'a> {
    ordinal: u32,
    name: &'a str,
    simulated: bool,
    unused: Option<&'a str>,
    pci_bus_id: &'a str,
    uuid: &'a str,
    cuda_ordinal: Option<u32>,
    compute_capability: String,
    total_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    outside_bytes: Option<u64>,
    used_bytes: Option<u64>,
    free_bytes: Option<u64>,
    overhead_bytes: u64,
    utilisation_percent: Option<u32>,
    peers: &'a [u32],
    numa_node: Option<u32>,
    multiprocessors: Option<u32>,
    max_clock_mhz: Option<u32>,
    clock_mhz: Option<u32>,
    bandwidth_bytes_per_second: Option<f64>,
    temperature_celsius: Option<u32>,
    fan_percent: Option<u32>,
    power_watts: Option<u32>,
    power_limit_watts: Option<u32>,
    performance_state: Option<u32>,
    mig: bool,
}

#[derive(Serialize)]
struct DeviceEntry<'a> {
    name: String,
    description: &'a str,
    card: Option<usize>,
    limit_bytes: Option<u64>,
    overhead_bytes: u64,
    reserve: &'static str,
    priority: i32,
    numa_node: u32,
    links: Vec<LinkEntry>,
    reasons: &'a [String],
}

#[derive(Serialize)]
struct LinkEntry {
    device: u32,
    kind: &'static str,
    strength: i32,
}

#[derive(Serialize)]
struct ProcessEntry<'a> {
    card: usize,
    pid: u32,
    user: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    program: Option<&'a str>,
    name: &'a str,
    reserved_bytes: Option<u64>,
    used_bytes: Option<u64>,
    peak_bytes: Option<u64>,
    guarantee: Option<&'static str>,
    card_last_used: Option<u64>,
    memory_last_changed: Option<u64>,
    history: Option<HistoryEntry>,
}

/// For each step, oldest first, the most that was used of all that is reserved, 1 being all.
#[derive(Serialize)]
struct HistoryEntry {
    step_ms: u64,
    used: Vec<f32>,
}

#[derive(Serialize)]
struct WaiterEntry<'a> {
    pid: u32,
    user: Option<String>,
    program: &'a str,
    name: &'a str,
    priority: i32,
    ahead: usize,
    some: usize,
    asked: Vec<AskedEntry>,
    why: &'a str,
}

#[derive(Serialize)]
struct AskedEntry {
    card: usize,
    bytes: u64,
}

/// The document, on one line.
pub fn of(view: &View) -> String {
    let document = Document {
        driver: view.driver.as_ref().map(|driver| DriverEntry {
            driver_version: driver.driver.as_deref(),
            nvml_version: driver.nvml.as_deref(),
            cuda_version: driver.cuda.map(|(major, minor)| format!("{major}.{minor}")),
        }),
        cards: view.cards.iter().map(card).collect(),
        devices: view.devices.iter().map(device).collect(),
        ledger: view.ledger.as_ref().map(|scope| match scope {
            Scope::Machine { .. } => "machine",
            Scope::User { .. } => "user",
        }),
        shared: view.ledger.as_ref().and_then(shared),
        processes: view.processes.iter().map(process).collect(),
        waiters: view.waiters.iter().map(waiter).collect(),
        log: &view.start_log,
        warnings: &view.warnings,
        notes: &view.notes,
    };
    // Our documents have text keys only, so there is nothing that JSON lacks.
    serde_json::to_string(&document).unwrap_or_default()
}

fn shared(scope: &Scope) -> Option<SharedEntry> {
    let Scope::Machine { folder, group, user, priorities } = scope else { return None };
    Some(SharedEntry {
        folder: folder.display().to_string(),
        group: group.clone(),
        user: user.name(),
        priority_min: priorities.least,
        priority_max: priorities.most,
    })
}

fn card(card: &SeenCard) -> CardEntry<'_> {
    let device = &card.device;
    let known = |number: u32| (number > 0).then_some(number);
    CardEntry {
        ordinal: device.ordinal,
        name: &device.name,
        simulated: device.is_simulated(),
        unused: card.unused.as_deref(),
        pci_bus_id: &device.pci_bus_id,
        uuid: &device.uuid,
        cuda_ordinal: card.cuda_ordinal,
        compute_capability: device.compute_capability.to_string(),
        total_bytes: card.total.map(|bytes| bytes.0),
        reserved_bytes: card.reserved.map(|bytes| bytes.0),
        outside_bytes: card.outside.map(|bytes| bytes.0),
        used_bytes: card.used.map(|bytes| bytes.0),
        free_bytes: card.free.map(|bytes| bytes.0),
        overhead_bytes: device.overhead.0,
        utilisation_percent: card.utilisation,
        peers: &device.peers,
        numa_node: device.numa_node,
        multiprocessors: known(device.multiprocessors),
        max_clock_mhz: known(device.clock_mhz),
        clock_mhz: card.clock_mhz,
        bandwidth_bytes_per_second: (device.bandwidth > 0.0).then_some(device.bandwidth),
        temperature_celsius: card.temperature,
        fan_percent: card.fan,
        power_watts: card.power,
        power_limit_watts: card.power_limit,
        performance_state: card.performance_state,
        mig: card.mig,
    }
}

fn device(part: &plimsoll::machine::Part) -> DeviceEntry<'_> {
    let device = &part.device;
    let link = |link: &plimsoll::machine::Link| LinkEntry { device: link.device, kind: link.kind(), strength: link.strength() };
    DeviceEntry {
        name: device.name.to_string(),
        description: &part.description,
        card: part.card,
        limit_bytes: device.memory_limit.map(|limit| limit.0),
        overhead_bytes: device.overhead.0,
        reserve: match device.reserve {
            Reserve::Whole => "whole",
            Reserve::Growth => "growth",
            Reserve::Plan => "plan",
        },
        priority: device.priority,
        numa_node: device.numa_node,
        links: device.links.iter().map(link).collect(),
        reasons: &device.reasons,
    }
}

fn process(process: &Process) -> ProcessEntry<'_> {
    ProcessEntry {
        card: process.card,
        pid: process.pid,
        user: process.user.map(UserId::name),
        kind: process.kind.short(),
        program: process.program.as_deref(),
        name: &process.name,
        reserved_bytes: process.reserved.map(|bytes| bytes.0),
        used_bytes: process.used.map(|bytes| bytes.0),
        peak_bytes: process.peak.map(|bytes| bytes.0),
        guarantee: process.guarantee.map(Guarantee::word),
        card_last_used: process.last_use.card.and_then(seconds),
        memory_last_changed: process.last_use.memory.and_then(seconds),
        history: (process.history.shares().len() > 0)
            .then(|| HistoryEntry { step_ms: process.history.step().as_millis() as u64, used: process.history.shares().collect() }),
    }
}

/// Seconds since 1970.
fn seconds(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn waiter(waiter: &Waiter) -> WaiterEntry<'_> {
    WaiterEntry {
        pid: waiter.pid,
        user: waiter.user.map(UserId::name),
        program: &waiter.program,
        name: &waiter.name,
        priority: waiter.priority,
        ahead: waiter.ahead,
        some: waiter.some,
        asked: waiter.asked.iter().map(|&(card, bytes)| AskedEntry { card, bytes: bytes.0 }).collect(),
        why: &waiter.why,
    }
}
