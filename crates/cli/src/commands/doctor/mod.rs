//! `plimsoll doctor`: the working, missing and broken parts of this machine.

use std::ffi::OsString;

use clap::Args;
use plimsoll::Options;
use plimsoll::machine::environment;
use plimsoll::share::Cards;
use plimsoll::share::doctor::{Check, State, examine, measure};
use plimsoll::share::enforce::Places;
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::Result;
use crate::output;

/// How a machine is examined.
#[derive(Args)]
#[command(after_help = "Exit status: 0, or 1 where something that should work is broken.")]
pub struct DoctorArgs {
    /// Print one JSON document
    #[arg(long)]
    json: bool,
    /// Simulated GPUs, as 2x4GiB
    #[arg(long, value_name = "SPEC")]
    sim_gpus: Option<String>,
    /// Measure what PyTorch, TensorFlow and JAX take of a card beside their allocators, with this interpreter; leases subtract it
    /// from then on
    #[arg(long, value_name = "PYTHON", num_args = 0..=1, require_equals = true, default_missing_value = "python3")]
    measure_overheads: Option<OsString>,
}

#[derive(Serialize)]
struct Document<'a> {
    ok: bool,
    checks: Vec<CheckEntry<'a>>,
}

#[derive(Serialize)]
struct CheckEntry<'a> {
    check: &'a str,
    state: &'static str,
    what: &'a str,
    remedy: Option<&'a str>,
}

/// Examines.
pub fn run(args: DoctorArgs) -> Result<ExitCode> {
    let mut options = Options::new();
    options.sim_gpus = args.sim_gpus;
    let mut checks = examine(&options, &environment(), &Places::here());
    if let Some(python) = &args.measure_overheads {
        checks.extend(measure(&Cards::find(&options, &environment())?, python)?);
    }
    let ok = checks.iter().all(|check| check.state != State::Fail);
    match args.json {
        true => output::result_json(&document(ok, &checks))?,
        false => output::result(text(&checks))?,
    }
    Ok(ExitCode::from(u8::from(!ok)))
}

fn document(ok: bool, checks: &[Check]) -> Document<'_> {
    fn entry(check: &Check) -> CheckEntry<'_> {
        CheckEntry { check: check.name, state: check.state.word(), what: &check.what, remedy: check.remedy.as_deref() }
    }
    Document { ok, checks: checks.iter().map(entry).collect() }
}

/// A line for each check, and one for each remedy.
fn text(checks: &[Check]) -> String {
    let mut lines = Vec::new();
    for check in checks {
        lines.push(format!("{:<8}  {:<14}  {}", check.state.word(), check.name, output::plain(&check.what)));
        lines.extend(check.remedy.as_ref().map(|remedy| format!("{:<26}  hint: {}", "", output::plain(remedy))));
    }
    let failed = checks.iter().filter(|check| check.state == State::Fail).count();
    lines.push(match failed {
        0 => "nothing is broken".into(),
        count => format!("{count} of {} checks failed", checks.len()),
    });
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn checks_are_printed() {
        let check =
            |name, state, what: &str, remedy: Option<&str>| Check { name, state, what: what.into(), remedy: remedy.map(Into::into) };
        let checks = [
            check("driver", State::NotHere, "there is no NVIDIA driver", Some("install it")),
            check("control groups", State::Pass, "groups can be made in /sys/fs/cgroup", None),
            check("rights", State::NotHere, "this is user 7", None),
            check("ledger", State::Fail, "the folder \u{1b}[2J is a link", Some("set PLIMSOLL_STATE_DIR")),
        ];
        let got = format!("{}\n\n{}\n", text(&checks), text(&checks[..3]));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/commands/doctor/checks.txt");
        if std::env::var_os("PLIMSOLL_BLESS").is_some() {
            std::fs::write(&path, got).unwrap();
            return;
        }
        assert_eq!(got, std::fs::read_to_string(&path).unwrap_or_default(), "PLIMSOLL_BLESS=1 writes {} anew", path.display());
    }
}
