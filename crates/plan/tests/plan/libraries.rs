//! Plans follow from the libraries that they are given: for processors that are not here, and for devices that there are not.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_base::{Code, DataType, Error, Result};
use plimsoll_cards::Options;
use plimsoll_device::{
    Caches, Class, Command, Cost, CostTable, Costs, CpuLibrary, DeviceKind, DeviceName, DeviceSpec, InstructionSet, KernelCall, Library,
    Load, Rates, Step, StepArg, Variant, Work,
};
use plimsoll_graph::id::Id;
use plimsoll_graph::{PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::builder::optimizer::{GradientDescent, Optimizer};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, OpenRequest, PlaceOptions, Plan, PlanFile, Request, Signature, place, plan};
use plimsoll_request::KernelRequest;

use crate::plans::check;

/// A training step on one device.
fn training_step(spec: DeviceSpec, library: &dyn Library) -> Result<Plan> {
    training_step_on(&[spec], &[library], &Costs::committed(), true)
}

/// A training step of a convolutional network on 16 images, as the tutorial's on CIFAR-10 is.
fn training_step_on(devices: &[DeviceSpec], libraries: &[&dyn Library], costs: &Costs, soft: bool) -> Result<Plan> {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let images = b.placeholder("images", DataType::Float, PartialShape(Some(vec![None, Some(24), Some(24), Some(3)]))).build()?;
    let labels = b.placeholder("labels", DataType::Int32, PartialShape(Some(vec![None]))).build()?;
    let variable =
        |b: &mut GraphBuilder, name: &str, shape: &[u64]| b.get_variable(name, DataType::Float, Shape::new(shape), &Initializer::Ones);
    let filter = variable(&mut b, "filter", &[5, 5, 3, 16])?;
    let bias = variable(&mut b, "bias", &[16])?;
    let weights = variable(&mut b, "weights", &[12 * 12 * 16, 10])?;
    let conv = b.conv2d(images, filter.value, [1, 1], "SAME").build()?;
    let biased = b.bias_add(conv, bias.value).build()?;
    let active = b.relu(biased).build()?;
    let pooled = b.max_pool(active, [3, 3], [2, 2], "SAME").build()?;
    let normal = b.lrn(pooled).build()?;
    let flat = b.reshape(normal, &[-1, 12 * 12 * 16]).build()?;
    let logits = b.matmul(flat, weights.value).build()?;
    let losses = b.sparse_softmax_cross_entropy(logits, labels).build()?;
    b.reduce_mean(losses, None).name("loss").build()?;
    let loss = b.graph().tensor("loss")?;
    GradientDescent::new(0.5).minimize(&mut b, loss, &[filter, bias, weights], "train")?;
    let (registry, graph) = (b.registry().clone(), b.finish());
    let placement = place(&graph, &registry, devices, &PlaceOptions::new(soft))?;
    let feed = |tensor: &str, data_type, shape: &[u64]| Feed { tensor: tensor.into(), data_type, shape: Shape::new(shape), value: None };
    let feeds = vec![feed("images", DataType::Float, &[16, 24, 24, 3]), feed("labels", DataType::Int32, &[16])];
    let signature = Signature { feeds, fetches: vec!["loss".into()], targets: vec!["train".into()], ..Signature::default() };
    let (graph, registry, signature) = (&graph, &*registry, &signature);
    let request = Request { graph, registry, devices, libraries, costs, placement: &placement, signature, lines: &Lines::NONE };
    let planned = plan(&request)?;
    // Every plan survives a file.
    let open = OpenRequest { graph, registry, devices, libraries };
    let json = PlanFile::new(&open, signature, &planned)?.to_json()?;
    let (read, opened) = PlanFile::from_json(&json)?.open(&open)?;
    assert_eq!((&read, opened.to_string()), (signature, planned.to_string()));
    assert_eq!(PlanFile::new(&open, &read, &opened)?.to_json()?, json);
    Ok(planned)
}

fn processor(instructions: InstructionSet) -> DeviceSpec {
    Options::new().intra_op(1).resolve_on(1, instructions).unwrap().remove(0)
}

/// The kernels that a plan calls.
fn calls(plan: &Plan) -> Vec<KernelCall> {
    plan.queues.iter().flat_map(|queue| &queue.program.commands).filter_map(call).cloned().collect()
}

fn call(command: &Command) -> Option<&KernelCall> {
    if let Work::Kernel(call) = &command.work { Some(call) } else { None }
}

#[test]
fn plans_for_other_processors_are_made_anywhere() {
    for (instructions, name) in [(InstructionSet::Avx2, "avx2"), (InstructionSet::Avx512, "avx512"), (InstructionSet::Neon, "portable")] {
        let spec = processor(instructions);
        let plan = training_step(spec.clone(), &CpuKernels).unwrap();
        check(&format!("training_{name}"), &plan);
        assert!(calls(&plan).iter().all(|call| call.variant.name.strip_suffix("-winograd").unwrap_or(&call.variant.name) == name));
        // Code is made where the processor has the instructions, and refused elsewhere.
        let here = InstructionSet::detect();
        let is_there = instructions == here || (here, instructions) == (InstructionSet::Avx512, InstructionSet::Avx2) || name == "portable";
        let made = CpuKernels.code(&spec, &calls(&plan)[0]);
        assert_eq!(made.map(drop).map_err(|error| error.code()), if is_there { Ok(()) } else { Err(Code::Unimplemented) }, "{name}");
    }
}

#[test]
fn calls_are_written_and_read() {
    for call in calls(&training_step(processor(InstructionSet::Avx512), &CpuKernels).unwrap()) {
        let request = serde_json::to_string(&*call.request).unwrap();
        assert_eq!(serde_json::from_str::<KernelRequest>(&request).unwrap(), *call.request);
        let variant = serde_json::to_string(&*call.variant).unwrap();
        assert_eq!(serde_json::from_str::<Variant>(&variant).unwrap(), *call.variant);
    }
}

/// The library of a device that there is not: it computes everything with one of two kernels, products and convolutions in two
/// steps, and no random numbers.
#[derive(Debug)]
pub struct Abacus;

impl Library for Abacus {
    fn variants(&self, _: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        let step = |args: Option<Vec<StepArg>>, scratch: u64, bytes: f64| {
            let cost = Cost { flops: 0.0, bytes };
            Step { args, chunks: 1, scratch, per_worker: 0, in_place: Vec::new(), cost, load: Load::default(), seconds: None }
        };
        let variant = |name: &str, between: Vec<u64>, steps: Vec<Step>| Variant {
            name: name.into(),
            numerics: "beads".into(),
            between,
            steps,
            laid_out: None,
        };
        match request {
            KernelRequest::Random(_) => Err(Error::unimplemented("beads do not fall at random")),
            KernelRequest::ConvBackpropFilter { unpooled: Some(_), .. } => Err(Error::unimplemented("pooled beads")),
            KernelRequest::ConvBackpropFilter { .. } => {
                let first = [0, 1].map(StepArg::Argument).into_iter().chain([StepArg::Between(0)]).collect();
                let then = vec![StepArg::Between(0), StepArg::Argument(2)];
                Ok(vec![variant("two", vec![1 << 20], vec![step(Some(first), 0, 1e6), step(Some(then), 128, 1e3)])])
            }
            _ => Ok(vec![variant("slow", vec![], vec![step(None, 0, 1e9)]), variant("quick", vec![], vec![step(None, 64, 1e3)])]),
        }
    }
}

/// A library of a card without normalisations, losses, epilogues and updates of several steps.
#[derive(Debug)]
struct Slate;

impl Library for Slate {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        match request {
            KernelRequest::Lrn(_) | KernelRequest::LrnGrad(_) => Err(Error::unimplemented("slates do not normalise")),
            KernelRequest::Nn(_) => Err(Error::unimplemented("slates know no loss")),
            KernelRequest::Anchor { epilogue: Some(_), .. } => Err(Error::unimplemented("a slate is wiped first")),
            KernelRequest::Expr { expr, .. } if expr.instrs().len() > 4 => Err(Error::unimplemented("a slate is small")),
            _ => Abacus.variants(spec, request),
        }
    }
}

/// A library that forgets results.
#[derive(Debug)]
struct Forgetful;

impl Library for Forgetful {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        let mut variants = CpuKernels.variants(spec, request)?;
        if matches!(request, KernelRequest::Lrn(_)) {
            variants[0].steps[0].args = Some(vec![StepArg::Argument(0)]);
        }
        Ok(variants)
    }
}

#[test]
fn a_library_that_contradicts_itself_is_refused() {
    let error = training_step(processor(InstructionSet::Avx2), &Forgetful).unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.to_string().contains("LRN") && error.message().contains("no step of avx2 writes result 0"), "{error}");
}

#[test]
fn a_made_up_device_plans_with_its_own_kernels_and_prices() {
    let plan = training_step(processor(InstructionSet::Baseline), &Abacus).unwrap();
    let calls = calls(&plan);
    assert!(calls.len() > 10 && calls.iter().all(|call| ["quick", "two"].contains(&&*call.variant.name)), "the cheapest is taken");
    // The steps of one request are two commands, with a buffer between them that counts.
    let two: Vec<u32> = calls.iter().filter(|call| *call.variant.name == *"two").map(|call| call.step).collect();
    assert_eq!(two, [0, 1]);
    assert!(plan.devices[0].arena.0 >= 1 << 20);
    check("training_abacus", &plan);
}

#[test]
fn what_a_card_cannot_compute_the_host_does() {
    let host = processor(InstructionSet::Avx2);
    let card = DeviceSpec { name: DeviceName::local("GPU", 0), kind: DeviceKind::Gpu, ..host.clone() };
    let (devices, libraries) = ([host, card], [&CpuKernels as &dyn Library, &Slate]);
    let plan = training_step_on(&devices, &libraries, &Costs::committed(), true).unwrap();
    check("training_slate", &plan);
    assert!(plan.softened.iter().all(|softened| softened.device.index() == 1));
    let reasons: BTreeSet<&str> = plan.softened.iter().map(|softened| softened.why.as_str()).collect();
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), ["a slate is small", "slates do not normalise", "slates know no loss"]);
    // Products and convolutions stay on the card, each by itself.
    let on = |device: usize| plan.queues.iter().filter(move |queue| queue.device.index() == device);
    let calls = |device: usize| on(device).flat_map(|queue| &queue.program.commands).filter_map(call).cloned().collect::<Vec<_>>();
    let anchors = |calls: &[KernelCall]| calls.iter().filter(|call| matches!(&*call.request, KernelRequest::Anchor { .. })).count();
    assert_eq!((anchors(&calls(0)), anchors(&calls(1))), (0, 4));
    assert!(calls(0).iter().all(|call| *call.variant.name == *"avx2") && calls(1).iter().all(|call| *call.variant.name != *"avx2"));
    let error = training_step_on(&devices, &libraries, &Costs::committed(), false).unwrap_err();
    assert_eq!((error.code(), error.device()), (Code::Unimplemented, Some("/job:localhost/replica:0/task:0/device:GPU:0")));
    assert!(error.node().is_some() && error.remedy().is_some_and(|remedy| remedy.contains("soft placement")), "{error}");
}

/// A library whose kernels all have two variants, of two classes.
#[derive(Debug)]
struct TwoClasses;

impl Library for TwoClasses {
    fn variants(&self, _: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        if matches!(request, KernelRequest::ConvBackpropFilter { unpooled: Some(_), .. }) {
            return Err(Error::unimplemented("pooled gradients"));
        }
        let variant = |class: Class| {
            let load = Load { class, issued: 1.0, elementwise: 0.0 };
            let step =
                Step { args: None, chunks: 1, scratch: 0, per_worker: 0, in_place: Vec::new(), cost: Cost::default(), load, seconds: None };
            Variant { name: class.to_string().into(), numerics: "two".into(), between: Vec::new(), steps: vec![step], laid_out: None }
        };
        Ok(vec![variant(Class::Product), variant(Class::Gather)])
    }
}

#[test]
fn a_table_of_costs_decides_between_variants() {
    let priced = |product: f64, gather: f64| {
        let rates =
            [(Class::Product, product), (Class::Gather, gather)].map(|(class, issued)| (class, Rates { issued, ..Rates::default() }));
        let table = CostTable {
            processor: "made up".into(),
            card: None,
            instructions: InstructionSet::Avx2,
            caches: Caches::default(),
            threads: 1,
            command: 0.0,
            rates: rates.into_iter().collect(),
        };
        Costs::of(vec![table]).unwrap()
    };
    for (costs, expected) in [(priced(1e-6, 2e-6), "product"), (priced(2e-6, 1e-6), "gather"), (priced(1e-6, 1e-6), "product")] {
        let plan = training_step_on(&[processor(InstructionSet::Avx2)], &[&TwoClasses], &costs, true).unwrap();
        let calls = calls(&plan);
        assert!(calls.len() > 10 && calls.iter().all(|call| *call.variant.name == *expected), "{expected}: {plan}");
        assert_eq!(plan.costs, costs.fingerprint());
        // One queue: its commands follow each other.
        assert!((plan.seconds - 1e-6 * calls.len() as f64).abs() < 1e-9, "{}", plan.seconds);
    }
}
