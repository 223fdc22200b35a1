//! The bytes of a card that frameworks take beside their allocators. They are measured: the driver's figure for a small program
//! less the bytes of its allocator.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_machine::StateDir;

use super::Check;
use crate::framework::{Overheads, SWITCH};
use crate::lease::{Amount, Cards, Lease, Request, Which};

const NAME: &str = "overhead";
const PROGRAM: &str = include_str!("overhead.py");
const FRAMEWORKS: [&str; 3] = ["pytorch", "tensorflow", "jax"];

/// The program's part of a card: enough for a context and the smallest allocators.
const SHARE: Bytes = Bytes(2 << 30);

/// How long a framework may take to open a card. They load for minutes from slow disks.
const TIME: Duration = Duration::from_secs(300);

/// Measures each framework that `python` has, on a card of each model, and writes the largest where leases look for it
/// ([`Overheads::FILE`]). Takes a lease of each of these cards, one at a time.
///
/// # Errors
/// The obstacle to a lease, or the error of the file.
pub fn measure(cards: &Cards, python: &OsStr) -> Result<Vec<Check>> {
    let Some(driver) = cards.nvml().and_then(|nvml| nvml.look().driver.driver) else {
        let what = "overheads cannot be measured: there is no driver that says what a process uses";
        return Ok(vec![Check::not_here(NAME, what, "measure where there is a driver, with cards that are not simulated")]);
    };
    let mut models = BTreeSet::new();
    let mut checks = Vec::new();
    let mut measured: Vec<(&str, Bytes)> = Vec::new();
    for (number, card) in cards.visible().into_iter().enumerate().filter(|(_, card)| models.insert(cards.all()[*card].name.clone())) {
        let device = &cards.all()[card];
        let request = Request { cards: Which::List(vec![number]), memory: Amount::Bytes(SHARE.min(device.total)), ..Request::default() };
        for framework in FRAMEWORKS {
            let mut lease = cards.lease(&request.clone().name(format!("overhead of {framework}")), &mut |_| true)?;
            let taken = take(&mut lease, python, framework);
            lease.end();
            checks.push(match taken? {
                Ok(bytes) => {
                    measured.push((framework, bytes));
                    Check::pass(NAME, format!("{framework} takes {bytes} of a {} beside its allocator (driver {driver})", device.name))
                }
                Err(why) => Check::not_here(NAME, format!("{framework}: {why}"), "--measure-overheads=PYTHON names another interpreter"),
            });
        }
    }
    if !measured.is_empty() {
        let state = cards.state().cloned().map_or_else(StateDir::find, Ok)?;
        let path = state.path().join(Overheads::FILE);
        let before = plimsoll_base::read_file(&path).unwrap_or_default();
        let text = Overheads::replaced(&String::from_utf8_lossy(&before), &driver, &measured);
        crate::framework::hook::write_whole(&path, &text).map_err(|error| {
            Error::new(Code::Unavailable, format!("{}: {error}", path.display())).with_remedy("the folder must be this user's")
        })?;
    }
    Ok(checks)
}

/// Starts the program under a lease of one card, and compares the bytes of its allocator with those of the driver. The inner error
/// is the reason why that cannot be done.
fn take(lease: &mut Lease, python: &OsStr, framework: &str) -> Result<std::result::Result<Bytes, String>> {
    let mut command = Command::new(python);
    // The folder that it is started in has no part in it, and the hook would change the measurement.
    command.arg("-c").arg(PROGRAM).arg(framework).env(SWITCH, "0").env("PYTHONSAFEPATH", "1");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    lease.inherit(&mut command)?;
    let child = command.spawn();
    drop(command);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Ok(Err(format!("{}: {error}", python.to_string_lossy()))),
    };
    let said = said(&mut child);
    let used = lease.look().first().copied().flatten().filter(|used| *used > Bytes::ZERO);
    let _ = child.kill();
    let _ = child.wait();
    let Some(said) = said else { return Ok(Err("it ended, or took too long, before it had opened the card".into())) };
    let Ok(reserved) = said.parse().map(Bytes) else { return Ok(Err(said)) };
    Ok(match used {
        Some(used) if used > reserved => Ok(Bytes(used.0 - reserved.0)),
        Some(used) => Err(format!("its allocator has {reserved}, and the driver says that it uses {used}")),
        None => Err("the driver does not say what it uses".into()),
    })
}

/// Its output; none where there is none, or it takes too long.
fn said(child: &mut Child) -> Option<String> {
    let out = BufReader::new(child.stdout.take()?);
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in out.lines().map_while(std::io::Result::ok) {
            if let Some(said) = line.strip_prefix("plimsoll-overhead ") {
                let _ = sender.send(said.to_string());
            }
        }
    });
    receiver.recv_timeout(TIME).ok()
}
