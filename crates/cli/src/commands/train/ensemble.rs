//! `plimsoll train --ensemble N`: several networks with seeds of their own, each a process.

use std::ffi::OsString;

use plimsoll::machine::environment;
use plimsoll::share::Cards;
use plimsoll::share::run::end_by;
use plimsoll::share::supervise::Supervisors;
use plimsoll::share::sweep::Sweep;
use plimsoll::{Code, Error, Options};
use serde::Serialize;

use super::TrainArgs;
use crate::commands::sweep::with_progress;
use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::{output, process, show};

/// The results of all networks.
#[derive(Serialize)]
struct Document {
    ensemble: usize,
    test_accuracy: Option<f64>,
    final_loss: Option<f64>,
    members: Vec<Member>,
}

/// The result of one network.
#[derive(Serialize)]
struct Member {
    seed: i64,
    test_accuracy: Option<f64>,
    final_loss: Option<f64>,
    seconds: f64,
}

/// Trains so many, with the options of this process, seeds beginning with that one. Each opens the devices itself: limits are those
/// of one network, and cards are shared as between any programs.
pub fn train(count: u32, args: &TrainArgs, json: bool, supervisors: Supervisors) -> Result<ExitCode> {
    let seed = args.seed;
    let own = std::env::current_exe().map_err(|error| Error::internal(format!("this program's file: {error}")))?;
    let mut command = vec![word(own.into_os_string())?];
    command.extend(without_ensemble(std::env::args_os().skip(1).map(word).collect::<Result<_>>()?));
    command.extend(["--seed".into(), "{seed}".into(), "--json".into()]);
    for (option, folder) in [("--save", &args.save), ("--resume", &args.resume)] {
        if let Some(folder) = folder {
            let folder = word(folder.join("seed-").into_os_string())?;
            command.extend([option.into(), format!("{}{{seed}}", escaped(&folder))]);
        }
    }
    let points = (0..i64::from(count)).map(|number| vec![("seed".to_string(), seed.saturating_add(number).to_string())]).collect();
    let folder = process::own_folder("ensemble")?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    let results = folder.path().join("results.jsonl");
    let sweep = Sweep { command, points, request: None, jobs: cores.max(2), results, supervisors: Some(supervisors), engine: None };
    let outcome =
        with_progress(&Cards::find(&Options::new(), &environment().with("PLIMSOLL_SIM_GPUS", "").with("PLIMSOLL_NVML", ""))?, &sweep)?;
    if let Some(signal) = outcome.stopped {
        drop(folder);
        return Ok(ExitCode::from(end_by(signal)));
    }
    if let Some((place, done)) =
        outcome.done.iter().enumerate().find_map(|(place, done)| Some((place, done.as_ref().filter(|done| !done.ok)?)))
    {
        let said = std::fs::read_to_string(folder.path().join(format!("results.jsonl.logs/{}.err", place + 1))).unwrap_or_default();
        let why = said.lines().find(|line| line.starts_with("error: ")).unwrap_or(&done.status).trim_start_matches("error: ");
        return Err(Error::new(Code::Aborted, format!("the network with seed {} failed: {why}", seed.saturating_add(place as i64))).into());
    }
    let members: Vec<Member> = outcome
        .done
        .iter()
        .flatten()
        .enumerate()
        .map(|(place, done)| Member {
            seed: seed.saturating_add(place as i64),
            test_accuracy: done.number("test_accuracy"),
            final_loss: done.number("final_loss"),
            seconds: done.seconds,
        })
        .collect();
    let (test_accuracy, final_loss) = (outcome.mean("test_accuracy").ok(), outcome.mean("final_loss").ok());
    let document = Document { ensemble: members.len(), test_accuracy, final_loss, members };
    if json {
        output::result_json(&document)?;
        return Ok(ExitCode::SUCCESS);
    }
    for Member { seed, test_accuracy, final_loss, seconds } in &document.members {
        let right = test_accuracy.map_or(String::new(), |accuracy| format!("{:.2} % right, ", 100.0 * accuracy));
        let loss = final_loss.map_or(String::new(), |loss| format!("loss {}, ", show::significant(loss as f32)));
        output::print(format!("seed {seed}: {right}{loss}{seconds:.1} s"));
    }
    if let Some(accuracy) = document.test_accuracy {
        output::print(format!("{} networks: {:.2} % right on average", document.ensemble, 100.0 * accuracy));
    }
    Ok(ExitCode::SUCCESS)
}

/// The arguments of this process without those that each network has for itself. Braces are not names of ours.
fn without_ensemble(arguments: Vec<String>) -> Vec<String> {
    const OWN: [&str; 4] = ["--ensemble", "--seed", "--save", "--resume"];
    let mut out = Vec::new();
    let mut words = arguments.into_iter();
    while let Some(word) = words.next() {
        match word.split_once('=') {
            _ if OWN.contains(&word.as_str()) => drop(words.next()),
            Some((option, _)) if OWN.contains(&option) => {}
            _ if word == "--json" => {}
            _ => out.push(escaped(&word)),
        }
    }
    out
}

fn escaped(word: &str) -> String {
    word.replace('{', "{{").replace('}', "}}")
}

fn word(word: OsString) -> Result<String> {
    word.into_string().map_err(|word| Error::invalid_argument(format!("{} is not UTF-8", word.to_string_lossy())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_network_gets_what_all_got() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let given = words(
            "train digits --ensemble 3 --steps 5 --seed=4 --json --data a{b} --seed -1 --ensemble=2 --save d --resume=e --save-every 5",
        );
        assert_eq!(without_ensemble(given), words("train digits --steps 5 --data a{{b}} --save-every 5"));
    }
}
