//! The planner's parts on published problems, by the code that plans graphs.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin planbench -- offsets FILE.csv [--capacity BYTES] --output OUT.csv
//!     cargo run --release --manifest-path bench/Cargo.toml --bin planbench -- remat TRACE.log.xz --ratio R --output OUT.jsonl
//!     cargo run --release --manifest-path bench/Cargo.toml --bin planbench -- place INSTANCE.json --output SPLIT.json
//!     cargo run --release --manifest-path bench/Cargo.toml --bin planbench -- bound INSTANCE.json
//!
//! Exit status 0: done; 1: not within the capacity or the ratio, or a file cannot be read or written; 2: wrong use.

mod offsets;
mod place;
mod remat;
mod trace;

use std::process::ExitCode;

const USAGE: &str = "usage: planbench offsets FILE.csv [--capacity BYTES] [--steps N] --output OUT.csv
       planbench remat TRACE.log[.xz] --ratio R [--steps N] [--bound-steps N] --output OUT.jsonl
       planbench place INSTANCE.json [--objective latency|throughput] [--ratings N] --output SPLIT.json
       planbench bound INSTANCE.json";

/// Why a command ends.
enum Failure {
    Usage(String),
    Failed(String),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((command, rest)) if command == "offsets" => offsets::run(rest),
        Some((command, rest)) if command == "remat" => remat::run(rest),
        Some((command, rest)) if command == "place" => place::run(rest),
        Some((command, rest)) if command == "bound" => place::bound(rest),
        Some((command, _)) => Err(Failure::Usage(format!("unknown command '{command}'"))),
        None => Err(Failure::Usage("no command".into())),
    };
    match done {
        Ok(status) => status,
        Err(Failure::Usage(message)) => {
            eprintln!("planbench: {message}\n{USAGE}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("planbench: {message}");
            ExitCode::from(1)
        }
    }
}

/// Words of a command line: what stands alone, and options with their values.
struct Words<'a> {
    alone: Vec<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    /// Only the options named are known; each has a value, and is given once.
    fn parse(arguments: &'a [String], known: &[&str]) -> Result<Words<'a>, Failure> {
        let mut words = Words { alone: Vec::new(), options: Vec::new() };
        let mut rest = arguments.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            if !word.starts_with("--") {
                words.alone.push(word);
                continue;
            }
            if !known.contains(&word) {
                return Err(Failure::Usage(format!("unknown option '{word}'")));
            }
            if words.option(word).is_some() {
                return Err(Failure::Usage(format!("{word} is given twice")));
            }
            let value = rest.next().ok_or_else(|| Failure::Usage(format!("{word} needs a value")))?;
            words.options.push((word, value));
        }
        Ok(words)
    }

    fn option(&self, name: &str) -> Option<&'a str> {
        self.options.iter().find(|(word, _)| *word == name).map(|(_, value)| *value)
    }

    fn number(&self, name: &str) -> Result<Option<u64>, Failure> {
        let wrong = |value| Failure::Usage(format!("{name} takes a number, not '{value}'"));
        self.option(name).map(|value| value.parse().map_err(|_| wrong(value))).transpose()
    }
}
