//! Constants that are held in panels: which they are, how plans read them, and the bytes.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Panels};
use plimsoll_device::{Costs, DeviceKind, DeviceName, DeviceSpec, InstructionSet, Library};
use plimsoll_graph::{AttrValue, AttrsExt, Graph, HostTensor, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, PlaceOptions, Plan, Request, Signature, check_limits, hold_in_panels, in_panels, place, plan};

use crate::plans::check;

fn builder() -> GraphBuilder {
    GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))))
}

fn numbers(shape: &[u64]) -> HostTensor {
    let count: u64 = shape.iter().product();
    HostTensor::from_slice(shape.to_vec(), &(0..count).map(|at| (at % 31) as f32 - 15.0).collect::<Vec<_>>()).unwrap()
}

fn weights(b: &mut GraphBuilder, name: &str, shape: &[u64]) -> Output {
    let value = b.constant(numbers(shape)).name(name).build().unwrap();
    b.identity(value).name(&format!("{name}/read")).build().unwrap()
}

fn images(b: &mut GraphBuilder, channels: u64) -> Output {
    b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(7), Some(7), Some(channels)]))).build().unwrap()
}

/// A convolution of 7x7 pixels and 24 channels with 160 filters, a product behind it, and one of few columns.
fn network() -> GraphBuilder {
    let mut b = builder();
    let x = images(&mut b, 24);
    let w = weights(&mut b, "w", &[3, 3, 24, 160]);
    let y = b.conv2d(x, w, [1, 1], "SAME").name("conv").build().unwrap();
    let y = b.relu(y).build().unwrap();
    let flat = b.op("Reshape").input(y).constant_input("rows", HostTensor::from_slice([2], &[-1i32, 160]).unwrap()).build().unwrap();
    let v = weights(&mut b, "v", &[160, 96]);
    let y = b.matmul(flat, v).name("wide").build().unwrap();
    let u = weights(&mut b, "u", &[96, 10]);
    b.matmul(y, u).name("narrow").build().unwrap();
    b
}

fn devices(instructions: InstructionSet) -> Vec<DeviceSpec> {
    vec![DeviceSpec::cpu(0, None, 1, instructions)]
}

/// The constants of a graph that are best in panels.
fn found(graph: &Graph, registry: &Registry, devices: &[DeviceSpec]) -> Vec<(String, Panels)> {
    let libraries = vec![&CpuKernels as &dyn Library; devices.len()];
    let placement = place(graph, registry, devices, &PlaceOptions::new(true)).unwrap();
    let found = in_panels(graph, registry, &placement, devices, &libraries).unwrap();
    found.into_iter().map(|(id, panels)| (graph.node(id).name.clone(), panels)).collect()
}

/// The plan of a graph; `hold` says whether weights are held in panels first.
fn planned(b: GraphBuilder, instructions: InstructionSet, hold: bool, batch: u64, fetches: &[&str]) -> Plan {
    let (registry, mut graph) = (b.registry().clone(), b.finish());
    let devices = devices(instructions);
    let libraries = [&CpuKernels as &dyn Library];
    let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true)).unwrap();
    if hold {
        let constants = in_panels(&graph, &registry, &placement, &devices, &libraries).unwrap();
        let fingerprint = graph.fingerprint();
        hold_in_panels(&mut [&mut graph], &constants).unwrap();
        assert_eq!(graph.fingerprint(), fingerprint, "the same graph");
    }
    let id = graph.find("x").unwrap();
    let mut shape = graph.node(id).attrs.shape("shape").unwrap().clone().0.unwrap();
    shape[0] = Some(batch);
    let shape: Shape = shape.into_iter().flatten().collect::<Vec<u64>>().into();
    let feeds = vec![Feed { tensor: "x".into(), data_type: DataType::Float, shape, value: None }];
    let fetches = fetches.iter().map(|name| name.to_string()).collect();
    let signature = Signature { feeds, fetches, ..Signature::default() };
    let (graph, registry, signature, costs, lines) = (&graph, &*registry, &signature, &Costs::committed(), &Lines::NONE);
    let (devices, placement) = (&devices[..], &placement);
    plan(&Request { graph, registry, devices, libraries: &libraries, costs, placement, signature, lines }).unwrap()
}

fn numerics(plan: &Plan) -> Vec<String> {
    let commands = plan.queues.iter().flat_map(|queue| &queue.program.commands);
    let calls = commands.filter_map(|command| if let plimsoll_device::Work::Kernel(call) = &command.work { Some(call) } else { None });
    calls.map(|call| call.variant.numerics.to_string()).collect()
}

#[test]
fn weights_are_read_in_panels() {
    check("laid_out", &planned(network(), InstructionSet::Avx512, true, 2, &["narrow"]));
    // Winograd's filters are read so, too.
    check("laid_out_winograd", &planned(network(), InstructionSet::Avx512, true, 32, &["conv"]));
}

#[test]
fn they_take_no_more_bytes_and_have_the_same_numerics() {
    for instructions in [InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512] {
        for batch in [1, 2, 32] {
            let [plain, held] = [false, true].map(|hold| planned(network(), instructions, hold, batch, &["narrow"]));
            assert_eq!(numerics(&plain), numerics(&held), "{instructions:?}");
            let [plain_peak, held_peak] = [&plain, &held].map(|plan| plan.devices[0].peak);
            assert_eq!(held_peak.constants, plain_peak.constants, "{instructions:?}");
            assert!(held_peak.total() <= plain_peak.total(), "{instructions:?}: filters are not copied to scratch");
            assert!(plain.constants.iter().all(|constant| constant.panels.is_none()));
            assert!(held.constants.iter().filter(|constant| constant.panels.is_some()).count() >= 2, "{instructions:?}: {held}");
        }
    }
}

#[test]
fn what_is_read_in_two_orders_is_counted_twice() {
    let held = |fetches: &[&str]| planned(network(), InstructionSet::Avx512, true, 2, fetches).devices[0].peak.constants;
    // In whole pages.
    let is_filter = |bytes: Bytes| (4 * 9 * 24 * 160..4 * 9 * 24 * 160 + 4096).contains(&bytes.0);
    assert!(is_filter(held(&["narrow", "w"]) - held(&["narrow"])));
    // Nothing reads it in panels: it is spread, and counted once.
    assert!(is_filter(held(&["w"])));
    let plain = planned(network(), InstructionSet::Avx512, false, 2, &["w"]);
    assert_eq!(plain.devices[0].peak.constants, Bytes::ZERO, "it is copied from the graph");
}

#[test]
fn a_line_holds_to_the_byte() {
    let plan = planned(network(), InstructionSet::Avx512, true, 2, &["narrow"]);
    let need = plan.devices[0].peak.total();
    for (limit, fits) in [(need, true), (need - Bytes(1), false)] {
        let mut limited = plan.clone();
        limited.devices[0].limit = Some(limit);
        assert_eq!(check_limits(&limited).is_ok(), fits);
    }
}

#[test]
fn all_readers_have_to_read_them_so() {
    let avx512 = devices(InstructionSet::Avx512);
    let of = |b: GraphBuilder, devices: &[DeviceSpec]| {
        let registry = b.registry().clone();
        found(&b.finish(), &registry, devices).into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let registry = builder().registry().clone();
    let panels = |columns| Panels { columns, lanes: 16, vectors: 4 };
    assert_eq!(found(&network().finish(), &registry, &avx512), [("w".to_string(), panels(160)), ("v".to_string(), panels(96))]);
    // A reader of another kind, also behind an Identity.
    for name in ["w", "w/read"] {
        let mut b = network();
        let read = b.graph().tensor(name).unwrap();
        b.op("Square").input(read).build().unwrap();
        assert_eq!(of(b, &avx512), ["v"]);
    }
    // The gradient by the input reads the filter otherwise.
    let mut b = network();
    let (x, y) = (b.graph().tensor("x").unwrap(), b.graph().tensor("conv").unwrap());
    b.gradients(&[y], &[x]).unwrap();
    assert_eq!(of(b, &avx512), ["v"]);
    // A product with its right side transposed.
    let mut b = network();
    let (y, v) = (b.graph().tensor("wide").unwrap(), b.graph().tensor("v/read").unwrap());
    b.op("MatMul").inputs([y, v]).attr("transpose_b", AttrValue::Bool(true)).build().unwrap();
    assert_eq!(of(b, &avx512), ["w"]);
    // Groups, and channels that are not known.
    for channels in [48, 24] {
        let mut b = builder();
        let x =
            if channels == 48 { images(&mut b, 48) } else { b.placeholder("x", DataType::Float, PartialShape::unknown()).build().unwrap() };
        let w = weights(&mut b, "w", &[3, 3, 24, 160]);
        b.conv2d(x, w, [1, 1], "SAME").name("conv").build().unwrap();
        assert!(of(b, &avx512).is_empty());
    }
    // Other types have no panels, and cards have kernels of their own.
    let mut b = builder();
    let x = b.placeholder("x", DataType::Double, PartialShape(Some(vec![None, Some(8)]))).build().unwrap();
    let w = b.constant(HostTensor::from_slice([8, 200], &[0.5f64; 1600]).unwrap()).build().unwrap();
    b.matmul(x, w).build().unwrap();
    assert!(of(b, &avx512).is_empty());
    let card = DeviceSpec { kind: DeviceKind::Gpu, name: DeviceName::local("GPU", 0), ..avx512[0].clone() };
    assert!(of(network(), &[avx512[0].clone(), card]).is_empty());
}
