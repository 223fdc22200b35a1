//! Cards whose library lacks kernels: under soft placement the host computes what they cannot, with the same values and exact peaks.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Mutex};

use plimsoll_base::{Bytes, Code, DataType, Error, Result};
use plimsoll_cards::Options;
use plimsoll_device::{CpuLibrary, Device, DeviceKind, DeviceName, DeviceSpec, KernelCall, Library, Prepared, Variant};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{AttrValue, Graph, HostTensor, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::builder::{Initializer, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::Footprint;
use plimsoll_request::KernelRequest;
use plimsoll_runtime::{Devices, Session};
use proptest::prelude::*;

use crate::random_graphs::{CARDS, COLUMNS, Made, ROWS, Step, bits, make, steps};

/// The processor's kernels without those that are refused.
#[derive(Clone, Copy, Debug)]
struct Partial(fn(&KernelRequest, u64) -> bool, u64);

impl Library for Partial {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        if (self.0)(request, self.1) {
            return Err(Error::unimplemented("the card has no such kernel"));
        }
        CpuKernels.variants(spec, request)
    }

    fn takes(&self, spec: &DeviceSpec, first: &KernelRequest, second: &KernelRequest) -> bool {
        CpuKernels.takes(spec, first, second)
    }
}

impl CpuLibrary for Partial {
    fn code(&self, spec: &DeviceSpec, call: &KernelCall) -> Result<Prepared> {
        assert!(!(self.0)(&call.request, self.1), "a card is asked for code that it does not have: {call:?}");
        CpuKernels.code(spec, call)
    }
}

/// A processor, its memory between pages that fault, and two cards with a library.
fn devices(library: Partial, options: &Options) -> Devices {
    let pool = CpuPool::new(options.threads().unwrap()).unwrap();
    let cpu = options.resolve().unwrap().remove(0);
    let card = |index| {
        let spec = DeviceSpec { name: DeviceName::local("GPU", index), kind: DeviceKind::Gpu, ..cpu.clone() };
        let ledger = Ledger::new(spec.name.to_string(), None);
        Arc::new(SimDevice::new(spec, ledger, Arc::new(library)).unwrap()) as Arc<dyn Device>
    };
    let host = Arc::new(CpuDevice::new(cpu.clone(), pool, Arc::new(CpuKernels)).with_guards()) as Arc<dyn Device>;
    Devices::with(vec![host, card(0), card(1)], options).unwrap()
}

fn registry() -> Arc<Registry> {
    Arc::new(Registry::standard(Arc::new(CpuKernels)))
}

fn open(library: Partial, options: &Options, graph: &Graph) -> Result<Session> {
    Session::new(&devices(library, options), graph, registry())
}

fn nothing(_: &KernelRequest, _: u64) -> bool {
    false
}

/// A part of the requests, at random: a third of them.
fn some(request: &KernelRequest, seed: u64) -> bool {
    let mut hasher = DefaultHasher::new();
    (serde_json::to_string(request).unwrap(), seed).hash(&mut hasher);
    hasher.finish().is_multiple_of(3)
}

/// Everything but copies.
fn all(_: &KernelRequest, _: u64) -> bool {
    true
}

/// What two steps give, and the variables afterwards. Peaks are held against those that the plans promise.
fn run(made: &Made, library: Partial, fetch: &str) -> (Vec<Vec<u32>>, usize) {
    let session = open(library, &Options::new().intra_op(2), &made.graph).unwrap();
    let values: Vec<f32> = (0..ROWS * COLUMNS).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = HostTensor::from_slice(Shape::from([ROWS, COLUMNS]), &values).unwrap();
    let mut footprint = Footprint::new(session.devices().specs());
    footprint.add(&session.plan(&[], &[], &["init"]).unwrap());
    let plan = session.plan(&[("x", &x)], &[fetch], &["changes"]).unwrap();
    footprint.add(&plan);
    session.run(&[], &[], &["init"]).unwrap();
    let mut results = Vec::new();
    for _ in 0..2 {
        results.extend(session.run(&[("x", &x)], &[fetch], &["changes"]).unwrap().iter().map(bits));
    }
    let peaks: Vec<Bytes> = session.devices().report().iter().map(|report| report.peak).collect();
    assert_eq!(peaks, footprint.needs().iter().map(|need| need.peak).collect::<Vec<_>>(), "{plan}");
    results.extend(made.variables.iter().map(|variable| bits(&session.read_variable(&variable.name).unwrap())));
    (results, plan.softened.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn values_do_not_depend_on_what_a_card_lacks(steps in steps(), chosen in any::<u16>(), seed in any::<u64>(), resource in any::<bool>()) {
        let kind = if resource { VariableKind::Resource } else { VariableKind::Reference };
        // The mean of a concatenation is computed in one of two ways, whose last bits differ: not here.
        let steps: Vec<Step> = steps.into_iter().filter(|step| !step.is_mean_of_concat()).collect();
        let made = make(&steps, kind, CARDS);
        // x itself is fed: it cannot be fetched.
        let fetch = made.values[1 + chosen as usize % (made.values.len() - 1)].clone();
        let (expected, softened) = run(&made, Partial(nothing, 0), &fetch);
        prop_assert_eq!(softened, 0);
        prop_assert_eq!(&run(&made, Partial(some, seed), &fetch).0, &expected);
        prop_assert_eq!(&run(&made, Partial(all, 0), &fetch).0, &expected);
    }
}

/// On a card: a variable that rows are added to, under a condition that the card computes, and random numbers.
fn rows_under_a_condition() -> Graph {
    let mut b = GraphBuilder::new(registry());
    let x = b.placeholder("x", DataType::Float, PartialShape::unknown()).build().unwrap();
    let zeros = Initializer::Zeros;
    b.device("/gpu:0", |b| {
        let table = b.get_variable("table", DataType::Float, [4, 2], &zeros).unwrap();
        let sum = b.reduce_sum(x, Some(&[0, 1])).build().unwrap();
        let zero = b.scalar(0f32).unwrap();
        let is_positive = b.op("Greater").inputs([sum, zero]).name("is_positive").build().unwrap();
        let indices = b.constant(HostTensor::from_slice([2], &[1i32, 3]).unwrap()).build().unwrap();
        let switch = b.op("Switch").inputs([x, is_positive]).build_node().unwrap();
        let rows = b.op("Neg").input(Output { node: switch, index: 1 }).build().unwrap();
        b.op("ScatterAdd").inputs([table.handle, indices, rows]).name("add").build_node().unwrap();
        let shape = b.constant(HostTensor::from_slice([1], &[5i32]).unwrap()).build().unwrap();
        let wide = b.constant(HostTensor::from_slice([1], &[7i32]).unwrap()).build().unwrap();
        for (name, shape) in [("dice", shape), ("wide", wide)] {
            let seed = |number| AttrValue::Int(number);
            let float = AttrValue::data_type(DataType::Float);
            b.op("RandomUniform")
                .input(shape)
                .attr("seed", seed(3))
                .attr("seed2", seed(4))
                .attr("dtype", float)
                .name(name)
                .build()
                .unwrap();
        }
    });
    b.global_variables_initializer().unwrap();
    b.finish()
}

/// What several runs give.
fn rows(session: &Session) -> Vec<Vec<u32>> {
    session.run(&[], &[], &["init"]).unwrap();
    let mut results = Vec::new();
    for sign in [1f32, -1.0, 2.0] {
        let x = HostTensor::from_slice([2, 2], &[sign, 0.5 * sign, 3.0 * sign, sign]).unwrap();
        results.extend(session.run(&[("x", &x)], &["dice"], &["add"]).unwrap().iter().map(bits));
        // Another plan with the same state.
        results.extend(session.run(&[], &["dice", "wide"], &[]).unwrap().iter().map(bits));
        results.push(bits(&session.read_variable("table").unwrap()));
    }
    results
}

#[test]
fn updates_in_place_states_and_guards_of_a_card_go_to_the_host() {
    let graph = rows_under_a_condition();
    let options = Options::new();
    let expected = rows(&open(Partial(nothing, 0), &options, &graph).unwrap());
    let lacks: [fn(&KernelRequest, u64) -> bool; 4] = [
        |request, _| matches!(request, KernelRequest::Gather(_)),
        |request, _| matches!(request, KernelRequest::Random(_)),
        |request, _| matches!(request, KernelRequest::Expr { .. }),
        all,
    ];
    for lacks in lacks {
        assert_eq!(rows(&open(Partial(lacks, 0), &options, &graph).unwrap()), expected);
    }
    // A card that draws five numbers and not seven: one state, on two devices in turn.
    let wide: fn(&KernelRequest, u64) -> bool =
        |request, _| matches!(request, KernelRequest::Random(_)) && format!("{request:?}").contains('7');
    assert_eq!(rows(&open(Partial(wide, 0), &options, &graph).unwrap()), expected);
}

#[test]
fn without_soft_placement_it_is_refused() {
    let graph = rows_under_a_condition();
    let lacks = Partial(|request, _| matches!(request, KernelRequest::Random(_)), 0);
    let session = open(lacks, &Options::new().soft_placement(false), &graph).unwrap();
    let error = session.run(&[], &["dice"], &[]).unwrap_err();
    assert_eq!((error.code(), error.node()), (Code::Unimplemented, Some("dice")));
    assert_eq!(error.device(), Some("/job:localhost/replica:0/task:0/device:GPU:0"));
    assert!(error.message().contains("the card has no such kernel") && error.remedy().unwrap().contains("soft placement"), "{error}");
    // The rest of the graph is not asked for.
    session.run(&[], &[], &["init"]).unwrap();
}

#[test]
fn a_plan_of_both_devices_is_written_and_read() {
    let graph = rows_under_a_condition();
    let session = open(Partial(all, 0), &Options::new(), &graph).unwrap();
    let signature = plimsoll_plan::Signature { fetches: vec!["dice:0".into()], ..Default::default() };
    let file = session.plan_file(&signature).unwrap();
    let expected = session.callable(&signature).unwrap().run(&[]).unwrap();
    let other = open(Partial(all, 0), &Options::new(), &graph).unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = seen.clone();
    other.observe_plans(Box::new(move |graph, plan| {
        noted.lock().unwrap().extend(plan.softened.iter().map(|softened| graph.node(softened.node).name.clone()));
    }));
    let opened = other.open_plan(&file).unwrap();
    assert_eq!(opened.plan().softened.len(), 1);
    assert_eq!(bits(&other.callable_of(&opened).unwrap().run(&[]).unwrap()[0]), bits(&expected[0]));
    assert_eq!(*seen.lock().unwrap(), ["dice"]);
    // A plan that asks a card for what it has not is refused.
    let whole = open(Partial(nothing, 0), &Options::new(), &graph).unwrap().plan_file(&signature).unwrap();
    assert_eq!(other.open_plan(&whole).err().unwrap().code(), Code::Unimplemented);
}
