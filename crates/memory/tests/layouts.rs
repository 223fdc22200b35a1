//! Layouts of published problems, and of made-up ones.

use std::path::Path;

use plimsoll_memory::layout::{Buffer, Layout, pack, pack_with};
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

#[test]
fn published_problems() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/planning/offsets");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    // Percent above the most bytes live; each a little more than the value that is reached.
    for (name, at_most) in [
        ("minimalloc-A", 24.0),
        ("minimalloc-B", 29.0),
        ("minimalloc-D", 24.0),
        ("minimalloc-E", 25.0),
        ("minimalloc-G", 14.5),
        ("minimalloc-H", 14.0),
        ("minimalloc-J", 25.0),
        ("somas_resnet50", 0.1),
        ("pangu_2.6B", 3.4),
        ("iopddl-Y_1", 2.2),
    ] {
        let text = std::fs::read_to_string(folder.join(format!("{name}.csv"))).unwrap();
        let buffers: Vec<Buffer> = text
            .lines()
            .skip(1)
            .map(|line| {
                let numbers: Vec<u64> = line.split(',').map(|number| number.trim().parse().unwrap()).collect();
                Buffer { first: numbers[1] as u32, last: numbers[2] as u32 - 1, bytes: numbers[3], align: 1 }
            })
            .collect();
        let start = std::time::Instant::now();
        let layout = pack(&buffers);
        let above = 100.0 * (layout.peak as f64 / layout.lower_bound as f64 - 1.0);
        eprintln!("{name}: {} buffers, peak {}, {above:.3} % above the most live, {:?}", buffers.len(), layout.peak, start.elapsed());
        assert_eq!(defect(&buffers, &layout), None, "{name}");
        assert!(above <= at_most, "{name}: {above:.3} % above the most live");
    }
}

fn any_buffers() -> impl Strategy<Value = Vec<Buffer>> {
    let buffer = (0..30u32, 0..12u32, 0..200u64, prop::sample::select(vec![0, 1, 8, 64]));
    let buffer = buffer.prop_map(|(first, length, bytes, align)| Buffer { first, last: first + length, bytes, align });
    proptest::collection::vec(buffer, 0..60)
}

proptest! {
    #[test]
    fn layouts_have_no_defect(buffers in any_buffers(), work in prop::sample::select(vec![0, 300, 1_000_000])) {
        let layout = pack_with(&buffers, work, 10);
        prop_assert_eq!(defect(&buffers, &layout), None);
        prop_assert_eq!(layout.lower_bound, most_live(&buffers));
        prop_assert!(layout.peak >= layout.lower_bound);
        prop_assert_eq!(pack_with(&buffers, work, 10), layout);
    }

    #[test]
    fn more_work_is_never_worse(buffers in any_buffers()) {
        prop_assert!(pack(&buffers).peak <= pack_with(&buffers, 0, 0).peak);
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
