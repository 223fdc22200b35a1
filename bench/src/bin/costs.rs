//! Measures the committed tables of costs, and holds predictions against measured steps.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin costs -- measure FILE     a table for each instruction set
//!     cargo run --release --manifest-path bench/Cargo.toml --bin costs -- PROFILE...       of `plimsoll bench CASE --profile FILE`
//!
//! The first writes `crates/device/data/costs.json`. The second prints, for each profile of a case on one device, the predicted
//! time of its commands by the measured one, and the geometric mean of these factors; and the same for each operation.

use std::collections::BTreeMap;

use plimsoll::costs::{Costs, calibrate};
use plimsoll_device::InstructionSet;
use serde_json::Value;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [what, file] if what == "measure" => measure(file),
        [] => eprintln!("costs measure FILE, or costs PROFILE..."),
        profiles => compare(profiles),
    }
}

fn measure(file: &str) {
    let best = InstructionSet::detect();
    let sets = [InstructionSet::Baseline, InstructionSet::Avx2, InstructionSet::Avx512];
    let sets: Vec<InstructionSet> = sets.into_iter().take_while(|set| *set != best).chain([best]).collect();
    let table = |set: InstructionSet| {
        eprintln!("{set}");
        calibrate(Some(set), 0, &|class| eprintln!("  {class}")).expect("kernels of this processor run")
    };
    let costs = Costs::of(sets.into_iter().map(table).collect()).expect("rates of a machine");
    std::fs::write(file, costs.to_json().expect("rates that can be written")).expect("the file can be written");
}

fn compare(profiles: &[String]) {
    let mut operations: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut logarithms: Vec<f64> = Vec::new();
    println!("{:<34} {:>12} {:>12} {:>8}", "case", "measured us", "predicted us", "factor");
    for file in profiles {
        let text = std::fs::read_to_string(file).expect("a profile");
        let profile: Value = serde_json::from_str(&text).expect("JSON");
        let mut predicted = 0.0;
        for command in profile["commands"].as_array().expect("commands") {
            let number = |key: &str| command[key].as_f64().unwrap_or_default();
            let (guess, time): (f64, f64) = (number("predicted_us"), number("duration_us"));
            predicted += guess;
            let operation = operations.entry(command["op"].as_str().unwrap_or_default().to_string()).or_default();
            *operation = (operation.0 + time, operation.1 + guess);
        }
        let measured: f64 = profile["step_us"].as_f64().unwrap_or_default();
        println!("{:<34} {measured:>12.1} {predicted:>12.1} {:>8.2}", profile["case"].as_str().unwrap_or(file), predicted / measured);
        logarithms.push((predicted / measured).ln());
    }
    let mean = logarithms.iter().map(|value| value.abs()).sum::<f64>() / logarithms.len().max(1) as f64;
    let worst = logarithms.iter().fold(0.0, |worst: f64, value| worst.max(value.abs()));
    println!("off by a factor of {:.2} in the geometric mean, {:.2} at most\n", mean.exp(), worst.exp());
    let mut operations: Vec<(String, (f64, f64))> = operations.into_iter().collect();
    operations.sort_by(|one, other| other.1.0.total_cmp(&one.1.0));
    for (operation, (time, guess)) in operations.iter().take(30) {
        println!("{operation:<34} {time:>12.1} {guess:>12.1} {:>8.2}", guess / time);
    }
}
