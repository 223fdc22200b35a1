//! Layouts of published problems, and of made-up ones.

use std::path::Path;

use plimsoll_memory::layout::{Buffer, Effort, Enough, Layout, pack, pack_with};
use proptest::prelude::*;

/// Two buffers that live at the same time and share a byte, or another defect.
fn defect(buffers: &[Buffer], layout: &Layout) -> Option<String> {
    if layout.offsets.len() != buffers.len() {
        return Some("buffers are missing".into());
    }
    let end = |i: usize| layout.offsets[i] + buffers[i].bytes;
    let mut by_first: Vec<usize> = (0..buffers.len()).filter(|&i| buffers[i].bytes > 0).collect();
    by_first.sort_by_key(|&i| buffers[i].first);
    let mut live: Vec<usize> = Vec::new();
    for &i in &by_first {
        live.retain(|&other| buffers[other].last >= buffers[i].first);
        if let Some(other) = live.iter().find(|&&other| layout.offsets[i] < end(other) && layout.offsets[other] < end(i)) {
            return Some(format!("{i} and {other} share bytes"));
        }
        live.push(i);
    }
    let misplaced = (0..buffers.len()).find(|&i| !layout.offsets[i].is_multiple_of(buffers[i].align.max(1)));
    let peak = by_first.iter().map(|&i| end(i)).max().unwrap_or(0);
    misplaced.map(|i| format!("{i} is not aligned")).or((peak != layout.peak).then(|| format!("peak {} said, {peak} is", layout.peak)))
}

fn most_live(buffers: &[Buffer]) -> u64 {
    let load = |step: u32| buffers.iter().filter(|b| b.first <= step && step <= b.last).map(|b| b.bytes).sum();
    buffers.iter().map(|b| load(b.first)).max().unwrap_or(0)
}

/// A layout problem of the folder beside the project, if it is there.
fn published(name: &str) -> Option<Vec<Buffer>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/planning/offsets").join(format!("{name}.csv"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    };
    let buffer = |line: &str| {
        let numbers: Vec<u64> = line.split(',').map(|number| number.trim().parse().unwrap()).collect();
        Buffer { first: numbers[1] as u32, last: numbers[2] as u32 - 1, bytes: numbers[3], align: 1 }
    };
    Some(text.lines().skip(1).map(buffer).collect())
}

/// Percent of the peak above the most bytes live.
fn above(name: &str, buffers: &[Buffer], layout: &Layout) -> f64 {
    assert_eq!(defect(buffers, layout), None, "{name}");
    let above = 100.0 * (layout.peak as f64 / layout.lower_bound as f64 - 1.0);
    eprintln!("{name}: {} buffers, peak {}, {above:.3} % above the most live, {} steps", buffers.len(), layout.peak, layout.steps);
    above
}

#[test]
fn small_published_problems_are_solved() {
    for letter in ["A", "B", "D", "E", "G", "H", "J"] {
        let name = format!("minimalloc-{letter}");
        let Some(buffers) = published(&name) else { return };
        let layout = pack_with(&buffers, Effort { steps: 100_000_000, enough: Enough::Capacity(1_048_576) });
        above(&name, &buffers, &layout);
        assert!(layout.peak <= 1_048_576, "{name}: {}", layout.peak);
    }
}

#[test]
fn large_published_problems_are_packed_tightly() {
    for (name, at_most) in [("pangu_2.6B", 0.05), ("somas_resnet50", 0.1)] {
        let Some(buffers) = published(name) else { return };
        let layout = pack_with(&buffers, Effort { steps: 20_000_000, enough: Enough::Near });
        let above = above(name, &buffers, &layout);
        assert!(above <= at_most, "{name}: {above:.3} % above the most live");
    }
}

/// All of the published problems, with the effort that planbench has.
#[test]
#[ignore = "takes minutes without optimization; scripts/long runs it"]
fn all_published_problems_are_packed_tightly() {
    for (name, at_most) in [("pangu_2.6B", 0.05), ("somas_resnet50", 0.1), ("iopddl-Y_1", 0.05)] {
        let Some(buffers) = published(name) else { return };
        let layout = pack_with(&buffers, Effort { steps: 200_000_000, enough: Enough::Least });
        let above = above(name, &buffers, &layout);
        assert!(above <= at_most, "{name}: {above:.3} % above the most live");
    }
}

fn any_buffers() -> impl Strategy<Value = Vec<Buffer>> {
    let buffer = (0..30u32, 0..12u32, 0..200u64, prop::sample::select(vec![0, 1, 8, 64]));
    let buffer = buffer.prop_map(|(first, length, bytes, align)| Buffer { first, last: first + length, bytes, align });
    proptest::collection::vec(buffer, 0..60)
}

/// Buffers of which no two lie in the way of each other in too many ways, for a search through all of them.
fn few_buffers() -> impl Strategy<Value = Vec<Buffer>> {
    let buffer = (0..6u32, 0..4u32, 1..9u64);
    let buffer = buffer.prop_map(|(first, length, bytes)| Buffer { first, last: first + length, bytes, align: 1 });
    (proptest::collection::vec(buffer, 1..8), prop::sample::select(vec![1, 1, 4])).prop_map(|(mut buffers, align)| {
        buffers.iter_mut().for_each(|buffer| buffer.align = align);
        buffers
    })
}

/// The least peak: buffers one after another in every order, each as low as it can lie.
fn least_peak(buffers: &[Buffer]) -> u64 {
    fn place(buffers: &[Buffer], placed: &mut Vec<(usize, u64)>, peak: u64, best: &mut u64) {
        if peak >= *best {
            return;
        }
        if placed.len() == buffers.len() {
            *best = peak;
        }
        for (i, buffer) in buffers.iter().enumerate() {
            if placed.iter().any(|&(other, _)| other == i) {
                continue;
            }
            let end = |&(other, offset): &(usize, u64)| offset + buffers[other].bytes;
            let beside = |&&(other, _): &&(usize, u64)| buffers[other].first <= buffer.last && buffer.first <= buffers[other].last;
            let offset = placed.iter().filter(beside).map(end).max().unwrap_or(0).next_multiple_of(buffer.align);
            placed.push((i, offset));
            place(buffers, placed, peak.max(offset + buffer.bytes), best);
            placed.pop();
        }
    }
    let mut best = u64::MAX;
    place(buffers, &mut Vec::new(), 0, &mut best);
    best
}

/// A rectangle of steps and bytes cut into buffers: a layout without a gap exists.
fn cut_rectangle() -> impl Strategy<Value = (Vec<Buffer>, u64)> {
    let cuts = proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>(), 1..100u64), 1..40);
    (cuts, 1..40u32, 1..200u64).prop_map(|(cuts, steps, bytes)| {
        let mut pieces = vec![(0, steps, bytes)];
        for (which, in_time, at) in cuts {
            let which = which.index(pieces.len());
            let (first, end, bytes) = pieces[which];
            if in_time && end - first > 1 {
                let middle = first + 1 + at as u32 % (end - first - 1);
                pieces[which].1 = middle;
                pieces.push((middle, end, bytes));
            } else if !in_time && bytes > 1 {
                let lower = 1 + at % (bytes - 1);
                pieces[which].2 = lower;
                pieces.push((first, end, bytes - lower));
            }
        }
        let buffer = |(first, end, bytes)| Buffer { first, last: end - 1, bytes, align: 1 };
        (pieces.into_iter().map(buffer).collect(), bytes)
    })
}

proptest! {
    #[test]
    fn layouts_have_no_defect(buffers in any_buffers(), steps in prop::sample::select(vec![0, 300, 100_000])) {
        let effort = Effort { steps, enough: Enough::Least };
        let layout = pack_with(&buffers, effort);
        prop_assert_eq!(defect(&buffers, &layout), None);
        prop_assert_eq!(layout.lower_bound, most_live(&buffers));
        prop_assert!(layout.peak >= layout.lower_bound);
        prop_assert_eq!(pack_with(&buffers, effort), layout);
    }

    #[test]
    fn steps_never_make_it_worse_than_none(buffers in any_buffers(), steps in 0..100_000u64) {
        let peak = |steps| pack_with(&buffers, Effort { steps, enough: Enough::Near }).peak;
        prop_assert!(peak(steps) <= peak(0));
        prop_assert!(pack(&buffers).peak <= peak(0));
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn few_buffers_have_the_least_peak(buffers in few_buffers()) {
        let layout = pack_with(&buffers, Effort { steps: 2_000_000, enough: Enough::Least });
        prop_assert_eq!(defect(&buffers, &layout), None);
        // What is always live lies at the bottom, where its end may leave less than an alignment unused.
        prop_assert!((least_peak(&buffers)..least_peak(&buffers) + buffers[0].align).contains(&layout.peak));
    }

    #[test]
    fn a_rectangle_that_was_cut_is_put_together((buffers, bytes) in cut_rectangle()) {
        let layout = pack_with(&buffers, Effort { steps: 20_000_000, enough: Enough::Capacity(bytes) });
        prop_assert_eq!(defect(&buffers, &layout), None);
        prop_assert_eq!(layout.peak, bytes);
    }

    #[test]
    fn the_order_of_buffers_does_not_matter_to_whether_they_fit((mut buffers, bytes) in cut_rectangle(), by in any::<prop::sample::Index>()) {
        let by = by.index(buffers.len());
        buffers.rotate_left(by);
        let layout = pack_with(&buffers, Effort { steps: 20_000_000, enough: Enough::Capacity(bytes) });
        prop_assert_eq!(defect(&buffers, &layout), None);
        prop_assert_eq!(layout.peak, bytes);
    }
}

/// Numbers at the ends of what can be counted, and others.
fn wild() -> impl Strategy<Value = u64> {
    let ends = [0, 1, 2, 1 << 31, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX / 3, u64::MAX - 1, u64::MAX];
    prop_oneof![prop::sample::select(ends.to_vec()), any::<u64>(), 0..1000u64]
}

proptest! {
    #[test]
    fn wild_numbers_make_no_panic(
        made in proptest::collection::vec((wild(), wild(), wild(), wild()), 0..20),
        capacity in wild(),
        steps in 0..200_000u64,
    ) {
        let buffer = |(first, last, bytes, align)| Buffer { first: first as u32 % 50, last: last as u32 % 50, bytes, align };
        let buffers: Vec<Buffer> = made.into_iter().map(buffer).collect();
        for enough in [Enough::Least, Enough::Near, Enough::Capacity(capacity)] {
            let layout = pack_with(&buffers, Effort { steps, enough });
            if layout.peak < u64::MAX {
                // A lifetime that ends before it begins is one of a single step.
                let forward: Vec<Buffer> = buffers.iter().map(|b| Buffer { last: b.last.max(b.first), ..*b }).collect();
                prop_assert_eq!(defect(&forward, &layout), None);
            }
        }
    }
}

#[test]
fn no_overflow_and_no_panic_at_the_ends() {
    let buffer = |first, last, bytes, align| Buffer { first, last, bytes, align };
    assert_eq!(pack(&[]), Layout::default());
    let huge = [buffer(0, u32::MAX, u64::MAX, 64), buffer(0, 3, 1 << 63, 1 << 63), buffer(1, u32::MAX, u64::MAX - 1, 3)];
    assert_eq!(pack(&huge).peak, u64::MAX);
    assert_eq!(pack(&huge[1..]).peak, u64::MAX);
    let backwards = [buffer(5, 0, 10, 1), buffer(5, 5, 10, 1)];
    assert_eq!(pack(&backwards).peak, 20);
}

#[test]
fn a_chain_of_equal_buffers_needs_two() {
    let chain: Vec<Buffer> = (0..1000).map(|step| Buffer { first: step, last: step + 1, bytes: 100, align: 64 }).collect();
    let layout = pack(&chain);
    assert_eq!((layout.peak, layout.lower_bound, defect(&chain, &layout)), (228, 200, None));
}

#[test]
fn twenty_thousand_live_at_once_are_no_trouble() {
    let buffers: Vec<Buffer> =
        (0..20_000).map(|i| Buffer { first: i % 7, last: 100 + i % 11, bytes: 64 + u64::from(i % 13), align: 1 }).collect();
    let layout = pack(&buffers);
    assert_eq!(defect_by_sorting(&buffers, &layout), layout.lower_bound);
}

/// All buffers are live at step 50: their extents must follow each other without a gap. Returns the sum.
fn defect_by_sorting(buffers: &[Buffer], layout: &Layout) -> u64 {
    let mut extents: Vec<(u64, u64)> = buffers.iter().zip(&layout.offsets).map(|(b, &offset)| (offset, offset + b.bytes)).collect();
    extents.sort_unstable();
    assert!(extents.windows(2).all(|pair| pair[0].1 == pair[1].0));
    extents.last().map_or(0, |last| last.1)
}
