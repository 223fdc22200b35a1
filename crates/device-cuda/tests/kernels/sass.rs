//! What cards run: machine code of the real compiler, as NVIDIA's disassembler shows it. Kernels that stream tensors load and store 16
//! bytes at once in their loops, and none of them has memory of its threads' own; `compiled` looks for that in all others.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_base::DataType;
use plimsoll_device_cuda::emit::{self, FAMILIES, Kernel};
use plimsoll_ptx::{Code, Disassembler};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};
use plimsoll_request::exprs::Exprs;
use plimsoll_request::gather::Gather;
use plimsoll_request::movement::Movement;
use plimsoll_request::nn::Nn;
use plimsoll_request::norm::BatchNormSpec;
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};
use plimsoll_request::product::ProductSpec;
use plimsoll_request::random::{Distribution, Random};
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::resample::{Method, Resample};
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use super::{anchors, compiled, normalizing};

const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90a", "sm_100a"];

const FLOAT: DataType = DataType::Float;
const BF16: DataType = DataType::Bfloat16;

/// What is 16 bytes wide in the loops of a family's kernels, where rows allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wide {
    Both,
    Loads,
    Stores,
    /// Neither, and why.
    No(&'static str),
}

const BY_INDEX: Wide = Wide::No("elements lie where indices say: a thread owns a column, and takes one element after the other");
const BY_CHANNEL: Wide = Wide::No("a few numbers of each channel, not tensors");
const BY_TILE: Wide =
    Wide::No("elements of a tile are found one by one, since windows have borders; the loop's 16 bytes come from shared memory");

/// All families.
const TABLE: &[(&str, Wide)] = &[
    ("arg", Wide::No("a thread goes through its line in order, so that the first of equals stays")),
    ("avg_pool", Wide::Both),
    ("avg_pool_grad", Wide::Both),
    ("check", Wide::No("indices alone: a few bytes for each row")),
    ("concat", Wide::Both),
    ("conv", BY_TILE),
    ("conv_by_filter", BY_TILE),
    ("conv_by_input", BY_TILE),
    ("copy", Wide::Both),
    ("cross_entropy", Wide::Both),
    ("decide", Wide::No("one thread, one byte")),
    ("depthwise", Wide::Both),
    (
        "depthwise_by_filter",
        Wide::No("32 threads have neighbouring columns of both tensors: words for each would leave most without a column"),
    ),
    ("depthwise_by_input", Wide::Both),
    ("expr", Wide::Both),
    ("exprs", Wide::Both),
    ("fold", Wide::Loads),
    ("fold_parts", Wide::No("the parts of each result, of which there are few")),
    ("in_top_k", Wide::Loads),
    ("join", Wide::Loads),
    ("key_counter", Wide::No("one thread")),
    ("log_softmax", Wide::Both),
    ("lrn", Wide::No("each element looks at its neighbours, which begin anywhere")),
    ("lrn_grad", Wide::No("each element looks at its neighbours, which begin anywhere")),
    ("lrn_shares", Wide::No("each element looks at its neighbours, which begin anywhere")),
    ("max_pool", Wide::Both),
    ("max_pool_grad", Wide::Both),
    ("max_pool_places", Wide::Loads),
    ("move", Wide::Both),
    ("norm_grad", Wide::Both),
    ("norm_parts", Wide::Loads),
    ("norm_products", Wide::Loads),
    ("norm_sums", BY_CHANNEL),
    ("normalize", Wide::Both),
    ("one_hot", Wide::Stores),
    ("pad", Wide::Stores),
    ("product", BY_TILE),
    ("random", Wide::Stores),
    ("require", Wide::No("one thread, one byte")),
    ("resize", Wide::Both),
    ("rows", BY_INDEX),
    ("scan", Wide::No("a thread goes through its line in order: sums are rounded in that order")),
    ("softmax", Wide::Both),
    ("statistics", BY_CHANNEL),
    ("take", Wide::Both),
    ("update_rows", BY_INDEX),
];

/// `a * b + c`, of that type.
fn expression(data_type: DataType) -> Expr {
    let mut builder = ExprBuilder::new();
    let [a, b, c] = [(); 3].map(|()| builder.input(data_type).unwrap());
    let product = builder.binary(BinaryOp::Mul, a, b).unwrap();
    let sum = builder.binary(BinaryOp::Add, product, c).unwrap();
    builder.finish(vec![sum])
}

/// An Adam update: variable, two moments and a gradient; a rate.
fn adam() -> Expr {
    let mut builder = ExprBuilder::new();
    let [variable, moment, square, gradient, rate] = [(); 5].map(|()| builder.input(FLOAT).unwrap());
    let apart = builder.binary(BinaryOp::Sub, gradient, moment).unwrap();
    let moment = builder.binary(BinaryOp::Add, moment, apart).unwrap();
    let squared = builder.unary(UnaryOp::Square, gradient).unwrap();
    let square = builder.binary(BinaryOp::Add, square, squared).unwrap();
    let root = builder.unary(UnaryOp::Sqrt, square).unwrap();
    let step = builder.binary(BinaryOp::Mul, moment, rate).unwrap();
    let step = builder.binary(BinaryOp::Div, step, root).unwrap();
    let variable = builder.binary(BinaryOp::Sub, variable, step).unwrap();
    builder.finish(vec![variable, moment, square])
}

/// Requests on tensors whose rows are whole words of 16 bytes, of the sizes that networks have.
fn streams() -> Vec<KernelRequest> {
    let mut all = Vec::new();
    for data_type in [FLOAT, DataType::Half, BF16] {
        let rows = vec![1 << 12, 256];
        for operands in [vec![rows.clone(); 3], vec![rows.clone(), vec![256], vec![256]]] {
            all.push(KernelRequest::Expr { expr: expression(data_type), shape: rows.clone(), operands });
        }
        for axes in [vec![0], vec![1], vec![0, 1]] {
            let op = if axes.len() == 2 { ReduceOp::Mean } else { ReduceOp::Sum };
            all.push(KernelRequest::Reduction(Reduction::Reduce { op, data_type, shape: rows.clone(), axes, divided: true }));
        }
        for classes in [64, 1024] {
            for log in [false, true] {
                all.push(KernelRequest::Nn(Nn::Softmax { log, data_type, rows: 4096, classes }));
            }
            for label_type in [None, Some(DataType::Int32)] {
                all.push(KernelRequest::Nn(Nn::CrossEntropy { data_type, label_type, batch: 4096, classes }));
            }
        }
        let spec = BatchNormSpec { data_type, rows: 1 << 14, channels: 256, epsilon: 0.001, exponential_avg_factor: 1.0 };
        for (training, epilogue) in [(true, None), (false, None), (true, Some(normalizing::residual(&spec)))] {
            all.push(KernelRequest::BatchNorm { spec, training, reserve_3: training, summed: false, epilogue });
        }
        all.push(KernelRequest::BatchNorm { spec, training: true, reserve_3: true, summed: true, epilogue: None });
        all.extend([false, true].map(|relu| KernelRequest::BatchNormGrad { spec, training: true, relu }));
        all.push(KernelRequest::BatchNormGrad { spec, training: false, relu: false });
        all.extend(pools(data_type));
        let same = WindowAxis { size: 28, positions: 28, taps: 3, stride: 1, dilation: 1, pad: 1 };
        let half = WindowAxis { size: 28, positions: 14, taps: 3, stride: 2, dilation: 1, pad: 0 };
        for axis in [same, half] {
            let spec = anchors::convolution(data_type, 32, &[axis, axis], [192, 192]);
            all.extend(depthwise(&spec));
        }
        all.push(KernelRequest::Reduction(Reduction::HalfSquares { data_type, shape: rows }));
    }
    for data_type in [FLOAT, DataType::Double] {
        let method = Method::Bilinear { align_corners: false, half_pixel_centers: true };
        let (size, resized) = ([32, 32], [64, 64]);
        all.push(KernelRequest::Resample(Resample { data_type, batch: 8, size, resized, channels: 64, method, transposed: false }));
    }
    for k in [None, Some(5)] {
        let in_top_k = Reduction::InTopK { target_type: DataType::Int32, batch: 256, classes: 1000, k };
        all.push(KernelRequest::Reduction(in_top_k));
    }
    let momentum = Exprs { expr: adam(), single: vec![false, false, false, false, true], elements: vec![1 << 16, 64, 1 << 12] };
    all.push(KernelRequest::Exprs(momentum));
    // Sums in parts, of products.
    let product = ProductSpec { m: 64, n: 64, k: 1 << 14, ..anchors::DENSE };
    all.push(KernelRequest::Anchor { anchor: Anchor::Product(FLOAT, product), epilogue: None, pooling: None });
    for element in [2, 4, 8] {
        let shape = vec![64, 56, 256];
        let zeros = Some(vec![0; element]);
        let movements = [
            Movement::Slice { shape: shape.clone(), begin: vec![0, 8, 64], sizes: vec![64, 40, 128] },
            Movement::BroadcastTo { from: vec![64, 1, 256], to: shape.clone() },
            Movement::Tile { shape: shape.clone(), multiples: vec![1, 2, 1] },
            Movement::Pad { shape: shape.clone(), paddings: vec![(0, 0), (1, 1), (0, 0)], value: zeros },
            Movement::Transpose { shape: shape.clone(), perm: vec![1, 0, 2] },
            Movement::Split { shape: shape.clone(), axis: 2, sizes: vec![128, 128] },
            Movement::Concat { shapes: vec![shape.clone(); 2], axis: 2 },
            Movement::Pack { shape, count: 2, axis: 1 },
        ];
        all.extend(movements.into_iter().map(|movement| KernelRequest::Movement { element, movement }));
        let (params, indices) = (vec![10_000, 256], vec![64, 128]);
        let take = Gather::Take { element, params, indices, axis: 0, batch_dims: 0, index_type: DataType::Int64 };
        all.push(KernelRequest::Gather(take));
        let (index_type, shape) = (DataType::Int32, vec![4096]);
        all.push(KernelRequest::Gather(Gather::OneHot { element, index_type, shape, depth: 1024, axis: 1 }));
    }
    for (distribution, data_type) in [
        (Distribution::Uniform, FLOAT),
        (Distribution::Uniform, DataType::Double),
        (Distribution::Normal, FLOAT),
        (Distribution::UniformInt, DataType::Int32),
        (Distribution::UniformInt, DataType::Int64),
    ] {
        all.push(KernelRequest::Random(Random::Stateless { distribution, data_type, elements: 1 << 20 }));
        all.push(KernelRequest::Random(Random::Reserved { distribution, data_type, elements: 1 << 20, seed: 1, seed2: 2 }));
    }
    all
}

/// Pooling of windows that touch, and of windows that overlap.
fn pools(data_type: DataType) -> Vec<KernelRequest> {
    let apart = WindowAxis { size: 56, positions: 28, taps: 2, stride: 2, dilation: 1, pad: 0 };
    let over = WindowAxis { size: 56, positions: 28, taps: 3, stride: 2, dilation: 1, pad: 1 };
    let of = |axis: WindowAxis| {
        let axes = Axes::new(&[axis, axis]).unwrap();
        let spec = PoolSpec { data_type, batch: 32, channels: 64, axes, layout: Layout::ChannelsLast };
        let pooling = |positions| KernelRequest::MaxPool(Pooling { spec, maxima: Maxima::First, positions });
        [
            pooling(Positions::None),
            pooling(Positions::All),
            KernelRequest::MaxPoolGrad(spec),
            KernelRequest::MaxPoolGradOfInput { spec, maxima: Maxima::First },
            KernelRequest::AvgPool(spec),
            KernelRequest::AvgPoolGrad(spec),
        ]
    };
    [apart, over].into_iter().flat_map(of).collect()
}

fn depthwise(spec: &ConvSpec) -> Vec<KernelRequest> {
    (3..6).map(|kind| anchors::conv_request(kind, *spec, false)).collect()
}

/// What is not 16 bytes wide and should be.
fn narrow(code: &Code, wide: Wide) -> Option<String> {
    let has = |what: &str| {
        let widths = |name: &str| name.starts_with(what) && name.split('.').any(|part| part == "128" || part == "256");
        code.in_loops().any(|instruction| widths(&instruction.name))
    };
    let (loads, stores) = (has("LDG"), has("STG"));
    let is_wide = match wide {
        Wide::Both => loads && stores,
        Wide::Loads => loads,
        Wide::Stores => stores,
        Wide::No(_) => true,
    };
    let seen =
        || code.in_loops().map(|instruction| &instruction.name[..]).filter(|name| name.starts_with("LDG") || name.starts_with("STG"));
    (!is_wide).then(|| format!("{wide:?}, but in loops {:?}", seen().collect::<BTreeSet<_>>()))
}

/// Instructions on memory of the threads' own.
pub fn local(code: &Code) -> usize {
    code.0.iter().filter(|instruction| ["LDL", "STL"].iter().any(|name| instruction.name.starts_with(name))).count()
}

/// None where it is not installed.
pub fn disassembler() -> Option<Disassembler> {
    let disassembler = Disassembler::find();
    if disassembler.is_none() {
        eprintln!("skipped: no nvdisasm or cuobjdump is installed (PLIMSOLL_NVDISASM names it)");
    }
    disassembler
}

/// Kernels by name, each once.
fn by_name(kernels: impl IntoIterator<Item = Kernel>) -> BTreeMap<String, Kernel> {
    kernels.into_iter().map(|kernel| (kernel.entry.clone(), kernel)).collect()
}

/// What is wrong with kernels on each architecture.
fn wrong(kernels: &BTreeMap<String, Kernel>, says: impl Fn(&Kernel, &Code) -> Option<String>) -> Option<Vec<String>> {
    let (nvrtc, disassembler) = (compiled::nvrtc()?, disassembler()?);
    let program = emit::program(kernels.values());
    let mut wrong = Vec::new();
    for architecture in ARCHITECTURES {
        let (cubin, _) = nvrtc.cubin(&program, architecture, emit::OPTIONS).unwrap();
        let functions = disassembler.functions(&cubin).unwrap();
        for kernel in kernels.values() {
            let code = functions.get(&kernel.entry).unwrap_or_else(|| panic!("{architecture}: no code of {}", kernel.entry));
            assert!(!code.0.is_empty(), "{architecture}: no instruction of {}", kernel.entry);
            wrong.extend(says(kernel, code).map(|text| format!("{architecture}, {}: {text}", kernel.entry)));
        }
    }
    Some(wrong)
}

#[test]
fn every_family_has_a_line() {
    let families: Vec<&str> = TABLE.iter().map(|(family, _)| *family).collect();
    assert_eq!(families, FAMILIES);
    // Kernels of all of them are compared with the processor's, and compiled.
    let kernels = compiled::all_kernels();
    let shown: BTreeSet<&str> = kernels.iter().map(Kernel::family).collect();
    assert_eq!(shown.into_iter().collect::<Vec<_>>(), FAMILIES);
}

#[test]
fn kernels_that_stream_load_and_store_16_bytes_at_once() {
    let emitted = streams().into_iter().flat_map(|request| emit::emit(&request).unwrap().kernels);
    let more = [emit::copy().unwrap(), emit::pad(2, 1 << 16, [3, 8]).unwrap(), emit::pad(4, 1 << 16, [3, 4]).unwrap()];
    let kernels = by_name(emitted.chain(more));
    let of = |family: &str| TABLE.iter().find(|line| line.0 == family).map(|line| line.1).unwrap();
    let shown: BTreeSet<&str> = kernels.values().map(Kernel::family).collect();
    for (family, wide) in TABLE {
        assert!(matches!(wide, Wide::No(_)) || shown.contains(family), "no request shows {family}");
    }
    let Some(wrong) = wrong(&kernels, |kernel, code| {
        let held = local(code);
        narrow(code, of(kernel.family())).or_else(|| (held > 0).then(|| format!("{held} instructions on local memory")))
    }) else {
        return;
    };
    assert!(wrong.is_empty(), "{} of {} kernels:\n{}", wrong.len(), kernels.len(), wrong.join("\n"));
}
