//! Plans of small graphs for a processor with AVX-512, as text: `tests/plans/NAME.txt`. `PLIMSOLL_BLESS=1` writes them anew.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, Mutex};

use plimsoll_base::{Bytes, Code, DataType, Error};
use plimsoll_cards::Options;
use plimsoll_device::{Costs, DeviceSpec, InstructionSet, Library, Variant};
use plimsoll_graph::{AttrValue, HostTensor, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, Pass, PlaceOptions, Plan, Request, Signature, check_limits, place, plan, plan_until};
use plimsoll_request::KernelRequest;

pub fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn try_plan(
    b: GraphBuilder,
    options: Options,
    feeds: &[(&str, &[u64])],
    fetches: &[&str],
    targets: &[&str],
) -> plimsoll_base::Result<Plan> {
    plan_under(&Lines::NONE, b, options, Run(feeds, fetches, targets))
}

/// Feeds with their shapes, fetches and targets.
pub struct Run<'a>(pub &'a [(&'a str, &'a [u64])], pub &'a [&'a str], pub &'a [&'a str]);

/// What is made of a request for a processor with AVX-512. Feeds are floats.
pub fn requested<T>(
    lines: &Lines,
    b: GraphBuilder,
    options: Options,
    Run(feeds, fetches, targets): Run<'_>,
    make: impl FnOnce(&Request<'_>) -> plimsoll_base::Result<T>,
) -> plimsoll_base::Result<T> {
    let registry = b.registry().clone();
    let graph = b.finish();
    let devices = options.intra_op(1).resolve_on(1, InstructionSet::Avx512)?;
    let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true))?;
    let feed = |(name, dims): &(&str, &[u64])| Feed {
        tensor: name.to_string(),
        data_type: DataType::Float,
        shape: Shape::new(*dims),
        value: None,
    };
    let signature = Signature {
        feeds: feeds.iter().map(feed).collect(),
        fetches: fetches.iter().map(|name| name.to_string()).collect(),
        targets: targets.iter().map(|name| name.to_string()).collect(),
        ..Signature::default()
    };
    let libraries = vec![&CpuKernels as &dyn Library; devices.len()];
    make(&Request {
        graph: &graph,
        registry: &registry,
        devices: &devices,
        libraries: &libraries,
        costs: &Costs::committed(),
        placement: &placement,
        lines,
        signature: &signature,
    })
}

fn plan_under(lines: &Lines, b: GraphBuilder, options: Options, run: Run<'_>) -> plimsoll_base::Result<Plan> {
    requested(lines, b, options, run, |request| {
        let first = plan(request)?;
        assert_eq!(first.to_string(), plan(request)?.to_string(), "planning is deterministic");
        // It ends wherever it is told to end: before each pass, and between two works.
        let asked = Cell::new(0);
        let planned_until = |most: usize| {
            asked.set(0);
            let check = || match asked.replace(asked.get() + 1) < most {
                true => Ok(()),
                false => Err(Error::cancelled("enough")),
            };
            plan_until(request, &check)
        };
        assert_eq!(planned_until(usize::MAX)?.to_string(), first.to_string());
        let all = asked.get();
        assert!(all >= Pass::ALL.len(), "{all}");
        for most in (0..all).step_by((all / 40).max(1)) {
            let ended = planned_until(most).unwrap_err();
            assert_eq!((ended.code(), asked.get()), (Code::Cancelled, most + 1), "{most}");
        }
        Ok(first)
    })
}

fn cpus(count: i32) -> Options {
    let mut options = Options::new();
    options.device_count.insert("CPU".into(), count);
    options
}

pub fn check(name: &str, plan: &Plan) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/plans").join(format!("{name}.txt"));
    let text = plan.to_string();
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: PLIMSOLL_BLESS=1 writes the file anew");
}

pub fn float(b: &mut GraphBuilder, name: &str) -> plimsoll_graph::Output {
    b.placeholder(name, DataType::Float, PartialShape::unknown()).build().unwrap()
}

#[test]
fn a_chain_of_elementwise_operations_is_one_command() {
    let mut b = builder();
    let (x, y) = (float(&mut b, "x"), float(&mut b, "y"));
    let sum = b.add(x, y).build().unwrap();
    let scale = b.scalar(0.5f32).unwrap();
    let half = b.mul(sum, scale).build().unwrap();
    let positive = b.relu(half).build().unwrap();
    b.sub(positive, y).name("z").build().unwrap();
    check("chain", &try_plan(b, Options::new(), &[("x", &[8, 4]), ("y", &[4])], &["z"], &[]).unwrap());
}

#[test]
fn what_follows_a_product_is_its_epilogue() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let w = b.get_variable("w", DataType::Float, [4, 3], &Initializer::Zeros).unwrap();
    let bias = b.get_variable("bias", DataType::Float, [3], &Initializer::Zeros).unwrap();
    let product = b.matmul(x, w.value).build().unwrap();
    let sum = b.bias_add(product, bias.value).build().unwrap();
    let hidden = b.relu(sum).name("hidden").build().unwrap();
    b.reduce_sum(hidden, None).name("total").build().unwrap();
    check("epilogue", &try_plan(b, Options::new(), &[("x", &[5, 4])], &["total"], &[]).unwrap());
}

#[test]
fn rows_are_done_part_by_part_where_that_takes_less() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let w = b.get_variable("w", DataType::Float, [16, 64], &Initializer::Zeros).unwrap();
    let wide = b.matmul(x, w.value).name("wide").build().unwrap();
    let soft = b.op("LogSoftmax").input(wide).name("soft").build().unwrap();
    let back = b.op("MatMul").inputs([soft, w.value]).attr("transpose_b", AttrValue::Bool(true)).name("back").build().unwrap();
    b.reduce_sum(back, None).name("total").build().unwrap();
    let lines = Lines { most: vec![Some(Bytes::ZERO)], ..Lines::NONE };
    let plan = plan_under(&lines, b, Options::new(), Run(&[("x", &[48, 16])], &["total"], &[])).unwrap();
    assert_eq!(plan.fitting.as_ref().unwrap().parts.len(), 1);
    check("parts", &plan);
}

#[test]
fn a_sum_over_rows_is_added_up_part_by_part() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let square = b.op("Mul").inputs([x, x]).name("square").build().unwrap();
    let gradient = b.op("Tanh").input(square).name("gradient").build().unwrap();
    let sizes = b.constant(HostTensor::from_slice([4], &[3i32, 3, 4, 4]).unwrap()).build().unwrap();
    let strides = AttrValue::ints([1, 1, 1, 1]);
    let filter =
        b.op("Conv2DBackpropFilter").inputs([x, sizes, gradient]).attr("strides", strides).attr("padding", AttrValue::text("SAME"));
    let filter = filter.name("filter").build().unwrap();
    b.reduce_sum(filter, None).name("total").build().unwrap();
    let lines = Lines { most: vec![Some(Bytes::ZERO)], ..Lines::NONE };
    let plan = plan_under(&lines, b, Options::new(), Run(&[("x", &[4, 16, 16, 4])], &["total"], &[])).unwrap();
    assert_eq!(plan.fitting.as_ref().unwrap().parts.len(), 1);
    check("sums", &plan);
}

#[test]
fn an_update_is_done_where_the_gradient_is_made() {
    let mut b = builder();
    let (x, d) = (float(&mut b, "x"), float(&mut b, "d"));
    let w = b.get_variable("w", DataType::Float, [4, 3], &Initializer::Zeros).unwrap();
    let back = b.op("MatMul").inputs([d, w.value]).attr("transpose_b", AttrValue::Bool(true)).name("back").build().unwrap();
    b.reduce_sum(back, None).name("total").build().unwrap();
    let gradient = b.op("MatMul").inputs([x, d]).attr("transpose_a", AttrValue::Bool(true)).name("gradient").build().unwrap();
    let rate = b.scalar(0.1f32).unwrap();
    let update = b.op("ApplyGradientDescent").inputs([w.handle, rate, gradient]).name("update").build_node().unwrap();
    b.group(&[update], "train").unwrap();
    check("update", &try_plan(b, Options::new(), &[("x", &[5, 4]), ("d", &[5, 3])], &["total"], &["train"]).unwrap());
}

#[test]
fn a_read_before_a_write_that_is_needed_after_it_is_copied() {
    let mut b = builder();
    let w = b.get_variable("w", DataType::Float, [2], &Initializer::Zeros).unwrap();
    let step = b.constant(HostTensor::from_slice([2], &[1f32, 2.0]).unwrap()).build().unwrap();
    let before = b.read(&w).unwrap();
    let add = b.assign_add(&w, step).unwrap();
    b.control_dependencies(&[add], |b| {
        let after = b.read(&w).unwrap();
        b.add(before, after).name("both").build().unwrap();
    });
    check("copy_on_write", &try_plan(b, Options::new(), &[], &["both"], &[]).unwrap());
}

#[test]
fn a_value_goes_once_to_each_device_that_reads_it() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let sum = b.reduce_sum(x, Some(&[0])).name("sum").build().unwrap();
    let there = b.device("/cpu:1", |b| {
        let twice = b.add(sum, sum).build().unwrap();
        let top = b.op("Max").inputs([sum]).constant_input("reduction_indices", HostTensor::scalar(0i32)).build().unwrap();
        b.mul(twice, top).name("there").build().unwrap()
    });
    b.sub(sum, there).name("back").build().unwrap();
    check("transfer", &try_plan(b, cpus(2), &[("x", &[6, 4])], &["back"], &[]).unwrap());
}

#[test]
fn initializers_are_copied_from_the_graph_and_splats_are_written() {
    let mut b = builder();
    let values: Vec<f32> = (0..6).map(|i| i as f32).collect();
    b.get_variable("dense", DataType::Float, [2, 3], &Initializer::Value(HostTensor::from_slice([2, 3], &values).unwrap())).unwrap();
    b.get_variable("zeros", DataType::Float, [100], &Initializer::Zeros).unwrap();
    b.global_variables_initializer().unwrap();
    check("init", &try_plan(b, Options::new(), &[], &[], &["init"]).unwrap());
}

#[test]
fn over_the_line_the_error_says_by_how_much_and_who() {
    let network = |b: &mut GraphBuilder| {
        let x = float(b, "x");
        let w = b.get_variable("w", DataType::Float, [64, 64], &Initializer::Zeros).unwrap();
        let product = b.matmul(x, w.value).name("product").build().unwrap();
        b.reduce_sum(product, None).name("total").build().unwrap();
    };
    let mut b = builder();
    network(&mut b);
    let peak = try_plan(b, Options::new(), &[("x", &[64, 64])], &["total"], &[]).unwrap().devices[0].peak.total();
    for (limit, fits) in [(peak, true), (Bytes(peak.0 - 1), false)] {
        let mut b = builder();
        network(&mut b);
        let plan = try_plan(b, Options::new().limit("CPU:0", &limit.0.to_string()), &[("x", &[64, 64])], &["total"], &[]).unwrap();
        let result = check_limits(&plan);
        assert_eq!(result.is_ok(), fits);
        if let Err(error) = result {
            assert_eq!(error.code(), Code::ResourceExhausted);
            let text = error.to_string();
            for fragment in ["1 byte short", "w (16 KiB)", "x:0 (16 KiB)", "product (16 KiB)", "device:CPU:0", "hint: raise the limit to"] {
                assert!(text.contains(fragment), "{text} lacks {fragment}");
            }
        }
    }
}

#[test]
fn placement_follows_names_variables_and_softness() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let w = b.device("/cpu:1", |b| b.get_variable("w", DataType::Float, [2], &Initializer::Zeros)).unwrap();
    let sum = b.device("/gpu:3", |b| b.add(x, w.value).name("sum").build()).unwrap();
    b.device("/cpu:1", |b| b.relu(sum).name("relu").build()).unwrap();
    let update = b.assign_add(&w, x).unwrap();
    let registry = b.registry().clone();
    let graph = b.finish();
    let devices = cpus(2).resolve().unwrap();
    let placed = place(&graph, &registry, &devices, &PlaceOptions::new(true)).unwrap();
    let at = |name: &str| placed.devices[graph.find(name).unwrap()];
    assert_eq!(at("x"), at("sum"));
    assert_ne!(at("x"), at("w"));
    assert_eq!(at("relu"), at("w"));
    assert_eq!(placed.devices[update], at("w"));
    let error = place(&graph, &registry, &devices, &PlaceOptions::new(false)).unwrap_err();
    assert_eq!((error.code(), error.node()), (Code::InvalidArgument, Some("sum")));
    assert!(error.message().contains("Cannot assign a device for operation sum"), "{error}");
}

#[test]
fn the_sides_of_a_branch_are_guarded() {
    let mut b = builder();
    let x = float(&mut b, "x");
    let zero = b.scalar(0f32).unwrap();
    let p = b.reduce_sum(x, Some(&[0])).build().unwrap();
    let p = b.op("Greater").inputs([p, zero]).name("p").build().unwrap();
    let fork = b.op("Switch").inputs([x, p]).build_node().unwrap();
    let side = |index| plimsoll_graph::Output { node: fork, index };
    let w = b.get_variable("w", DataType::Float, [4], &Initializer::Zeros).unwrap();
    let grown = b.op("AssignAdd").inputs([w.handle, side(1)]).name("grown").build_node().unwrap();
    let other = b.op("Rsqrt").input(side(0)).name("other").device("/cpu:1").build().unwrap();
    let sides = [other, plimsoll_graph::Output { node: grown, index: 0 }];
    b.op("Merge").inputs(sides).attr("N", AttrValue::Int(2)).name("y").build_node().unwrap();
    check("branch", &try_plan(b, cpus(2), &[("x", &[4])], &["y"], &[]).unwrap());
}

/// Kernels of processors, by a library that takes long for what it was not asked before.
#[derive(Debug, Default)]
struct Slow(Mutex<Vec<KernelRequest>>);

impl Slow {
    fn answers(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

impl Library for Slow {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> plimsoll_base::Result<Vec<Variant>> {
        let mut asked = self.0.lock().unwrap();
        if !asked.contains(request) {
            asked.push(request.clone());
        }
        CpuKernels.variants(spec, request)
    }
}

/// A user who interrupts planning waits for the answer to one work at most, in whichever pass that is.
#[test]
fn between_two_answers_of_a_library_planning_can_end() {
    let mut b = builder();
    let mut x = float(&mut b, "x");
    for layer in 0..8 {
        let w = b.get_variable(&format!("w{layer}"), DataType::Float, [4 + layer, 5 + layer], &Initializer::Zeros).unwrap();
        let product = b.matmul(x, w.value).build().unwrap();
        let positive = b.relu(product).build().unwrap();
        x = b.mul(positive, product).build().unwrap();
    }
    let name = b.graph().node(x.node).name.clone();
    requested(&Lines::NONE, b, Options::new(), Run(&[("x", &[4, 4])], &[&name], &[]), |request| {
        let slow = Slow::default();
        let libraries = vec![&slow as &dyn Library; request.devices.len()];
        let request = &Request { libraries: &libraries, ..*request };
        plan(request)?;
        let all = slow.answers();
        assert!(all >= 8, "{all}");
        // The user interrupts behind so many answers.
        for limit in 1..=all {
            slow.0.lock().unwrap().clear();
            let check = || if slow.answers() < limit { Ok(()) } else { Err(Error::cancelled("enough")) };
            let ended = plan_until(request, &check).unwrap_err();
            assert!(ended.code() == Code::Cancelled && slow.answers() <= limit + 1, "{} behind {limit}: {ended}", slow.answers());
        }
        Ok(())
    })
    .unwrap();
}
