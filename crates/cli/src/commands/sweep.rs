//! `plimsoll sweep`: one program with many values, as many at once as there are leases.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use plimsoll::Error;
use plimsoll::share::run::end_by;
use plimsoll::share::supervise::Supervisors;
use plimsoll::share::sweep::{self, Axis, Done, Engine, Outcome, Progress, Sweep, command, points, sweep};
use plimsoll::text::{column_width, pad_left};

use super::run::LeaseArgs;
use crate::exit_code::ExitCode;
use crate::failure::{OrUsage, Result, wrong_use};
use crate::output;

/// The grid, the lease of each run, and the program.
#[derive(Args)]
#[command(
    after_help = "The result of a run is the last line of its output that is a JSON object. Runs that ended well are not run again when \
                        the same sweep is started again.\nExample:\n  plimsoll sweep --set lr=0.1,0.01 --set width=64,128 --gpus 1 --memory 2GiB \
                        --metric loss -- python train.py --lr {lr} --width {width}"
)]
pub struct SweepArgs {
    /// A name and its values: lr=0.1,0.01; with --random also ranges, lr=0.01..0.1 or lr=log:1e-4..1e-1
    #[arg(long, value_name = "NAME=VALUES", required = true)]
    set: Vec<String>,
    /// Draw N points at random instead of running all
    #[arg(long, value_name = "N")]
    random: Option<usize>,
    /// The seed of --random
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    #[command(flatten)]
    lease: LeaseArgs,
    /// What takes runs to other machines [default: slurm in an allocation of several nodes, else none]
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<EngineName>,
    /// At most N at once [default: as many as leases can be had; without GPUs one for each core; 16 on Ray]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Where results are written, a line of JSON each
    #[arg(long, value_name = "FILE.jsonl", default_value = "sweep.jsonl")]
    results: PathBuf,
    /// The number in the results that sorts the table [default: the first]
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// Whether the smallest or the largest is best [default: max for names such as accuracy, score or reward, else min]
    #[arg(long, value_enum, value_name = "WHICH")]
    best: Option<Best>,
    /// Print all results as one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// The program and its arguments; {NAME} becomes a value of --set NAME, {{NAME}} the text {NAME}
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<String>,
}

/// What takes runs to machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EngineName {
    /// Ray's cluster, by the Python package: each run is a task, and takes its lease on the node that it lands on
    Ray,
    /// The nodes of the Slurm allocation around: each run is a step on one of them
    Slurm,
    /// None: all runs are on this machine
    None,
}

impl EngineName {
    /// The engine of a sweep.
    ///
    /// # Errors
    /// Wrong use.
    fn engine(name: Option<EngineName>) -> Result<Option<Engine>> {
        let own = std::env::current_exe().map_err(|error| Error::internal(format!("this program's file: {error}")))?;
        let slurm = Engine::of_slurm(&|name| std::env::var(name).ok(), &own.to_string_lossy());
        match name {
            None => Ok(slurm),
            Some(EngineName::None) => Ok(None),
            Some(EngineName::Slurm) if slurm.is_none() => {
                wrong_use("--engine slurm: this is no Slurm allocation of several nodes (SLURM_JOB_NUM_NODES)")
            }
            Some(EngineName::Slurm) => Ok(slurm),
            Some(EngineName::Ray) => {
                // Where pip has put this program, its interpreter is beside it.
                let beside = own.with_file_name("python3");
                let python = if beside.is_file() { beside.to_string_lossy().into_owned() } else { "python3".into() };
                Ok(Some(Engine::Ray { python }))
            }
        }
    }
}

/// Which value of a metric is best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Best {
    /// The smallest
    Min,
    /// The largest
    Max,
}

impl From<Best> for sweep::Best {
    fn from(best: Best) -> sweep::Best {
        match best {
            Best::Min => sweep::Best::Min,
            Best::Max => sweep::Best::Max,
        }
    }
}

/// Sweeps.
pub fn run(args: SweepArgs, supervisors: Supervisors) -> Result<ExitCode> {
    let axes = args.set.iter().map(|text| text.parse::<Axis>()).collect::<plimsoll::Result<Vec<_>>>().or_usage()?;
    let points = points(&axes, args.random, args.seed).or_usage()?;
    // All points have the same names.
    points.first().map(|point| command(&args.command, point)).transpose().or_usage()?;
    let cards = args.lease.cards()?;
    let mut request = args.lease.request(cards.visible().len())?;
    request.name = "sweep".into();
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let has_cards = request.cards != plimsoll::share::Which::Count(0);
    let engine = EngineName::engine(args.engine)?;
    if engine.is_some() && args.lease.simulates() {
        return wrong_use("--sim-gpus is for this machine, and the engine's nodes have cards of their own (PLIMSOLL_SIM_GPUS there)");
    }
    let at_once = || engine.as_ref().map_or(if has_cards { 256 } else { cores }, Engine::at_once);
    let jobs = args.jobs.map_or_else(at_once, |jobs| jobs as usize);
    let (command, results) = (args.command, args.results);
    let wanted = Sweep { command, points, request: Some(request), jobs, results, supervisors: Some(supervisors), engine };
    let outcome = with_progress(&cards, &wanted)?;
    if outcome.ended().any(|done| !done.ok) {
        output::note(format_args!("the programs' output is in {}.logs", wanted.results.display()));
    }
    let metric = args.metric.as_deref().or_else(|| outcome.first_number());
    if let Some(metric) = metric.filter(|metric| !outcome.ended().any(|done| done.number(metric).is_some())) {
        output::note(format_args!("warning: no result has a number called {metric}"));
    }
    let sorted = match metric {
        Some(metric) => outcome.ranked(metric, args.best.map_or_else(|| sweep::Best::of(metric), sweep::Best::from)),
        None => outcome.ended().collect(),
    };
    match args.json {
        true => output::result_json(&sorted)?,
        // Nothing has come to its end.
        false if sorted.is_empty() => {}
        false => output::result(table(&sorted, metric))?,
    }
    let missing = outcome.done.len() - sorted.len();
    if let Some(signal) = outcome.stopped {
        output::note(format_args!("stopped: {missing} of {} are left; the same command goes on from here", outcome.done.len()));
        return Ok(ExitCode::from(end_by(signal)));
    }
    Ok(if sorted.iter().all(|done| done.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a sweep and says on standard error how far it is: in place on a terminal, else a line for each run that has ended.
pub fn with_progress(cards: &plimsoll::share::Cards, wanted: &Sweep) -> Result<Outcome> {
    if wanted.jobs == 0 || wanted.points.is_empty() {
        return wrong_use("there is nothing to run");
    }
    let (begin, on_terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let mut before = None;
    let (mut drawn, mut lingers) = (String::new(), false);
    let mut told = |done: Option<&Done>, progress: Progress| {
        let before = *before.get_or_insert(progress.ended);
        let mut err = std::io::stderr().lock();
        if let Some(done) = done {
            let clear = if drawn.is_empty() { "" } else { "\r\x1b[K" };
            drawn.clear();
            let _ =
                writeln!(err, "{clear}{}/{} {}: {}, {:.1} s", progress.ended, progress.total, values(done), summary(done), done.seconds);
        }
        let line = bar(progress, before, begin.elapsed());
        if progress.lingering > 0 && !std::mem::replace(&mut lingers, true) && !on_terminal {
            let _ = writeln!(err, "{line}");
        }
        if on_terminal && line != drawn {
            let _ = write!(err, "\r{line}\x1b[K").and_then(|()| err.flush());
            drawn = line;
        }
    };
    let outcome = sweep(cards, wanted, &mut told);
    if !drawn.is_empty() {
        output::note("");
    }
    let outcome = outcome?;
    if outcome.before > 0 {
        output::note(format_args!("{} of {} were done before ({})", outcome.before, outcome.done.len(), wanted.results.display()));
    }
    Ok(outcome)
}

/// `[####....] 12 of 40, 4 running, 1 failed, 3 min left`.
fn bar(progress: Progress, before: usize, elapsed: Duration) -> String {
    const WIDTH: usize = 24;
    let Progress { total, ended, failed, running, lingering } = progress;
    let full = WIDTH * ended / total.max(1);
    let mut line = format!("[{}{}] {ended} of {total}, {running} running", "#".repeat(full), ".".repeat(WIDTH - full));
    if failed > 0 {
        line += &format!(", {failed} failed");
    }
    if lingering > 0 {
        line += &format!(", {lingering} wait for the end of what an earlier sweep started");
    }
    if let Some(left) = progress.time_left(before, elapsed) {
        let seconds = left.as_secs_f64();
        line += &match seconds {
            0.0..90.0 => format!(", {seconds:.0} s left"),
            90.0..5400.0 => format!(", {:.0} min left", seconds / 60.0),
            _ => format!(", {:.1} h left", seconds / 3600.0),
        };
    }
    line
}

fn values(done: &Done) -> String {
    done.set.iter().map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default())).collect::<Vec<_>>().join(" ")
}

fn summary(done: &Done) -> String {
    let numbers: Vec<String> = done.numbers().into_iter().take(3).map(|(name, value)| format!("{name} {}", number(value))).collect();
    match (done.ok, numbers.is_empty()) {
        (true, true) => "done, without a result".into(),
        (true, false) => numbers.join(", "),
        (false, _) => done.status.clone(),
    }
}

fn number(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e12 { format!("{value}") } else { format!("{value:.6}") }
}

/// A line for each, values first.
fn table(all: &[&Done], metric: Option<&str>) -> String {
    let mut heads: Vec<String> = all.first().map(|done| done.set.keys().cloned().collect()).unwrap_or_default();
    let names = heads.len();
    heads.extend(metric.map(str::to_string));
    let mut others: Vec<String> = Vec::new();
    for (name, _) in all.iter().flat_map(|done| done.numbers()) {
        let is_known = |names: &[String]| names.iter().any(|known| known == name);
        if Some(name) != metric && !is_known(&heads) && !is_known(&others) && others.len() < 4 {
            others.push(name.to_string());
        }
    }
    heads.extend(others);
    let count = heads.len();
    heads.extend(["seconds".into(), "status".into()]);
    let cells = |done: &&Done| -> Vec<String> {
        let named = heads[..names].iter().map(|name| done.set.get(name).and_then(|value| value.as_str()).unwrap_or_default().to_string());
        let counted = heads[names..count].iter().map(|name| done.number(name).map_or("-".into(), number));
        named.chain(counted).chain([format!("{:.1}", done.seconds), done.status.clone()]).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(heads.clone()).chain(all.iter().map(cells)).collect();
    let width = |column: usize| column_width(rows.iter().map(|row| row[column].as_str()));
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column + 1 == widths.len() {
            true => cell.clone(),
            false => pad_left(cell, *width),
        });
        cells.collect::<Vec<_>>().join("  ")
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(width: &str, loss: Option<f64>, ok: bool) -> Done {
        let result = loss.map(|loss| [("loss".to_string(), loss.into()), ("steps".to_string(), 10.into())].into_iter().collect());
        Done {
            set: [("width".to_string(), width.into())].into_iter().collect(),
            command: vec![],
            ok,
            status: if ok { "done".into() } else { "exit status 1".into() },
            seconds: 1.25,
            peak_bytes: vec![],
            result,
        }
    }

    #[test]
    fn the_table_is_sorted() {
        let all = vec![Some(done("64", Some(0.5), true)), Some(done("7", None, false)), None, Some(done("128", Some(0.25), true))];
        let outcome = Outcome { done: all, before: 0, stopped: None };
        let text = table(&outcome.ranked("loss", sweep::Best::Min), Some("loss"));
        assert_eq!(
            text,
            "width      loss  steps  seconds  status\n  128  0.250000     10      1.2  done\n   64  0.500000     10      1.2  done\n    7         -      -      1.2  exit status 1"
        );
        assert_eq!(table(&[], None), "seconds  status");
    }

    #[test]
    fn how_far_it_is() {
        let progress = Progress { total: 8, ended: 4, failed: 1, running: 2, lingering: 0 };
        assert_eq!(bar(progress, 2, Duration::from_secs(10)), "[############............] 4 of 8, 2 running, 1 failed, 20 s left");
        assert!(bar(progress, 4, Duration::ZERO).ends_with("1 failed"));
        let lingering = Progress { lingering: 1, ..progress };
        assert!(bar(lingering, 4, Duration::ZERO).ends_with("1 failed, 1 wait for the end of what an earlier sweep started"));
    }
}
