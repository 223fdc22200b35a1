//! Parts of the rows of a request give the bits of the whole, by kernels of the same numerics.

use plimsoll_base::{DataType, Random};
use plimsoll_device::{Bf16Instructions, DeviceSpec, InstructionSet, Library};
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::bands::{BandStage, Bands};
use plimsoll_request::conv::{ConvSpec, FilterForm};
use plimsoll_request::expr::{BinaryOp, Expr, ExprBuilder, UnaryOp};
use plimsoll_request::lrn::LrnSpec;
use plimsoll_request::movement::Movement;
use plimsoll_request::nn::Nn;
use plimsoll_request::pool::{Maxima, PoolSpec, Pooling, Positions};
use plimsoll_request::product::{Place, Places, ProductSpec};
use plimsoll_request::reduce::{ReduceOp, Reduction};
use plimsoll_request::row_wise::{RowStep, RowWise, Span};
use plimsoll_request::window::{Axes, Layout, WindowAxis};
use plimsoll_request::{KernelRequest, Rows};

use crate::evaluate::{run_made, run_onto};
use crate::library::{Made, available, make, name_of, winograd_name_of};
use crate::simd::Isa;
use crate::{CpuKernels, bf16};

const INSTRUCTIONS: [InstructionSet; 3] = [InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512];

fn axes(size: u64, taps: u64, stride: u64) -> Axes {
    let positions = size.div_ceil(stride);
    let pad = ((positions - 1) * stride + taps).saturating_sub(size) / 2;
    let axis = WindowAxis { size, positions, taps, stride, dilation: 1, pad };
    Axes::new(&[axis, axis]).unwrap()
}

fn conv(batch: u64, (size, taps, stride): (u64, u64, u64), in_c: u64, out_c: u64) -> ConvSpec {
    ConvSpec { data_type: DataType::Float, batch, in_c, out_c, axes: axes(size, taps, stride), layout: Layout::ChannelsLast, groups: 1 }
}

fn pool(batch: u64, (size, taps, stride): (u64, u64, u64), channels: u64) -> PoolSpec {
    PoolSpec { data_type: DataType::Float, batch, channels, axes: axes(size, taps, stride), layout: Layout::ChannelsLast }
}

/// tanh(exp(a) * b), and a + b.
fn two_results() -> Expr {
    let mut b = ExprBuilder::new();
    let (x, y) = (b.input(DataType::Float).unwrap(), b.input(DataType::Float).unwrap());
    let exp = b.unary(UnaryOp::Exp, x).unwrap();
    let product = b.binary(BinaryOp::Mul, exp, y).unwrap();
    let (tanh, sum) = (b.unary(UnaryOp::Tanh, product).unwrap(), b.binary(BinaryOp::Add, x, y).unwrap());
    b.finish(vec![tanh, sum])
}

/// The larger of the anchor's element with an operand added, and 0; times the operand behind it.
fn finish(last: &[u64], all: &[u64]) -> Epilogue {
    let mut b = ExprBuilder::new();
    let [x, bias, scale] = [(); 3].map(|()| b.input(DataType::Float).unwrap());
    let zero = b.number(DataType::Float, 0.0).unwrap();
    let sum = b.binary(BinaryOp::Add, x, bias).unwrap();
    let relu = b.binary(BinaryOp::Maximum, sum, zero).unwrap();
    let scaled = b.binary(BinaryOp::Mul, relu, scale).unwrap();
    Epilogue { expr: b.finish(vec![scaled]), operands: vec![last.to_vec(), all.to_vec()] }
}

/// A softmax of rows, and what two operands make of its largest share.
fn row_wise() -> RowWise {
    let last = RowStep::Expr { expr: two_results(), operands: vec![1, 4], span: Span::Column };
    let steps = vec![RowStep::Softmax { log: false, of: 0 }, RowStep::Reduce { op: ReduceOp::Max, of: 3 }, last];
    RowWise { rows: 96, row: 20, inputs: vec![Span::Rows, Span::One, Span::Row], steps, results: vec![3, 5, 6] }
}

fn requests() -> Vec<KernelRequest> {
    let anchor = |anchor: Anchor| KernelRequest::Anchor { anchor, epilogue: None, pooling: None };
    let dense = |batch: u64, m: u64, n: u64, k: u64, transpose_a: bool, transpose_b: bool| ProductSpec {
        batch,
        m,
        n,
        k,
        transpose_a,
        transpose_b,
        places: None,
    };
    let lrn = LrnSpec { data_type: DataType::Float, rows: 96, channels: 20, depth_radius: 4, bias: 1.0, alpha: 0.01, beta: 0.75 };
    let expr = |shape: &[u64], operands: &[&[u64]]| KernelRequest::Expr {
        expr: two_results(),
        shape: shape.to_vec(),
        operands: operands.iter().map(|operand| operand.to_vec()).collect(),
    };
    let mut all = vec![
        expr(&[24, 7, 5], &[&[24, 7, 5], &[5]]),
        expr(&[24, 7, 5], &[&[24, 1, 5], &[7, 1]]),
        expr(&[1, 48], &[&[48], &[1, 1]]),
        expr(&[12, 1000], &[&[12, 1], &[12, 1000]]),
        expr(&[96, 3], &[&[96, 3], &[]]),
        KernelRequest::Nn(Nn::Softmax { log: false, data_type: DataType::Float, rows: 24, classes: 37 }),
        KernelRequest::Nn(Nn::Softmax { log: true, data_type: DataType::Float, rows: 48, classes: 10 }),
        KernelRequest::Nn(Nn::CrossEntropy { data_type: DataType::Float, label_type: None, batch: 24, classes: 11 }),
        KernelRequest::Lrn(lrn),
        KernelRequest::LrnGrad(lrn),
        KernelRequest::RowWise(row_wise()),
    ];
    for (m, n, k) in [(24, 10, 30), (12, 384, 300), (960, 96, 64), (24, 64, 4096), (48, 1, 33), (240, 3, 700), (192, 160, 500)] {
        for transpose_b in [false, true] {
            let spec = dense(1, m, n, k, false, transpose_b);
            all.push(anchor(Anchor::Product(DataType::Float, spec)));
            let epilogue = Some(finish(&[n], &[m, n]));
            all.push(KernelRequest::Anchor { anchor: Anchor::Product(DataType::Float, spec), epilogue, pooling: None });
        }
    }
    for transposed in [(false, false), (true, false), (false, true)] {
        for (m, n, k) in [(17, 20, 33), (64, 64, 16), (1, 50, 40), (128, 1, 30)] {
            all.push(anchor(Anchor::Product(DataType::Float, dense(12, m, n, k, transposed.0, transposed.1))));
        }
    }
    // Heads beside each other: [batch, time, heads, depth] by [batch, time, heads, depth].
    let (batch, time, heads, depth) = (12, 9, 4, 8);
    let head = Place { row: heads * depth, matrix: [0, 0, time * heads * depth, depth] };
    let scores = Place { row: time, matrix: [0, 0, heads * time * time, time * time] };
    let places = Places { sizes: [1, 1, batch, heads], a: head, b: head, c: scores };
    let spec =
        ProductSpec { m: time, n: time, k: depth, transpose_a: false, transpose_b: true, batch: batch * heads, places: Some(places) };
    all.push(anchor(Anchor::Product(DataType::Float, spec)));
    let shared = Places { b: Place { matrix: [0; Places::DIMS], ..head }, ..places };
    all.push(anchor(Anchor::Product(DataType::Float, ProductSpec { places: Some(shared), ..spec })));

    for spec in [
        conv(12, (16, 5, 1), 8, 16),
        conv(12, (8, 3, 1), 64, 64),
        conv(24, (9, 3, 2), 3, 20),
        conv(12, (14, 1, 1), 48, 96),
        conv(12, (7, 3, 1), 5, 1),
        conv(12, (12, 5, 1), 64, 64),
        ConvSpec { groups: 4, ..conv(12, (8, 3, 1), 16, 16) },
    ] {
        let of = |anchor: Anchor, shape: Vec<u64>| {
            let channels = if spec.layout == Layout::ChannelsLast { shape[3] } else { 1 };
            KernelRequest::Anchor { anchor, epilogue: Some(finish(&[channels], &shape)), pooling: None }
        };
        all.extend([anchor(Anchor::Conv(spec)), of(Anchor::Conv(spec), spec.output())]);
        all.extend([anchor(Anchor::ConvBackpropInput(spec)), of(Anchor::ConvBackpropInput(spec), spec.input())]);
    }
    let depthwise = ConvSpec { out_c: 24, ..conv(12, (10, 3, 1), 24, 24) };
    all.push(anchor(Anchor::DepthwiseConv(depthwise)));
    all.push(KernelRequest::DepthwiseConvBackpropInput(depthwise));
    // Convolutions by bands.
    let (wide, narrow) = (conv(12, (10, 1, 1), 8, 24), conv(12, (10, 1, 1), 24, 8));
    let stage = |anchor: Anchor, spec: ConvSpec| BandStage { anchor, epilogue: Some(finish(&[spec.out_c], &spec.output())) };
    let stages = vec![stage(Anchor::Conv(wide), wide), BandStage { anchor: Anchor::DepthwiseConv(depthwise), epilogue: None }];
    let bands = Bands { stages };
    all.push(KernelRequest::Bands(bands.then(stage(Anchor::Conv(narrow), narrow))));
    all.push(KernelRequest::Bands(bands));
    // A convolution with the pooling behind it.
    let spec = conv(12, (32, 5, 1), 3, 64);
    let pooling = Pooling { spec: pool(12, (32, 3, 2), 64), maxima: Maxima::First, positions: Positions::Positive };
    let epilogue = Some(finish(&[64], &[]));
    all.push(KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, pooling: Some(pooling) });

    for spec in [pool(12, (8, 3, 2), 20), pool(24, (9, 2, 2), 3)] {
        for positions in [Positions::None, Positions::All, Positions::Positive] {
            all.push(KernelRequest::MaxPool(Pooling { spec, maxima: Maxima::First, positions }));
        }
        all.extend([KernelRequest::MaxPoolGrad(spec), KernelRequest::MaxPoolGradOfInput { spec, maxima: Maxima::First }]);
        all.extend([KernelRequest::MaxPoolGradGrad(spec), KernelRequest::AvgPool(spec), KernelRequest::AvgPoolGrad(spec)]);
    }
    let moved = |movement: Movement| KernelRequest::Movement { element: 4, movement };
    let shape = vec![12, 5, 6];
    all.extend([
        moved(Movement::Concat { shapes: vec![shape.clone(), vec![12, 2, 6]], axis: 1 }),
        moved(Movement::Pad { shape: shape.clone(), paddings: vec![(0, 0), (1, 2), (0, 1)], value: Some(vec![0; 4]) }),
        moved(Movement::Slice { shape: shape.clone(), begin: vec![0, 1, 2], sizes: vec![12, 3, 2] }),
        moved(Movement::BroadcastTo { from: vec![1, 1, 6], to: shape.clone() }),
        moved(Movement::BroadcastTo { from: vec![12, 1, 6], to: shape.clone() }),
        moved(Movement::BroadcastTo { from: vec![6], to: shape.clone() }),
        moved(Movement::Split { shape: shape.clone(), axis: 2, sizes: vec![4, 2] }),
        moved(Movement::Transpose { shape, perm: vec![0, 2, 1] }),
    ]);
    all
}

/// What kernels of each numerics are made for a request.
fn made(isa: Isa, request: &KernelRequest) -> Vec<(&'static str, Made)> {
    let exact = make(isa, request).ok().map(|made| (name_of(isa), made));
    let fewer = crate::fewer::prepare(isa, request, crate::packing::Order::Rows).ok().flatten();
    let has_bf16 = isa == Isa::Avx512 && Bf16Instructions::detect().is_some();
    let bf16 = has_bf16.then(|| bf16::prepare(request).ok().flatten()).flatten();
    let others = [(winograd_name_of(isa), fewer), (bf16::NAME, bf16)].into_iter().filter_map(|(name, made)| Some((name, made?.0)));
    exact.into_iter().chain(others).collect()
}

/// The kernels of a request that are of these numerics.
fn made_by(isa: Isa, request: &KernelRequest, numerics: &str) -> Option<Made> {
    made(isa, request).into_iter().find(|(name, _)| *name == numerics).map(|(_, made)| made)
}

#[test]
fn parts_have_the_bits_of_the_whole() {
    let mut random = Random::new(7);
    let (mut compared, mut uneven) = (0, 0);
    for instructions in INSTRUCTIONS {
        let Ok(isa) = available(instructions) else { continue };
        let spec = DeviceSpec::cpu(0, None, 1, instructions);
        for request in requests() {
            let arguments = request.arguments().unwrap();
            let inputs: Vec<Vec<u8>> = arguments.inputs.iter().map(|bytes| bytes_of(&request, *bytes, &mut random)).collect();
            let wholes = made(isa, &request);
            assert!(!wholes.is_empty(), "{request:?}");
            for (numerics, whole) in &wholes {
                let expected = run_made(whole, &request, &slices(&inputs), &arguments.outputs).unwrap();
                for rows in divisions(&request, &[2, 3, 4, 5, 6, 7, 8, 12, 16, 24]) {
                    let Some(part) = CpuKernels.part(&spec, &request, numerics, rows) else { continue };
                    if part.sums.is_some() {
                        continue;
                    }
                    assert_eq!((part.cut.len(), part.calls), (inputs.len() + expected.len(), 1), "{request:?}");
                    let known: Vec<_> = std::iter::once(&part.request).chain(&part.larger).map(|part| (part, made(isa, part))).collect();
                    for number in 0..rows.parts {
                        let (request_of, others) = &known[usize::from(is_larger(rows, number))];
                        let Some((_, one)) = others.iter().find(|(other, _)| other == numerics) else { continue };
                        let of = |whole: &[u8], is_cut: bool| if is_cut { slice(whole, rows, number).to_vec() } else { whole.to_vec() };
                        let cut_inputs: Vec<Vec<u8>> = inputs.iter().zip(&part.cut).map(|(input, is_cut)| of(input, *is_cut)).collect();
                        let results = run_made(one, request_of, &slices(&cut_inputs), &request_of.arguments().unwrap().outputs).unwrap();
                        for ((result, whole), is_cut) in results.iter().zip(&expected).zip(&part.cut[inputs.len()..]) {
                            assert!(
                                *is_cut && *result == of(whole, true),
                                "part {number} of {rows:?} by {numerics} on {isa:?}: {request:?}"
                            );
                            compared += 1;
                            uneven += usize::from(!rows.is_even());
                        }
                    }
                }
            }
        }
    }
    assert!(uneven > 1000, "{uneven}");
    assert!(compared > 1000, "{compared}");
}

/// Equal parts, and parts of the request's own rows.
fn divisions(request: &KernelRequest, parts: &[u64]) -> Vec<Rows> {
    let own = CpuKernels.rows(request);
    let of = |parts: &u64| std::iter::once(Rows::equal(*parts)).chain(own.map(|all| Rows { all, parts: *parts }));
    parts.iter().flat_map(of).collect()
}

/// Whether a part has a row more than others.
fn is_larger(rows: Rows, part: u64) -> bool {
    rows.first(part + 1) - rows.first(part) > rows.least()
}

/// The bytes of a part.
fn slice(whole: &[u8], rows: Rows, part: u64) -> &[u8] {
    let row = whole.len() / rows.all as usize;
    &whole[rows.first(part) as usize * row..rows.first(part + 1) as usize * row]
}

/// The gradient of a filter, without and with a pooling.
fn gradients(spec: ConvSpec) -> [KernelRequest; 2] {
    let size = spec.output()[1];
    let pooled = PoolSpec { batch: spec.batch, ..pool(spec.batch, (size, 3, 2), spec.out_c) };
    [None, Some(pooled)].map(|unpooled| KernelRequest::ConvBackpropFilter { spec, unpooled })
}

/// Gradients of filters that take long.
fn large_sums() -> Vec<KernelRequest> {
    let all = [conv(32, (6, 3, 1), 256, 320), conv(128, (24, 5, 1), 3, 64), conv(32, (12, 3, 1), 96, 64)];
    all.into_iter().flat_map(gradients).collect()
}

/// Sums over rows: gradients of filters, without and with a pooling, and reductions.
fn sums() -> Vec<KernelRequest> {
    let mut all = Vec::new();
    for spec in [
        conv(37, (16, 5, 1), 8, 16),
        conv(41, (28, 3, 2), 3, 64),
        conv(53, (24, 5, 1), 3, 64),
        conv(48, (16, 5, 1), 8, 16),
        conv(48, (8, 3, 1), 64, 64),
        conv(24, (9, 3, 2), 3, 20),
        conv(48, (14, 1, 1), 48, 96),
        conv(48, (28, 3, 2), 3, 64),
        conv(24, (7, 3, 1), 5, 1),
        ConvSpec { groups: 4, ..conv(12, (8, 3, 1), 16, 16) },
    ] {
        all.extend(gradients(spec));
    }
    let reduced = |op: ReduceOp, shape: &[u64], axes: &[usize]| {
        let (shape, axes) = (shape.to_vec(), axes.to_vec());
        all_of(Reduction::Reduce { op, data_type: DataType::Float, shape, axes, divided: true })
    };
    for (shape, axes) in [
        (&[48u64, 24, 24, 64][..], &[0usize, 1, 2][..]),
        (&[37, 24, 24, 64], &[0, 1, 2]),
        (&[53, 30, 70, 10], &[0, 2]),
        (&[65, 3000], &[0, 1]),
        (&[41, 9, 100], &[1, 2]),
        (&[96, 30, 7, 100], &[0, 2]),
        (&[1024, 300], &[0]),
        (&[48, 64, 33], &[0, 1]),
        (&[48, 3000], &[0, 1]),
        (&[24, 200, 20], &[1]),
        (&[24, 5000, 70], &[1]),
        (&[24, 9, 100], &[1, 2]),
        (&[48, 7, 9, 3], &[2, 1]),
    ] {
        all.extend([ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max].map(|op| reduced(op, shape, axes)));
    }
    all
}

fn all_of(reduction: Reduction) -> KernelRequest {
    KernelRequest::Reduction(reduction)
}

/// How often sums were compared: of rows, of sums that are one part's, and of sums that parts add to; then by numerics with fewer
/// multiplications.
#[derive(Default)]
struct Compared {
    by_way: [usize; 6],
    uneven: [usize; 6],
    folded: usize,
}

impl Compared {
    /// Compares the sums of requests that are chosen by instruction set.
    fn compare(&mut self, requests: impl Fn(Isa) -> Vec<KernelRequest>) {
        let mut random = Random::new(11);
        for instructions in INSTRUCTIONS {
            let Ok(isa) = available(instructions) else { continue };
            let spec = DeviceSpec::cpu(0, None, 1, instructions);
            for request in requests(isa) {
                let Ok(arguments) = request.arguments() else { continue };
                let inputs: Vec<Vec<u8>> = arguments.inputs.iter().map(|bytes| bytes_of(&request, *bytes, &mut random)).collect();
                let wholes = made(isa, &request);
                let divisions = divisions(&request, &[2, 3, 4, 6, 8, 12, 16, 24, 32, 64]);
                for (numerics, whole) in &wholes {
                    let expected = run_made(whole, &request, &slices(&inputs), &arguments.outputs).unwrap();
                    for rows in divisions.iter().copied() {
                        let Some(part) = CpuKernels.part(&spec, &request, numerics, rows) else { continue };
                        let (cut, sums) = (&part.cut, &part.sums);
                        // Long sums take long, and show nothing more.
                        if sums.as_ref().is_some_and(|sums| sums.bytes > 4 << 20) {
                            continue;
                        }
                        let of_points = if numerics.ends_with("winograd") { 3 } else { 0 };
                        let way = of_points + sums.as_ref().map_or(0, |sums| if sums.begin.is_some() { 2 } else { 1 });
                        self.by_way[way] += 1;
                        self.uneven[way] += usize::from(!rows.is_even());
                        let known: Vec<_> = std::iter::once(&part.request)
                            .chain(&part.larger)
                            .map(|part| (part, made_by(isa, part, numerics).unwrap()))
                            .collect();
                        let run_once = |request: &KernelRequest, inputs: &[&[u8]]| {
                            let outputs = request.arguments().unwrap().outputs;
                            let made = made_by(isa, request, numerics).or_else(|| make(isa, request).ok()).unwrap();
                            run_made(&made, request, inputs, &outputs).unwrap().remove(0)
                        };
                        let pieces = rows.times(part.calls).unwrap();
                        // What there is at first is not 0 where it need not be.
                        let bytes = sums.as_ref().map_or(arguments.outputs[0], |sums| sums.bytes);
                        let mut result = match sums.as_ref().and_then(|sums| sums.begin.as_ref()) {
                            Some(begin) => run_once(begin, &[]),
                            None => vec![0xAB; bytes as usize],
                        };
                        assert_eq!(result.len() as u64, bytes);
                        for number in 0..pieces.parts {
                            let (of, one) = &known[usize::from(is_larger(pieces, number))];
                            let own = of.arguments().unwrap();
                            let cut_inputs =
                                inputs.iter().zip(cut).map(|(input, is_cut)| if *is_cut { slice(input, pieces, number) } else { input });
                            let cut_inputs: Vec<&[u8]> = cut_inputs.collect();
                            let range = match sums {
                                Some(sums) => {
                                    let each = result.len() / sums.count as usize;
                                    assert_eq!(own.updates_first, sums.count < pieces.parts, "{request:?} in {rows:?}");
                                    let first = (number / (pieces.parts / sums.count)) as usize * each;
                                    first..first + each
                                }
                                None => {
                                    let row = result.len() / pieces.all as usize;
                                    pieces.first(number) as usize * row..pieces.first(number + 1) as usize * row
                                }
                            };
                            let slice = &mut result[range];
                            assert_eq!(own.outputs, [slice.len() as u64], "{request:?} in {rows:?}");
                            slice.copy_from_slice(&run_onto(one, of, &cut_inputs, vec![slice.to_vec()]).unwrap()[0]);
                        }
                        if let Some((sums, fold)) = sums.as_ref().and_then(|sums| Some((sums, sums.fold.as_ref()?))) {
                            let mut each = result.chunks(result.len() / sums.count as usize);
                            let first = each.next().unwrap().to_vec();
                            let all = each.fold(first, |before, next| run_once(&fold.add, &[&before, next]));
                            assert!(
                                run_once(&fold.end, &[&all]) == expected[0],
                                "one by one, {rows:?} by {numerics} on {isa:?}: {request:?}"
                            );
                            if let Some(begin) = &fold.begin {
                                assert_eq!(run_once(begin, &[]), run_once(sums.begin.as_ref().unwrap(), &[])[..all.len()]);
                            }
                            self.folded += 1;
                        }
                        if let Some(end) = sums.as_ref().and_then(|sums| sums.end.as_ref()) {
                            result = run_once(end, &[&result]);
                        }
                        assert!(result == expected[0], "{rows:?} by {numerics} on {isa:?}: {request:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn sums_of_parts_have_the_bits_of_the_whole() {
    let mut compared = Compared::default();
    compared.compare(|isa| if isa == Isa::best() { [sums(), large_sums()].concat() } else { sums() });
    assert!(compared.uneven[..3].iter().all(|count| *count > 20), "{:?}", compared.uneven);
    assert!([0, 1, 2, 4, 5].iter().all(|way| compared.by_way[*way] > 20), "{:?}", compared.by_way);
    assert!(compared.folded > 20, "{}", compared.folded);
}

#[test]
#[ignore = "takes minutes: scripts/long"]
fn large_sums_of_parts_have_the_bits_of_the_whole_on_any_processor() {
    let mut compared = Compared::default();
    compared.compare(|isa| if isa == Isa::best() { Vec::new() } else { large_sums() });
}

#[test]
fn sums_that_no_kernel_has_are_refused() {
    let spec = conv(0, (8, 3, 1), 4, 4);
    let of = |sums: u64, spec: ConvSpec| KernelRequest::ConvBackpropFilterSums {
        spec,
        unpooled: None,
        sums,
        onto: true,
        form: FilterForm::Taps,
    };
    let some = |rows: u64, all: u64| {
        let (op, data_type) = (ReduceOp::Sum, DataType::Float);
        all_of(Reduction::ReduceSome { op, data_type, shape: vec![rows, 40, 7], axes: vec![1], all })
    };
    let empty = |spec: ConvSpec| ConvSpec { in_c: 0, ..spec };
    let refused =
        [of(0, spec), of(3, conv(4, (8, 3, 1), 4, 4)), of(u64::MAX, empty(spec)), of(1 << 40, empty(spec)), some(0, 4), some(5, 4)];
    for request in refused {
        assert!(make(Isa::Portable, &request).is_err(), "{request:?}");
    }
    assert!(make(Isa::Portable, &some(1, u64::MAX)).is_ok());
}

fn slices(arguments: &[Vec<u8>]) -> Vec<&[u8]> {
    arguments.iter().map(Vec::as_slice).collect()
}

/// Floats, or positions in windows where they are as many bytes as a pooling has results.
fn bytes_of(request: &KernelRequest, bytes: u64, random: &mut Random) -> Vec<u8> {
    if let KernelRequest::MaxPoolGrad(spec) | KernelRequest::ConvBackpropFilter { unpooled: Some(spec), .. } = request
        && bytes == spec.output().iter().product::<u64>()
    {
        return (0..bytes).map(|_| if random.below(5) == 0 { u8::MAX } else { random.below(spec.taps() as usize) as u8 }).collect();
    }
    let float = |random: &mut Random| (random.unit() as f32 * 4.0 - 2.0).to_le_bytes();
    (0..bytes.div_ceil(4)).flat_map(|_| float(random)).take(bytes as usize).collect()
}
