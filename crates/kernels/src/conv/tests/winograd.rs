//! Convolutions with fewer multiplications against plain loops: see [`crate::conv::winograd`].

use super::*;
use crate::conv::winograd::{Winograd, by_filter, end_by_filter, has_form, winograd, winograd_pooled};
use crate::packing::Order;

/// The results of both kernels.
fn run_winograd(made: &Winograd, filter: &[f32], other: &[f32], is_gradient: bool, len: u64) -> Vec<f32> {
    let values = run_both(&made.weights, &[filter], made.values);
    let inputs: [&[f32]; 2] = if is_gradient { [&values, other] } else { [other, &values] };
    run_both(&made.product, &inputs, len)
}

/// The largest error by the largest of `scales`.
fn error_by(got: &[f32], expected: &Sums, scale: impl Fn(&(f64, f64)) -> f64) -> f64 {
    assert_eq!(got.len(), expected.len());
    let largest = expected.iter().map(scale).fold(0.0, f64::max);
    let error = |(value, exact): (&f32, &(f64, f64))| (f64::from(*value) - exact.0).abs();
    // Results that are no numbers have no error: they count as infinite.
    let worst = got.iter().zip(expected).map(error).fold(0.0, |worst, error| if error.is_nan() { f64::INFINITY } else { error.max(worst) });
    worst / largest.max(f64::MIN_POSITIVE)
}

/// The gradient by the filter; none where there is no such form.
fn run_by_filter(isa: Isa, spec: &ConvSpec, x: &[f32], g: &[f32]) -> Option<Vec<f32>> {
    let made = by_filter(isa, spec, None).unwrap();
    let [_, rows, columns] = spec.axes.filled();
    let is_enough = spec.batch * rows.positions * columns.positions * spec.in_c.min(8) >= 512;
    assert_eq!(made.is_some(), has_form(spec, false) && is_enough, "{spec:?}");
    let made = made?;
    let sums = run_both(&made.summed, &[x, g], made.sums * spec.at_points(made.points).unwrap());
    let end = end_by_filter(isa, spec, made.points, made.sums).unwrap();
    Some(run_both(&end, &[&sums], count(spec.filter())))
}

fn check_winograd(spec: &ConvSpec, seed: u64) {
    let (x, w, g) = (numbers(count(spec.input()), seed), numbers(count(spec.filter()), seed ^ 7), numbers(count(spec.output()), seed ^ 13));
    let (mut y, mut dx, mut dw) = (vec![(0.0, 0.0); g.len()], vec![(0.0, 0.0); x.len()], vec![(0.0, 0.0); w.len()]);
    terms(spec, |i, f, o| {
        add(&mut y, o, x[i], w[f]);
        add(&mut dx, i, w[f], g[o]);
        add(&mut dw, f, x[i], g[o]);
    });
    // More points lose more bits.
    let most = if spec.axes.filled()[1].taps == 5 { 5e-6 } else { 2e-6 };
    for isa in Isa::available() {
        if let Some(got) = run_by_filter(isa, spec, &x, &g) {
            let error = error_by(&got, &dw, |(_, scale)| *scale);
            assert!(error <= most, "{isa:?} {spec:?} by filter: {error:e}");
        }
        for (is_gradient, other, expected) in [(false, &x, &y), (true, &g, &dx)] {
            let made = winograd(isa, spec, is_gradient, None).unwrap();
            assert_eq!(made.is_some(), has_form(spec, is_gradient), "{spec:?}");
            let Some(made) = made else { continue };
            let got = run_winograd(&made, &w, other, is_gradient, expected.len() as u64);
            // Results may be near 0: errors are those of the terms.
            let error = error_by(&got, expected, |(_, scale)| *scale);
            assert!(error <= most, "{isa:?} {spec:?} {is_gradient}: {error:e}");
        }
    }
}

/// Axes of one stride whose filter has so many taps, padded in any way.
fn specs() -> impl Strategy<Value = ConvSpec> {
    let channels = || prop_oneof![1..6u64, Just(16), 15..40u64, Just(67)];
    let axis = |taps: u64| {
        (1..15u64, 0..taps + 2, 0..taps + 2).prop_map(move |(size, pad, after)| {
            let positions = (size + pad + after + 1).saturating_sub(taps);
            WindowAxis { size, positions, taps, stride: 1, dilation: 1, pad }
        })
    };
    let axes = prop_oneof![Just(3u64), Just(5u64)].prop_flat_map(move |taps| (axis(taps), axis(taps)));
    (0..4u64, axes, channels(), channels()).prop_map(|(batch, (y, x), in_c, out_c)| spec(batch, in_c, out_c, &[y, x]))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_with_fewer_multiplications_agree_with_plain_loops(spec in specs(), seed in any::<u64>()) {
        check_winograd(&spec, seed);
    }
}

/// Of one image, of a piece of some blocks, of many blocks; of few and of many panels; sums in one block and in two.
#[test]
fn blocks_of_tiles_agree_with_plain_loops() {
    for (batch, in_c, out_c, size, taps) in
        [(1, 300, 200, 6, 3), (1, 9, 330, 9, 5), (3, 20, 33, 21, 3), (70, 3, 17, 8, 3), (1, 4, 5, 90, 3)]
    {
        let spec = spec(batch, in_c, out_c, &[same(size, taps, 1), same(size + 1, taps, 1)]);
        check_winograd(&spec, batch ^ in_c);
    }
}

/// For filters of 3x3 and 5x5 taps, forward and by the input, the error of up to 512 channels is at most 1e-5 of the largest result.
#[test]
fn the_error_is_bounded() {
    let mut worst = (0.0, String::new());
    for (channels, taps) in [(16u64, 3u64), (64, 3), (512, 3), (16, 5), (64, 5), (128, 5), (512, 5)] {
        let spec = spec(1, channels, 16, &[same(12, taps, 1); 2]);
        let back = ConvSpec { in_c: spec.out_c, out_c: spec.in_c, ..spec };
        for (spec, is_gradient) in [(spec, false), (back, true)] {
            let (x, w, g) = (numbers(count(spec.input()), 1), numbers(count(spec.filter()), 2), numbers(count(spec.output()), 3));
            let len = if is_gradient { x.len() } else { g.len() };
            let mut expected = vec![(0.0, 0.0); len];
            terms(&spec, |i, f, o| match is_gradient {
                true => add(&mut expected, i, w[f], g[o]),
                false => add(&mut expected, o, x[i], w[f]),
            });
            for isa in Isa::available() {
                let made = winograd(isa, &spec, is_gradient, None).unwrap().expect("such a form");
                let got = run_winograd(&made, &w, if is_gradient { &g } else { &x }, is_gradient, len as u64);
                let error = error_by(&got, &expected, |(exact, _)| exact.abs());
                let what = format!("{isa:?}, {channels} channels, {taps}x{taps}, {}", if is_gradient { "by input" } else { "forward" });
                println!("{error:.1e} {what}");
                if error > worst.0 {
                    worst = (error, what);
                }
            }
        }
    }
    println!("worst {:.1e} {}", worst.0, worst.1);
    assert!(worst.0 <= 1e-5, "{worst:?}");
}

/// By the filter, whatever the images and their tiles.
#[test]
fn the_error_by_the_filter_is_bounded() {
    let mut worst = (0.0, String::new());
    for (batch, size, channels, taps) in [
        (1u64, 12u64, 64u64, 3u64),
        (32, 12, 16, 3),
        (64, 7, 24, 3),
        (128, 4, 16, 3),
        (1, 56, 16, 3),
        (1, 12, 64, 5),
        (32, 12, 16, 5),
        (128, 4, 16, 5),
        (1, 48, 16, 5),
        (32, 24, 3, 5),
        (32, 32, 3, 3),
        (64, 8, 1, 3),
    ] {
        // Numbers of one sign, as behind a ReLU, and of both.
        for is_positive in [false, true] {
            let spec = spec(batch, channels, 16, &[same(size, taps, 1); 2]);
            let sign = |value: f32| if is_positive { value.abs() } else { value };
            let x: Vec<f32> = numbers(count(spec.input()), 1).into_iter().map(sign).collect();
            let g = numbers(count(spec.output()), 3);
            let mut expected = vec![(0.0, 0.0); count(spec.filter()) as usize];
            terms(&spec, |i, f, o| add(&mut expected, f, x[i], g[o]));
            for isa in Isa::available() {
                let got = run_by_filter(isa, &spec, &x, &g).expect("such a form");
                let error = error_by(&got, &expected, |(exact, _)| exact.abs());
                let what = format!("{isa:?}, {batch} images of {size}, {channels} channels, {taps}x{taps}, positive: {is_positive}");
                println!("{error:.1e} {what}");
                if error > worst.0 {
                    worst = (error, what);
                }
            }
        }
    }
    println!("worst {:.1e} {}", worst.0, worst.1);
    assert!(worst.0 <= 1e-5, "{worst:?}");
}

/// Long sums lose more bits: where more is added than errors allow, all multiplications are done.
#[test]
fn sums_by_the_filter_are_not_too_long() {
    for (taps, size, short, long) in [(3u64, 8u64, 1u64 << 16, 1u64 << 18), (5, 8, 1 << 13, 1 << 17)] {
        let of = |batch: u64| by_filter(Isa::best(), &spec(batch, 8, 16, &[same(size, taps, 1); 2]), None).unwrap().map(|made| made.points);
        assert_eq!(of(short), Some(6), "{taps}");
        assert_eq!(of(long), None, "{taps}");
    }
    assert_eq!(by_filter(Isa::best(), &spec(128, 8, 16, &[same(8, 5, 1); 2]), None).unwrap().map(|made| made.points), Some(8));
}

/// Results that are pooled at once, and gradients whose rows are made block by block, give the bits of what is made first.
#[test]
fn tiles_are_pooled_at_once_with_the_same_bits() {
    for spec in [
        spec(5, 3, 64, &[same(24, 5, 1); 2]),
        spec(9, 20, 60, &[same(5, 3, 1), same(7, 3, 1)]),
        // Images whose tiles are more than a block.
        spec(2, 60, 40, &[same(30, 3, 1), same(27, 3, 1)]),
        // Tiles of several images are summed together.
        spec(8, 3, 9, &[same(6, 3, 1); 2]),
    ] {
        let pool = pooled(&spec);
        let numbers = [count(spec.input()), count(spec.filter()), spec.out_c, count(pool.output())].map(|count| numbers(count, count));
        let [x, w, bias, g] = numbers.map(|numbers| testing::bytes(&numbers));
        let (made, left) = (4 * count(spec.output()) as usize, count(pool.output()) as usize);
        for isa in Isa::available() {
            let epilogue = || Some(relu(spec.out_c, false, true));
            let plain = winograd(isa, &spec, false, epilogue()).unwrap().expect("such a form");
            let values = backwards(&plain.weights, &[&w], &[4 * plain.values as usize]);
            let conv = backwards(&plain.product, &[&x, &values[0], &bias], &[made]);
            for positions in [Positions::None, Positions::All, Positions::Positive] {
                let pooling = Pooling { spec: pool, maxima: Maxima::First, positions };
                let at_once = winograd_pooled(isa, &spec, epilogue(), &pooling, Order::Rows).unwrap().expect("such a form");
                assert_eq!(at_once.values, plain.values);
                let sizes = if positions == Positions::None { &[4 * left][..] } else { &[4 * left, left][..] };
                let separate = match positions {
                    Positions::None => max_pool_on(isa, pool, Maxima::First).unwrap(),
                    _ => max_pool_with_argmax_on(isa, pool, positions == Positions::Positive).unwrap(),
                };
                let got = backwards(&at_once.product, &[&x, &values[0], &bias], sizes);
                assert!(got == backwards(&separate, &[&conv[0]], sizes), "{isa:?} {spec:?} {positions:?}");
                if positions == Positions::None {
                    continue;
                }
                let grad = backwards(&max_pool_grad_on(isa, pool).unwrap(), &[&got[1], &g], &[made]);
                let plain = by_filter(isa, &spec, None).unwrap().expect("such a form");
                let unpooled = by_filter(isa, &spec, Some(&pool)).unwrap().expect("such a form");
                assert_eq!((unpooled.sums, unpooled.points, unpooled.images), (plain.sums, plain.points, plain.images));
                let size = 4 * (plain.sums * spec.at_points(plain.points).unwrap()) as usize;
                let expected = backwards(&plain.summed, &[&x, &grad[0]], &[size]);
                assert!(backwards(&unpooled.summed, &[&x, &got[1], &g], &[size]) == expected, "{isa:?} {spec:?} {positions:?}");
            }
        }
    }
    // Rows are not made once for each of several parts of the channels, and they have to fit.
    let wide = spec(8, 300, 64, &[same(8, 3, 1); 2]);
    assert!(by_filter(Isa::best(), &wide, Some(&pooled(&wide))).unwrap().is_none());
    assert!(by_filter(Isa::best(), &wide, Some(&pooled(&spec(8, 3, 64, &[same(9, 3, 1); 2])))).is_err());
}

#[test]
fn epilogues_are_applied_to_every_tile_once() {
    for spec in [
        spec(1, 3, 5, &[same(6, 3, 1), same(7, 3, 1)]),
        spec(2, 16, 500, &[same(9, 3, 1), same(5, 3, 1)]),
        spec(40, 3, 64, &[same(11, 5, 1); 2]),
        spec(3, 130, 7, &[same(30, 3, 1); 2]),
    ] {
        for (is_gradient, other, result) in [(false, spec.input(), spec.output()), (true, spec.output(), spec.input())] {
            let made = |isa, epilogue| winograd(isa, &spec, is_gradient, epilogue).unwrap().expect("such a form");
            // Any numbers are values of some filter; there are as many as the widest vectors need.
            let values = Isa::available().into_iter().map(|isa| made(isa, None).values).max().unwrap();
            let from = if is_gradient { [values, count(other)] } else { [count(other), values] };
            check_epilogue(from, result.clone(), |isa, epilogue| Ok(made(isa, epilogue).product));
            check_in_place(from, result, |isa, epilogue| Ok(made(isa, epilogue).product));
        }
    }
}

#[test]
fn other_convolutions_have_no_such_form() {
    let plain = spec(1, 8, 8, &[same(8, 3, 1); 2]);
    assert!(has_form(&plain, false) && has_form(&plain, true));
    let with = |axes: &[WindowAxis]| spec(1, 8, 8, axes);
    let dilated = WindowAxis { dilation: 2, pad: 2, ..same(8, 3, 1) };
    for other in [
        with(&[same(8, 3, 2); 2]),
        with(&[dilated; 2]),
        with(&[same(8, 1, 1); 2]),
        with(&[same(8, 4, 1); 2]),
        with(&[same(8, 3, 1), same(8, 5, 1)]),
        with(&[same(8, 3, 1)]),
        with(&[same(3, 3, 1), same(8, 3, 1), same(8, 3, 1)]),
        ConvSpec { groups: 2, ..plain },
        ConvSpec { data_type: DataType::Half, ..plain },
        ConvSpec { batch: 0, ..plain },
        ConvSpec { in_c: 513, out_c: 513, ..plain },
    ] {
        for is_gradient in [false, true] {
            assert!(winograd(Isa::best(), &other, is_gradient, None).unwrap().is_none(), "{other:?}");
        }
    }
}
