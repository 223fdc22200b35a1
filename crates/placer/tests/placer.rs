//! Searches give assignments that parts allow, no worse than what they began with, and the same each time. What can be tried whole is
//! found.

use plimsoll_base::Random;
use plimsoll_placer::{Choices, Cuttable, Device, Effort, Model, Rating, clusters, cut, depth_first, improve, improve_joined};
use proptest::prelude::*;

/// Works one behind the other on their devices. A part that reads from another device waits for a copy.
#[derive(Clone, Debug)]
struct Line {
    seconds: Vec<[f64; 3]>,
    bytes: Vec<u64>,
    limit: u64,
    /// What a part reads: parts before it.
    reads: Vec<Vec<u32>>,
    readers: Vec<Vec<u32>>,
    beside: Vec<Vec<u32>>,
    choices: Choices,
    copy: f64,
    kinds: Vec<Vec<Device>>,
}

impl Model for Line {
    fn choices(&self) -> &Choices {
        &self.choices
    }

    fn beside(&self, part: usize) -> &[u32] {
        &self.beside[part]
    }

    fn rate(&mut self, devices: &[Device]) -> Rating {
        let (mut free, mut held, mut ends) = ([0.0f64; 3], [0u64; 3], Vec::new());
        for (part, &device) in devices.iter().enumerate() {
            let at = usize::from(device);
            let ready = |read: &u32| ends[*read as usize] + if devices[*read as usize] == device { 0.0 } else { self.copy };
            let start = self.reads[part].iter().map(ready).fold(free[at], f64::max);
            let end = start + self.seconds[part][at];
            free[at] = end;
            held[at] += self.bytes[part];
            ends.push(end);
        }
        let over = held[1..].iter().map(|held| held.saturating_sub(self.limit) as f64 / self.limit as f64).sum();
        Rating { over, seconds: ends.into_iter().fold(0.0, f64::max) }
    }
}

impl Cuttable for Line {
    fn readers(&self, part: usize) -> &[u32] {
        &self.readers[part]
    }

    fn kinds(&self) -> &[Vec<Device>] {
        &self.kinds
    }

    fn stretches(&mut self, order: &[u32], first: usize, kind: usize, costs: &mut Vec<f64>) {
        let (mut seconds, mut bytes) = (if first == 0 { 0.0 } else { self.copy }, 0);
        for &part in &order[first..] {
            seconds += self.seconds[part as usize][kind];
            bytes += self.bytes[part as usize];
            if !self.choices.allows(part as usize, self.kinds[kind][0]) || (kind > 0 && bytes > self.limit) {
                return;
            }
            costs.push(seconds);
        }
    }
}

fn line(most: usize) -> impl Strategy<Value = Line> {
    let part = (1u8..20, 1u8..20, 1u64..9, any::<u8>(), any::<u16>());
    (prop::collection::vec(part, 1..most), 4u64..30, 0u8..10).prop_map(|(parts, limit, copy)| {
        let count = parts.len();
        let mut reads = vec![Vec::new(); count];
        let (mut readers, mut beside) = (vec![Vec::new(); count], vec![Vec::new(); count]);
        for (part, (.., from)) in parts.iter().enumerate().skip(1) {
            let from = usize::from(*from) % part;
            reads[part].push(from as u32);
            readers[from].push(part as u32);
            beside[part].push(from as u32);
            beside[from].push(part as u32);
        }
        let choices = |mask: u8| if mask.is_multiple_of(4) { vec![0] } else { vec![0, 1, 2] };
        Line {
            seconds: parts.iter().map(|(slow, fast, ..)| [f64::from(*slow), f64::from(*fast), f64::from(*fast)]).collect(),
            bytes: parts.iter().map(|part| part.2).collect(),
            limit,
            reads,
            readers,
            beside,
            choices: Choices::new(parts.iter().map(|part| choices(part.3))),
            copy: f64::from(copy),
            kinds: vec![vec![0], vec![1, 2]],
        }
    })
}

/// The best of all assignments.
fn best(model: &mut Line) -> Rating {
    let parts = model.choices.len();
    let mut devices: Vec<Device> = vec![0; parts];
    let mut best = model.rate(&devices);
    loop {
        let Some(part) = (0..parts).find(|part| devices[*part] < 2) else { return best };
        devices[..part].fill(0);
        devices[part] += 1;
        if (0..parts).all(|part| model.choices.allows(part, devices[part])) {
            let rating = model.rate(&devices);
            if rating.is_better_than(&best) {
                best = rating;
            }
        }
    }
}

proptest! {
    #[test]
    fn what_is_found_is_allowed_and_no_worse(mut model in line(60), seed in any::<u64>()) {
        let start = vec![0; model.choices.len()];
        let before = model.rate(&start);
        let effort = Effort { ratings: 300, seed };
        let (devices, rating) = improve(&mut model, &start, effort);
        prop_assert!((0..start.len()).all(|part| model.choices.allows(part, devices[part])));
        prop_assert!(!before.is_better_than(&rating));
        prop_assert_eq!(model.rate(&devices), rating);
        prop_assert_eq!(improve(&mut model, &start, effort), (devices, rating));
    }

    #[test]
    fn few_parts_get_the_best_assignment(mut model in line(6)) {
        let start = vec![0; model.choices.len()];
        let (_, found) = improve(&mut model, &start, Effort { ratings: 4000, seed: 1 });
        let best = best(&mut model);
        prop_assert!(!best.is_better_than(&found), "{:?} {:?}", found, best);
    }

    #[test]
    fn clusters_are_small_and_share_devices(mut model in line(60), most in 1.0..60.0f64) {
        let exchanges: Vec<(u32, u32, f64)> =
            (0..model.reads.len()).flat_map(|part| model.reads[part].iter().map(move |read| (*read, part as u32, 1.0 + part as f64))).collect();
        let loads: Vec<f64> = model.seconds.iter().map(|seconds| seconds[0]).collect();
        let joined = clusters(&model.choices.clone(), &exchanges, &loads, most);
        for cluster in 0..joined.choices.len() {
            let parts: Vec<usize> = (0..loads.len()).filter(|part| joined.of[*part] as usize == cluster).collect();
            prop_assert!(parts.len() == 1 || parts.iter().map(|part| loads[*part]).sum::<f64>() <= most);
            prop_assert!(joined.choices.of(cluster).iter().all(|device| parts.iter().all(|part| model.choices.allows(*part, *device))));
        }
        let start = vec![0; model.choices.len()];
        let (devices, rating) = improve_joined(&mut model, &joined, &start, Effort { ratings: 100, seed: 1 });
        prop_assert_eq!(joined.spread(&joined.gather(&devices)), devices.clone());
        prop_assert_eq!(model.rate(&devices), rating);
    }

    #[test]
    fn a_cut_is_the_cheapest_of_the_order(mut model in line(8), seed in any::<u64>()) {
        let order = depth_first(&model, &mut Random::new(seed));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(position, part)| place[*part as usize] = position);
        prop_assert!((0..order.len()).all(|part| model.reads[part].iter().all(|read| place[*read as usize] < place[part])));
        // Every way to cut the order into stretches, of which each device has one at most.
        let mut least = f64::INFINITY;
        let mut stack = vec![(0, 0.0, [1, 2])];
        while let Some((first, cost, left)) = stack.pop() {
            if first == order.len() {
                least = f64::min(least, cost);
                continue;
            }
            for kind in (0..2).filter(|kind| left[*kind] > 0) {
                let mut costs = Vec::new();
                model.stretches(&order, first, kind, &mut costs);
                let mut left = left;
                left[kind] -= 1;
                stack.extend(costs.iter().enumerate().map(|(length, more)| (first + length + 1, cost + more, left)));
            }
        }
        match cut(&mut model, &order) {
            Some((devices, cost)) => {
                prop_assert!((cost - least).abs() < 1e-9, "{} {}", cost, least);
                prop_assert!((0..order.len()).all(|part| model.choices.allows(part, devices[part])));
            }
            None => prop_assert!(least.is_infinite()),
        }
    }
}
