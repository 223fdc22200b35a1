//! Convolutions and products whose engine finishes an epilogue: which are taken, and that they compute what a kernel behind them does.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::CudnnMode;
use plimsoll_device::{Device, DeviceSpec, Program, Tuned, TunedPart, TunedRequest, Variant};
use plimsoll_device_cuda::any_card;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Reg};
use plimsoll_request::product::ProductSpec;

use super::convolutions::{FILTER, FULL, IMAGES, Loaded, PLACES, ROUNDED, Rig, TURNED, command, here, request};

/// Where bias and residual lie.
const BIAS: u64 = 40960;
const RESIDUAL: u64 = 49152;

/// `max(element + residual + bias, 0)`, with as much of it as is asked for.
fn epilogue(data_type: DataType, whole: Option<&[u64]>, channels: u64, relu: bool) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let element = builder.input(data_type).unwrap();
    let add = |builder: &mut ExprBuilder, sum: Reg| {
        let operand = builder.input(data_type).unwrap();
        builder.binary(BinaryOp::Add, sum, operand).unwrap()
    };
    let mut sum = element;
    let mut operands = Vec::new();
    if let Some(whole) = whole {
        sum = add(&mut builder, sum);
        operands.push(whole.to_vec());
    }
    sum = add(&mut builder, sum);
    operands.push(vec![channels]);
    if relu {
        let zero = builder.number(data_type, 0.0).unwrap();
        sum = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
    }
    Epilogue { expr: builder.finish(vec![sum]), operands }
}

fn spec() -> ConvSpec {
    let KernelRequest::Anchor { anchor: Anchor::Conv(spec), .. } = request() else { panic!() };
    spec
}

fn convolution(data_type: DataType, residual: bool, relu: bool) -> KernelRequest {
    let spec = ConvSpec { data_type, ..spec() };
    let whole = spec.output();
    let epilogue = epilogue(data_type, residual.then_some(&whole[..]), spec.out_c, relu);
    KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue: Some(epilogue), pooling: None }
}

/// `features > 0 ? element + residual : 0` behind the gradient by the input, with the other gradient first of the operands where there is one.
fn gradient(data_type: DataType, residual: bool) -> KernelRequest {
    let spec = ConvSpec { data_type, ..spec() };
    let mut builder = ExprBuilder::new();
    let mut sum = builder.input(data_type).unwrap();
    if residual {
        let other = builder.input(data_type).unwrap();
        sum = builder.binary(BinaryOp::Add, sum, other).unwrap();
    }
    let (features, zero) = (builder.input(data_type).unwrap(), builder.number(data_type, 0.0).unwrap());
    let is_above = builder.binary(BinaryOp::Greater, features, zero).unwrap();
    let masked = builder.select(is_above, sum, zero).unwrap();
    let operands = vec![spec.input(); if residual { 2 } else { 1 }];
    let epilogue = Some(Epilogue { expr: builder.finish(vec![masked]), operands });
    KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None }
}

fn names(variants: &[Variant]) -> Vec<String> {
    variants.iter().map(|variant| variant.name.to_string()).collect()
}

#[test]
fn an_engine_that_finishes_comes_before_one_with_a_kernel() {
    let Some(rig) = Rig::new("finished-names") else { return };
    let card = rig.open().unwrap();
    let library = card.library(FULL, CudnnMode::Always, None);
    let variants = library.variants(&any_card(), &convolution(DataType::Float, false, true)).unwrap();
    let (bare, finished) = ("cudnn-9.26.99/70/2=12,18=0/5312", "cudnn-9.26.99/44/2=12,18=0/5312/bias+relu");
    assert_eq!(names(&variants), [finished, bare, "cuda"]);
    // Its bits are its own, and a plan that takes the bare engine takes it.
    assert_eq!(&*variants[0].numerics, format!("{bare}>{finished}"));
    assert_eq!([0, 1, 2].map(|at| variants[at].is_of(bare)), [true, true, false]);
    assert!(!variants[1].is_of(finished) && !variants[1].is_of("cudnn-9.26.99/7"));
    for (at, variant) in variants.iter().enumerate() {
        assert!(library.has(&any_card(), &convolution(DataType::Float, false, true), variant).unwrap(), "{at}");
    }
    // An engine with a part of an epilogue that is not asked for.
    assert!(!library.has(&any_card(), &convolution(DataType::Float, false, false), &variants[0]).unwrap());
    assert!(!library.has(&any_card(), &request(), &variants[0]).unwrap());
    let residual = library.variants(&any_card(), &convolution(DataType::Float, true, true)).unwrap();
    assert!(residual[0].name.ends_with("/residual+bias+relu"), "{:?}", names(&residual));
    // Workspace and turned filter are scratch.
    assert_eq!((variants[0].steps[0].scratch, variants[0].steps[0].in_place.len()), (5376 + TURNED, 0));
    // Products, too, but for those whose first matrix is transposed.
    let product = |transpose_a, transpose_b| {
        // Many rows: to turn the second matrix takes less than to read and write the result once more.
        let spec = ProductSpec { m: 256, n: 16, k: 32, transpose_a, transpose_b, batch: 1, places: None };
        let epilogue = epilogue(DataType::Bfloat16, None, 16, false);
        KernelRequest::Anchor { anchor: Anchor::Product(DataType::Bfloat16, spec), epilogue: Some(epilogue), pooling: None }
    };
    let first = |request: &KernelRequest| library.variants(&any_card(), request).unwrap().remove(0).name.to_string();
    for (product, finishes) in [(product(false, false), true), (product(false, true), true), (product(true, false), false)] {
        assert_eq!(first(&product).ends_with("/bias"), finishes, "{}: {}", product.summary(), first(&product));
    }
    // Other epilogues are kernels.
    let mut other = convolution(DataType::Float, false, true);
    if let KernelRequest::Anchor { epilogue: Some(epilogue), .. } = &mut other {
        epilogue.operands[0] = vec![6, 1];
    }
    assert_eq!(names(&library.variants(&any_card(), &other).unwrap()), [bare, "cuda"]);
}

#[test]
fn it_computes_what_a_kernel_behind_the_convolution_does() {
    let Some(rig) = Rig::new("finished-bits") else { return };
    let card = rig.open().unwrap();
    for (limits, residual, relu) in [(FULL, false, false), (FULL, false, true), (FULL, true, true), (ROUNDED, true, false)] {
        let (device, library) = rig.device(&card, limits).unwrap();
        let request = convolution(DataType::Float, residual, relu);
        let variants = library.variants(&any_card(), &request).unwrap();
        let args = |to: u64| {
            let mut args = vec![here(PLACES[0], IMAGES), here(PLACES[1], FILTER)];
            args.extend(residual.then(|| here(RESIDUAL, IMAGES)));
            args.extend([here(BIAS, 16), here(to, IMAGES)]);
            args
        };
        let commands = [(0, PLACES[2]), (1, PLACES[3])].map(|(at, to)| command(request.clone(), variants[at].clone(), args(to)));
        let mut loaded = Loaded::new(device, commands.to_vec()).unwrap();
        // Near the elements of the convolution, of the other sign.
        let numbers =
            |count: u64, first: f32, step: f32| (0..count).flat_map(|at| (at as f32 * step + first).to_le_bytes()).collect::<Vec<u8>>();
        loaded.arena.write(BIAS, &numbers(4, -2e7, 1e7)).unwrap();
        loaded.arena.write(RESIDUAL, &numbers(IMAGES / 4, -5e6, 12_345.6)).unwrap();
        // One by one, and as a graph.
        for step in 0..4 {
            loaded.arena.write(PLACES[2], &[0; 8192]).unwrap();
            loaded.step().unwrap();
            let [finished, by_kernel] = [PLACES[2], PLACES[3]].map(|at| loaded.result(at));
            assert!(finished == by_kernel, "step {step}: residual {residual}, relu {relu}");
            let negative = finished.chunks(4).filter(|bytes| bytes[3] & 0x80 != 0).count();
            let positive = finished.chunks(4).filter(|bytes| bytes[3] & 0x80 == 0 && bytes[..] != [0; 4]).count();
            assert!((negative == 0) == relu && positive > 0, "step {step}: {negative} below 0, {positive} above");
        }
    }
}

#[test]
fn the_gradient_of_a_relu_is_a_part_of_the_gradient_before_it() {
    let Some(rig) = Rig::new("finished-gradients") else { return };
    let card = rig.open().unwrap();
    let library = card.library(ROUNDED, CudnnMode::Always, None);
    let bare = "cudnn-9.26.99/71/2=8,13=0,18=0/131";
    for (residual, word) in [(false, "relu_grad"), (true, "residual+relu_grad")] {
        let request = gradient(DataType::Float, residual);
        let variants = library.variants(&any_card(), &request).unwrap();
        let finished = format!("cudnn-9.26.99/4/2=0,13=1/0/{word}");
        assert_eq!(names(&variants), [&finished, bare, "cuda"]);
        assert_eq!(&*variants[0].numerics, format!("{bare}>{finished}"));
        // The turned filter is scratch.
        assert_eq!((variants[0].steps[0].scratch, variants[0].steps[0].in_place.len()), (TURNED, 0));
        variants.iter().for_each(|variant| assert!(library.has(&any_card(), &request, variant).unwrap(), "{}", variant.name));
        assert!(!library.has(&any_card(), &gradient(DataType::Float, !residual), &variants[0]).unwrap());
        // Whole floats have no such engine, nor have channels that are no words of tensor cores.
        let whole = card.library(FULL, CudnnMode::Always, None);
        assert_eq!(names(&whole.variants(&any_card(), &request).unwrap()), ["cudnn-9.26.99/70/2=12,18=0/5312", "cuda"]);
        assert_eq!((library.finishes(&any_card(), &request), whole.finishes(&any_card(), &request)), (true, false));
        let halves = library.variants(&any_card(), &gradient(DataType::Half, residual)).unwrap();
        assert!(halves.iter().all(|variant| !variant.name.contains("relu_grad")), "{:?}", names(&halves));
    }
    // Products are convolutions forward, but for those whose first matrix is transposed.
    for (transpose_a, transpose_b) in [(false, false), (false, true), (true, false)] {
        let spec = ProductSpec { m: 256, n: 16, k: 32, transpose_a, transpose_b, batch: 1, places: None };
        let KernelRequest::Anchor { epilogue: Some(Epilogue { expr, .. }), .. } = gradient(DataType::Bfloat16, false) else { panic!() };
        let epilogue = Some(Epilogue { expr, operands: vec![vec![256, 16]] });
        let request = KernelRequest::Anchor { anchor: Anchor::Product(DataType::Bfloat16, spec), epilogue, pooling: None };
        assert_eq!(library.finishes(&any_card(), &request), !transpose_a, "{}", request.summary());
        let first = library.variants(&any_card(), &request).unwrap().remove(0);
        assert_eq!(&*first.name == "cudnn-9.26.99/4/2=0,13=1/0/relu_grad", !transpose_a, "{}", first.name);
    }
    // A sum alone, and what a bias may follow: a gradient has no engine for these.
    let KernelRequest::Anchor { anchor, .. } = gradient(DataType::Float, false) else { panic!() };
    for epilogue in [epilogue(DataType::Float, None, 4, true), epilogue(DataType::Float, Some(&spec().input()), 4, false)] {
        let request = KernelRequest::Anchor { anchor, epilogue: Some(epilogue), pooling: None };
        assert_eq!(names(&library.variants(&any_card(), &request).unwrap()), [bare, "cuda"]);
    }
}

#[test]
fn it_masks_what_a_kernel_behind_the_gradient_does() {
    let Some(rig) = Rig::new("finished-masks") else { return };
    let card = rig.open().unwrap();
    for residual in [false, true] {
        let (device, library) = rig.device(&card, ROUNDED).unwrap();
        let request = gradient(DataType::Float, residual);
        let variants = library.variants(&any_card(), &request).unwrap();
        let args = |to: u64| {
            let mut args = vec![here(PLACES[1], FILTER), here(PLACES[0], IMAGES)];
            args.extend(residual.then(|| here(RESIDUAL, IMAGES)));
            args.extend([here(BIAS, IMAGES), here(to, IMAGES)]);
            args
        };
        let commands = [(0, PLACES[2]), (1, PLACES[3])].map(|(at, to)| command(request.clone(), variants[at].clone(), args(to)));
        let mut loaded = Loaded::new(device, commands.to_vec()).unwrap();
        let numbers = |numbers: &dyn Fn(u64) -> f32| (0..IMAGES / 4).flat_map(|at| numbers(at).to_le_bytes()).collect::<Vec<u8>>();
        // Zeros of both signs and no numbers among the features; no numbers and infinities among what is masked.
        let feature = |at: u64| [1.0, -1.0, 0.0, -0.0, f32::NAN, f32::INFINITY, 1e-40][at as usize % 7];
        loaded.arena.write(BIAS, &numbers(&feature)).unwrap();
        let other = |at: u64| if at.is_multiple_of(5) { f32::NAN } else { at as f32 * 12_345.6 - 5e6 };
        loaded.arena.write(RESIDUAL, &numbers(&other)).unwrap();
        for step in 0..4 {
            loaded.arena.write(PLACES[2], &[0xA7; 8192]).unwrap();
            loaded.step().unwrap();
            let [finished, by_kernel] = [PLACES[2], PLACES[3]].map(|at| loaded.result(at));
            assert!(finished == by_kernel, "step {step}: residual {residual}");
            for (at, bytes) in finished.chunks(4).enumerate() {
                let (feature, value) = (feature(at as u64), f32::from_le_bytes(bytes.try_into().unwrap()));
                assert!(feature > 0.0 || value.to_bits() == 0, "step {step}, element {at}: {value} where the feature is {feature}");
                assert_eq!(value.is_nan(), residual && feature > 0.0 && at % 5 == 0, "step {step}, element {at}");
            }
            assert!(finished.chunks(4).filter(|bytes| bytes[..] != [0; 4]).count() * 3 > finished.len() / 4);
        }
    }
}

#[test]
fn a_program_with_another_finish_is_refused() {
    let Some(rig) = Rig::new("finished-refused") else { return };
    let card = rig.open().unwrap();
    let (device, library) = rig.device(&card, FULL).unwrap();
    let with_relu = convolution(DataType::Float, false, true);
    let variant = library.variants(&any_card(), &with_relu).unwrap().remove(0);
    let args = vec![here(PLACES[0], IMAGES), here(PLACES[1], FILTER), here(BIAS, 16), here(PLACES[2], IMAGES)];
    let load = |request: &KernelRequest, variant: Variant| {
        device
            .load(0, Arc::new(Program { commands: vec![command(request.clone(), variant, args.clone())] }))
            .map(drop)
            .map_err(|error| error.code())
    };
    assert_eq!(load(&with_relu, variant.clone()), Ok(()));
    assert_eq!(load(&convolution(DataType::Float, false, false), variant.clone()), Err(Code::Internal));
    // Where the plan was made, the bare engine may have been another one; the name is the engine's.
    let numerics = |text: String| Variant { numerics: text.as_str().into(), ..variant.clone() };
    assert_eq!(load(&with_relu, numerics(format!("cudnn-9.26.99/1/-/0>{}", variant.name))), Ok(()));
    for wrong in ["cuda".to_string(), format!("{}x", variant.numerics), variant.numerics.replace("/44/", "/45/")] {
        assert_eq!(load(&with_relu, numerics(wrong.clone())), Err(Code::Internal), "{wrong}");
    }
}

#[test]
fn times_decide_between_an_engine_that_finishes_and_a_kernel_behind_one() {
    let Some(rig) = Rig::new("finished-times") else { return };
    let card = rig.open().unwrap();
    let of = card.library(ROUNDED, CudnnMode::Auto, None).tuned_for(card.name());
    // Of halves a table has the whole request.
    let request = convolution(DataType::Half, false, true);
    let [bare, finished] = ["cudnn-9.26.99/67/2=5,13=0,18=0/1048771", "cudnn-9.26.99/51/2=5,13=0,18=0/1048771/bias+relu"];
    let taken = |request: &KernelRequest, subject: &KernelRequest, ways: &[(&str, f64)]| {
        let times = ways.iter().map(|(name, seconds)| (name.to_string(), *seconds));
        let part = TunedPart::from([(Tuned::key(subject).unwrap(), TunedRequest::new("", times))]);
        let library = card.library(ROUNDED, CudnnMode::Auto, Some(&Tuned::of([(of.clone(), part)])));
        names(&library.variants(&any_card(), request).unwrap())
    };
    // No channel is wide enough here for tensor cores of halves, but for those of the plain engine's kind.
    let wide = match &request {
        KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue, .. } => {
            let spec = ConvSpec { in_c: 8, out_c: 8, ..*spec };
            let mut epilogue = epilogue.clone().unwrap();
            epilogue.operands[0] = vec![8];
            KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue: Some(epilogue), pooling: None }
        }
        _ => panic!(),
    };
    assert_eq!(taken(&wide, &wide, &[(bare, 1e-6), (finished, 2e-6)])[0], bare);
    assert_eq!(taken(&wide, &wide, &[(bare, 2e-6), (finished, 1e-6)])[0], finished);
    assert_eq!(taken(&wide, &wide, &[(bare, 2e-6), (finished, 3e-6), ("cuda", 1e-6)])[0], "cuda");
    // A device times them all.
    let library = card.library(ROUNDED, CudnnMode::Auto, None);
    let candidates = names(&library.candidates(&any_card(), &wide, 8).unwrap());
    assert!(
        candidates.iter().any(|name| name == finished)
            && candidates.iter().any(|name| name == bare)
            && candidates.last().unwrap() == "cuda",
        "{candidates:?}"
    );
    // Of floats the bare convolution: that engine is taken finished, where that is predicted to be faster.
    let floats = convolution(DataType::Float, false, true);
    let exact = "cudnn-9.26.99/70/2=12,18=0/5312";
    let spec = DeviceSpec { flops: 6e13, bandwidth: 3e12, ..any_card() };
    let times = [(exact.to_string(), 1e-6), ("cuda".to_string(), 2e-6)];
    let part = TunedPart::from([(Tuned::key(&floats).unwrap(), TunedRequest::new("", times))]);
    let library =
        card.library(FULL, CudnnMode::Auto, Some(&Tuned::of([(card.library(FULL, CudnnMode::Auto, None).tuned_for(card.name()), part)])));
    let variants = library.variants(&spec, &floats).unwrap();
    assert_eq!(names(&variants)[2], "cuda", "{:?}", names(&variants));
    assert!(variants[..2].iter().all(|variant| variant.is_of(exact)), "{:?}", names(&variants));
    assert_eq!(Bytes(variants[0].steps[0].scratch), Bytes(5376 + TURNED));
}

/// A convolution with statistics is an engine's alone: with no bits of another one, and predicted to take no less than the convolution alone.
#[test]
fn sums_of_channels_are_an_engines() {
    let Some(rig) = Rig::new("finished-statistics") else { return };
    let card = rig.open().unwrap();
    let library = card.library(FULL, CudnnMode::Auto, None);
    let of = |spec: ConvSpec| ConvSpec { in_c: 8, out_c: 8, ..spec };
    let seconds = |variant: &Variant| variant.steps[0].seconds.unwrap();
    for (data_type, name) in
        [(DataType::Bfloat16, "cudnn-9.26.99/3/2=0,13=1/0/statistics"), (DataType::Half, "cudnn-9.26.99/2/-/180/statistics")]
    {
        let request = KernelRequest::ConvStatistics(ConvSpec { data_type, ..of(spec()) });
        let variants = library.variants(&any_card(), &request).unwrap();
        assert_eq!((names(&variants), &*variants[0].numerics), (vec![name.to_string()], name));
        assert!(library.has(&any_card(), &request, &variants[0]).unwrap());
        // Not the other way round, and not with less scratch.
        let bare = request.without_sums().unwrap();
        assert!(!library.has(&any_card(), &bare, &variants[0]).unwrap());
        let mut less = variants[0].clone();
        less.steps[0].scratch -= 256;
        assert!(!library.has(&any_card(), &request, &less).unwrap());
        let alone = library.variants(&any_card(), &bare).unwrap().remove(0);
        assert!(!library.has(&any_card(), &request, &alone).unwrap_or(false), "{}", alone.name);
        assert!(seconds(&variants[0]) >= seconds(&alone), "{data_type}");
        assert_eq!(names(&library.candidates(&any_card(), &request, 8).unwrap())[0], name);
    }
    // Floats, and cards without cuDNN.
    let floats = KernelRequest::ConvStatistics(of(spec()));
    for library in [library, card.library(ROUNDED, CudnnMode::Always, None), card.library(FULL, CudnnMode::Never, None)] {
        let refused = library.variants(&any_card(), &floats).unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
    }
}
