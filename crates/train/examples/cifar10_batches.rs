//! How long batches of CIFAR-10 take to read and prepare, on one thread:
//! `cargo run --release -p plimsoll-train --example cifar10_batches -- FOLDER [BATCH [BATCHES]]`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use plimsoll::{Error, Result};
use plimsoll_train::data::cifar10::{Inputs, training};
use plimsoll_train::data::{BatchSource, Shuffled};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().ok_or_else(|| Error::invalid_argument("give the folder with CIFAR-10's binary files"))?;
    let mut number = |default: u64| match args.next() {
        None => Ok(default),
        Some(text) => text.parse::<u64>().map_err(|error| Error::invalid_argument(format!("'{text}': {error}"))),
    };
    let (size, count) = (number(128)?.max(1), number(300)?.max(1));
    for inputs in [Inputs::Central, Inputs::Distorted] {
        let examples = training(Path::new(&folder), inputs)?;
        let mut batch = examples.batch(size)?;
        let mut source = Shuffled::new(examples, 0)?;
        let mut milliseconds = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let start = Instant::now();
            source.next_into(&mut batch)?;
            milliseconds.push(start.elapsed().as_secs_f64() * 1e3);
        }
        milliseconds.sort_by(f64::total_cmp);
        let at = |part: usize| milliseconds[(milliseconds.len() - 1) * part / 10];
        println!("{inputs:?}: batches of {size}, median {:.3} ms, 10% below {:.3} ms, 10% above {:.3} ms", at(5), at(1), at(9));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(line) = status.lines().find(|line| line.starts_with("VmHWM")) {
        println!("most memory resident: {}", line.trim_start_matches("VmHWM:").trim());
    }
    Ok(())
}
