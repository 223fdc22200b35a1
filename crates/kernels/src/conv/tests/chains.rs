//! Epilogues that are chains give the bits of results that are made first: see [`crate::expr::Chain`].

use super::*;
use crate::conv::winograd::winograd;
use crate::expr::{Chain, Functions, elementwise_on};
use plimsoll_request::expr::UnaryOp;

/// `min(max(other - (conv * scale + bias), -0.75), 1.5)` where `features` is above 0, else 0. `other` and `features` are as large as the result.
/// With `swish`, the difference is multiplied by its sigmoid first.
fn chain(shape: &[u64], swish: bool) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let [conv, scale, bias, other, features] = [0; 5].map(|_| builder.input(DataType::Float).unwrap());
    let scaled = builder.binary(BinaryOp::Mul, conv, scale).unwrap();
    let biased = builder.binary(BinaryOp::Add, bias, scaled).unwrap();
    let mut left = builder.binary(BinaryOp::Sub, other, biased).unwrap();
    if swish {
        let sigmoid = builder.unary(UnaryOp::Sigmoid, left).unwrap();
        left = builder.binary(BinaryOp::Mul, sigmoid, left).unwrap();
    }
    let [low, high] = [-0.75, 1.5].map(|bound| builder.number(DataType::Float, bound).unwrap());
    let above = builder.binary(BinaryOp::Maximum, left, low).unwrap();
    let value = builder.binary(BinaryOp::Minimum, above, high).unwrap();
    let zero = builder.number(DataType::Float, 0.0).unwrap();
    let passes = builder.binary(BinaryOp::Greater, features, zero).unwrap();
    let passed = builder.select(passes, value, zero).unwrap();
    let channels = *shape.last().unwrap();
    let operands = vec![vec![channels], vec![1, channels], shape.to_vec(), shape.to_vec()];
    let epilogue = Epilogue { expr: builder.finish(vec![passed]), operands };
    assert_eq!(Chain::of(&epilogue.expr, shape, &epilogue.operands, Functions::Never).is_some(), !swish);
    assert!(Chain::of(&epilogue.expr, shape, &epilogue.operands, Functions::Of(Isa::Avx2)).is_some());
    epilogue
}

/// Numbers with some that are none, and zeros of both signs.
fn special(count: u64, seed: u64) -> Vec<f32> {
    let mut made = numbers(count, seed);
    for (at, special) in [f32::NAN, -0.0, f32::INFINITY, 0.0, f32::NEG_INFINITY].into_iter().enumerate() {
        if let Some(value) = made.get_mut(at * 7 + 3) {
            *value = special;
        }
    }
    made
}

/// Of a computation of `shape` from so many numbers and so many others. `prepare` gives kernels that run one after the other: all but
/// the last make the last one's second argument.
fn check_chain(from: [u64; 2], shape: &[u64], prepare: impl Fn(Isa, Option<Epilogue>) -> Prepared) {
    let channels = *shape.last().unwrap();
    let len = count(shape.to_vec());
    let mut features = special(len, 6);
    // Elsewhere than where `other` is none.
    features.rotate_right(1);
    let numbers = [special(from[0], 1), numbers(from[1], 2), special(channels, 3), numbers(channels, 4), special(len, 5), features];
    let [x, w, scale, bias, other, features] = numbers.map(|numbers| testing::bytes(&numbers));
    let run = |prepared: &Prepared, inputs: &[&[u8]], pairs: &[(usize, usize)]| {
        let calls: Vec<Range<u32>> = (0..prepared.chunks).rev().map(|piece| piece..piece + 1).collect();
        let mut outputs = [vec![0xEE; 4 * len as usize]];
        testing::run_pieces(prepared, inputs, &mut outputs, &calls, pairs).unwrap();
        testing::values::<f32>(&outputs[0])
    };
    let bits = |values: &[f32]| values.iter().map(|value| if value.is_nan() { 0x7FC0_0000 } else { value.to_bits() }).collect::<Vec<u32>>();
    for (isa, swish) in Isa::available().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
        let Epilogue { expr, operands } = chain(shape, swish);
        let plain = testing::bytes(&run(&prepare(isa, None), &[&x, &w], &[]));
        let all: Vec<Vec<u64>> = std::iter::once(shape.to_vec()).chain(operands).collect();
        let then = elementwise_on(isa, &expr, shape, &all).unwrap();
        let expected = run(&then, &[&plain, &scale, &bias, &other, &features], &[]);
        let fused = prepare(isa, Some(chain(shape, swish)));
        for pairs in [&[][..], &[(4, 0)], &[(5, 0)]] {
            let got = run(&fused, &[&x, &w, &scale, &bias, &other, &features], pairs);
            assert!(bits(&got) == bits(&expected), "{isa:?} {shape:?} {pairs:?}");
        }
    }
}

#[test]
fn chains_give_the_bits_of_results_that_are_made_first() {
    for spec in [
        base(),
        ConvSpec { out_c: 200, batch: 3, ..base() },
        spec(2, 24, 144, &[same(9, 1, 1); 2]),
        spec(1, 1100, 70, &[same(5, 1, 1), same(7, 1, 1)]),
        // Several blocks, the last of which some results do not see.
        spec(2, 500, 37, &[same(3, 3, 1); 2]),
        spec(1, 64, 500, &[same(30, 3, 2); 2]),
        spec(2, 3, 200, &[same(4, 3, 1), same(9, 2, 2), same(8, 3, 1)]),
    ] {
        let [input, filter, output] = [spec.input(), spec.filter(), spec.output()].map(count);
        check_chain([input, filter], &spec.output(), |isa, epilogue| conv_on(isa, spec, epilogue).unwrap());
        check_chain([filter, output], &spec.input(), |isa, epilogue| conv_backprop_input_on(isa, spec, epilogue).unwrap());
    }
    for (channels, stride) in [(3, 1), (16, 1), (144, 2), (75, 1)] {
        let spec = spec(2, channels, channels, &[same(20, 3, stride), same(11, 5, stride)]);
        let from = [count(spec.input()), spec.taps() * spec.out_c];
        check_chain(from, &spec.output(), |isa, epilogue| depthwise_conv_on(isa, spec, epilogue).unwrap());
    }
}

#[test]
fn chains_follow_convolutions_with_fewer_multiplications() {
    let axes = [same(9, 3, 1), same(10, 3, 1)];
    for spec in [spec(2, 5, 37, &axes), spec(2, 16, 13, &axes), spec(1, 70, 90, &[same(6, 5, 1); 2])] {
        for isa in Isa::available() {
            let values = winograd(isa, &spec, false, None).unwrap().unwrap().values;
            let form = |epilogue| winograd(isa, &spec, false, epilogue).unwrap().unwrap().product;
            check_chain([count(spec.input()), values], &spec.output(), |each, epilogue| {
                // The values of other instruction sets are others: any numbers will do.
                if each == isa { form(epilogue) } else { conv_on(each, spec, epilogue).unwrap() }
            });
        }
    }
}
