//! Products and convolutions with their inputs.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::product::{Place, Places, ProductSpec};
use plimsoll_request::window::{Axes, Layout, WindowAxis};

use super::cases::{Case, Near};
use super::making::{Making, times};

/// No bit differs, but for the sign of 0.
pub const SAME: Near = Near::Units(0.1);

/// One element by one.
pub const DENSE: ProductSpec = ProductSpec { m: 1, n: 1, k: 1, transpose_a: false, transpose_b: false, batch: 1, places: None };

/// Products of all types and forms; sizes are edges of tiles, or beside them.
pub fn products(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    let types = [DataType::Float, DataType::Half, DataType::Bfloat16, DataType::Double, DataType::Int32, DataType::Int64];
    let any = [1, 2, 5, 15, 16, 17, 33, 64, 65, 100, 128, 129];
    for number in 0..times(36) {
        let (m, n, k) = (*making.of(&any), *making.of(&any), *making.of(&[0, 1, 3, 8, 15, 16, 17, 31, 32, 33, 70]));
        let batch = if number % 3 == 0 { 1 + making.below(4) } else { 1 };
        let (m, n) = if batch > 1 { (m.min(20), n.min(33)) } else { (m, n) };
        let spec = ProductSpec { m, n, k, transpose_a: number & 1 == 1, transpose_b: number & 2 == 2, batch, places: None };
        let spec = ProductSpec { places: (number % 6 == 3).then(|| beside(&spec)), ..spec };
        cases.push(product(&mut making, types[number % types.len()], spec, None));
    }
    // Sums in parts, results without elements, and as many tiles as keep a card busy.
    let float = DataType::Float;
    let bias_and_relu = |making: &mut Making, spec: ProductSpec| {
        let operands = match making.below(3) {
            0 => vec![vec![spec.n], vec![spec.m, spec.n]],
            1 => vec![vec![spec.m, 1], vec![]],
            _ => vec![vec![spec.m, spec.n], vec![1, spec.n]],
        };
        finished(operands)
    };
    for (m, n, k, data_type) in [
        (20, 33, 1500, float),
        (1, 300, 700, float),
        (70, 3, 513, DataType::Half),
        (9, 9, 530, DataType::Int64),
        (17, 17, 700, DataType::Double),
    ] {
        cases.push(product(&mut making, data_type, ProductSpec { m, n, k, ..DENSE }, None));
        let spec = ProductSpec { m: m + 1, n, k, transpose_a: true, ..DENSE };
        let epilogue = bias_and_relu(&mut making, spec);
        cases.push(product(&mut making, float, spec, Some(epilogue)));
    }
    for (m, n, k) in [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)] {
        cases.push(product(&mut making, float, ProductSpec { m, n, k, ..DENSE }, None));
        cases.push(product(&mut making, float, ProductSpec { m, n, k, batch: 0, ..DENSE }, None));
    }
    for (m, n, k) in [(1, 1, 1), (5, 3, 4), (64, 65, 9), (3, 200, 16), (130, 16, 5), (33, 17, 0)] {
        let spec = ProductSpec { m, n, k, ..DENSE };
        let epilogue = bias_and_relu(&mut making, spec);
        cases.push(product(&mut making, float, spec, Some(epilogue)));
    }
    cases.push(product(&mut making, float, ProductSpec { m: 66, n: 65, k: 3, batch: 128, transpose_b: true, ..DENSE }, None));
    cases
}

/// Products of numbers whose sums are rounded: near, as the order of a sum says.
pub fn rounded_products(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let sizes = [(33, 40, 70), (5, 300, 400), (65, 64, 129), (20, 20, 3000)];
    let case = |(m, n, k)| {
        let mut case = product(&mut making, DataType::Float, ProductSpec { m, n, k, ..DENSE }, None);
        let mut fractions =
            |count: u64| (0..count).flat_map(|_| (making.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0).to_le_bytes()).collect();
        case.inputs = vec![fractions(m * k), fractions(k * n)];
        Case { near: Near::Of((k as f64).sqrt(), 8.0), ..case }
    };
    sizes.into_iter().map(case).collect()
}

/// Rows of the matrices A beside each other, one B for all, and rows of the matrices C beside each other.
fn beside(spec: &ProductSpec) -> Places {
    let a_columns = if spec.transpose_a { spec.m } else { spec.k };
    let b_columns = if spec.transpose_b { spec.k } else { spec.n };
    Places {
        sizes: [1, 1, spec.batch, 1],
        a: Place { row: a_columns * spec.batch, matrix: [0, 0, a_columns, 7] },
        b: Place { row: b_columns, matrix: [0; Places::DIMS] },
        c: Place { row: spec.n * spec.batch, matrix: [9, 0, spec.n, 0] },
    }
}

/// Convolutions and their gradients: any strides, dilations and padding, also such that some positions see padding alone.
pub fn convolutions(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(30) {
        let data_type = *making.of(&[DataType::Float, DataType::Float, DataType::Half, DataType::Bfloat16, DataType::Double]);
        let mut axes: Vec<WindowAxis> = (0..1 + making.below(3)).map(|_| axis(&mut making)).collect();
        if number % 8 == 7 {
            axes.iter_mut().for_each(|axis| *axis = WindowAxis { size: axis.size, positions: axis.size, ..WindowAxis::ONE });
        }
        let (in_c, out_c) = (*making.of(&[1, 3, 8, 17]), *making.of(&[1, 4, 16, 20, 33]));
        let groups = if number % 5 < 2 { 1 + making.below(4) } else { 1 };
        let channels = [in_c.min(33 / groups) * groups, out_c.min(33 / groups) * groups];
        let spec = ConvSpec { groups, ..convolution(data_type, 1 + making.below(3), &axes, channels) };
        let epilogue = making.below(3) == 0 && data_type == DataType::Float;
        cases.push(conv(&mut making, number % 3, spec, epilogue));
    }
    // Sums in parts, and sizes of 0.
    let same = WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let half = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    for kind in 0..3 {
        for axes in [[same, same], [half, same]] {
            let (batch, channels) = if kind == 2 { (8, [3, 20]) } else { (1, [60, 60]) };
            cases.push(conv(&mut making, kind, convolution(DataType::Float, batch, &axes, channels), kind < 2));
        }
        let (batch, channels) = if kind == 2 { (8, [6, 12]) } else { (1, [120, 120]) };
        let spec = ConvSpec { groups: 2, ..convolution(DataType::Float, batch, &[half, same], channels) };
        cases.push(conv(&mut making, kind, spec, kind < 2));
        let nothing = WindowAxis { size: 0, positions: 0, ..same };
        for (batch, axis, channels) in [(0, same, [3, 4]), (2, same, [0, 4]), (2, same, [3, 0]), (2, nothing, [3, 4])] {
            cases.push(conv(&mut making, kind, convolution(DataType::Float, batch, &[axis, same], channels), false));
        }
    }
    cases
}

/// Convolutions of each channel by itself, and their gradients.
pub fn depthwise(seed: u64) -> Vec<Case> {
    let mut making = Making::new(seed);
    let mut cases = Vec::new();
    for number in 0..times(24) {
        let data_type = *making.of(&[DataType::Float, DataType::Float, DataType::Half, DataType::Bfloat16, DataType::Double]);
        let axes: Vec<WindowAxis> = (0..1 + making.below(2)).map(|_| axis(&mut making)).collect();
        let (channels, multiplier) = (*making.of(&[1, 3, 16, 33]), *making.of(&[1, 1, 2, 3]));
        let spec = convolution(data_type, 1 + making.below(3), &axes, [channels, channels * multiplier]);
        let epilogue = making.below(2) == 0 && data_type == DataType::Float;
        cases.push(conv(&mut making, 3 + number % 3, spec, epilogue));
    }
    // Channels of whole words.
    let half = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    for (data_type, channels) in [(DataType::Float, 12), (DataType::Bfloat16, 16), (DataType::Double, 6)] {
        for kind in 3..6 {
            let spec = convolution(data_type, 2, &[half, half], [channels; 2]);
            cases.push(conv(&mut making, kind, spec, kind == 3 && data_type == DataType::Float));
        }
    }
    cases.push(conv(&mut making, 3, convolution(DataType::Float, 2, &[half, half], [20; 2]), false));
    // Sums in parts, and sizes of 0.
    let same = WindowAxis { size: 12, positions: 12, taps: 3, stride: 1, dilation: 1, pad: 1 };
    for kind in 3..6 {
        for (batch, channels) in [(8, [5, 10]), (0, [3, 3]), (2, [0, 0]), (2, [3, 0])] {
            cases.push(conv(&mut making, kind, convolution(DataType::Float, batch, &[same, same], channels), kind == 3));
        }
    }
    cases
}

/// Convolutions of networks, whose kernels have the largest tiles.
pub fn large_convolutions() -> Vec<KernelRequest> {
    let same = WindowAxis { size: 56, positions: 56, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let half = WindowAxis { size: 56, positions: 28, taps: 3, stride: 2, dilation: 1, pad: 0 };
    let of_kind = |kind: usize| {
        let channels = if kind == 2 { [512, 1024] } else { [128, 256] };
        let flat = convolution(DataType::Float, 32, &[same, same], channels);
        let deep = convolution(DataType::Bfloat16, 32, &[half, same, half], channels);
        [conv_request(kind, flat, kind < 2), conv_request(kind, deep, false)]
    };
    (0..3).flat_map(of_kind).collect()
}

fn axis(making: &mut Making) -> WindowAxis {
    let (size, taps, stride, dilation) = (1 + making.below(9), 1 + making.below(4), 1 + making.below(3), 1 + making.below(2));
    let (before, after) = (making.below(5), making.below(5));
    let reach = (taps - 1) * dilation + 1;
    let positions = (size + before + after).checked_sub(reach).map_or(0, |free| free / stride + 1);
    WindowAxis { size, positions, taps, stride, dilation, pad: before }
}

pub fn convolution(data_type: DataType, batch: u64, axes: &[WindowAxis], [in_c, out_c]: [u64; 2]) -> ConvSpec {
    ConvSpec { data_type, batch, in_c, out_c, axes: Axes::new(axes).unwrap(), layout: Layout::ChannelsLast, groups: 1 }
}

/// A convolution, its gradient by the input, or by the filter, then those of each channel by itself; elements whose sums are exact.
fn conv(making: &mut Making, kind: usize, spec: ConvSpec, epilogue: bool) -> Case {
    anchor(making, conv_request(kind, spec, epilogue))
}

pub fn conv_request(kind: usize, spec: ConvSpec, epilogue: bool) -> KernelRequest {
    let channels = |shape: Vec<u64>| vec![vec![shape[shape.len() - 1]], shape];
    let epilogue = |shape: Vec<u64>| epilogue.then(|| finished(channels(shape)));
    match kind {
        0 => KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue: epilogue(spec.output()), pooling: None },
        1 => KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue: epilogue(spec.input()), pooling: None },
        2 => KernelRequest::ConvBackpropFilter { spec, unpooled: None },
        3 => KernelRequest::Anchor { anchor: Anchor::DepthwiseConv(spec), epilogue: epilogue(spec.output()), pooling: None },
        4 => KernelRequest::DepthwiseConvBackpropInput(spec),
        _ => KernelRequest::DepthwiseConvBackpropFilter(spec),
    }
}

pub fn product_request(data_type: DataType, spec: ProductSpec, epilogue: Option<Epilogue>) -> KernelRequest {
    KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue, pooling: None }
}

/// A product with elements whose sums are exact.
fn product(making: &mut Making, data_type: DataType, spec: ProductSpec, epilogue: Option<Epilogue>) -> Case {
    anchor(making, product_request(data_type, spec, epilogue))
}

/// A request with elements whose sums are exact.
pub fn anchor(making: &mut Making, request: KernelRequest) -> Case {
    let data_type = match &request {
        KernelRequest::Anchor { anchor, .. } => anchor.data_type(),
        KernelRequest::ConvBackpropFilter { spec, .. }
        | KernelRequest::DepthwiseConvBackpropInput(spec)
        | KernelRequest::DepthwiseConvBackpropFilter(spec) => spec.data_type,
        other => panic!("{other:?}"),
    };
    let arguments = request.arguments().unwrap();
    let size = data_type.size().unwrap() as u64;
    let inputs: Vec<Vec<u8>> = arguments.inputs.iter().map(|bytes| making.elements(data_type, bytes / size)).collect();
    let types = vec![data_type; arguments.outputs.len()];
    Case { input_types: vec![data_type; inputs.len()], request, inputs, types, near: SAME }
}

/// `relu(p + a) * b` and `p + a`, of the anchor's element `p`.
fn finished(operands: Vec<Vec<u64>>) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let [p, a, b] = [0; 3].map(|_| builder.input(DataType::Float).unwrap());
    let sum = builder.binary(BinaryOp::Add, p, a).unwrap();
    let zero = builder.constant(Scalar::F32(0.0));
    let relu = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
    let product = builder.binary(BinaryOp::Mul, relu, b).unwrap();
    Epilogue { expr: builder.finish(vec![product, sum]), operands }
}
