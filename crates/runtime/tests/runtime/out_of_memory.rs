//! Memory runs out at every place in turn, through open, load, run, train and close: once, so that a second try would find some, or
//! from there on. A refused call says so, changes nothing, and can be done when there is memory again. And memory that is kept for
//! the next step goes back to a card while there is none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::{Bytes, Code, DataType, Result};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceKind, DeviceName, DeviceSpec, InstructionSet};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_machine::{CardInfo, CardUpstream, Identity, Machine, Member, StateDir};
use plimsoll_memory::{Faults, Ledger};
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

/// A simulated card's own overhead.
const OVERHEAD: Bytes = Bytes(1 << 20);
const CARD: Bytes = Bytes(64 << 20);

/// Two simulated cards with a ledger of their own.
struct Cards {
    machine: Machine,
    folder: PathBuf,
}

impl Cards {
    fn new(test: &str) -> Cards {
        let folder = std::env::temp_dir().join(format!("plimsoll-oom-{}-{test}", std::process::id()));
        let card = |index| CardInfo { key: format!("card-{index}"), name: format!("card {index}"), capacity: CARD };
        let machine = Machine::open(&StateDir::open(&folder).unwrap(), "test", &[card(0), card(1)]).unwrap();
        Cards { machine, folder }
    }

    fn reserved(&self) -> Vec<Bytes> {
        self.machine.look().unwrap().cards.iter().map(|card| card.reserved).collect()
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Devices that share faults, and their ledgers.
struct Opened {
    devices: Devices,
    ledgers: Vec<Arc<Ledger>>,
}

impl Opened {
    fn new(cards: Option<&Cards>, faults: &Arc<Faults>) -> Result<Opened> {
        let pool = CpuPool::new(1)?;
        let mut ledgers = Vec::new();
        let mut all: Vec<Arc<dyn Device>> = Vec::new();
        for index in 0..if cards.is_some() { 1 } else { 2 } {
            let cpu = CpuDevice::new(DeviceSpec::cpu(index, None, 1, InstructionSet::Baseline), pool.clone(), Arc::new(CpuKernels));
            cpu.ledger().inject(faults);
            ledgers.push(cpu.ledger().clone());
            all.push(Arc::new(cpu));
        }
        if let Some(cards) = cards {
            let member = Arc::new(cards.machine.join(&Identity::this_process("")).unwrap());
            for index in 0..2 {
                let gpu = gpu(&member, index, faults)?;
                ledgers.push(gpu.ledger().clone());
                all.push(Arc::new(gpu));
            }
        }
        Ok(Opened { devices: Devices::with(all, &Options::new())?, ledgers })
    }

    /// No run is under way: nothing is fed or fetched, and reserved bytes are mapped bytes. Where `empty`, only the overhead of
    /// cards is left.
    fn check(&self, empty: bool, at: &str) {
        for ledger in &self.ledgers {
            assert_eq!(ledger.in_use(), ledger.mapped(), "{at}: {}: {:?}", ledger.device(), ledger.holders());
            let used = ledger.holders().into_iter().find(|holder| holder.name.contains("fetched"));
            assert!(used.is_none(), "{at}: {}: {used:?}", ledger.device());
            let overhead = if ledger.device().contains("GPU") { OVERHEAD } else { Bytes::ZERO };
            assert!(!empty || ledger.in_use() == overhead, "{at}: {}: {:?}", ledger.device(), ledger.holders());
        }
    }
}

fn gpu(member: &Arc<Member>, index: u32, faults: &Arc<Faults>) -> Result<SimDevice> {
    member.reserve(&[(index as usize, OVERHEAD)]).unwrap();
    let spec = DeviceSpec {
        name: DeviceName::local("GPU", index),
        kind: DeviceKind::Gpu,
        overhead: OVERHEAD,
        ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline)
    };
    let upstream = CardUpstream::new(member, index as usize, OVERHEAD).growing(Bytes(2 << 20));
    let ledger = Ledger::with_upstream(spec.name.to_string(), None, upstream);
    ledger.inject(faults);
    SimDevice::new(spec, ledger, Arc::new(CpuKernels))
}

/// A network whose first layer is on the second device and whose second layer is on the last, with constants, trained.
fn session(opened: &Opened, layers: [&str; 2]) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let columns = |columns| PartialShape(Some(vec![None, Some(columns)]));
    let x = b.placeholder("x", DataType::Float, columns(8)).build().unwrap();
    let t = b.placeholder("t", DataType::Float, columns(3)).build().unwrap();
    let (mut weights, mut reads, mut value) = (Vec::new(), Vec::new(), x);
    for (layer, (name, [rows, columns])) in layers.iter().zip([("w0", [8u64, 700]), ("w1", [700, 3])]) {
        value = b.device(layer, |b| {
            let w = b.get_variable(name, DataType::Float, [rows, columns], &Initializer::truncated_normal(0.3, Some(3))).unwrap();
            let shift: Vec<f32> = (0..columns).map(|i| i as f32 / 4096.0).collect();
            let shift = b.constant(HostTensor::from_slice([columns], &shift).unwrap()).build().unwrap();
            let read = b.read(&w).unwrap();
            weights.push(w);
            reads.push(read);
            let product = b.matmul(value, read).build().unwrap();
            let sum = b.add(product, shift).build().unwrap();
            b.relu(sum).build().unwrap()
        });
    }
    b.identity(value).name("y").build().unwrap();
    let difference = b.sub(value, t).build().unwrap();
    let square = b.mul(difference, difference).build().unwrap();
    let loss = b.reduce_mean(square, None).name("loss").build().unwrap();
    let gradients = b.gradients(&[loss], &reads).unwrap();
    let rate = b.scalar(0.1f32).unwrap();
    let updates: Vec<_> = weights
        .iter()
        .zip(gradients)
        .map(|(w, gradient)| b.op("ApplyGradientDescent").inputs([w.handle, rate, gradient.unwrap()]).build_node().unwrap())
        .collect();
    b.group(&updates, "train").unwrap();
    b.global_variables_initializer().unwrap();
    let registry = b.registry().clone();
    Session::new(&opened.devices, &b.finish(), registry).unwrap()
}

fn matrix(rows: u64, columns: u64) -> HostTensor {
    let values: Vec<f32> = (0..rows * columns).map(|i| (i * 7 % 13) as f32 / 13.0).collect();
    HostTensor::from_slice([rows, columns], &values).unwrap()
}

type Action = fn(&Session) -> Result<Vec<HostTensor>>;

fn step(session: &Session, rows: u64) -> Result<Vec<HostTensor>> {
    session.run(&[("x", &matrix(rows, 8)), ("t", &matrix(rows, 3))], &["loss"], &["train"])
}

/// The steps of a program with a session, one after the other.
const ACTIONS: [(&str, Action); 8] = [
    ("initialize", |session| session.run(&[], &[], &["init"])),
    ("train", |session| step(session, 20)),
    ("evaluate", |session| session.run(&[("x", &matrix(300, 8))], &["y"], &[])),
    ("train again", |session| step(session, 20)),
    ("train on more", |session| step(session, 90)),
    ("assign", |session| session.write_variable("w1", &matrix(700, 3)).map(|()| Vec::new())),
    ("train in a lane", |session| {
        let (x, t) = (matrix(50, 8), matrix(50, 3));
        let callable = session.callable_for(&[("x", &x), ("t", &t)], &["loss"], &["train"])?;
        callable.in_lane(&session.lane(&[&callable])?)?.run(&[&x, &t])
    }),
    ("read", |session| Ok(vec![session.read_variable("w0")?, session.read_variable("w1")?])),
];

/// Whether an action was refused as it should be: with a code, on a device.
fn is_refusal<T>(result: Result<T>, at: &str) -> bool {
    let Err(error) = result else { return false };
    assert_eq!(error.code(), Code::ResourceExhausted, "{at}: {error}");
    let device = error.device().unwrap_or_else(|| panic!("{at}: no device: {error}"));
    assert!(device.contains("device:CPU:") || device.contains("device:GPU:"), "{at}: {error}");
    true
}

/// Does everything, each thing again where it was refused. How often memory was asked for, and how often something was refused.
fn go(cards: Option<&Cards>, layers: [&str; 2], faults: &Arc<Faults>, expected: &mut Vec<Vec<HostTensor>>, close: bool) -> u32 {
    let mut refusals = 0;
    let mut again = |result: bool| {
        refusals += u32::from(result);
        faults.stop();
        result
    };
    let opened = match Opened::new(cards, faults) {
        Ok(opened) => opened,
        refused => {
            again(is_refusal(refused, "open"));
            // Devices that were opened before the refused one are closed.
            assert!(cards.is_none_or(|cards| cards.reserved() == [Bytes::ZERO; 2]));
            Opened::new(cards, faults).unwrap()
        }
    };
    let session = session(&opened, layers);
    for (index, (name, action)) in ACTIONS.iter().enumerate() {
        let mut result = action(&session);
        opened.check(false, name);
        if let Err(error) = &result {
            again(is_refusal::<()>(Err(error.clone()), name));
            result = action(&session);
        }
        let values = result.unwrap_or_else(|error| panic!("{name}, again: {error}"));
        match expected.get(index) {
            Some(expected) => assert_eq!(values, *expected, "{name}"),
            None => expected.push(values),
        }
    }
    if close {
        session.close();
        opened.check(true, "closed");
    }
    drop(session);
    opened.check(true, "dropped");
    drop(opened);
    assert!(cards.is_none_or(|cards| cards.reserved() == [Bytes::ZERO; 2]));
    refusals
}

fn everywhere(cards: Option<&Cards>, layers: [&str; 2]) {
    let mut expected = Vec::new();
    let whole = Arc::new(Faults::default());
    assert_eq!(go(cards, layers, &whole, &mut expected, true), 0);
    // Not less than: variables, constants, arenas and ends, for both devices.
    assert!(whole.asked() > 20, "{}", whole.asked());
    for number in 0..whole.asked() {
        for range in [number..number + 1, number..u64::MAX] {
            let faults = Arc::new(Faults::default());
            faults.refuse(range.clone());
            let refusals = go(cards, layers, &faults, &mut expected, number % 2 == 0);
            assert!(faults.hit() > 0 && refusals <= 1, "{range:?}");
            // Where there is no memory at all from some place on, no second try can help.
            assert!(refusals == 1 || range.end < u64::MAX, "{range:?}");
        }
    }
}

#[test]
fn memory_of_processors_runs_out_everywhere() {
    everywhere(None, ["/cpu:0", "/cpu:1"]);
}

#[test]
fn memory_of_simulated_cards_runs_out_everywhere() {
    everywhere(Some(&Cards::new("everywhere")), ["/gpu:0", "/gpu:1"]);
}

#[test]
fn a_card_that_another_program_fills_refuses_a_step_and_the_session_lives() {
    let cards = Cards::new("filled");
    let faults = Arc::new(Faults::default());
    let opened = Opened::new(Some(&cards), &faults).unwrap();
    let session = session(&opened, ["/gpu:0", "/gpu:1"]);
    session.run(&[], &[], &["init"]).unwrap();
    let other = cards.machine.join(&Identity::this_process("the other")).unwrap();
    let rest: Vec<(usize, Bytes)> = cards.reserved().iter().map(|reserved| CARD - *reserved).enumerate().collect();
    other.reserve(&rest).unwrap();
    let error = step(&session, 8_000).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
    for words in ["the other", "CUDA_ERROR_OUT_OF_MEMORY: out of memory", "MiB ("] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
    opened.check(false, "refused");
    // A step that fits into the held bytes goes on; the great one does when the other has gone.
    step(&session, 2).unwrap();
    drop(other);
    step(&session, 8_000).unwrap();
    session.close();
    opened.check(true, "closed");
}

#[test]
fn a_card_gets_back_what_an_idle_session_does_not_need_and_lends_it_again() {
    let cards = Cards::new("idle");
    let opened = Opened::new(Some(&cards), &Arc::default()).unwrap();
    let session = session(&opened, ["/gpu:0", "/gpu:1"]);
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    let needed: Vec<Bytes> = ["GPU:0", "GPU:1"].iter().map(|gpu| opened.devices.memory_reserved(gpu).unwrap()).collect();
    assert_eq!(cards.reserved(), needed);
    session.idle_release(Duration::from_millis(5)).unwrap();
    for _ in 0..3 {
        opened.devices.reset_max_memory_allocated("GPU:0").unwrap();
        step(&session, 4_000).unwrap();
        assert!(opened.devices.max_memory_allocated("GPU:0").unwrap() > needed[0]);
        while cards.reserved() != needed {
            std::thread::sleep(Duration::from_millis(1));
        }
        opened.check(false, "idle");
    }
    session.close();
    opened.devices.empty_cache();
    opened.check(true, "closed");
    assert_eq!(opened.devices.memory_allocated("GPU:1").unwrap(), OVERHEAD);
}
