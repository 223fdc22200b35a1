//! `plimsoll setup`: one ledger for all users of a machine, which root makes once.

use std::path::{Path, PathBuf};

use clap::Args;
use plimsoll::machine::{MACHINE_DIR, Priorities, SetUp, Setup, UserId, remove_setup};
use plimsoll::{Error, Result as Done};
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::failure::{OrUsage, Result, wrong_use};
use crate::output;

/// The group, and the bounds on priorities.
#[derive(Args)]
#[command(
    after_help = "Needs root. Repeating it changes the settings that are given.\nExamples:\n  sudo plimsoll setup --group lab\n  sudo \
                        plimsoll setup --group lab --priorities -10..10 --priorities alice=0..20\n  sudo plimsoll setup --remove"
)]
pub struct SetupArgs {
    /// The group whose users share the ledger: a name or a number
    #[arg(long, value_name = "GROUP", required_unless_present = "remove")]
    group: Option<String>,
    /// Where it is; for another one, programs need PLIMSOLL_MACHINE_DIR
    #[arg(long, value_name = "FOLDER", default_value = MACHINE_DIR)]
    folder: PathBuf,
    /// Priorities that requests may have: for all users, or as USER=LOW..HIGH for one; may be repeated [default: -10..10]
    #[arg(long, value_name = "[USER=]LOW..HIGH", allow_hyphen_values = true)]
    priorities: Vec<String>,
    /// Take the folder away: users have ledgers of their own again
    #[arg(long, conflicts_with_all = ["group", "priorities"])]
    remove: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Document {
    folder: PathBuf,
    group: Option<String>,
    gid: Option<u32>,
    new: bool,
    removed: bool,
    priorities: Option<[i32; 2]>,
    user_priorities: Vec<(String, [i32; 2])>,
    users: Vec<String>,
    warnings: Vec<String>,
}

/// Bounds for all users, and for some.
type Bounds = (Option<Priorities>, Vec<(String, Priorities)>);

/// `-10..10`, or `alice=0..20`.
fn bounds(texts: &[String]) -> Done<Bounds> {
    let (mut all, mut users) = (None, Vec::new());
    for text in texts {
        let parsed = |text: &str| text.parse::<Priorities>().map_err(|error| error.context("--priorities"));
        match text.split_once('=') {
            Some((user, bounds)) if !user.is_empty() => users.push((user.to_string(), parsed(bounds)?)),
            Some(_) => return Err(Error::invalid_argument(format!("--priorities '{text}' names no user"))),
            None => all = Some(parsed(text)?),
        }
    }
    Ok((all, users))
}

fn pair(bounds: Priorities) -> [i32; 2] {
    [bounds.least, bounds.most]
}

/// Sets up, or takes away.
pub fn run(args: SetupArgs) -> Result<ExitCode> {
    let (priorities, users) = bounds(&args.priorities).or_usage()?;
    let Some(group) = args.group.filter(|_| !args.remove) else {
        if !args.remove {
            return wrong_use("--group names the group whose users share the ledger");
        }
        remove_setup(&args.folder)?;
        let text = format!("removed {}: users have ledgers of their own", args.folder.display());
        say(
            args.json,
            text,
            Document {
                folder: args.folder,
                group: None,
                gid: None,
                new: false,
                removed: true,
                priorities: None,
                user_priorities: Vec::new(),
                users: Vec::new(),
                warnings: Vec::new(),
            },
        )?;
        return Ok(ExitCode::SUCCESS);
    };
    let made = Setup { folder: args.folder, group, priorities, users }.make()?;
    let text = words(&made);
    say(
        args.json,
        text,
        Document {
            folder: made.folder,
            group: Some(made.group),
            gid: Some(made.gid),
            new: made.is_new,
            removed: false,
            priorities: Some(pair(made.priorities)),
            user_priorities: made.users.into_iter().map(|(user, bounds)| (user.name(), pair(bounds))).collect(),
            users: made.places.into_iter().map(UserId::name).collect(),
            warnings: made.warnings,
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn say(json: bool, text: String, document: Document) -> Done<()> {
    if json { output::result_json(&document) } else { output::result(text) }
}

fn words(made: &SetUp) -> String {
    let what = if made.is_new { "made" } else { "is as asked" };
    let places: Vec<String> = made.places.iter().map(|user| user.name()).collect();
    let mut lines = vec![
        format!("{} {what}: the users of the group {} ({}) share one ledger", made.folder.display(), made.group, made.gid),
        format!("priorities: {}", made.priorities),
    ];
    lines.extend(made.users.iter().map(|(user, bounds)| format!("priorities of {}: {bounds}", user.name())));
    lines.push(format!("users with a place: {}; others of the group get theirs when they come", places.join(", ")));
    if made.folder.as_path() != Path::new(MACHINE_DIR) {
        lines.push(format!("programs find it by PLIMSOLL_MACHINE_DIR={}", made.folder.display()));
    }
    lines.extend(made.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_for_all_or_for_one() {
        let range = |least, most| Priorities { least, most };
        let texts = |all: &[&str]| all.iter().map(|text| text.to_string()).collect::<Vec<_>>();
        let (all, users) = bounds(&texts(&["-10..10", "alice=0..20", "7=3"])).unwrap();
        assert_eq!((all, users), (Some(range(-10, 10)), vec![("alice".into(), range(0, 20)), ("7".into(), range(3, 3))]));
        for wrong in ["", "x", "3..1", "=1..2", "alice=", "alice=x"] {
            assert!(bounds(&texts(&[wrong])).is_err(), "{wrong}");
        }
    }
}
