//! Memory runs out at every place of a training in turn, once or from there on. The refused call says so, leaves nothing behind,
//! and can be done when there is memory again, with the same losses.

use std::sync::Arc;

use plimsoll::{Bytes, Code, Devices, Options, Result};
use plimsoll_device::{Device, DeviceSpec, InstructionSet};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::{Faults, Ledger};
use plimsoll_train::{Config, Trainer};

/// Two processors that share faults, and their ledgers.
fn open(faults: &Arc<Faults>) -> (Devices, Vec<Arc<Ledger>>) {
    let pool = CpuPool::new(1).unwrap();
    let cpus =
        [0, 1].map(|index| CpuDevice::new(DeviceSpec::cpu(index, None, 1, InstructionSet::Baseline), pool.clone(), Arc::new(CpuKernels)));
    cpus.iter().for_each(|cpu| cpu.ledger().inject(faults));
    let ledgers = cpus.iter().map(|cpu| cpu.ledger().clone()).collect();
    let devices = cpus.into_iter().map(|cpu| Arc::new(cpu) as Arc<dyn Device>).collect();
    (plimsoll_runtime::Devices::with(devices, &Options::new()).unwrap().into(), ledgers)
}

type Action = fn(&mut Trainer) -> Result<Vec<f32>>;

/// The steps of a program with a training, one after the other, and their results.
const ACTIONS: [(&str, Action); 6] = [
    ("start", |trainer| trainer.start(None).map(|()| Vec::new())),
    ("step", losses),
    ("step again", losses),
    ("evaluate", |trainer| trainer.evaluate().map(|evaluation| evaluation.results.iter().map(|(_, value)| *value as f32).collect())),
    ("step after it", losses),
    ("step with statistics", |trainer| trainer.step_with_stats().map(|(step, _)| step.loss.into_iter().collect())),
];

fn losses(trainer: &mut Trainer) -> Result<Vec<f32>> {
    trainer.step().map(|step| step.loss.into_iter().collect())
}

/// No run is under way: reserved bytes are mapped bytes, and nothing is fed or fetched.
fn check(ledgers: &[Arc<Ledger>], at: &str) {
    for ledger in ledgers {
        assert_eq!(ledger.in_use(), ledger.mapped(), "{at}: {}: {:?}", ledger.device(), ledger.holders());
        assert!(ledger.holders().iter().all(|holder| !holder.name.contains("fetched")), "{at}: {:?}", ledger.holders());
    }
}

/// Does everything, again where it was refused. How often something was.
fn train(config: &Config, faults: &Arc<Faults>, expected: &mut Vec<Vec<f32>>) -> u32 {
    let (devices, ledgers) = open(faults);
    let mut trainer = Trainer::digits(&devices, config).unwrap();
    assert_eq!(faults.asked(), 0, "planning takes no device memory");
    let mut refusals = 0;
    for (index, (name, action)) in ACTIONS.iter().enumerate() {
        let steps = trainer.steps();
        let mut result = action(&mut trainer);
        check(&ledgers, name);
        if let Err(error) = &result {
            assert_eq!(error.code(), Code::ResourceExhausted, "{name}: {error}");
            assert!(error.device().is_some_and(|device| device.contains("device:CPU:")), "{name}: no device: {error}");
            assert_eq!(trainer.steps(), steps, "{name}: no step was taken");
            refusals += 1;
            faults.stop();
            result = action(&mut trainer);
            check(&ledgers, name);
        }
        let values = result.unwrap_or_else(|error| panic!("{name}, again: {error}"));
        match expected.get(index) {
            Some(expected) => assert_eq!(values, *expected, "{name}"),
            None => expected.push(values),
        }
    }
    drop(trainer);
    assert!(ledgers.iter().all(|ledger| ledger.in_use() == Bytes::ZERO && ledger.mapped() == Bytes::ZERO), "{ledgers:?}");
    refusals
}

fn everywhere(config: &Config) {
    let (mut expected, whole) = (Vec::new(), Arc::new(Faults::default()));
    assert_eq!(train(config, &whole, &mut expected), 0);
    // Not less than: variables, arenas and ends, for the initializer, steps and evaluation.
    assert!(whole.asked() > 15, "{}", whole.asked());
    for number in 0..whole.asked() {
        for range in [number..number + 1, number..u64::MAX] {
            let faults = Arc::new(Faults::default());
            faults.refuse(range.clone());
            let refusals = train(config, &faults, &mut expected);
            assert!(faults.hit() > 0 && refusals <= 1, "{range:?}");
            // Where there is no memory at all from some place on, no second try can help.
            assert!(refusals == 1 || range.end < u64::MAX, "{range:?}");
        }
    }
}

#[test]
fn towers_that_step_together() {
    everywhere(&Config { batch_size: 16, ..Config::default() });
}

#[test]
fn a_tower_that_steps_on_its_own() {
    everywhere(&Config { towers: 1, batch_size: 8, is_async: true, ..Config::default() });
}
