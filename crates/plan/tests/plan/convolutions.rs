//! Which convolutions are computed with fewer multiplications: a choice of the convolution and the table of costs alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType};
use plimsoll_device::{
    Bf16Instructions, Caches, Class, Cost, CostTable, Costs, DeviceSpec, InstructionSet, Library, Load, Rates, Step, Variant, Work,
};
use plimsoll_graph::Shape;
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Lines, PlaceOptions, Plan, Request, Signature, place, plan};
use plimsoll_request::KernelRequest;

use crate::plans::check;

/// What follows the convolution.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Nothing,
    Relu,
    Pool,
    Gradients,
}

/// A convolution of `batch` images of `side` rows and columns with `taps` taps along each.
fn plan_of(spec: &DeviceSpec, costs: &Costs, [batch, side, channels, taps]: [u64; 4], then: Then) -> Plan {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let shape = [batch, side, side, channels];
    let x = b.placeholder("x", DataType::Float, &Shape::new(shape)).build().unwrap();
    let w = b.get_variable("w", DataType::Float, [taps, taps, channels, channels], &Initializer::Ones).unwrap();
    let bias = b.get_variable("bias", DataType::Float, [channels], &Initializer::Ones).unwrap();
    let conv = b.conv2d(x, w.value, [1, 1], "SAME").build().unwrap();
    let made = match then {
        Then::Nothing | Then::Gradients => conv,
        Then::Relu | Then::Pool => {
            let biased = b.bias_add(conv, bias.value).build().unwrap();
            b.relu(biased).build().unwrap()
        }
    };
    let made = if then == Then::Pool { b.max_pool(made, [2, 2], [2, 2], "SAME").build().unwrap() } else { made };
    let mut wanted = vec![made];
    if then == Then::Gradients {
        wanted.extend(b.gradients(&[made], &[x, w.value]).unwrap().into_iter().flatten());
    }
    let fetches = wanted.iter().map(|output| b.node(output.node).name.clone()).collect();
    let (registry, graph) = (b.registry().clone(), b.finish());
    let feeds = vec![Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::new(shape), value: None }];
    let signature = Signature { feeds, fetches, ..Signature::default() };
    let (devices, libraries) = (std::slice::from_ref(spec), [&CpuKernels as &dyn Library]);
    let placement = place(&graph, &registry, devices, &PlaceOptions::new(true)).unwrap();
    let (graph, registry, signature) = (&graph, &*registry, &signature);
    let lines = &Lines::NONE;
    plan(&Request { graph, registry, devices, libraries: &libraries, costs, placement: &placement, signature, lines }).unwrap()
}

/// The numerics of a plan's convolutions and gradients by their input.
fn numerics(plan: &Plan) -> Vec<String> {
    let commands = plan.queues.iter().flat_map(|queue| &queue.program.commands);
    let calls = commands.filter_map(|command| if let Work::Kernel(call) = &command.work { Some(call) } else { None });
    let anchors = calls.filter(|call| matches!(*call.request, KernelRequest::Anchor { .. }));
    let numerics: BTreeSet<String> = anchors.map(|call| call.variant.numerics.to_string()).collect();
    numerics.into_iter().collect()
}

/// Images and pixels enough for the transforms to pay, and too few.
const MANY: [u64; 4] = [8, 28, 64, 3];
const FEW: [u64; 4] = [1, 7, 64, 3];

#[test]
fn the_table_of_costs_decides_by_the_convolution_alone() {
    let costs = Costs::committed();
    for (instructions, name) in [(InstructionSet::Avx2, "avx2"), (InstructionSet::Avx512, "avx512")] {
        let fewer = format!("{name}-winograd");
        for threads in [1, 2, 64] {
            let spec = DeviceSpec::cpu(0, None, threads, instructions);
            let limited =
                DeviceSpec { memory_limit: Some(Bytes(1 << 24)), caches: Caches { l1: 1 << 14, l2: 1 << 17, l3: 0 }, ..spec.clone() };
            for spec in [spec, limited] {
                for then in [Then::Nothing, Then::Relu, Then::Pool, Then::Gradients] {
                    assert_eq!(numerics(&plan_of(&spec, &costs, MANY, then)), [&*fewer], "{spec:?}");
                    assert_eq!(numerics(&plan_of(&spec, &costs, FEW, then)), [name], "{spec:?}");
                }
            }
        }
        let spec = DeviceSpec::cpu(0, None, 2, instructions);
        assert_eq!(numerics(&plan_of(&spec, &costs, [8, 28, 64, 5], Then::Relu)), [&*fewer]);
        assert_eq!(numerics(&plan_of(&spec, &costs, [8, 28, 64, 1], Then::Relu)), [name]);
        let exact = costs.clone().with_exact_convolutions();
        for then in [Then::Nothing, Then::Relu, Then::Pool, Then::Gradients] {
            assert_eq!(numerics(&plan_of(&spec, &exact, MANY, then)), [name]);
        }
        assert_ne!(exact.fingerprint(), costs.fingerprint());
    }
    // Without a table the first variant counts.
    let neon = DeviceSpec::cpu(0, None, 2, InstructionSet::Neon);
    assert_eq!(numerics(&plan_of(&neon, &costs, MANY, Then::Relu)), ["portable"]);
}

/// Where a processor may round operands, the table of costs decides as well. A plan does not ask this machine.
#[test]
fn operands_are_rounded_where_that_is_faster() {
    let costs = Costs::committed();
    let plain = DeviceSpec::cpu(0, None, 2, InstructionSet::Avx512);
    let rounding = DeviceSpec { bf16: Some(Bf16Instructions::Avx512), ..plain.clone() };
    let of = |spec: &DeviceSpec, sizes, then| numerics(&plan_of(spec, &costs, sizes, then));
    for then in [Then::Nothing, Then::Relu, Then::Pool, Then::Gradients] {
        for sizes in [[8, 28, 64, 1], [8, 28, 64, 4]] {
            assert_eq!(of(&plain, sizes, then), ["avx512"]);
            assert_eq!(of(&rounding, sizes, then), ["avx512-bf16"]);
        }
        // Images enough for the transforms to pay more; and too few to round a filter for.
        assert_eq!(of(&rounding, [8, 28, 16, 3], then), ["avx512-winograd"]);
        assert_eq!(of(&rounding, FEW, then), ["avx512"]);
    }
    assert_eq!(rounding.difference(&plain).unwrap(), "rounding operands of products: false, not true");
}

#[test]
fn a_convolution_with_fewer_multiplications_is_two_commands() {
    let spec = DeviceSpec::cpu(0, None, 2, InstructionSet::Avx512);
    check("winograd", &plan_of(&spec, &Costs::committed(), MANY, Then::Gradients));
}

#[test]
fn numerics_are_those_of_the_fastest_variant_on_one_thread() {
    let rates = Rates { issued: 1e-3, fork: 1.0, ..Rates::default() };
    let table = CostTable {
        processor: "made up".into(),
        card: None,
        instructions: InstructionSet::Avx2,
        caches: Caches::default(),
        threads: 2,
        command: 0.0,
        rates: [(Class::Product, rates)].into_iter().collect(),
    };
    let costs = Costs::of(vec![table]).unwrap();
    let variant = |name: &str, numerics: &str, issued: f64| {
        let load = Load { class: Class::Product, issued, elementwise: 0.0 };
        let step =
            Step { args: None, chunks: 4, scratch: 0, per_worker: 0, in_place: Vec::new(), cost: Cost::default(), load, seconds: None };
        Variant { name: name.into(), numerics: numerics.into(), between: Vec::new(), steps: vec![step], laid_out: None }
    };
    let variants = [variant("a", "exact", 3.0), variant("b", "exact", 5.0), variant("c", "fast", 2.0)];
    assert_eq!(costs.numerics(InstructionSet::Avx2, &variants), Some("fast"));
    assert_eq!(costs.numerics(InstructionSet::Avx2, &variants[..2]), Some("exact"));
    // Of equal ones the first.
    assert_eq!(costs.numerics(InstructionSet::Avx2, &[variant("a", "exact", 2.0), variant("c", "fast", 2.0)]), Some("exact"));
    // No table, no choice.
    assert_eq!(costs.numerics(InstructionSet::Neon, &variants), Some("exact"));
    assert_eq!(costs.numerics(InstructionSet::Avx2, &[]), None);
    let exact = costs.clone().with_exact_convolutions();
    assert_eq!(exact.numerics(InstructionSet::Avx2, &variants), Some("exact"));
    assert_eq!(exact.fingerprint(), format!("{}-exact", costs.fingerprint()));
    assert_eq!(exact.clone().with_exact_convolutions(), exact);
}
