//! Plans with loops and lists, as files that were changed: refused, or they harm nothing but their values. The graphs are recorded
//! cases of crates/cli.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::Code;
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::{GraphDef, HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Cancellation, Session};
use serde_json::Value;

use crate::plan_files::{Random, mutate};
use crate::random_graphs::guarded;

/// Name, what is initialised, what is fed and fetched.
pub const CASES: &[(&str, bool, &[&str], &[&str])] = &[
    ("while_nested", false, &["n", "x"], &["s:0", "i:0"]),
    ("frame_conditions", false, &["n", "x", "p"], &["y:0", "c:0"]),
    ("while_variables", true, &["n", "x"], &["y:0"]),
    ("while_gradient", false, &["n", "x"], &["g:0", "h:0"]),
    ("while_lists", false, &["x", "k"], &["y:0", "z:0", "w:0"]),
    ("frame_arrays", false, &["x", "k"], &["y:0", "z:0"]),
    ("while_two_devices", false, &["x"], &["y:0", "n:0"]),
    ("while_two_devices_nested", false, &["x"], &["y:0"]),
    ("frame_two_devices", true, &["x"], &["y:0", "v:0"]),
];

/// Those of them that are on two devices already.
const SHARED: usize = 3;

/// A run that goes on for longer is ended: a changed loop may have no end.
const LONGEST: Duration = Duration::from_millis(200);

pub fn fed(case: &str, name: &str, count: i32) -> HostTensor {
    match name {
        "x" if case == "while_two_devices_nested" => HostTensor::from_slice([1, 3], &[1.5f32, -2.0, 0.25]).unwrap(),
        "x" => HostTensor::from_slice([2, 3], &[1.5f32, -2.0, 0.25, 3.0, 0.5, -1.0]).unwrap(),
        "p" => HostTensor::from_bools(Shape::scalar(), &[true]).unwrap(),
        _ => HostTensor::scalar(count),
    }
}

pub fn graph(case: &str) -> GraphDef {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/cases").join(case).join("graph.pb");
    plimsoll_formats::read_graph_def(&std::fs::read(path).unwrap()).unwrap()
}

/// Says of the first loop of a plan that another queue has it, too. Whether there is one.
fn share(value: &mut Value) -> bool {
    match value {
        Value::Object(fields) => match fields.get_mut("Loop") {
            Some(Value::Object(begin)) => {
                begin.insert("with".to_string(), serde_json::json!([{ "queue": 1, "first": 0, "body": 1 }]));
                true
            }
            _ => fields.values_mut().any(share),
        },
        Value::Array(items) => items.iter_mut().any(share),
        _ => false,
    }
}

#[test]
fn mutated_plans_with_loops_are_refused_or_run_between_guard_pages() {
    let runs: usize = std::env::var("PLIMSOLL_MUTATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let is_said = std::env::var_os("PLIMSOLL_TEST_SAY").is_some();
    let (mut refused, mut unread, mut ran, mut written) = (0, 0, 0, 0);
    for (number, (case, has_variables, feeds, fetches)) in CASES.iter().enumerate() {
        let graph = graph(case);
        let options = Options::new().intra_op(2).device_count(DeviceKind::Cpu, 2);
        let registry = Arc::new(Registry::standard(Arc::new(CpuKernels)));
        let devices = guarded(&options);
        let graph = plimsoll_graph::Graph::resolve(graph, registry.table()).unwrap();
        let session = Session::new(&devices, &graph, registry).unwrap();
        if *has_variables {
            session.run(&[], &[], &["init"]).unwrap();
        }
        let values: Vec<HostTensor> = feeds.iter().map(|name| fed(case, name, 2)).collect();
        let feed = |(name, value): (&&str, &HostTensor)| Feed {
            tensor: format!("{name}:0"),
            data_type: value.data_type(),
            shape: value.shape().clone(),
            value: None,
        };
        let signature = Signature {
            feeds: feeds.iter().zip(&values).map(feed).collect(),
            fetches: fetches.iter().map(ToString::to_string).collect(),
            ..Signature::default()
        };
        let file = match session.plan_file(&signature) {
            Err(error) if error.code() == Code::Unimplemented => continue,
            file => file.unwrap(),
        };
        written += 1;
        let plan: Value = serde_json::from_slice(&file).unwrap();
        let is_shared = number >= CASES.len() - SHARED;
        assert!(!is_shared || plan.to_string().contains("\"with\""), "{case} has a loop of two queues");
        let mut shared = plan.clone();
        assert!(share(&mut shared["plan"]), "{case} has a loop");
        let refusal = session.open_plan(&serde_json::to_vec(&shared).unwrap()).map(drop).unwrap_err();
        assert!(refusal.code() == Code::InvalidArgument && refusal.message().contains("a loop of several queues"), "{refusal}");
        for done in 0..runs / CASES.len() {
            let mut random = Random((number << 32 | done) as u64);
            let mut mutated = plan.clone();
            for _ in 0..1 + random.below(2) {
                mutate(&mut mutated["plan"], &mut random);
            }
            if mutated == plan {
                continue;
            }
            if is_said {
                eprintln!("{case} {done}: {mutated}");
            }
            match session.open_plan(&serde_json::to_vec(&mutated).unwrap()).and_then(|plan| session.callable_of(&plan)) {
                Err(error) if error.code() == Code::DataLoss => unread += 1,
                Err(_) => refused += 1,
                Ok(callable) => {
                    // It may say other values, fail, or not end; it does no harm.
                    let _ = callable.until(&Cancellation::after(LONGEST).unwrap()).run(&values.iter().collect::<Vec<_>>());
                    ran += 1;
                }
            }
        }
    }
    assert!(written > 2, "only {written} plans with loops have files");
    assert!(refused > runs / 8 && ran > runs / 80 && unread > 0, "{refused} refused, {unread} not read, {ran} run, of {runs}");
}
