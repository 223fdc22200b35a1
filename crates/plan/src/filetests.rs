//! Pass tests as text: each file under `tests/passes/PASS/` is an input, a line `== PASS`, and what the pass makes of it.
//! `PLIMSOLL_BLESS=1` writes the second part anew.
//!
//! The input of `lower` is a signature and a GraphDef. The input of `verify` is an LIR that breaks a rule, and its line `== PASS`
//! names the pass after which it is checked. That line of `fit` says the lines of the devices. All others are LIRs. Before and after
//! each pass its result is verified.
//!
//! Links of cards carry 1 MB a second where a line says `// with slow links`. Soft placement is allowed but where a line says
//! `// without soft placement`. GPU:7 is a card that computes little: see [`Kernels`].

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, DataType, Error, Result};
use plimsoll_device::{CardPart, Cost, Costs, DeviceKind, DeviceSpec, Library, Load, ModelledLink, Step, StepArg, Variant};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::Registry;
use plimsoll_ops::fusion::{Becomes, Computes, Fusion, Patch, Stage, View, WorkId, Works};
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::{Expr, Instr};
use plimsoll_request::pool::Positions;

use crate::lir::Lir;
use crate::lir::parse::{Parsed, device, parse};
use crate::lir::verify::verify;
use crate::overlap::{Kept, overlap};
use crate::passes::{Check, Pass, text};
use crate::plan::DeviceId;
use crate::{
    Feed, Lines, PlaceOptions, Placement, Request, Signature, fit, fuse, hazard, order, pack, patch, place, select, soften, transfer,
};

/// The kernels of processors, and kernels that say in their names what they take:
/// `scratch=64 workers=32 chunks=4 in_place=0:0,1:0 flops=10`. With `reads=2 between=640` they compute one result in two steps.
/// With `refused=CPU:0,GPU:1` these devices have no kernel for it. GPU:7 has kernels for names, for expressions of one step, for
/// products and convolutions without epilogue, and for max poolings without positions. GPU:6 has one for an expression of at most
/// four groups of tensors, and kernels for what is behind a batch normalization, and for a convolution that sums its channels for one: with one
/// tap it takes long.
#[derive(Debug)]
pub(crate) struct Kernels;

impl Kernels {
    /// Whether a device has no kernel for it.
    fn refuses(spec: &DeviceSpec, request: &KernelRequest) -> bool {
        let device = spec.name.short();
        if let KernelRequest::Named(name) = request {
            let refused = name.split(' ').find_map(|word| word.strip_prefix("refused=")).unwrap_or_default();
            return refused.split(',').any(|refused| refused == device);
        }
        let computes = |instr: &&Instr| !matches!(instr, Instr::Input(_) | Instr::Const(_));
        let is_simple = match request {
            KernelRequest::Expr { expr, .. } => expr.instrs().iter().filter(computes).count() <= 1,
            KernelRequest::Anchor { epilogue: None, pooling: None, .. } | KernelRequest::MaxPoolGradOfInput { .. } => true,
            KernelRequest::MaxPool(pooling) => pooling.positions == Positions::None,
            _ => false,
        };
        device == "GPU:7" && !is_simple
    }
}

impl Library for Kernels {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        if Kernels::refuses(spec, request) {
            return Err(Error::unimplemented("no such kernel"));
        }
        if let KernelRequest::Exprs(request) = request
            && spec.name.short() == "GPU:6"
            && request.elements.len() <= 4
        {
            let pair = |group| format!("{}:{group}", request.operand(group, 0));
            let pairs: Vec<String> = (0..request.elements.len()).map(pair).collect();
            return self.variants(spec, &KernelRequest::Named(format!("together in_place={}", pairs.join(","))));
        }
        let is_behind =
            matches!(request, KernelRequest::BatchNorm { epilogue: Some(_), .. } | KernelRequest::BatchNormGrad { relu: true, .. });
        if is_behind && spec.name.short() == "GPU:6" {
            return self.variants(spec, &KernelRequest::Named("norm".to_string()));
        }
        let of_sums = match request {
            KernelRequest::ConvStatistics(spec) if spec.taps() == 1 => Some("sums flops=1000000000000 issued=1000000000000"),
            KernelRequest::ConvStatistics(_) => Some("sums"),
            KernelRequest::BatchNorm { summed: true, .. } => Some("norm of sums"),
            _ => None,
        };
        if let Some(name) = of_sums.filter(|_| spec.name.short() == "GPU:6") {
            return self.variants(spec, &KernelRequest::Named(name.to_string()));
        }
        let KernelRequest::Named(name) = request else { return CpuKernels.variants(spec, request) };
        let number = |key: &str| {
            let found = name.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.and_then(|number| number.parse::<u64>().ok())
        };
        let pairs = name.split(' ').find_map(|word| word.strip_prefix("in_place=")).unwrap_or_default();
        let pair = |pair: &str| pair.split_once(':').and_then(|(input, output)| Some((input.parse().ok()?, output.parse().ok()?)));
        let step = Step {
            args: None,
            chunks: number("chunks").unwrap_or(1) as u32,
            scratch: number("scratch").unwrap_or(0),
            per_worker: number("workers").unwrap_or(0),
            in_place: pairs.split(',').filter_map(pair).collect(),
            cost: Cost { flops: number("flops").unwrap_or(0) as f64, bytes: 0.0 },
            load: Load { issued: number("issued").unwrap_or(0) as f64, ..Load::default() },
            seconds: None,
        };
        let variant = |between, steps| Variant { name: "named".into(), numerics: "named".into(), between, steps, laid_out: None };
        let Some(bytes) = number("between") else { return Ok(vec![variant(Vec::new(), vec![step])]) };
        let reads = number("reads").unwrap_or(0) as u32;
        let first = (0..reads).map(StepArg::Argument).chain([StepArg::Between(0)]).collect();
        let then = vec![StepArg::Between(0), StepArg::Argument(reads)];
        Ok(vec![variant(vec![bytes], vec![Step { args: Some(first), ..step.clone() }, Step { args: Some(then), ..step }])])
    }

    fn takes(&self, spec: &DeviceSpec, first: &KernelRequest, second: &KernelRequest) -> bool {
        CpuKernels.takes(spec, first, second)
    }
}

/// With a fusion that lets an expression of the operation Swap trade places with the one before it.
fn registry() -> Arc<Registry> {
    let swap = Fusion { name: "swap", stage: Stage::Lowered, find: swap };
    Arc::new(Registry::standard(Arc::new(CpuKernels)).with_fusion(swap))
}

fn swap(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let (Computes::Expr(second, shape), [view], "Swap") = (works.computes(work), works.inputs(work), works.op(work)) else { return None };
    let before = works.maker(view.value)?;
    let Computes::Expr(first, _) = works.computes(before) else { return None };
    let mut patch = Patch::new(works);
    let between = View { value: patch.value(view.data_type.bytes_of(view.elements())?), ..view.clone() };
    let becomes = |expr: &Expr| Becomes::Expr(expr.clone(), shape.clone());
    let patch = patch.change(work, becomes(second), works.inputs(before).to_vec(), vec![between.value]);
    Some(patch.change(before, becomes(first), vec![between], works.outputs(work).to_vec()))
}

/// Has every file of a folder say what `make` makes of it and of the word behind `==`.
fn each(folder: &str, least: usize, make: impl Fn(&str, &str) -> String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/passes").join(folder);
    let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= least, "only {} files in {}", files.len(), folder.display());
    let mut wrong = Vec::new();
    for file in files {
        let all = std::fs::read_to_string(&file).unwrap();
        let (input, rest) = all.split_once("\n== ").unwrap_or_else(|| panic!("{} has no line ==", file.display()));
        let (word, expected) = rest.split_once('\n').unwrap_or((rest, ""));
        let made = make(input, word.trim());
        let made = made.trim_end();
        if std::env::var_os("PLIMSOLL_BLESS").is_some() {
            std::fs::write(&file, format!("{input}\n== {word}\n{made}\n")).unwrap();
        } else if made != expected.trim_end() {
            wrong.push(format!("{}:\n{made}\n", file.display()));
        }
    }
    assert!(wrong.is_empty(), "PLIMSOLL_BLESS=1 writes the files anew\n{}", wrong.join("\n"));
}

/// Calls `with` with a request for an LIR that was read; all of it is text but the LIR.
fn with_request<T>(parsed: &Parsed, with: impl FnOnce(&Request<'_>) -> T) -> T {
    let registry = registry();
    let placement = Placement::unplaced(&parsed.devices).unwrap();
    let libraries = vec![&Kernels as &dyn Library; parsed.devices.len()];
    with(&Request {
        graph: &parsed.graph,
        registry: &registry,
        devices: &parsed.devices,
        libraries: &libraries,
        costs: &Costs::committed(),
        placement: &placement,
        lines: &Lines::NONE,
        signature: &Signature::default(),
    })
}

/// Runs a pass on each file of its folder. The input has to keep the rules that hold after `before`.
fn changes(pass: Pass, before: Pass, least: usize, change: impl Fn(&Request<'_>, &mut Lir, &Check<'_>) -> Result<()>) {
    each(pass.name(), least, |input, _| {
        let parsed = parse(input, &Kernels).unwrap_or_else(|why| panic!("{why}"));
        with_request(&parsed, |request| {
            let placement = Placement { soft: !input.contains("// without soft placement"), ..request.placement.clone() };
            let request = &Request { placement: &placement, ..*request };
            let mut lir = parsed.lir.clone();
            let changed = verify(request, &lir, before).and_then(|()| {
                // What is written is read.
                let written = text(request, &lir);
                let again = parse(&written, &Kernels).unwrap_or_else(|why| panic!("{why}\n{written}"));
                assert_eq!(text(&Request { graph: &again.graph, ..*request }, &again.lir), written);
                lir.each_region(|lir| change(request, lir, &|| Ok(())))
            });
            match changed.and_then(|()| verify(request, &lir, pass)) {
                Ok(()) => text(request, &lir),
                Err(error) => format!("error: {error}"),
            }
        })
    });
}

#[test]
fn soften_moves_works_to_the_host() {
    changes(Pass::Soften, Pass::Lower, 10, soften::soften);
}

#[test]
fn transfer_copies_to_readers() {
    changes(Pass::Transfer, Pass::Patch, 5, |request, lir, _| transfer::transfer(request, lir));
}

#[test]
fn patch_rewrites_works() {
    changes(Pass::Patch, Pass::Soften, 10, patch::patch);
}

#[test]
fn fuse_joins_works() {
    changes(Pass::Fuse, Pass::Transfer, 8, fuse::fuse);
}

#[test]
fn select_makes_steps() {
    changes(Pass::Select, Pass::Fuse, 3, select::select);
}

#[test]
fn hazard_orders_accesses() {
    changes(Pass::Hazard, Pass::Select, 6, |request, lir, _| hazard::hazard(request, lir));
}

#[test]
fn order_schedules() {
    changes(Pass::Order, Pass::Hazard, 4, |request, lir, _| order::order(request, lir));
}

/// Links of cards carry 1 MB a second.
fn slow_links(devices: &mut [DeviceSpec]) {
    let cards = devices.iter_mut().filter(|spec| spec.kind == DeviceKind::Gpu);
    let link = ModelledLink { latency: 0.0, bandwidth: 1e6, peers: vec![] };
    (0..).zip(cards).for_each(|(card, spec)| spec.card = Some(CardPart { card, priority: 0, modelled: Some(link.clone()), real: None }));
}

#[test]
fn fit_computes_again() {
    // Behind `==` stands the line of each device, or `none`.
    each("fit", 5, |input, lines| {
        let most = lines.split(' ').map(|line| line.parse().ok().map(Bytes)).collect();
        let lines = Lines { most, ..Lines::default() };
        let mut parsed = parse(input, &Kernels).unwrap_or_else(|why| panic!("{why}"));
        if input.contains("// with slow links") {
            slow_links(&mut parsed.devices);
        }
        with_request(&parsed, |request| {
            let request = &Request { lines: &lines, ..*request };
            let mut lir = parsed.lir.clone();
            let fitted = move || -> Result<_> {
                order::as_written(request, &mut lir)?;
                verify(request, &lir, Pass::Order)?;
                let floors = fit::floors(request, &lir)?;
                let (lir, fitting) = fit::fit(request, Cow::Owned(lir))?;
                verify(request, &lir, Pass::Fit)?;
                Ok((lir, fitting, floors))
            };
            match fitted() {
                Ok((lir, fitting, floors)) => {
                    let again = fitting.iter().map(|fitting| format!("again: {}\n", fitting.recomputed.len()));
                    let masks = fitting.iter().flat_map(|fitting| &fitting.masked).map(|(_, bytes)| format!("mask of {bytes}\n"));
                    let parts = fitting.iter().flat_map(|fitting| &fitting.parts).map(|(_, count)| format!("{count} parts\n"));
                    let segments = fitting.iter().flat_map(|fitting| &fitting.segments).map(|(_, every)| format!("every {every}\n"));
                    let least = floors.iter().map(|floor| format!("at least {}\n", floor.0));
                    text(request, &lir) + &again.chain(masks).chain(parts).chain(segments).chain(least).collect::<String>()
                }
                Err(error) => format!("error: {error}"),
            }
        })
    });
}

/// Two updates by a processor. The gradient of the second comes first.
const UPDATES: &str = r#"device CPU:0
device GPU:0
feed0 = x:0 float[4]
fetch0 = z float[1024]
fetch1 = y float[1024]
param v0 feed0 16 on CPU:0 of x
w0 on CPU:0 of a = kernel {"Named":"weights flops=100"} by named (v0 float[4]) -> v1 arena 4096
w1 on GPU:0 of a = copy (v1 float[1024]) -> v2 arena 4096 copy
w2 on GPU:0 of c = kernel {"Named":"back flops=1000000000"} by named (v2 float[1024]) -> v3 arena 4096
w3 on GPU:0 of c = copy (v3 float[1024]) -> v4 arena 4096 copy on CPU:0
w4 on GPU:0 of d = kernel {"Named":"back flops=4000000000"} by named (v2 float[1024]) -> v5 arena 4096
w5 on GPU:0 of d = copy (v5 float[1024]) -> v6 arena 4096 copy on CPU:0
w6 on CPU:0 of e = kernel {"Named":"update issued=40000000"} by named (v6 float[1024]) -> v7 fetch0 4096 root
w7 on CPU:0 of f = kernel {"Named":"update issued=40000000"} by named (v4 float[1024]) -> v8 fetch1 4096 root
"#;

#[test]
fn a_processor_takes_the_update_whose_gradient_comes_first() {
    let mut parsed = parse(UPDATES, &Kernels).unwrap_or_else(|why| panic!("{why}"));
    slow_links(&mut parsed.devices);
    let processor = DeviceId::from_index(0);
    let order = |kept: &Kept| -> Vec<usize> {
        with_request(&parsed, |request| {
            let mut lir = parsed.lir.clone();
            order::as_written(request, &mut lir).unwrap();
            let lir = overlap(&lir, request.devices, kept).expect("copies run beside works");
            lir.region().works.iter().map(|id| id.index()).filter(|id| *id >= 6).collect()
        })
    };
    assert_eq!(order(&Kept::default()), [7, 6]);
    // A processor that has no room for it keeps its order.
    assert_eq!(order(&Kept { order: BTreeSet::from([processor]), ..Kept::default() }), [6, 7]);
}

/// A card reads three values of the processor: two that take 4 ms on the link, and a small one between them as written. Its
/// works take a millisecond each.
const VARIABLES: &str = r#"device CPU:0
device GPU:0
fetch0 = y float[1024]
w0 on CPU:0 of a = kernel {"Named":"weights flops=100"} by named () -> v0 arena 4096
w1 on CPU:0 of b = kernel {"Named":"weights flops=100"} by named () -> v1 arena 4096
w2 on CPU:0 of c = kernel {"Named":"weights flops=100"} by named () -> v2 arena 4
w3 on GPU:0 of a = copy (v0 float[1024]) -> v3 arena 4096 copy
w4 on GPU:0 of d = kernel {"Named":"back flops=200000000"} by named (v3 float[1024]) -> v4 arena 4096
w5 on GPU:0 of c = copy (v2 float[1]) -> v5 arena 4 copy
w6 on GPU:0 of e = kernel {"Named":"back flops=200000000"} by named (v4 float[1024], v5 float[1]) -> v6 arena 4096
w7 on GPU:0 of b = copy (v1 float[1024]) -> v7 arena 4096 copy
w8 on GPU:0 of f = kernel {"Named":"back flops=200000000"} by named (v6 float[1024], v7 float[1024]) -> v8 fetch0 4096 root
"#;

/// The copies beside the works of a program on slow links, by number.
fn copies_beside(program: &str) -> Vec<usize> {
    let mut parsed = parse(program, &Kernels).unwrap_or_else(|why| panic!("{why}"));
    slow_links(&mut parsed.devices);
    with_request(&parsed, |request| {
        let mut lir = parsed.lir.clone();
        order::as_written(request, &mut lir).unwrap();
        let lir = overlap(&lir, request.devices, &Kept::default()).expect("copies run beside works");
        lir.region().works.iter().filter(|id| lir.works[**id].is_beside).map(|id| id.index()).collect()
    })
}

/// Among the works the small copy begins when the first of them ends: the link has the second large one by then.
#[test]
fn a_small_copy_does_not_wait_for_a_large_one() {
    assert_eq!(copies_beside(VARIABLES), [3, 5, 7]);
}

/// Where the work that reads it is the last, the link is free by then.
#[test]
fn a_small_copy_that_keeps_nothing_waiting_is_among_the_works() {
    let last =
        VARIABLES.replace("(v4 float[1024], v5 float[1])", "(v4 float[1024])").replace("v7 float[1024])", "v7 float[1024], v5 float[1])");
    let (small, rest) = (last.lines().find(|line| line.starts_with("w5 ")).unwrap(), last.lines().filter(|line| !line.starts_with("w5 ")));
    let lines: Vec<&str> = rest.flat_map(|line| if line.starts_with("w8 ") { vec![small, line] } else { vec![line] }).collect();
    assert_eq!(copies_beside(&(lines.join("\n") + "\n")), [3, 7]);
}

#[test]
fn pack_gives_addresses_and_waits() {
    each("pack", 6, |input, _| {
        let parsed = parse(input, &Kernels).unwrap_or_else(|why| panic!("{why}"));
        with_request(&parsed, |request| {
            let mut lir = parsed.lir.clone();
            // The works are scheduled as they are written.
            let packed = order::as_written(request, &mut lir).and_then(|()| verify(request, &lir, Pass::Order));
            match packed.and_then(|()| fit::floors(request, &lir).and_then(|floors| pack::pack(request, lir, &floors, None))) {
                Ok(plan) => plan.to_string(),
                Err(error) => format!("error: {error}"),
            }
        })
    });
}

#[test]
fn rules_are_checked() {
    each("verify", 30, |input, word| {
        let parsed = parse(input, &Kernels).unwrap_or_else(|why| panic!("{why}"));
        let after: Pass = word.parse().unwrap();
        with_request(&parsed, |request| {
            let mut lir = parsed.lir.clone();
            if after >= Pass::Order && !input.contains("// unprepared") {
                order::as_written(request, &mut lir).unwrap_or_else(|error| panic!("{error}\n{input}"));
            }
            match verify(request, &lir, after) {
                Ok(()) => "keeps the rules".to_string(),
                Err(error) => error.to_string(),
            }
        })
    });
}

#[test]
fn lower_makes_works() {
    each("lower", 6, |input, _| {
        let registry = registry();
        let (head, graph) = input.split_once("\ngraph\n").expect("a line 'graph' before the GraphDef");
        let def = plimsoll_formats::read_graph_def(graph.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
        let graph = Graph::resolve(def, registry.table()).unwrap_or_else(|error| panic!("{error}"));
        let (mut signature, mut devices) = (Signature::default(), Vec::new());
        for line in head.lines().filter(|line| !line.starts_with("//")) {
            match line.split_once(' ').unwrap_or((line, "")) {
                ("device", name) => devices.push(device(name).unwrap()),
                ("fetch", name) => signature.fetches.push(name.into()),
                ("target", name) => signature.targets.push(name.into()),
                ("feed", feed) => {
                    let (tensor, rest) = feed.split_once(' ').unwrap();
                    let (data_type, dims) = rest.split_once('[').unwrap_or((rest, ""));
                    let dims = dims.trim_end_matches(']').split(',').filter_map(|dim| dim.parse().ok()).collect::<Vec<u64>>();
                    let data_type = DataType::from_name(data_type).unwrap();
                    signature.feeds.push(Feed { tensor: tensor.into(), data_type, shape: Shape::new(dims), value: None });
                }
                other => panic!("{other:?}"),
            }
        }
        let placement = place(&graph, &registry, &devices, &PlaceOptions::new(true)).unwrap_or_else(|error| panic!("{error}"));
        let libraries = vec![&Kernels as &dyn Library; devices.len()];
        let (graph, devices, libraries, placement, signature) = (&graph, &devices, &libraries, &placement, &signature);
        let request = Request {
            graph,
            registry: &registry,
            devices,
            libraries,
            costs: &Costs::committed(),
            placement,
            signature,
            lines: &Lines::NONE,
        };
        crate::text_after(&request, Pass::Lower).unwrap_or_else(|error| format!("error: {error}"))
    });
}
