//! Convolutions and products by cuDNN against the processor's: on a mock card with the mock cuDNN, and on the card that `bench/gpu/check.sh` checks.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bf16, Code, DataType, F16};
use plimsoll_cards::{CudnnMode, Environment};
use plimsoll_device::Variant;
use plimsoll_device_cuda::emit::Emitted;
use plimsoll_device_cuda::{CudaCard, CudaSource, EngineLimits, EngineName, Toolkit, any_card};
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::{Anchor, Epilogue};
use plimsoll_request::conv::ConvSpec;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Instr};
use plimsoll_request::product::ProductSpec;
use plimsoll_request::window::{Layout, WindowAxis};

use super::anchors;
use super::card::Card;
use super::cases::{Case, Near};
use super::engines::Run;
use super::machine::Machine;
use super::making::Making;

/// A card with cuDNN: of a mock machine, or the one that is checked.
pub fn card(test: &str) -> Option<(Arc<CudaCard>, Option<Machine>)> {
    let mut environment = Environment::of(std::env::vars());
    let mut machine = None;
    if std::env::var_os("PLIMSOLL_CHECK").is_none() {
        let mock = Machine::new(test, &[1024])?;
        mock.add_cudnn();
        let folder = mock.folder().to_str().expect("a path in UTF-8");
        environment = Environment::new().with("PLIMSOLL_CUDA_LIBS", folder).with("XDG_CACHE_HOME", folder);
        machine = Some(mock);
    }
    let toolkit = Toolkit::find(&environment, CudnnMode::Always).unwrap();
    let first = toolkit.driver.cards().unwrap().remove(0);
    Some((CudaCard::open(&toolkit.driver, &first, &toolkit.compiler, toolkit.planner()).unwrap(), machine))
}

/// The runs that cuDNN computes, and how many of them an engine for tensor cores does.
fn by_cudnn(library: &dyn CudaSource, runs: Vec<Run>) -> (Vec<Run>, usize) {
    let name = |run: &Run| library.variants(&any_card(), &run.request).ok()?[0].name.parse::<EngineName>().ok();
    let named: Vec<(Run, EngineName)> = runs.into_iter().filter_map(|run| name(&run).map(|name| (run, name))).collect();
    // The mock's, and most of cuDNN's.
    let tensor_cores = named.iter().filter(|(_, name)| [67, 68, 71].contains(&name.index)).count();
    (named.into_iter().map(|(run, _)| run).collect(), tensor_cores)
}

/// Engines of a request that are tried, best first as cuDNN predicts; it names about 40. Of those that it compiles for a graph these are
/// fewer: on a card each takes a second or more.
fn most(request: &KernelRequest) -> usize {
    let KernelRequest::Anchor { epilogue: Some(Epilogue { expr, .. }), .. } = request else { return 48 };
    match expr.instrs().iter().any(|instr| matches!(instr, Instr::Select(..))) {
        true if std::env::var_os("PLIMSOLL_CHECK").is_some() => 1,
        true => 2,
        false => 48,
    }
}

/// Fails the test where an engine that a plan may name has not the processor's values. On a card that is checked, what each engine computed is
/// a line of PLIMSOLL_CHECK/values_of_engines.txt as soon as it is known: an engine may take the card along.
fn compare_all(card: &Card, library: &dyn CudaSource, runs: &[Run], tried: &mut BTreeSet<(String, String)>) {
    let file = std::env::var_os("PLIMSOLL_CHECK").map(|folder| Path::new(&folder).join("values_of_engines.txt"));
    let mut file = file.map(|file| OpenOptions::new().create(true).append(true).open(file).unwrap());
    let mut wrong = Vec::new();
    for run in runs {
        let engines = library.candidates(&any_card(), &run.request, most(&run.request)).unwrap();
        let may = |engine: &Variant| run.in_place.is_none_or(|pair| engine.steps[0].in_place.contains(&pair));
        for engine in engines.into_iter().filter(|engine| engine.name.parse::<EngineName>().is_ok() && may(engine)) {
            let name = engine.name.to_string();
            if !tried.insert((format!("{} {:?}", run.name, run.in_place), name.clone())) {
                continue;
            }
            let said = match catch_unwind(AssertUnwindSafe(|| card.compare_by(run, engine))) {
                Ok(()) => "same".to_string(),
                Err(said) => said.downcast::<String>().map_or_else(|_| "no text".to_string(), |text| *text),
            };
            if let Some(file) = &mut file {
                let said = said.split("result 0, ").last().unwrap_or_default();
                writeln!(file, "{}\t{name}\t{said}", run.request.summary()).unwrap();
            }
            if said != "same" {
                wrong.push(format!("{name}: {said}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} engines: {wrong:#?}", wrong.len(), tried.len());
}

/// Also with channels first, with as many channels as tensor cores take at once, and padded behind the elements alone, as TensorFlow's SAME does.
fn runs() -> Vec<Run> {
    let run = |case: &Case| case.by(Emitted::default()).unwrap();
    let mut runs: Vec<Run> = anchors::convolutions(12).iter().map(run).collect();
    let mut making = Making::new(14);
    let same = WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let behind = WindowAxis { size: 8, positions: 4, taps: 3, stride: 2, dilation: 1, pad: 0 };
    let half = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    for (kind, data_type) in (0..9).map(|number| (number % 3, [DataType::Float, DataType::Bfloat16, DataType::Half][number / 3])) {
        for channels in [[3, 4], [16, 24]] {
            let spec = anchors::convolution(data_type, 2, &[behind, behind], channels);
            runs.push(run(&anchors::anchor(&mut making, anchors::conv_request(kind, spec, false))));
        }
        let spec = anchors::convolution(data_type, 2, &[same, half], [16, 24]);
        let epilogue = kind < 2 && data_type == DataType::Float;
        let last = |making: &mut Making, epilogue| run(&anchors::anchor(making, anchors::conv_request(kind, spec, epilogue)));
        runs.push(last(&mut making, epilogue));
        runs.push(channels_first(last(&mut making, false), kind, spec));
    }
    runs
}

/// Convolutions whose channels are no whole words of tensor cores, of any sizes.
fn narrow_runs(data_types: &[DataType], count: usize) -> Vec<Run> {
    let mut making = Making::new(23);
    let axes = [
        WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 1, pad: 1 },
        WindowAxis { size: 8, positions: 4, taps: 3, stride: 2, dilation: 1, pad: 0 },
        WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 },
        WindowAxis { size: 7, positions: 7, ..WindowAxis::ONE },
    ];
    let mut run = |number: usize| {
        let (first, second) = (*making.of(&axes), *making.of(&axes));
        let channels = [0; 2].map(|_| *making.of(&[1, 2, 3, 5, 7, 8, 9, 12, 16, 19, 33]));
        let spec = anchors::convolution(data_types[number / 3 % data_types.len()], 1 + making.below(4), &[first, second], channels);
        let epilogue = number % 3 < 2 && spec.data_type == DataType::Float;
        anchors::anchor(&mut making, anchors::conv_request(number % 3, spec, epilogue)).by(Emitted::default()).unwrap()
    };
    (0..count).map(&mut run).collect()
}

/// The same convolution with its images' channels first. No processor has kernels for it.
fn channels_first(run: Run, kind: usize, spec: ConvSpec) -> Run {
    let size = spec.data_type.size().unwrap();
    // Elements of an image: those of a channel beside each other.
    let turned = |bytes: &[u8], channels: u64| -> Vec<u8> {
        let (channels, image) = (channels as usize, bytes.len() / spec.batch as usize);
        let pixels = image / size / channels;
        let places = (0..channels).flat_map(|channel| (0..pixels).map(move |pixel| (pixel * channels + channel) * size));
        let of = |image: &[u8]| places.clone().flat_map(|place| image[place..place + size].to_vec()).collect::<Vec<u8>>();
        bytes.chunks(image).flat_map(of).collect()
    };
    let expected = run.expected.unwrap().remove(0);
    let (one, other) = (&run.inputs[0], &run.inputs[1]);
    // Input, filter and result are what is read, or what is computed.
    let (inputs, expected) = match kind {
        0 => (vec![turned(one, spec.in_c), other.clone()], turned(&expected, spec.out_c)),
        1 => (vec![one.clone(), turned(other, spec.out_c)], turned(&expected, spec.in_c)),
        _ => (vec![turned(one, spec.in_c), turned(other, spec.out_c)], expected),
    };
    let request = anchors::conv_request(kind, ConvSpec { layout: Layout::ChannelsFirst, ..spec }, false);
    Run { name: format!("{request:?}"), request, inputs, expected: Ok(vec![expected]), ..run }
}

#[test]
fn convolutions_by_cudnn_are_the_processors() {
    let Some((card, machine)) = card("kernels-cudnn") else { return };
    let mut tried = BTreeSet::new();
    for (tensor_float_32, least) in [(false, 3), (true, 6)] {
        // All sums of these elements are whole floats, also of elements that were rounded to TF32.
        let limits = EngineLimits { tensor_float_32, ..EngineLimits::default() };
        let library = card.library(limits, CudnnMode::Always, None);
        let narrow = if tensor_float_32 { vec![DataType::Float, DataType::Half] } else { vec![DataType::Bfloat16, DataType::Half] };
        let runs: Vec<Run> = runs().into_iter().chain(narrow_runs(&narrow, 24)).chain(masked_runs()).collect();
        let all = runs.len();
        let (runs, tensor_cores) = by_cudnn(&*library, runs);
        assert!(runs.len() * 2 >= all, "{} of {all} by cuDNN", runs.len());
        assert!(machine.is_none() || tensor_cores >= least, "{tensor_cores} by tensor cores");
        compare_all(&Card::on(&card, library.clone()), &*library, &runs, &mut tried);
    }
    let padded = tried.iter().filter(|(_, name)| name.contains("/padded")).count();
    assert!(padded >= 40, "{padded} of {} with padded channels", tried.len());
    let masked = tried.iter().filter(|(_, name)| name.ends_with("relu_grad")).count();
    assert!(machine.is_none() || masked >= 6, "{masked} of {} with a ReLU's gradient", tried.len());
    drop(card);
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}

/// Products of all forms that are one convolution each, with epilogues whose results lie in the place of an operand, and otherwise.
#[test]
fn products_by_cudnn_are_the_processors() {
    let Some((card, machine)) = card("kernels-cudnn-products") else { return };
    let mut making = Making::new(16);
    let mut cases = anchors::products(15);
    for (number, (transpose_a, transpose_b)) in [(false, false), (false, true), (true, false)].into_iter().cycle().take(18).enumerate() {
        let data_type = [DataType::Float, DataType::Bfloat16, DataType::Half][number / 6];
        let (m, n, k) = if number % 2 == 0 { (16, 24, 40) } else { (9, 5, 33) };
        let spec = ProductSpec { m, n, k, transpose_a, transpose_b, ..anchors::DENSE };
        cases.push(anchors::anchor(&mut making, anchors::product_request(data_type, spec, None)));
    }
    for (transpose_b, residual) in [(false, false), (true, true)] {
        let spec = ProductSpec { m: 33, n: 24, k: 40, transpose_b, ..anchors::DENSE };
        let as_images = anchors::convolution(DataType::Float, 33, &[WindowAxis::ONE], [24, 24]);
        let Epilogue { expr, operands } = masked(DataType::Float, &as_images, residual);
        let epilogue = Some(Epilogue { expr, operands: vec![vec![33, 24]; operands.len()] });
        cases.push(anchors::anchor(&mut making, anchors::product_request(DataType::Float, spec, epilogue)));
    }
    let mut tried = BTreeSet::new();
    for tensor_float_32 in [false, true] {
        let library = card.library(EngineLimits { tensor_float_32, ..EngineLimits::default() }, CudnnMode::Always, None);
        let runs: Vec<Run> = cases.iter().map(|case| case.by(Emitted::default()).unwrap()).collect();
        let one = |run: &Run| matches!(&run.request, KernelRequest::Anchor { anchor: Anchor::Product(_, spec), .. } if spec.batch == 1);
        let expected = runs.iter().filter(|run| one(run) && run.outputs.iter().all(|bytes| *bytes > 0)).count();
        let (mut runs, tensor_cores) = by_cudnn(&*library, runs);
        assert!(runs.len() * 3 >= expected, "{} of {expected} by cuDNN", runs.len());
        assert!(machine.is_none() || tensor_cores >= 3, "{tensor_cores} by tensor cores");
        let mut in_place = Vec::new();
        for (run, case) in runs.iter().flat_map(|run| cases.iter().filter(|case| case.request == run.request).map(move |case| (run, case)))
        {
            let variant = library.variants(&any_card(), &run.request).unwrap().remove(0);
            let pairs = variant.steps[0].in_place.iter();
            in_place.extend(pairs.map(|pair| Run { in_place: Some(*pair), ..case.by(Emitted::default()).unwrap() }));
        }
        assert!(in_place.len() >= 2, "{}", in_place.len());
        runs.append(&mut in_place);
        compare_all(&Card::on(&card, library.clone()), &*library, &runs, &mut tried);
    }
    let padded = tried.iter().filter(|(_, name)| name.contains("/padded")).count();
    assert!(padded >= 20, "{padded} of {} with padded channels", tried.len());
    let masked = tried.iter().filter(|(_, name)| name.ends_with("relu_grad")).count();
    assert!(machine.is_none() || masked >= 4, "{masked} of {} with a ReLU's gradient", tried.len());
    drop(card);
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}

/// `relu(element + residual + bias)`, of elements of that type.
fn finished(data_type: DataType, spec: &ConvSpec) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let [element, residual, bias] = [0; 3].map(|_| builder.input(data_type).unwrap());
    let sum = builder.binary(BinaryOp::Add, element, residual).unwrap();
    let sum = builder.binary(BinaryOp::Add, sum, bias).unwrap();
    let zero = builder.number(data_type, 0.0).unwrap();
    let relu = builder.binary(BinaryOp::Maximum, sum, zero).unwrap();
    Epilogue { expr: builder.finish(vec![relu]), operands: vec![spec.output(), vec![spec.out_c]] }
}

/// `features > 0 ? element + residual : 0`, of elements of that type, or without what is added.
fn masked(data_type: DataType, spec: &ConvSpec, residual: bool) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let mut sum = builder.input(data_type).unwrap();
    if residual {
        let other = builder.input(data_type).unwrap();
        sum = builder.binary(BinaryOp::Add, other, sum).unwrap();
    }
    let (features, zero) = (builder.input(data_type).unwrap(), builder.number(data_type, 0.0).unwrap());
    let is_above = builder.binary(BinaryOp::Greater, features, zero).unwrap();
    let masked = builder.select(is_above, sum, zero).unwrap();
    Epilogue { expr: builder.finish(vec![masked]), operands: vec![spec.input(); 1 + usize::from(residual)] }
}

/// Gradients by the input of floats, with a ReLU's behind them.
fn masked_runs() -> Vec<Run> {
    let mut making = Making::new(37);
    let same = WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let half = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    let one = WindowAxis { size: 7, positions: 7, ..WindowAxis::ONE };
    let mut runs = Vec::new();
    for (axes, channels, residual) in
        [([same, same], [16, 24], false), ([same, half], [8, 4], true), ([one, one], [32, 12], true), ([one, same], [3, 8], false)]
    {
        let spec = anchors::convolution(DataType::Float, 2, &axes, channels);
        let epilogue = Some(masked(DataType::Float, &spec, residual));
        let request = KernelRequest::Anchor { anchor: Anchor::ConvBackpropInput(spec), epilogue, pooling: None };
        runs.push(anchors::anchor(&mut making, request).by(Emitted::default()).unwrap());
    }
    runs
}

/// Elements of two bytes: an engine that finishes rounds once, behind the epilogue; kernels round the convolution's elements, too.
#[test]
fn halves_are_finished_before_they_are_rounded() {
    let Some((card, machine)) = card("kernels-cudnn-halves") else { return };
    let library = card.library(EngineLimits::default(), CudnnMode::Always, None);
    let on = Card::on(&card, library.clone());
    let mut making = Making::new(31);
    let same = WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let mut tried = [0; 2];
    // Of gradients by the input, whether another one is added.
    for (gradient, data_type, channels) in [
        (None, DataType::Bfloat16, [16, 24]),
        (None, DataType::Half, [16, 8]),
        (None, DataType::Bfloat16, [3, 8]),
        (Some(false), DataType::Bfloat16, [16, 24]),
        (Some(true), DataType::Bfloat16, [16, 8]),
        (Some(true), DataType::Half, [24, 16]),
    ] {
        let of = |spec: ConvSpec| {
            let (anchor, epilogue) = match gradient {
                None => (Anchor::Conv(spec), finished(spec.data_type, &spec)),
                Some(residual) => (Anchor::ConvBackpropInput(spec), masked(spec.data_type, &spec, residual)),
            };
            KernelRequest::Anchor { anchor, epilogue: Some(epilogue), pooling: None }
        };
        // Sums of these floats are exact.
        let spec = anchors::convolution(DataType::Float, 2, &[same, same], channels);
        let floats = anchors::anchor(&mut making, of(spec)).by(Emitted::default()).unwrap();
        let rounded = |bytes: &Vec<u8>| -> Vec<u8> {
            let float = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
            let round = |value: f32| match data_type {
                DataType::Half => F16::from_f32(value).to_bits(),
                _ => Bf16::from_f32(value).to_bits(),
            };
            bytes.chunks(4).flat_map(|bytes| round(float(bytes)).to_le_bytes()).collect()
        };
        let request = of(ConvSpec { data_type, ..spec });
        let expected = floats.expected.as_ref().unwrap().iter().map(rounded).collect();
        let run = |near: Near| Run {
            name: format!("{request:?}"),
            request: request.clone(),
            emitted: Emitted::default(),
            inputs: floats.inputs.iter().map(rounded).collect(),
            outputs: floats.outputs.iter().map(|bytes| bytes / 2).collect(),
            expected: Ok(Vec::clone(&expected)),
            types: vec![data_type],
            near,
            input_types: vec![data_type; floats.inputs.len()],
            in_place: None,
        };
        if !library.finishes(&any_card(), &request) {
            // An engine that cuDNN compiles need not be there on the card that is checked.
            assert!(machine.is_none() && gradient.is_some(), "{}", request.summary());
            continue;
        }
        for variant in library.candidates(&any_card(), &request, most(&request)).unwrap() {
            let finishes = variant.name.parse::<EngineName>().is_ok_and(|name| name.finish.is_some());
            tried[usize::from(finishes)] += 1;
            on.compare_by(&run(if finishes { Near::Exact } else { Near::Of(6000.0, 1.0) }), variant);
        }
    }
    assert!(tried[0] >= 6 && tried[1] >= 6, "{tried:?}");
    // What no engine finishes stays apart: another type, another epilogue.
    let spec = anchors::convolution(DataType::Half, 2, &[same, same], [16, 24]);
    let without = KernelRequest::Anchor { anchor: Anchor::Conv(spec), epilogue: None, pooling: None };
    assert!(!library.finishes(&any_card(), &without));
    drop((on, card));
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}

/// A convolution that sums the channels of its result, and what the processor makes of it and of its result. Elements are such that nothing is rounded.
fn with_statistics(making: &mut Making, spec: ConvSpec) -> Run {
    let is_half = spec.data_type == DataType::Half;
    let mut elements = |shape: Vec<u64>| -> Vec<u8> {
        let values = (0..shape.iter().product::<u64>()).map(|_| making.below(3) as f32 - 1.0);
        values
            .flat_map(|value| if is_half { F16::from_f32(value).to_bits() } else { Bf16::from_f32(value).to_bits() }.to_le_bytes())
            .collect()
    };
    let case = Case {
        request: anchors::conv_request(0, spec, false),
        inputs: vec![elements(spec.input()), elements(spec.filter())],
        input_types: vec![spec.data_type; 2],
        types: vec![spec.data_type],
        near: anchors::SAME,
    };
    let run = case.by(Emitted::default()).unwrap();
    let result = run.expected.unwrap().remove(0);
    let channels = spec.out_c as usize;
    let mut sums = [vec![0f32; channels], vec![0f32; channels]];
    for (at, bits) in result.chunks(2).enumerate() {
        let bits = u16::from_le_bytes(bits.try_into().unwrap());
        let value = if is_half { F16::from_bits(bits).to_f32() } else { Bf16::from_bits(bits).to_f32() };
        sums[0][at % channels] += value;
        sums[1][at % channels] += value * value;
    }
    let sums = sums.map(|sums| sums.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
    let request = KernelRequest::ConvStatistics(spec);
    Run {
        name: format!("{request:?}"),
        request,
        outputs: [vec![result.len()], vec![channels * 4; 2]].concat(),
        expected: Ok([vec![result], sums.to_vec()].concat()),
        types: vec![spec.data_type, DataType::Float, DataType::Float],
        ..run
    }
}

/// Sums and sums of squares of halves and of `bfloat16`: of 1x1 and 3x3, by two, with channels that are padded, and with such as no engine takes.
#[test]
fn statistics_by_cudnn_are_those_of_the_result() {
    let Some((card, machine)) = card("kernels-cudnn-statistics") else { return };
    let library = card.library(EngineLimits::default(), CudnnMode::Auto, None);
    let on = Card::on(&card, library.clone());
    let mut making = Making::new(41);
    let same = WindowAxis { size: 9, positions: 9, taps: 3, stride: 1, dilation: 1, pad: 1 };
    let half = WindowAxis { size: 9, positions: 5, taps: 3, stride: 2, dilation: 1, pad: 1 };
    let (one, by_two) =
        (WindowAxis { size: 7, positions: 7, ..WindowAxis::ONE }, WindowAxis { size: 7, positions: 4, stride: 2, ..WindowAxis::ONE });
    let mut tried = Vec::new();
    for data_type in [DataType::Bfloat16, DataType::Half] {
        for (axes, channels) in [
            ([one, one], [16, 24]),
            ([same, same], [8, 16]),
            ([half, half], [16, 8]),
            ([by_two, by_two], [24, 40]),
            ([same, half], [3, 16]),
        ] {
            let run = with_statistics(&mut making, anchors::convolution(data_type, 2, &axes, channels));
            let engines = library.candidates(&any_card(), &run.request, 2).unwrap();
            // An engine that cuDNN compiles need not be there on the card that is checked.
            assert!(machine.is_none() || !engines.is_empty(), "{}", run.name);
            for engine in engines {
                tried.push(engine.name.to_string());
                on.compare_by(&run, engine);
            }
        }
        // Channels of a result are not padded: their sums would be, too. Floats are summed by kernels of normalizations.
        for (data_type, channels) in [(data_type, [16, 12]), (DataType::Float, [16, 16])] {
            let request = KernelRequest::ConvStatistics(anchors::convolution(data_type, 2, &[same, same], channels));
            let refused = library.variants(&any_card(), &request).unwrap_err();
            assert_eq!(refused.code(), Code::Unimplemented, "{refused}");
        }
    }
    assert!(machine.is_none() || tried.len() >= 15 && tried.iter().all(|name| name.ends_with("/statistics")), "{tried:?}");
    assert!(machine.is_none() || tried.iter().any(|name| name.ends_with("/padded/statistics")), "{tried:?}");
    drop((on, card));
    machine.iter().for_each(|machine| assert_eq!(machine.used(0), 0));
}
