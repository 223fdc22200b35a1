//! Convolutions by bands give the bits of the convolutions one by one, and are taken where that pays.

use plimsoll_request::bands::{BandStage, Bands};

use super::*;
use crate::conv::bands::takes;
use crate::evaluate::run_made;
use crate::library::make;
use crate::packing::{Order, panels_of};

/// Axes of images whose results another convolution reads.
fn axes_of(size: u64, (taps, stride, dilation, pad): (u64, u64, u64, u64)) -> WindowAxis {
    let reach = (taps - 1) * dilation + 1;
    let positions = (size + 2 * pad + stride).saturating_sub(reach) / stride;
    WindowAxis { size, positions, taps, stride, dilation, pad }
}

/// A bias, an operand as large as the results where `elements`, and bounds: at least 0, at most 6.
fn behind(spec: &ConvSpec, elements: bool) -> Epilogue {
    let mut b = ExprBuilder::new();
    let [mut value, bias] = [(); 2].map(|()| b.input(DataType::Float).unwrap());
    value = b.binary(BinaryOp::Add, value, bias).unwrap();
    let mut operands = vec![vec![spec.out_c]];
    if elements {
        let other = b.input(DataType::Float).unwrap();
        value = b.binary(BinaryOp::Add, value, other).unwrap();
        operands.push(spec.output());
    }
    let [low, high] = [0.0, 6.0].map(|bound| b.number(DataType::Float, bound).unwrap());
    value = b.binary(BinaryOp::Maximum, value, low).unwrap();
    value = b.binary(BinaryOp::Minimum, value, high).unwrap();
    Epilogue { expr: b.finish(vec![value]), operands }
}

fn conv_stage(spec: ConvSpec, epilogue: Option<Epilogue>) -> BandStage {
    BandStage { anchor: Anchor::Conv(spec), epilogue }
}

fn by_channel(spec: ConvSpec, epilogue: Option<Epilogue>) -> BandStage {
    BandStage { anchor: Anchor::DepthwiseConv(spec), epilogue }
}

fn request_of(stage: &BandStage) -> KernelRequest {
    KernelRequest::Anchor { anchor: stage.anchor, epilogue: stage.epilogue.clone(), pooling: None }
}

/// Numbers for every input of a request.
fn inputs_of(bands: &Bands, seed: u64) -> Vec<Vec<u8>> {
    let arguments = KernelRequest::Bands(bands.clone()).arguments().unwrap();
    let inputs = arguments.inputs.iter().enumerate();
    inputs.map(|(number, bytes)| testing::bytes(&numbers(bytes / 4, seed ^ number as u64))).collect()
}

/// The results of the convolutions one by one.
fn one_by_one(isa: Isa, bands: &Bands, inputs: &[Vec<u8>]) -> Vec<u8> {
    let (mut x, mut at) = (inputs[0].clone(), 1);
    for stage in &bands.stages {
        let request = request_of(stage);
        let mut own = vec![&x[..]];
        own.extend(inputs[at..at + stage.operands()].iter().map(Vec::as_slice));
        at += stage.operands();
        x = run_made(&make(isa, &request).unwrap(), &request, &own, &request.arguments().unwrap().outputs).unwrap().remove(0);
    }
    x
}

fn check_bands(bands: &Bands, seed: u64) {
    let inputs = inputs_of(bands, seed);
    let len = KernelRequest::Bands(bands.clone()).arguments().unwrap().outputs[0] / 4;
    for isa in Isa::available() {
        let expected = one_by_one(isa, bands, &inputs);
        let run = |order, inputs: &[Vec<u8>]| {
            let inputs: Vec<Vec<f32>> = inputs.iter().map(|input| testing::values(input)).collect();
            let prepared = crate::conv::bands::prepare(isa, bands, order).unwrap();
            testing::bytes(&run_both(&prepared, &inputs.iter().map(Vec::as_slice).collect::<Vec<_>>(), len))
        };
        assert!(run(Order::Rows, &inputs) == expected, "{isa:?} {bands:?}");
        let first = bands.stages[0].spec().unwrap();
        let panels = panels_of(isa, first.out_c).filter(|_| matches!(bands.stages[0].anchor, Anchor::Conv(_)));
        let Some(panels) = panels else {
            assert!(crate::conv::bands::prepare(isa, bands, Order::Panels).is_err(), "{isa:?} {bands:?}");
            continue;
        };
        let mut held = inputs.clone();
        held[1] = testing::bytes(&testing::in_panels(panels, &testing::values::<f32>(&inputs[1])));
        assert!(run(Order::Panels, &held) == expected, "in panels {isa:?} {bands:?}");
    }
}

type Window = (u64, u64, u64, u64);

/// Taps, stride, dilation and padding along rows and columns.
fn windows() -> impl Strategy<Value = [Window; 2]> {
    let one = || (1..5u64, 1..4u64, 1..3u64, 0..3u64);
    [one(), one()]
}

/// Two to four convolutions, by channels and not, of any windows, each with something behind it or without.
fn some_bands() -> impl Strategy<Value = Bands> {
    let stage = || (windows(), any::<bool>(), prop_oneof![1..20u64, Just(24), Just(40), 65..100u64], 0..3u8);
    let sizes = (1..4u64, prop_oneof![1..12u64, 30..60u64], 1..12u64, 1..20u64);
    (sizes, prop::collection::vec(stage(), 2..5)).prop_map(|((batch, rows, columns, channels), all)| {
        let (mut sizes, mut channels) = ([rows, columns], channels);
        let mut stages = Vec::new();
        for (windows, is_by_channel, out_c, behind_it) in all {
            let axes = [0, 1].map(|axis| {
                let made = axes_of(sizes[axis], windows[axis]);
                // Nothing is left where a window is too long.
                if made.positions == 0 { axes_of(sizes[axis], (1, 1, 1, 0)) } else { made }
            });
            let out_c = if is_by_channel { channels } else { out_c };
            let spec = spec(batch, channels, out_c, &axes);
            let epilogue = (behind_it > 0).then(|| behind(&spec, behind_it > 1));
            stages.push(if is_by_channel { by_channel(spec, epilogue) } else { conv_stage(spec, epilogue) });
            (sizes, channels) = (axes.map(|axis| axis.positions), out_c);
        }
        Bands { stages }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bands_have_the_bits_of_convolutions_one_by_one(bands in some_bands(), seed in any::<u64>()) {
        check_bands(&bands, seed);
    }
}

/// A block of MobileNetV2: wider, by channels, narrower; with the block's input added where `residual`.
fn block(batch: u64, size: u64, [from, between, to]: [u64; 3], stride: u64) -> Bands {
    let wide = spec(batch, from, between, &[same(size, 1, 1); 2]);
    let each = spec(batch, between, between, &[same(size, 3, stride); 2]);
    let narrow = spec(batch, between, to, &[same(size.div_ceil(stride), 1, 1); 2]);
    let stages = vec![
        conv_stage(wide, Some(behind(&wide, false))),
        by_channel(each, Some(behind(&each, false))),
        conv_stage(narrow, Some(behind(&narrow, stride == 1))),
    ];
    Bands { stages }
}

#[test]
fn blocks_of_several_bands_have_the_bits_of_convolutions_one_by_one() {
    for bands in [block(2, 56, [24, 144, 24], 1), block(1, 57, [16, 96, 24], 2), block(9, 20, [8, 200, 16], 1)] {
        check_bands(&bands, 5);
    }
}

#[test]
fn bands_are_taken_where_what_is_between_leaves_the_caches() {
    let pair = |bands: &Bands, at: usize| takes(&request_of(&bands.stages[at]), &request_of(&bands.stages[at + 1]));
    let large = block(8, 56, [24, 144, 24], 1);
    assert!(pair(&large, 0) && pair(&large, 1));
    let two = Bands { stages: large.stages[..2].to_vec() };
    assert!(takes(&KernelRequest::Bands(two), &request_of(&large.stages[2])));
    // Less between them.
    assert!(!pair(&block(1, 14, [24, 144, 24], 1), 0));
    // A filter that is read for each band.
    assert!(!pair(&block(8, 56, [500, 144, 24], 1), 0));
    // None by channels.
    assert!(!takes(&request_of(&large.stages[0]), &request_of(&large.stages[2])));
    // One that is computed with fewer multiplications.
    let winograd = spec(8, 24, 144, &[same(56, 3, 1); 2]);
    assert!(!takes(&request_of(&conv_stage(winograd, None)), &request_of(&large.stages[1])));
}

#[test]
fn convolutions_that_do_not_fit_are_refused() {
    let whole = block(2, 20, [8, 24, 8], 1);
    let without = Bands { stages: vec![whole.stages[0].clone(), whole.stages[2].clone(), whole.stages[1].clone()] };
    let one = Bands { stages: whole.stages[..1].to_vec() };
    let half = |mut bands: Bands| {
        bands.stages[2].epilogue.as_mut().unwrap().operands.pop();
        bands
    };
    for bands in [without, one, half(whole.clone())] {
        assert!(KernelRequest::Bands(bands.clone()).arguments().is_err(), "{bands:?}");
        assert!(make(Isa::best(), &KernelRequest::Bands(bands)).is_err());
    }
    let empty = block(0, 20, [8, 24, 8], 1);
    assert!(make(Isa::best(), &KernelRequest::Bands(empty)).is_err());
}

/// Rows on padding see nothing that lies between: that alone would end no band.
#[test]
fn a_band_has_few_rows_where_most_lie_on_padding() {
    let first = spec(1, 8, 8, &[axes_of(1, (1, 1, 1, 0)); 2]);
    let padded = spec(1, 8, 8, &[axes_of(1, (1, 1, 1, 1 << 31)), axes_of(1, (1, 1, 1, 0))]);
    let bands = Bands { stages: vec![conv_stage(first, None), by_channel(padded, None)] };
    let made = format!("{:?}", crate::conv::bands::prepare(Isa::best(), &bands, Order::Rows).unwrap().kernel);
    assert!(made.contains("band: 1024") || made.contains("band: 1023"), "{made}");
}
