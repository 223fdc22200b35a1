//! Placements of published operator graphs, by the search that places graphs with `--placement auto`.
//!
//! The output is JSON: `{"cpus": [{"nodes": [id, ...]}], "fpgas": [{"nodes": [...]}, ...]}`.

mod blocks;
mod ideals;
mod instance;
mod latency;
mod series;
mod split;
mod throughput;

use std::process::ExitCode;
use std::time::Instant;

use plimsoll_placer::Device;
use serde_json::json;

use super::{Failure, Words};
use instance::Instance;
use latency::MOST;
use split::{Objective, RATINGS, split};

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
    let objective = match words.option("--objective") {
        None | Some("latency") => Objective::Latency,
        Some("throughput") => Objective::Throughput,
        Some(other) => return Err(Failure::Usage(format!("--objective is latency or throughput, not '{other}'"))),
    };
    let start = Instant::now();
    let (devices, rating) = split(&instance, objective, ratings);
    let seconds = start.elapsed().as_secs_f64();
    let held_by =
        |device: Device| -> Vec<u64> { instance.nodes.iter().filter(|node| devices[node.part] == device).map(|node| node.id).collect() };
    let fpgas: Vec<_> = (1..=instance.accelerators as Device).map(|device| json!({ "nodes": held_by(device) })).collect();
    let held = json!({ "cpus": [{ "nodes": held_by(0) }], "fpgas": fpgas });
    std::fs::write(output, held.to_string()).map_err(|error| Failure::Failed(format!("{output}: {error}")))?;
    let nodes = instance.nodes.len();
    let status = if rating.over > 0.0 { "OVER THE LIMIT" } else { "OK" };
    let measure = if objective == Objective::Throughput { "period" } else { "latency" };
    println!("nodes={nodes} parts={} {measure}={:.4} seconds={seconds:.3} {status}", instance.parts, rating.seconds);
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
