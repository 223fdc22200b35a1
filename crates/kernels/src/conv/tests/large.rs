//! Tensors that no cache of a core holds are asked for ahead and written in strips: each image has the bits that it has alone.

use super::*;

/// `min(max(conv + bias, -0.75), 1.5)`.
fn bounded(channels: u64) -> Epilogue {
    let mut builder = ExprBuilder::new();
    let [conv, bias] = [0; 2].map(|_| builder.input(DataType::Float).unwrap());
    let biased = builder.binary(BinaryOp::Add, conv, bias).unwrap();
    let [low, high] = [-0.75, 1.5].map(|bound| builder.number(DataType::Float, bound).unwrap());
    let above = builder.binary(BinaryOp::Maximum, biased, low).unwrap();
    let value = builder.binary(BinaryOp::Minimum, above, high).unwrap();
    Epilogue { expr: builder.finish(vec![value]), operands: vec![vec![channels]] }
}

/// `taps` is the filter's size. At least one of the tensors of all images is larger than the caches, none of those of one image is.
fn check_images(spec: ConvSpec, taps: u64, prepare: impl Fn(Isa, ConvSpec, Option<Epilogue>) -> Prepared) {
    let one = ConvSpec { batch: 1, ..spec };
    let [input, output] = [one.input(), one.output()].map(count);
    assert!(input.max(output) * 4 < 1 << 20 && input.max(output) * 4 * spec.batch > 4 << 20, "{spec:?}");
    let (x, w, bias) = (numbers(input * spec.batch, 1), numbers(taps, 2), numbers(spec.out_c, 3));
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<u32>>();
    for isa in Isa::available() {
        for epilogue in [None, Some(bounded(spec.out_c))] {
            let run = |spec: ConvSpec, x: &[f32]| {
                let inputs = [x, &w, &bias];
                let prepared = prepare(isa, spec, epilogue.clone());
                run_both(&prepared, &inputs[..2 + usize::from(epilogue.is_some())], output * spec.batch)
            };
            let all = run(spec, &x);
            for (image, got) in x.chunks(input as usize).zip(all.chunks(output as usize)) {
                assert!(bits(got) == bits(&run(one, image)), "{isa:?} {spec:?}");
            }
        }
    }
}

#[test]
fn images_of_a_large_batch_have_the_bits_of_each_alone() {
    for spec in [spec(24, 48, 200, &[same(16, 1, 1); 2]), spec(24, 8, 200, &[same(32, 3, 2); 2])] {
        check_images(spec, count(spec.filter()), |isa, spec, epilogue| conv_on(isa, spec, epilogue).unwrap());
    }
    for (stride, dilation) in [(1, 1), (2, 1), (1, 2)] {
        let axis = WindowAxis { dilation, ..same(32, 3, stride) };
        let spec = spec(12, 96, 96, &[axis; 2]);
        check_images(spec, 9 * spec.out_c, |isa, spec, epilogue| depthwise_conv_on(isa, spec, epilogue).unwrap());
    }
}
