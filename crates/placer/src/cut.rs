//! Assignments that cut an order of the parts into stretches: the best for an order by dynamic programming, if stretches run one after
//! the other.

use plimsoll_base::Random;

use crate::{Device, Model};

/// A model whose order can be cut.
pub trait Cuttable: Model {
    /// Parts that read from a part.
    fn readers(&self, part: usize) -> &[u32];

    /// Devices that are alike, each kind once: what a stretch costs on one of them it costs on all. A stretch can have each device
    /// once.
    fn kinds(&self) -> &[Vec<Device>];

    /// What stretches of `order` that begin at `first` cost on a device of a kind, the shortest first, up to the longest that it has
    /// room for: their works, what they read from others, and what others read from them.
    fn stretches(&mut self, order: &[u32], first: usize, kind: usize, costs: &mut Vec<f64>);
}

/// The best way to cut an order, and what it costs. None where some part has room nowhere.
pub fn cut(model: &mut dyn Cuttable, order: &[u32]) -> Option<(Vec<Device>, f64)> {
    // The first kind's devices are told apart by their count, the second kind's too: a state is a position and how many of each kind
    // are used.
    let kinds: Vec<Vec<Device>> = model.kinds().to_vec();
    let sizes: Vec<usize> = kinds.iter().map(|kind| kind.len() + 1).collect();
    let states: usize = sizes.iter().product();
    let step = |kind: usize| sizes[..kind].iter().product::<usize>();
    let parts = order.len();
    // For each position and state: the least cost, and the stretch that ends there: where it begins and its kind.
    let mut best = vec![(f64::INFINITY, 0u32, 0u16); (parts + 1) * states];
    best[0].0 = 0.0;
    let mut costs = Vec::new();
    for first in 0..parts {
        if best[first * states..(first + 1) * states].iter().all(|state| state.0.is_infinite()) {
            continue;
        }
        for (kind, size) in sizes.iter().copied().enumerate() {
            costs.clear();
            model.stretches(order, first, kind, &mut costs);
            for state in (0..states).filter(|state| state / step(kind) % size + 1 < size) {
                let before = best[first * states + state].0;
                if before.is_infinite() {
                    continue;
                }
                let next = state + step(kind);
                for (length, cost) in costs.iter().enumerate() {
                    let there = &mut best[(first + length + 1) * states + next];
                    if before + cost < there.0 {
                        *there = (before + cost, first as u32, kind as u16);
                    }
                }
            }
        }
    }
    let (mut state, (cost, ..)) =
        (0..states).map(|state| (state, best[parts * states + state])).min_by(|one, other| one.1.0.total_cmp(&other.1.0))?;
    if cost.is_infinite() {
        return None;
    }
    let mut devices = vec![0; parts];
    let mut end = parts;
    while end > 0 {
        let (_, first, kind) = best[end * states + state];
        let kind = usize::from(kind);
        let used = state / step(kind) % sizes[kind];
        order[first as usize..end].iter().for_each(|part| devices[*part as usize] = kinds[kind][used - 1]);
        state -= step(kind);
        end = first as usize;
    }
    Some((devices, cost))
}

/// An order in which every part comes before those that read from it, if there is one: depth first from the ends, chosen at random.
pub fn depth_first(model: &dyn Cuttable, random: &mut Random) -> Vec<u32> {
    let parts = model.choices().len();
    let mut seen = vec![false; parts];
    let mut order = Vec::with_capacity(parts);
    let turned = |part: usize, random: &mut Random| (0u32, random.below(model.readers(part).len().max(1)), part);
    let mut starts: Vec<usize> = (0..parts).collect();
    for index in (1..parts).rev() {
        starts.swap(index, random.below(index + 1));
    }
    for start in starts {
        if std::mem::replace(&mut seen[start], true) {
            continue;
        }
        let mut stack = vec![turned(start, random)];
        while let Some((visited, turn, part)) = stack.pop() {
            let readers = model.readers(part);
            if (visited as usize) < readers.len() {
                stack.push((visited + 1, turn, part));
                let next = readers[(visited as usize + turn) % readers.len()] as usize;
                if !std::mem::replace(&mut seen[next], true) {
                    stack.push(turned(next, random));
                }
            } else {
                order.push(part as u32);
            }
        }
    }
    order.reverse();
    order
}
