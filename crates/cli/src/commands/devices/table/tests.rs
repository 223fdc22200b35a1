//! Tables as files: `*.txt` beside this one. `PLIMSOLL_BLESS=1` writes them anew.

use std::path::Path;
use std::time::{Duration, SystemTime};

use plimsoll::machine::{ComputeCapability, PhysicalDevice, resolve};
use plimsoll::machine::{Driver, Guarantee, ProcessKind};
use plimsoll::{Environment, Options};

use super::*;

const MIB: u64 = 1 << 20;

fn is_as_in(name: &str, view: &View, verbose: bool) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/commands/devices/table/{name}.txt"));
    let got = of(view, verbose).replace(env!("CARGO_PKG_VERSION"), "#.#.#") + "\n";
    for line in got.lines().filter(|line| line.starts_with(['|', '+'])) {
        assert_eq!(line.chars().count(), WIDTH + 2, "{line}");
    }
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(got, wanted, "{} differs; PLIMSOLL_BLESS=1 writes it anew", path.display());
}

fn simulated(spec: &str) -> Vec<PhysicalDevice> {
    PhysicalDevice::simulated("--sim-gpus", spec).unwrap()
}

fn parts(cards: &[PhysicalDevice], options: &Options, first: usize) -> Vec<Part> {
    let division = resolve(cards, options, &Environment::new()).unwrap();
    let part = |device: plimsoll::machine::LogicalDevice| Part {
        description: "x86_64 with AVX2, 2 threads".into(),
        card: device.card.as_ref().map(|card| first + card.device.ordinal as usize),
        device,
    };
    division.devices.into_iter().map(part).collect()
}

fn process(card: usize, pid: u32, program: &str, bytes: [u64; 3]) -> Process {
    let [reserved, used, peak] = bytes.map(|bytes| Some(Bytes(bytes)));
    let (kind, guarantee) = (ProcessKind::Compute, Some(Guarantee::Held));
    Process {
        card,
        pid,
        user: None,
        kind,
        program: Some(program.into()),
        name: String::new(),
        reserved,
        used,
        peak,
        guarantee,
        history: Default::default(),
        last_use: Default::default(),
    }
}

/// Two cards of a driver.
fn real() -> Vec<SeenCard> {
    let device = |spec: &str, ordinal: u32, capability| PhysicalDevice {
        ordinal,
        compute_capability: capability,
        peers: vec![1 - ordinal],
        leased: false,
        simulation: None,
        ..simulated(spec).remove(0)
    };
    let busy = SeenCard {
        cuda_ordinal: Some(0),
        unused: Some("options or variables leave it out".into()),
        total: Some(Bytes(15360 * MIB)),
        used: Some(Bytes(1850 * MIB)),
        free: Some(Bytes(13310 * MIB)),
        utilisation: Some(100),
        temperature: Some(45),
        power: Some(27),
        power_limit: Some(70),
        performance_state: Some(0),
        ..SeenCard::new(device("t4", 0, ComputeCapability(7, 5)))
    };
    let silent = SeenCard { unused: Some("too old".into()), ..SeenCard::new(device("k520", 1, ComputeCapability(3, 0))) };
    vec![busy, silent]
}

#[test]
fn nothing() {
    let why = "there is no NVIDIA driver: libnvidia-ml.so.1: cannot open shared object file: No such file or directory";
    let view = View {
        no_driver: Some(why.into()),
        devices: parts(&[], &Options::new().limit("CPU:0", "64MiB"), 0),
        notes: vec!["2 cores".into(), why.into()],
        ..View::default()
    };
    is_as_in("nothing", &view, true);
}

#[test]
fn cards_of_a_driver() {
    let foreign =
        Process { reserved: None, peak: None, guarantee: None, ..process(0, 4321, "/usr/bin/python3 train.py", [0, 1500 * MIB, 0]) };
    let hidden = Process { program: None, used: None, kind: ProcessKind::Both, pid: 4_000_000, ..foreign.clone() };
    let view = View {
        driver: Some(Driver { driver: Some("535.104.05".into()), nvml: Some("12.535.104.05".into()), cuda: Some((12, 2)) }),
        cards: real(),
        devices: parts(&[], &Options::new(), 0),
        processes: vec![foreign, hidden],
        ..View::default()
    };
    is_as_in("cards_of_a_driver", &view, false);
}

/// Simulated cards, all that is seen of them set by hand.
fn held(spec: &str, first: usize) -> Vec<SeenCard> {
    let card = |device: PhysicalDevice| SeenCard {
        cuda_ordinal: Some(device.ordinal),
        total: Some(device.total),
        reserved: Some(Bytes(1000 * MIB + 1)),
        used: Some(Bytes(1)),
        free: Some(device.total - Bytes(1000 * MIB + 1)),
        ..SeenCard::new(device)
    };
    assert!(first < 10);
    simulated(spec).into_iter().map(card).collect()
}

#[test]
fn simulated_cards_with_holders_and_waiters() {
    let spec = "2x4GiB,overhead=193MiB,peers=all+k520:1x4095MiB,cc=2.0";
    let mut cards = held(spec, 0);
    (cards[2].cuda_ordinal, cards[2].unused) = (None, Some("with Cuda compute capability 2.0. ...".into()));
    let mut processes: Vec<Process> = (0..8)
        .map(|n| process((n / 4) as usize, 1000 + n, "plimsoll train cifar10 --towers 2", [256 * MIB, MIB * u64::from(n), 200 * MIB]))
        .collect();
    processes[1].name = "mine".into();
    processes[2].program = Some("/home/somebody/a/very/long/folder/python train.py --epochs 100 --verbose".into());
    processes[3].program = Some("a\nb \x1b[2J".into());
    let ago = |seconds| SystemTime::now().checked_sub(Duration::from_secs(seconds));
    processes[4].guarantee = Some(Guarantee::NotWatched);
    (processes[4].used, processes[4].peak) = (None, None);
    processes[5].guarantee = Some(Guarantee::Shim);
    processes[5].last_use = LastUse { card: ago(3 * 3600 + 60), memory: ago(9 * 60 + 30) };
    processes[6].guarantee = Some(Guarantee::Watched);
    processes[6].last_use = LastUse { card: None, memory: ago(2 * 86400 + 60) };
    let waiter = Waiter {
        user: None,
        pid: 77,
        program: "plimsoll train".into(),
        name: String::new(),
        priority: 3,
        ahead: 0,
        some: 0,
        asked: vec![(0, Bytes(3000 * MIB)), (1, Bytes(4000 * MIB))],
        why: "waits behind pid 5 for 2.93 GiB of Simulated GPU, of which 1.20 GiB are free".into(),
    };
    let other = Waiter { pid: 78, priority: 0, ahead: 1, name: "later".into(), asked: vec![(1, Bytes(1))], ..waiter.clone() };
    let options = Options::new().limit("GPU:0", "1GiB+512MiB").device_count_flag("CPU=2,GPU=1").unwrap();
    let devices = parts(&simulated("2x4GiB,overhead=193MiB,peers=all"), &options, 0);
    let view =
        View { cards, devices, processes, waiters: vec![waiter, other], start_log: vec!["Created device".into()], ..View::default() };
    is_as_in("simulated", &view, true);
}

#[test]
fn real_and_simulated_cards_are_told_apart() {
    let mut cards = real();
    cards.extend(held("1GiB", 2));
    let view = View {
        cards,
        devices: parts(&simulated("1GiB"), &Options::new().allow_growth(true), 2),
        processes: vec![process(2, 9, "p", [1, 2, 3])],
        ..View::default()
    };
    is_as_in("both", &view, false);
}
