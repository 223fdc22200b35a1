//! Filters in panels give the bits of filters row by row: the direct form, pooled at once, and with fewer multiplications.

use super::*;
use crate::conv::winograd::winograd_of;
use crate::packing::{Order, panels_of};

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The two orders of a filter, on an instruction set that has such panels for it.
fn filters(isa: Isa, spec: &ConvSpec, filter: &[f32]) -> Option<[(Order, Vec<f32>); 2]> {
    let panels = panels_of(isa, spec.out_c)?;
    Some([(Order::Rows, filter.to_vec()), (Order::Panels, testing::in_panels(panels, filter))])
}

fn check_panels(spec: &ConvSpec, seed: u64) -> std::result::Result<(), TestCaseError> {
    let (x, w) = (numbers(count(spec.input()), seed), numbers(count(spec.filter()), seed ^ 7));
    let len = count(spec.output());
    for isa in Isa::available() {
        let Some([(_, rows), (_, held)]) = filters(isa, spec, &w) else {
            prop_assert!(conv_of(isa, *spec, None, Order::Panels).is_err());
            continue;
        };
        for epilogue in [None, Some(relu(spec.out_c, false, true))] {
            let bias = numbers(spec.out_c, seed ^ 3);
            let run = |order, w: &[f32]| {
                let inputs = if epilogue.is_some() { &[&x, w, &bias[..]][..] } else { &[&x, w][..] };
                bits(&run_both(&conv_of(isa, *spec, epilogue.clone(), order).unwrap(), inputs, len))
            };
            prop_assert_eq!(run(Order::Panels, &held), run(Order::Rows, &rows), "{:?} {:?}", isa, spec);
        }
        let values = |order, w: &[f32]| {
            let made = winograd_of(isa, spec, false, None, (order, false)).unwrap()?;
            let values = run_both(&made.weights, &[w], made.values);
            Some(bits(&run_both(&made.product, &[&x, &values], len)))
        };
        prop_assert_eq!(values(Order::Panels, &held), values(Order::Rows, &rows), "winograd {:?} {:?}", isa, spec);
    }
    Ok(())
}

/// Convolutions of any axes whose filters have several panels on some instruction set.
fn specs() -> impl Strategy<Value = ConvSpec> {
    let axis = || {
        (1..12u64, 1..6u64, 1..3u64, 1..3u64, 0..3u64).prop_map(|(size, taps, stride, dilation, pad)| {
            let reach = (taps - 1) * dilation + 1;
            let positions = (size + 2 * pad + stride).saturating_sub(reach) / stride;
            WindowAxis { size, positions, taps, stride, dilation, pad }
        })
    };
    let out_c = prop_oneof![9..40u64, Just(64), 65..150u64, Just(192), Just(200)];
    let axes = prop_oneof![(axis(), axis()).prop_map(|(y, x)| vec![y, x]), (axis(), axis(), axis()).prop_map(|(z, y, x)| vec![z, y, x])];
    (1..4u64, axes, prop_oneof![1..5u64, Just(17), Just(130)], out_c).prop_map(|(batch, axes, in_c, out_c)| spec(batch, in_c, out_c, &axes))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_filter_in_panels_gives_the_same_bits(spec in specs(), seed in any::<u64>()) {
        check_panels(&spec, seed)?;
    }
}

#[test]
fn a_filter_in_panels_of_many_terms_gives_the_same_bits() {
    // Blocks of a part of a row of taps, of a tap, and of several rows.
    let dilated = WindowAxis { dilation: 2, pad: 2, ..same(7, 3, 1) };
    for spec in [
        spec(2, 1500, 130, &[same(3, 1, 1); 2]),
        spec(1, 512, 80, &[same(5, 3, 1); 2]),
        spec(1, 40, 200, &[same(9, 3, 1), dilated]),
        spec(3, 24, 96, &[same(8, 5, 2); 2]),
        spec(0, 24, 96, &[same(8, 5, 2); 2]),
    ] {
        check_panels(&spec, 5).unwrap();
    }
}

#[test]
fn a_filter_in_panels_is_pooled_at_once() {
    let spec = spec(9, 20, 150, &[same(5, 3, 1), same(7, 3, 1)]);
    let pooling = Pooling { spec: pooled(&spec), maxima: Maxima::First, positions: Positions::None };
    let (x, w, bias) = (numbers(count(spec.input()), 1), numbers(count(spec.filter()), 2), numbers(spec.out_c, 3));
    for isa in Isa::available() {
        let made = filters(isa, &spec, &w).expect("several panels").map(|(order, w)| {
            let prepared = conv_pooled_of(isa, spec, Some(relu(spec.out_c, false, true)), pooling, order).unwrap();
            bits(&run_both(&prepared, &[&x, &w, &bias], count(pooling.spec.output())))
        });
        assert_eq!(made[0], made[1], "{isa:?}");
    }
}

#[test]
fn groups_and_other_types_have_no_panels() {
    let plain = spec(2, 8, 160, &[same(5, 3, 1); 2]);
    for other in [ConvSpec { groups: 2, ..plain }, ConvSpec { data_type: DataType::Half, ..plain }, ConvSpec { out_c: 4, ..plain }] {
        for isa in Isa::available() {
            assert!(!reads_panels(isa, &other), "{isa:?} {other:?}");
            assert!(conv_of(isa, other, None, Order::Panels).is_err(), "{isa:?} {other:?}");
        }
    }
}
