//! The command line from outside.

mod card_check;
mod cards;
mod copies;
mod described;
mod documents;
mod drawings;
mod evaluation;
#[cfg(unix)]
mod files;
mod fit;
mod forms;
mod golden;
mod limits;
mod machine;
#[cfg(unix)]
mod nesting;
mod networks;
mod nvidia;
mod operations;
mod output;
mod page;
mod pages;
mod placement;
mod share;
mod stop;
mod threads;
mod transcript;
mod users;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The outcome of a call of the program.
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// The recorded cases of this crate; commands run there.
fn cases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// A ledger of simulated cards for this test alone: each test has a thread of its own, and the folder goes with that.
fn state_dir() -> PathBuf {
    thread_local! {
        static STATE: Folder = Folder::new(&format!("state-{:?}", std::thread::current().id()));
    }
    STATE.with(|folder| folder.0.join("state"))
}

/// Runs `plimsoll ARGS`, arguments separated by blanks.
fn plimsoll(args: &str) -> Said {
    said(Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(args.split_whitespace()))
}

fn said(command: &mut Command) -> Said {
    let command = command.current_dir(cases()).env_remove("PLIMSOLL_SIM_GPUS").env("PLIMSOLL_NVML", "").env("PLIMSOLL_SHIM", "");
    outcome(command.env("PLIMSOLL_STATE_DIR", state_dir()))
}

/// Runs a command as it is.
fn outcome(command: &mut Command) -> Said {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    Said { code: status.code().expect("it ends by itself"), out: text(stdout), err: text(stderr) }
}

/// The one JSON document on standard output.
fn document(args: &str) -> Value {
    let said = plimsoll(args);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{args}: {error}: {}{}", said.out, said.err))
}

/// A recorded SavedModel, or an array beside it.
fn saved(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/saved").join(name)
}

/// A folder of its own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, bytes).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
