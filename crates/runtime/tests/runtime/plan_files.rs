//! Plans as files: one that comes back runs to the same bits; one that was changed is refused, or harms nothing but its values.

use std::sync::Arc;

use plimsoll_base::Code;
use plimsoll_cards::Options;
use plimsoll_device::{DeviceKind, InstructionSet};
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_ops::builder::VariableKind;
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::Session;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use serde_json::Value;

use crate::random_graphs::{COLUMNS, CPUS, Made, ROWS, bits, guarded, make, steps};

fn open(made: &Made, options: &Options) -> Session {
    let session = Session::new(&guarded(options), &made.graph, Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    session
}

fn x() -> HostTensor {
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i as f32 * 0.37).sin()).collect();
    HostTensor::from_slice(Shape::from([ROWS, COLUMNS]), &values).unwrap()
}

/// A step that fetches some values, and changes variables.
fn signature(made: &Made, chosen: u16) -> Signature {
    let feed = Feed { tensor: "x".into(), data_type: plimsoll_base::DataType::Float, shape: [ROWS, COLUMNS].into(), value: None };
    let all = &made.values[1..];
    let fetches = vec![all[chosen as usize % all.len()].clone(), all[all.len() - 1].clone()];
    Signature { feeds: vec![feed], fetches, targets: vec!["changes".into()], ..Signature::default() }
}

fn file(session: &Session, signature: &Signature) -> Vec<u8> {
    session.plan_file(signature).unwrap()
}

fn three() -> Options {
    Options::new().intra_op(2).device_count(DeviceKind::Cpu, 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_from_a_file_gives_the_same_bits(steps in steps(), chosen in any::<u16>(), resource in any::<bool>()) {
        let made = make(&steps, if resource { VariableKind::Resource } else { VariableKind::Reference }, CPUS);
        let signature = signature(&made, chosen);
        let [planned, from_file] = [(); 2].map(|()| open(&made, &three()));
        let json = file(&planned, &signature);
        prop_assert_eq!(&file(&from_file, &signature), &json, "the same request gives the same plan");
        let callables = [planned.callable(&signature).unwrap(), from_file.callable_of(&from_file.open_plan(&json).unwrap()).unwrap()];
        prop_assert_eq!(callables[0].plan().to_string(), callables[1].plan().to_string());
        for _ in 0..2 {
            let [one, other] = [&callables[0], &callables[1]].map(|callable| callable.run(&[&x()]).unwrap());
            prop_assert_eq!(one.iter().map(bits).collect::<Vec<_>>(), other.iter().map(bits).collect::<Vec<_>>());
        }
        for variable in &made.variables {
            let [one, other] = [&planned, &from_file].map(|session| bits(&session.read_variable(&variable.name).unwrap()));
            prop_assert_eq!(one, other);
        }
    }
}

#[test]
fn a_plan_for_something_else_is_refused_and_says_for_what() {
    let made = make(&[], VariableKind::Resource, CPUS);
    let session = open(&made, &three());
    let json = file(&session, &signature(&made, 0));
    let refusal = |session: &Session, json: &[u8]| {
        let error = session.open_plan(json).and_then(|plan| session.callable_of(&plan)).map(drop).unwrap_err();
        (error.code(), error.to_string())
    };
    let text = String::from_utf8(json.clone()).unwrap();
    let other_graph = open(&make(&[], VariableKind::Reference, CPUS), &three());
    let (code, said) = refusal(&other_graph, &json);
    assert!(code == Code::FailedPrecondition && said.contains("another graph"), "{said}");
    let fewer_threads = open(&made, &three().intra_op(1));
    let (code, said) = refusal(&fewer_threads, &json);
    assert!(code == Code::FailedPrecondition && said.contains("other devices") && said.contains("threads: 1, not 2"), "{said}");
    let fewer = open(&made, &Options::new().intra_op(2).device_count(DeviceKind::Cpu, 4));
    let (code, said) = refusal(&fewer, &json);
    assert!(code == Code::FailedPrecondition && said.contains("for 3, and here are 4"), "{said}");
    let (code, said) = refusal(&session, text.replacen("\"version\":6", "\"version\":0", 1).as_bytes());
    assert!(code == Code::FailedPrecondition && said.contains("form 0"), "{said}");
    for damaged in ["", "{}", "[]", &text[..text.len() / 2], &text.replacen("plimsoll plan", "plimsoll plans", 1)] {
        let (code, said) = refusal(&session, damaged.as_bytes());
        assert!(code == Code::DataLoss && said.contains("not a plan"), "{said}");
    }
    // A line is not part of the request that a plan was made for: it is held when the plan is loaded.
    let small = open(&made, &three().memory_limit_flag("CPU:0=1MiB").unwrap());
    assert!(refusal_or_none(&small, &json).is_none());
    // On a processor of the other instruction set the plan is for other devices.
    let other = match InstructionSet::detect() {
        InstructionSet::Avx2 => "Avx512",
        _ => "Avx2",
    };
    let here = format!("{:?}", InstructionSet::detect());
    let (code, said) =
        refusal(&session, text.replacen(&format!("\"instructions\":\"{here}\""), &format!("\"instructions\":\"{other}\""), 1).as_bytes());
    assert!(code == Code::FailedPrecondition && said.contains("computing with"), "{said}");
}

fn refusal_or_none(session: &Session, json: &[u8]) -> Option<String> {
    session.open_plan(json).and_then(|plan| session.callable_of(&plan)).map(drop).err().map(|error| error.to_string())
}

pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % most.max(1)
    }
}

/// Every value inside of one, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        _ => 0,
    }
}

fn nth(value: &mut Value, number: usize) -> Option<&mut Value> {
    if number == 0 {
        return Some(value);
    }
    let mut left = number - 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(fields) => fields.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        let inside = count(child);
        if left < inside {
            return nth(child, left);
        }
        left -= inside;
    }
    None
}

/// Changes one thing in a plan.
pub fn mutate(plan: &mut Value, random: &mut Random) {
    let total = count(plan);
    let other = nth(plan, random.below(total)).cloned().unwrap_or_default();
    let Some(value) = nth(plan, random.below(total)) else { return };
    match value {
        Value::Number(number) => {
            let now = number.as_u64().unwrap_or(0);
            *value = match random.below(8) {
                0 => now.wrapping_add(1).into(),
                1 => now.saturating_sub(1).into(),
                2 => (now + 64).into(),
                3 => now.saturating_sub(64).into(),
                4 => 0.into(),
                5 => u64::MAX.into(),
                6 if other.is_number() => other,
                _ => (random.below(8) as u64).into(),
            };
        }
        Value::Array(items) if items.len() > 1 => {
            let (a, b) = (random.below(items.len()), random.below(items.len()));
            match random.below(4) {
                0 => items.swap(a, b),
                1 => _ = items.remove(a),
                2 => items.insert(a, items[b].clone()),
                _ => items[a] = items[b].clone(),
            }
        }
        Value::Bool(bool) => *bool = !*bool,
        Value::Null if random.below(2) == 0 => *value = other,
        Value::String(_) if other.is_string() => *value = other,
        Value::Object(_) if random.below(4) == 0 => *value = other,
        _ => {}
    }
}

#[test]
fn mutated_plans_are_refused_or_run_between_guard_pages() {
    let runs: usize = std::env::var("PLIMSOLL_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let is_said = std::env::var_os("PLIMSOLL_TEST_SAY").is_some();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut refused, mut unread, mut ran) = (0, 0, 0);
    let mut done = 0;
    while done < runs {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let made = make(&steps, VariableKind::Resource, CPUS);
        let session = open(&made, &three());
        let json = file(&session, &signature(&made, done as u16));
        let plan: Value = serde_json::from_slice(&json).unwrap();
        for _ in 0..50 {
            let mut random = Random(done as u64);
            done += 1;
            let mut mutated = plan.clone();
            for _ in 0..1 + random.below(2) {
                mutate(&mut mutated["plan"], &mut random);
            }
            if mutated == plan {
                continue;
            }
            if is_said {
                eprintln!("{}: {mutated}", done - 1);
            }
            match session.open_plan(&serde_json::to_vec(&mutated).unwrap()).and_then(|plan| session.callable_of(&plan)) {
                Err(error) if error.code() == Code::DataLoss => unread += 1,
                Err(_) => refused += 1,
                Ok(callable) => {
                    // It may say other values, or fail; it does no harm.
                    let _ = callable.run(&[&x()]);
                    ran += 1;
                }
            }
        }
    }
    // Names in reports may be changed, and predicted times.
    assert!(refused > runs / 4 && ran > runs / 40 && unread > 0, "{refused} refused, {unread} not read, {ran} run, of {runs}");
}
