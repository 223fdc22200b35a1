//! Other processes, played by this program.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use plimsoll_base::Bytes;
use plimsoll_machine::{Identity, Wait};

use super::{leases, open, stress, users};

const ROLE: &str = "PLIMSOLL_TEST_ROLE";
const STATE: &str = "PLIMSOLL_TEST_STATE";

/// A process that plays a role. It is killed when dropped.
pub struct Player {
    child: Child,
    said: BufReader<ChildStdout>,
    stdin: ChildStdin,
    apart: bool,
}

/// This program in a role: a word and its numbers.
pub fn command(role: &str, state: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child::play", "--exact", "--nocapture", "--test-threads=1"]).env(ROLE, role).env(STATE, state);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

impl Player {
    pub fn new(role: &str, state: &Path) -> Player {
        Player::start(command(role, state))
    }

    /// In namespaces of its own, as `unshare` makes them with these options; none without any.
    pub fn apart(role: &str, state: &Path, options: &str) -> Player {
        let plain = command(role, state);
        if options.is_empty() {
            return Player::start(plain);
        }
        let mut apart = Command::new("unshare");
        // A shell is the first process there, so that processes that the role leaves behind live on without it.
        apart.args(options.split(' ')).args(["sh", "-c", "\"$@\"; sleep 300", "sh"]).arg(plain.get_program()).args(plain.get_args());
        plain.get_envs().for_each(|(name, value)| {
            value.map(|value| apart.env(name, value));
        });
        apart.stdin(Stdio::piped()).stdout(Stdio::piped());
        Player::start(apart)
    }

    /// Kills the process that plays the role, and the process that started it only if that is the same.
    pub fn kill_inside(&mut self) {
        let text = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let children = |pid: u32| text(format!("/proc/{pid}/task/{pid}/children"));
        let first = |list: String| list.split_whitespace().next().and_then(|pid| pid.parse::<u32>().ok());
        // unshare, the shell, the role.
        let role = first(children(self.pid())).filter(|_| self.apart).and_then(|shell| first(children(shell))).unwrap_or(self.pid());
        // SAFETY: a process that this test started and that waits to be told to end.
        assert_eq!(unsafe { libc::kill(role as i32, libc::SIGKILL) }, 0);
        let begin = std::time::Instant::now();
        while text(format!("/proc/{role}/stat")).rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z')) {
            assert!(begin.elapsed() < Duration::from_secs(30));
        }
    }

    pub fn start(mut command: Command) -> Player {
        let mut child = command.spawn().unwrap();
        let (said, stdin) = (BufReader::new(child.stdout.take().unwrap()), child.stdin.take().unwrap());
        Player { child, said, stdin, apart: command.get_program() == "unshare" }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next thing it says.
    pub fn hears(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "the process ended without a word");
            if let Some((_, word)) = line.trim_end().split_once('@') {
                return word.to_string();
            }
        }
    }

    /// Lets a process that stays go on.
    pub fn answer(&mut self) {
        self.stdin.write_all(b"\n").unwrap();
    }

    /// Whether it has ended, and well.
    pub fn ended(&mut self) -> Option<bool> {
        self.child.try_wait().unwrap().map(|status| status.success())
    }

    pub fn ends_well(mut self) {
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a signal to a child that has not been waited for, so that the number is its own.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn say(word: &str) {
    println!("\n@{word}");
    std::io::stdout().flush().unwrap();
}

/// Until the parent answers or goes.
pub fn stay() {
    let _ = std::io::stdin().read(&mut [0]);
}

/// Not a test of anything: the body of a started process.
#[test]
fn play() {
    let (Ok(role), Some(state)) = (std::env::var(ROLE), std::env::var_os(STATE)) else { return };
    let state = Path::new(&state);
    let words: Vec<&str> = role.split(' ').collect();
    let number = |index: usize| words[index].parse::<u64>().unwrap();
    match words[0] {
        // Holds bytes of a card of a capacity.
        "hold" => {
            let machine = open(state, &[number(1)]);
            let member = machine.join(&Identity::this_process("a child")).unwrap();
            member.reserve(&[(0, Bytes(number(2)))]).unwrap();
            say("holds");
            stay();
        }
        // Waits for bytes, then holds them.
        "wait" => {
            let member = open(state, &[number(1)]).join(&Identity::this_process("a waiter")).unwrap();
            let mut first = true;
            let wait =
                Wait { priority: words.get(3).map_or(0, |priority| priority.parse().unwrap()), timeout: Some(Duration::from_secs(60)) };
            member
                .reserve_waiting(&[(0, Bytes(number(2)))], &wait, &mut |_| {
                    if std::mem::take(&mut first) {
                        say("waits");
                    }
                    true
                })
                .unwrap();
            say("holds");
            stay();
        }
        // Is stopped in the middle of a transaction.
        "stuck" => {
            use std::os::unix::fs::FileExt;
            let file = std::fs::OpenOptions::new().read(true).write(true).open(state.join("test.ledger")).unwrap();
            file.lock().unwrap();
            file.write_all_at(&std::process::id().to_le_bytes(), 12).unwrap();
            say("locked");
            stay();
        }
        // Opens the folder and prints the result.
        "state" => {
            say(&match super::state_dir(state).and_then(|state| plimsoll_machine::Machine::open(&state, "test", &super::cards(&[1]))) {
                Ok(_) => "opened".into(),
                Err(error) => error.to_string().replace('\n', " "),
            })
        }
        "state-of-machine" => say(&match plimsoll_machine::StateDir::of_machine(state) {
            Ok(_) => "opened".into(),
            Err(error) => error.to_string().replace('\n', " "),
        }),
        "tamper" => say(&super::failures::tamper(state)),
        "full" => say(&super::failures::without_room(state)),
        "setup" => say(&users::sets_up(state)),
        "flock" => {
            let file = std::fs::File::open(state.join("lock")).unwrap();
            file.lock().unwrap();
            say("locked");
            stay();
        }
        "read-lock" => users::locks_for_reading(state, words[1]),
        "attack" => say(&users::attack(state, words[1])),
        "fork" => leases::forks(state),
        "lease" => leases::leases(state),
        "stress" => stress::worker(state, number(1), Duration::from_millis(number(2))),
        role => panic!("no role is called {role}"),
    }
}
