//! What to compute again, on traces of training steps as published with Dynamic Tensor Rematerialization (DTR).
//!
//! A trace is JSON lines, as text or with xz: operations with their time, the bytes of their results, and which results are views.
//! The output is JSON lines: `{"run": i}` runs operation i, `{"free": [i, r]}` drops the memory of its result r.

use std::fmt::Write as _;
use std::io::Read as _;
use std::process::ExitCode;
use std::time::Instant;

use plimsoll_fit::{Problem, State, Step, fit, lower_bound};

use super::trace::Trace;
use super::{Failure, Words};

/// Effort without `--steps`: less than ten seconds.
const STEPS: u64 = 22_000_000;

/// Effort for the lower bound without `--bound-steps`: less than a second.
const BOUND_STEPS: u64 = 60_000_000;

pub fn run(arguments: &[String]) -> Result<ExitCode, Failure> {
    let words = Words::parse(arguments, &["--ratio", "--output", "--steps", "--bound-steps"])?;
    let [input] = words.alone[..] else { return Err(Failure::Usage("remat takes one trace".into())) };
    let output = words.option("--output").ok_or_else(|| Failure::Usage("remat needs --output".into()))?;
    let ratio = words.option("--ratio").ok_or_else(|| Failure::Usage("remat needs --ratio".into()))?;
    let wrong = || Failure::Usage(format!("--ratio takes a number from 0 to 1, not '{ratio}'"));
    let ratio = ratio.parse::<f64>().ok().filter(|ratio| (0.0..=1.0).contains(ratio)).ok_or_else(wrong)?;
    let failed = |message: String| Failure::Failed(format!("{input}: {message}"));
    let trace = Trace::parse(&text(input).map_err(failed)?).map_err(failed)?;
    let problem = trace.problem();
    plimsoll_fit::check(&problem).map_err(|violation| failed(violation.to_string()))?;
    let (peak, nanoseconds) = trace.baseline();
    let budget = (ratio * peak as f64) as u64;
    let bound = match lower_bound(&problem, budget, words.number("--bound-steps")?.unwrap_or(BOUND_STEPS)) {
        Some(seconds) => format!("{:.4}", 1.0 + seconds / (nanoseconds as f64 * 1e-9)),
        None => "impossible".to_string(),
    };
    let start = Instant::now();
    let state = fit(&problem, budget, words.number("--steps")?.unwrap_or(STEPS));
    let seconds = start.elapsed().as_secs_f64();
    let Some(state) = state else {
        println!("operations={} budget={budget} lower_bound={bound} seconds={seconds:.3} NOT FOUND", problem.works.len());
        return Ok(ExitCode::from(1));
    };
    std::fs::write(output, write(&trace, &problem, &state)).map_err(|error| Failure::Failed(format!("{output}: {error}")))?;
    let overhead = state.seconds / (nanoseconds as f64 * 1e-9);
    println!(
        "operations={} budget={budget} peak={} overhead={overhead:.4} lower_bound={bound} seconds={seconds:.3} OK",
        problem.works.len(),
        state.peak
    );
    Ok(ExitCode::SUCCESS)
}

fn text(input: &str) -> Result<String, String> {
    let bytes = std::fs::read(input).map_err(|error| error.to_string())?;
    let mut text = String::new();
    if input.ends_with(".xz") {
        lzma_rust2::XzReader::new(&bytes[..], true).read_to_string(&mut text).map_err(|error| error.to_string())?;
        return Ok(text);
    }
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// The schedule, with memory dropped as soon as nothing reads it.
fn write(trace: &Trace, problem: &Problem, state: &State) -> String {
    // From the end: a definition that is read later is held up to its last read.
    let mut is_needed: Vec<bool> = problem.values.iter().map(|value| value.is_result).collect();
    let root = |value: usize| {
        let mut root = value;
        while let Some(of) = problem.values[root].view_of {
            root = of;
        }
        root
    };
    for value in (0..is_needed.len()).filter(|value| problem.values[*value].is_result) {
        is_needed[root(value)] = true;
    }
    let mut drops: Vec<Vec<usize>> = vec![Vec::new(); state.steps.len()];
    for (at, step) in state.steps.iter().enumerate().rev() {
        let Step::Run(work) = *step else { continue };
        let work = &problem.works[work];
        for &value in &work.writes {
            if !is_needed[value] {
                drops[at].push(value);
            }
            is_needed[value] = false;
        }
        for &value in &work.reads {
            let value = root(value);
            if !std::mem::replace(&mut is_needed[value], true) {
                drops[at].push(value);
            }
        }
    }
    let mut text = String::new();
    for (step, drops) in state.steps.iter().zip(drops) {
        let Step::Run(work) = step else { continue };
        let _ = writeln!(text, "{{\"run\": {work}}}");
        for (operation, result) in
            drops.into_iter().filter(|value| problem.values[*value].view_of.is_none()).filter_map(|value| trace.storage(value))
        {
            let _ = writeln!(text, "{{\"free\": [{operation}, {result}]}}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use plimsoll_fit::fit;

    use super::super::trace::Trace;
    use super::write;

    /// A chain of three with a loss and its gradient, which reads the first result; the second is a view.
    #[test]
    fn a_schedule_drops_what_nothing_reads() {
        let trace = Trace::parse(include_str!("trace/tiny.log")).unwrap();
        let problem = trace.problem();
        assert_eq!(trace.baseline(), (28, 60));
        let as_given = fit(&problem, 28, 1000).unwrap();
        assert_eq!(
            write(&trace, &problem, &as_given),
            "{\"run\": 0}\n{\"run\": 1}\n{\"run\": 2}\n{\"run\": 3}\n{\"free\": [2, 0]}\n{\"run\": 4}\n{\"free\": [3, 0]}\n{\"free\": [0, 0]}\n"
        );
    }
}
