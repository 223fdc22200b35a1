//! The split of an instance: the search that places graphs, from the host alone, the best cuts of some orders and the best pieces of blocks
//! in series.

use plimsoll_base::Random;
use plimsoll_placer::{Device, Effort, Model, Rating, cut, depth_first, improve};

use super::instance::Instance;
use super::latency::Latency;
use super::series;
use super::throughput::Throughput;

/// The usual effort, in ratings: less than a second.
pub const RATINGS: u64 = 40_000;

/// Where the numbers come from that choose orders and moves.
const SEED: u64 = 1;

/// How many orders are cut.
const ORDERS: usize = 60;

/// What is to be small.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The time of one result.
    Latency,
    /// The time between two results of a stream.
    Throughput,
}

/// The device of each part, the host first, and what that is worth. The same each time.
pub fn split(instance: &Instance, objective: Objective, ratings: u64) -> (Vec<Device>, Rating) {
    let mut latency = Latency::new(instance);
    let mut starts = vec![vec![0; instance.parts]];
    let mut random = Random::new(SEED);
    for _ in 0..ORDERS {
        let order = depth_first(&latency, &mut random);
        starts.extend(cut(&mut latency, &order).map(|(devices, _)| devices));
    }
    starts.extend(series::series(instance).map(|pieces| series::shared(instance, &pieces)));
    let mut throughput = Throughput::new(instance);
    let model: &mut dyn Model = match objective {
        Objective::Latency => &mut latency,
        Objective::Throughput => &mut throughput,
    };
    let mut best: Option<(Vec<Device>, Rating)> = None;
    for start in starts {
        let rating = model.rate(&start);
        if best.as_ref().is_none_or(|(_, least)| rating.is_better_than(least)) {
            best = Some((start, rating));
        }
    }
    improve(model, &best.unwrap_or_default().0, Effort { ratings, seed: SEED })
}
