//! Placements of published operator graphs, by the search that places graphs with `--placement auto`.
//!
//! The output is JSON: `{"cpus": [{"nodes": [id, ...]}], "fpgas": [{"nodes": [...]}, ...]}`.

mod blocks;
mod ideals;
mod instance;
mod latency;
mod series;
mod throughput;

use std::process::ExitCode;
use std::time::Instant;

use plimsoll_base::Random;
use plimsoll_placer::{Device, Effort, Model, Rating, cut, depth_first, improve};
use serde_json::json;

use super::{Failure, Words};
use instance::Instance;
use latency::{Latency, MOST};
use throughput::Throughput;

/// Effort without `--ratings`: less than a second.
const RATINGS: u64 = 40_000;

/// Where the numbers come from that choose orders and moves.
const SEED: u64 = 1;

/// How many orders are cut.
const ORDERS: usize = 60;

pub fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let words = Words::parse(arguments, &["--output", "--ratings", "--objective"])?;
    let [input] = words.alone[..] else { return Err(Failure::Usage("place takes one instance".into())) };
    let output = words.option("--output").ok_or_else(|| Failure::Usage("place needs --output".into()))?;
    let failed = |message: String| Failure::Failed(format!("{input}: {message}"));
    let text = std::fs::read_to_string(input).map_err(|error| failed(error.to_string()))?;
    let instance = Instance::parse(&text).map_err(failed)?;
    if instance.accelerators > MOST {
        return Err(failed(format!("{} accelerators, at most {MOST} are read", instance.accelerators)));
    }
    let ratings = words.number("--ratings")?.unwrap_or(RATINGS);
    let is_throughput = match words.option("--objective") {
        None | Some("latency") => false,
        Some("throughput") => true,
        Some(other) => return Err(Failure::Usage(format!("--objective is latency or throughput, not '{other}'"))),
    };
    let start = Instant::now();
    let mut latency = Latency::new(&instance);
    // What the host does alone, the best cuts of some orders, and the best pieces of blocks in series.
    let mut starts = vec![vec![0; instance.parts]];
    let mut random = Random::new(SEED);
    for _ in 0..ORDERS {
        let order = depth_first(&latency, &mut random);
        starts.extend(cut(&mut latency, &order).map(|(devices, _)| devices));
    }
    starts.extend(series::series(&instance).map(|pieces| series::shared(&instance, &pieces)));
    let mut throughput = Throughput::new(&instance);
    let model: &mut dyn Model = if is_throughput { &mut throughput } else { &mut latency };
    let (devices, rating) = from_best(model, starts, Effort { ratings, seed: SEED });
    let seconds = start.elapsed().as_secs_f64();
    let held =
        |device: Device| -> Vec<u64> { instance.nodes.iter().filter(|node| devices[node.part] == device).map(|node| node.id).collect() };
    let fpgas: Vec<_> = (1..=instance.accelerators as Device).map(|device| json!({ "nodes": held(device) })).collect();
    let split = json!({ "cpus": [{ "nodes": held(0) }], "fpgas": fpgas });
    std::fs::write(output, split.to_string()).map_err(|error| Failure::Failed(format!("{output}: {error}")))?;
    let nodes = instance.nodes.len();
    let status = if rating.over > 0.0 { "OVER THE LIMIT" } else { "OK" };
    let objective = if is_throughput { "period" } else { "latency" };
    println!("nodes={nodes} parts={} {objective}={:.4} seconds={seconds:.3} {status}", instance.parts, rating.seconds);
    Ok(if rating.over > 0.0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Prints a latency that no split of an instance is below.
pub fn bound(arguments: &[String]) -> Result<ExitCode, Failure> {
    let words = Words::parse(arguments, &[])?;
    let [input] = words.alone[..] else { return Err(Failure::Usage("bound takes one instance".into())) };
    let failed = |message: String| Failure::Failed(format!("{input}: {message}"));
    let text = std::fs::read_to_string(input).map_err(|error| failed(error.to_string()))?;
    let instance = Instance::parse(&text).map_err(failed)?;
    let bound = ideals::bound(&instance).or_else(|| series::bound(&instance));
    let bound = bound.ok_or_else(|| failed("has many ideals, and is not one series of small blocks".into()))?;
    println!("nodes={} bound={bound:.4}", instance.nodes.len());
    Ok(ExitCode::SUCCESS)
}

/// The search from the best of some assignments.
fn from_best(model: &mut dyn Model, starts: Vec<Vec<Device>>, effort: Effort) -> (Vec<Device>, Rating) {
    let mut best: Option<(Vec<Device>, Rating)> = None;
    for start in starts {
        let rating = model.rate(&start);
        if best.as_ref().is_none_or(|(_, least)| rating.is_better_than(least)) {
            best = Some((start, rating));
        }
    }
    improve(model, &best.unwrap_or_default().0, effort)
}
