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
    // For each state and position: the least cost, and the stretch that ends there, by where it begins and its kind.
    let positions = parts + 1;
    let mut least = vec![f64::INFINITY; states * positions];
    let mut stretch_of = vec![0u64; states * positions];
    least[0] = 0.0;
    let (mut costs, mut going) = (Vec::new(), Vec::with_capacity(states));
    // For each state the least cost of it and of those with fewer devices, at the position at hand.
    let mut leasts = vec![f64::INFINITY; states];
    for first in 0..parts {
        // From a state that costs no less than one with fewer devices, which comes before it, nothing better goes on.
        going.clear();
        for state in 0..states {
            let before = least[state * positions + first];
            let fewer = (0..kinds.len()).filter(|kind| state / step(*kind) % sizes[*kind] > 0).map(|kind| leasts[state - step(kind)]);
            let fewer = fewer.fold(f64::INFINITY, f64::min);
            leasts[state] = before.min(fewer);
            if before < fewer {
                going.push(state);
            }
        }
        if going.is_empty() {
            continue;
        }
        for (kind, size) in sizes.iter().copied().enumerate() {
            costs.clear();
            model.stretches(order, first, kind, &mut costs);
            let stretch = stretch(first, kind);
            for &state in going.iter().filter(|state| *state / step(kind) % size + 1 < size) {
                let before = least[state * positions + first];
                let ends = (state + step(kind)) * positions + first + 1;
                let (least, stretch_of) = (&mut least[ends..], &mut stretch_of[ends..]);
                for ((least, stretch_of), cost) in least.iter_mut().zip(stretch_of).zip(&costs) {
                    let cost = before + cost;
                    let is_less = cost < *least;
                    *least = if is_less { cost } else { *least };
                    *stretch_of = if is_less { stretch } else { *stretch_of };
                }
            }
        }
    }
    let ends = (0..states).map(|state| (state, least[state * positions + parts]));
    let (mut state, cost) = ends.min_by(|one, other| one.1.total_cmp(&other.1))?;
    if cost.is_infinite() {
        return None;
    }
    let mut devices = vec![0; parts];
    let mut end = parts;
    while end > 0 {
        let (first, kind) = first_and_kind(stretch_of[state * positions + end]);
        let used = state / step(kind) % sizes[kind];
        order[first..end].iter().for_each(|part| devices[*part as usize] = kinds[kind][used - 1]);
        state -= step(kind);
        end = first;
    }
    Some((devices, cost))
}

/// A stretch by where it begins and its kind: as wide as a cost, so that both are chosen by the same lanes.
fn stretch(first: usize, kind: usize) -> u64 {
    (first as u64) << 16 | kind as u64
}

fn first_and_kind(stretch: u64) -> (usize, usize) {
    ((stretch >> 16) as usize, (stretch & 0xFFFF) as usize)
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
