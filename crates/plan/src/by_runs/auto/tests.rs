//! Ratings that begin where an assignment differs are those of a whole run on paper.

use plimsoll_base::Random;
use plimsoll_device::{CardPart, DeviceKind, DeviceSpec, InstructionSet, ModelledLink};
use plimsoll_placer::{Choices, Device, Model};

use super::super::Objective;
use super::problem::{Floor, Place, Problem, Value, Work};
use super::queues::{Price, Queues};

/// A processor, and two cards, one of which is divided into two devices.
fn devices() -> Vec<DeviceSpec> {
    let card = |card: u32| {
        let modelled = Some(ModelledLink { latency: 0.0, bandwidth: 1e10, peers: Vec::new() });
        let card = Some(CardPart { card, priority: 0, modelled, real: None });
        DeviceSpec { kind: DeviceKind::Gpu, card, ..DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline) }
    };
    vec![DeviceSpec::cpu(0, None, 2, InstructionSet::Baseline), card(0), card(0), card(1)]
}

/// Works that read what earlier ones made, variables, feeds and constants.
fn problem(random: &mut Random) -> Problem {
    let devices = 4;
    let parts = 2 + random.below(12);
    let part = |random: &mut Random| random.below(parts) as u32;
    let mut values: Vec<Value> = Vec::new();
    let mut makers = Vec::new();
    for _ in 0..3 + random.below(6) {
        let place = match random.below(4) {
            0 => Place::Host,
            1 => Place::Everywhere,
            _ => Place::Kept(part(random)),
        };
        values.push(Value { bytes: 1 + random.below(100) as u64, place, is_in_body: random.below(4) == 0 });
        makers.push(0);
    }
    let (mut works, mut reads, mut writes): (Vec<Work>, Vec<u32>, Vec<u32>) = Default::default();
    for _ in 0..1 + random.below(120) {
        let start = (reads.len(), writes.len());
        let mut read: Vec<u32> = (0..random.below(4)).map(|_| random.below(values.len()) as u32).collect();
        read.sort_unstable();
        read.dedup();
        reads.extend(read);
        let own = part(random);
        for _ in 0..random.below(3) {
            let place = if random.below(8) == 0 { Place::Kept(part(random)) } else { Place::Made };
            writes.push(values.len() as u32);
            values.push(Value { bytes: random.below(100) as u64, place, is_in_body: random.below(4) == 0 });
            makers.push(own);
        }
        works.push(Work {
            part: own,
            reads: start.0..reads.len(),
            writes: start.1..writes.len(),
            scratch: random.below(30) as u64,
            is_in_place: random.below(2) == 0,
            divides: false,
            fused_into: (random.below(5) == 0).then(|| part(random)),
        });
    }
    let choices = (0..parts).map(|_| match random.below(6) {
        0 => vec![random.below(devices) as Device],
        _ => (0..devices as Device).collect(),
    });
    let choices = Choices::new(choices.collect::<Vec<_>>());
    let seconds: Vec<f64> = (0..works.len() * 2).map(|_| random.unit()).collect();
    // What may be fused adds nothing.
    let is_apart: Vec<bool> = works.iter().map(|work| work.fused_into.is_none() && random.below(8) > 0).collect();
    let floors = seconds.iter().enumerate().map(|(at, seconds)| match is_apart[at / 2] {
        true => Floor { busy: *seconds, last: *seconds },
        false => Floor::default(),
    });
    let floors = floors.collect();
    let copies = (0..values.len() * 2).map(|_| random.unit()).collect();
    Problem {
        choices,
        kept: (0..parts).map(|_| random.below(200) as u64).collect(),
        before: (0..parts).map(|_| random.below(100) as u64).collect(),
        works,
        reads,
        writes,
        values,
        makers,
        seconds,
        floors,
        kinds: 2,
        kind_of: vec![0, 1, 1, 1],
        copies,
        always: vec![0.0; 2],
        pairs: 2,
        pair_of: (0..devices * devices).map(|pair| u16::from(pair % devices != pair / devices)).collect(),
        host: 0,
        lines: vec![None, Some(400), Some(600), None],
        part_of_unit: Vec::new(),
        followed: Vec::new(),
    }
}

#[test]
fn ratings_from_the_first_moment_that_differs_are_those_of_whole_runs() {
    let devices = devices();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let problem = problem(&mut random);
        let objective = if seed % 2 == 0 { Objective::Latency } else { Objective::Throughput };
        let price = (seed % 3 == 0).then(|| Price { per_byte: 1e-3, walls: vec![None, Some(300), Some(500), None] });
        let fresh = || {
            let mut queues = Queues::new(&problem, &devices, objective);
            queues.price.clone_from(&price);
            queues
        };
        let mut queues = fresh();
        let any = |random: &mut Random, part: usize| problem.choices.of(part)[random.below(problem.choices.of(part).len())];
        let mut kept: Vec<Device> = (0..problem.choices.len()).map(|part| any(&mut random, part)).collect();
        for _ in 0..60 {
            let mut tried = kept.clone();
            for _ in 0..random.below(4) {
                let part = random.below(tried.len());
                tried[part] = any(&mut random, part);
            }
            let rating = queues.rate(&tried);
            assert_eq!(rating, fresh().rate(&tried), "seed {seed}");
            let least = queues.least().seconds(objective);
            assert!(least <= rating.seconds * (1.0 + 1e-9), "seed {seed}: {least} {rating:?}");
            // What takes more than is asked for is not rated, and nothing else.
            let most = rating.seconds * (0.5 + random.unit());
            assert_eq!(queues.rate_within(&tried, most), Some(rating).filter(|rating| rating.seconds <= most), "seed {seed}");
            assert_eq!(queues.rate(&tried), rating, "seed {seed}");
            match random.below(4) {
                0 => {
                    queues.keep();
                    kept = tried;
                }
                // What is tried otherwise changes nothing that is kept.
                1 => {
                    let groups: Vec<u32> = (0..tried.len() as u32).collect();
                    queues.earliest(&groups, &problem.choices, &vec![0.1; tried.len()]);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn bytes_above_a_line_have_a_price_and_the_largest_work_a_wall() {
    let devices = devices();
    let mut random = Random::new(1);
    for seed in 0..40 {
        let problem = problem(&mut Random::new(seed));
        let mut queues = Queues::new(&problem, &devices, Objective::Latency);
        let assigned: Vec<Device> =
            (0..problem.choices.len()).map(|part| problem.choices.of(part)[random.below(problem.choices.of(part).len())]).collect();
        let plain = queues.rate(&assigned);
        let (held, works) = (queues.held(&assigned), queues.held_by_works(&assigned));
        // No work has more than what is live, but for its scratch.
        assert!(works.iter().zip(&held).all(|(work, held)| *work < held + 30), "seed {seed}: {works:?} {held:?}");
        let above = queues.lines.iter().zip(&held).filter_map(|(line, held)| Some(held.saturating_sub((*line)?))).max().unwrap();
        queues.price = Some(Price { per_byte: 0.5, walls: works.iter().map(|bytes| Some(*bytes)).collect() });
        let priced = queues.rate(&assigned);
        assert_eq!(priced.over, 0.0, "seed {seed}");
        assert_eq!(priced.seconds, plain.seconds + 0.5 * above as f64, "seed {seed}");
        assert!(queues.full(&assigned).iter().all(|is_full| !is_full), "seed {seed}");
        // A byte less is too little for the largest work, whatever it pays.
        queues.price = Some(Price { per_byte: 0.5, walls: works.iter().map(|bytes| bytes.checked_sub(1)).collect() });
        let most = works.iter().filter(|bytes| **bytes > 0).count();
        assert_eq!(queues.full(&assigned).iter().filter(|is_full| **is_full).count(), most, "seed {seed}");
        assert_eq!(queues.rate(&assigned).over > 0.0, most > 0, "seed {seed}");
    }
}
