//! Functions in processes of their own: every way in which one can end, and the state afterwards. A program of its own, since
//! workers are this executable, started again.

mod calls;
mod deaths;
mod functions;
mod leases;
#[path = "../../../device-cuda/tests/mock/mod.rs"]
mod mock;
mod parent;
mod pools;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};

use plimsoll_share::Workers;

/// Set in the process that runs the tests, on a machine of its own.
const FOLDER: &str = "PLIMSOLL_STATE_DIR";
const CARDS: &str = "PLIMSOLL_SIM_GPUS";

type Test = (&'static str, fn(&Workers));

fn main() -> ExitCode {
    let workers = functions::table().begin();
    if let Some(role) = std::env::var_os(parent::ROLE) {
        parent::play(&workers, &role.to_string_lossy());
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(CARDS).is_none_or(|cards| cards != *"1x1GiB") {
        return on_a_machine_of_its_own();
    }
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let tests: Vec<Test> = [calls::TESTS, deaths::TESTS, leases::TESTS, parent::TESTS, pools::TESTS].concat();
    let tests = tests.into_iter().filter(|(name, _)| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str())));
    let (mut passed, mut failed) = (0, Vec::new());
    for (name, test) in tests {
        let result = catch_unwind(AssertUnwindSafe(|| test(&workers)));
        println!("test {name} ... {}", if result.is_ok() { "ok" } else { "FAILED" });
        match result {
            Ok(()) => passed += 1,
            Err(_) => failed.push(name),
        }
    }
    println!("{passed} passed; failed: {failed:?}");
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn on_a_machine_of_its_own() -> ExitCode {
    // Workers inherit ignored signals, under nohup for one. A signal that is handled here has its default action there.
    let always = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    for signal in [1, 2, 3] {
        signal_hook::flag::register_conditional_default(signal, always.clone()).expect("a signal can be listened to");
    }
    let folder = std::env::temp_dir().join(format!("plimsoll-test-isolate-{}", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(std::env::args_os().skip(1)).env(FOLDER, &folder).env(CARDS, "1x1GiB").env("PLIMSOLL_NVML", "");
    for name in ["CUDA_VISIBLE_DEVICES", "PLIMSOLL_LEASE", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    let status = command.status().expect("this program starts");
    let _ = std::fs::remove_dir_all(folder);
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
