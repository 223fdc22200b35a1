//! Programs under a lease. This program starts itself again to be `plimsoll run`.

#[path = "../../../device-cuda/tests/mock/mod.rs"]
mod mock;

mod ends;
mod ladder;
mod overheads;
mod queue;
mod reports;
mod safety;
mod shim;
mod terminal;
mod watched;

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use plimsoll_cards::{Environment, Options, PhysicalDevice};
use plimsoll_machine::{Machine, StateDir, Wait};
use plimsoll_share::Request;
use plimsoll_share::run::{Ended, Run, end_by, run};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT};

const ARGUMENTS: &str = "PLIMSOLL_TEST_RUN";
const CARDS: &str = "1x1GiB";

/// Not a test of anything: runs the command of a test. Options, then a shell's script.
#[test]
fn play() {
    let Ok(arguments) = std::env::var(ARGUMENTS) else { return };
    let (options, script) = arguments.split_once(" -- ").unwrap();
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let environment = Environment::of(std::env::vars_os().filter_map(text));
    let mut wanted = Run::new(["sh", "-c", script].map(Into::into).to_vec(), Request::default());
    (wanted.end_beyond, wanted.end_tree) = (options.contains("kill"), options.contains("tree"));
    for option in options.split(' ').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("memory", amount)) => wanted.request.memory = amount.parse().unwrap(),
            None if option == "wait" => wanted.request.wait = Some(Wait::default()),
            Some(("priority", value)) => wanted.request.wait = Some(Wait { priority: value.parse().unwrap(), timeout: None }),
            Some(("enforce", rung)) => wanted.enforce = rung.parse().unwrap(),
            Some(("groups", folder)) => (wanted.places.groups, wanted.places.own_group) = (folder.into(), Some("/".into())),
            Some(("user", user)) => wanted.places.user = user.parse().unwrap(),
            Some(("report", path)) => wanted.report = Some(path.into()),
            Some(("idle", ms)) => wanted.idle.end_after = Some(Duration::from_millis(ms.parse().unwrap())),
            Some(("idle-notify", ms)) => wanted.idle.warn_after = Some(Duration::from_millis(ms.parse().unwrap())),
            Some(("program", program)) => wanted.command[0] = program.into(),
            Some(("timeout", ms)) => wanted.timeout = Some(Duration::from_millis(ms.parse().unwrap())),
            _ => {}
        }
    }
    let cards = plimsoll_share::Cards::find(&Options::new(), &environment);
    let code = match cards.and_then(|cards| run(&cards, &wanted, &mut |line| eprintln!("@{line}"))) {
        Ok(Ended::Exited(code) | Ended::NotStarted(code)) => code,
        Ok(Ended::Signalled(signal)) => end_by(signal),
        Ok(Ended::TimedOut | Ended::Idle) => 124,
        Ok(Ended::Beyond(signal)) => end_by(signal),
        Err(error) => {
            eprintln!("@{error}");
            125
        }
    };
    std::process::exit(code.into());
}

/// Lets a started program get signals as if nothing had been ignored here (by nohup): a signal that is handled has its default
/// action in a program that is started.
fn hears_all() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let always = Arc::new(AtomicBool::new(true));
        for signal in [SIGHUP, SIGINT, SIGQUIT] {
            signal_hook::flag::register_conditional_default(signal, always.clone()).unwrap();
        }
    });
}

/// A machine of a test's own.
struct Home(PathBuf);

impl Home {
    fn new(test: &str) -> Home {
        hears_all();
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let path = std::env::temp_dir().join(format!("plimsoll-run-{}-{}-{test}", std::process::id(), NUMBER.fetch_add(1, Relaxed)));
        StateDir::open(&path).expect("a folder can be made");
        Home(path)
    }

    fn machine(&self) -> Machine {
        let cards = PhysicalDevice::simulated("--sim-gpus", CARDS).unwrap();
        PhysicalDevice::ledger(&cards, &StateDir::open(&self.0).unwrap()).unwrap()
    }

    /// The bytes reserved now.
    fn reserved(&self) -> u64 {
        self.machine().look().unwrap().cards[0].reserved.0
    }

    fn command(&self, options: &str, script: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["play", "--exact", "--nocapture", "--test-threads=1", "-q"]);
        for name in Environment::NAMES {
            command.env_remove(name);
        }
        command.env(ARGUMENTS, format!("{options} -- {script}")).env("PLIMSOLL_STATE_DIR", &self.0);
        command.env("PLIMSOLL_SIM_GPUS", CARDS).env("PLIMSOLL_NVML", "").env("PLIMSOLL_SHIM", "");
        command
    }

    /// Runs to the end: how it ended, and its output on both streams.
    fn run(&self, options: &str, script: &str) -> Said {
        let output = self.command(options, script).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { status: output.status, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Starts it, up to the first line that the script says.
    fn start(&self, options: &str, script: &str) -> Running {
        let mut child = self.command(options, script).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut running = Running { out: BufReader::new(child.stdout.take().unwrap()), child, first: String::new() };
        running.first = running.hears();
        running
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Said {
    status: ExitStatus,
    out: String,
    err: String,
}

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    /// Its first output.
    first: String,
}

impl Running {
    /// The next thing that the script says after a `:`.
    fn hears(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.out.read_line(&mut line).unwrap() > 0, "it ended without a word");
            if let Some((_, word)) = line.trim_end().split_once(':') {
                return word.to_string();
            }
        }
    }

    fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    fn ends(mut self) -> Said {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        Said { status: self.child.wait().unwrap(), out, err }
    }
}

fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status().unwrap().success(), "kill -{name} {pid}");
}

fn is_there(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Waits for an event that comes soon.
fn comes(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
