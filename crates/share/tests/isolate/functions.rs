//! The functions of the workers of these tests.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_base::{Bytes, Error};
use plimsoll_cards::{Environment, Options};
use plimsoll_machine::Identity;
use plimsoll_share::{Bulk, Cards, Functions};
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde::{Deserialize, Serialize, Serializer};

pub fn table() -> Functions {
    Functions::new()
        .with(square)
        .with(nothing)
        .with(double_all)
        .with(fails)
        .with(panics)
        .with(kills_itself)
        .with(exits)
        .with(aborts)
        .with(sleeps)
        .with(allocates)
        .with(asks_for_too_much)
        .with(reserves)
        .with(keeps)
        .with(notes)
        .with(says)
        .with(whispers)
        .with(dies_while_written)
        .with(panics_while_written)
        .with(is_not_written)
        .with(lies_of_its_length)
        .with(process)
        .with(leaves_a_child)
        .with(fills)
        .with(isolates)
        .with(waits_for)
        .with(uses_a_real_card)
        .with(count)
        .with(count_text)
        .with(leaves_one_apart)
        .with(goes_apart_and_sleeps)
        .with(returns_under_limits)
        .with(sends_under_limits)
        .with(limits_descriptors)
        .with(signals_its_supervisor)
        .with(has_the_shim)
}

pub type Empty = Result<(), Error>;

pub fn square(x: u64) -> Result<u64, Error> {
    Ok(x * x)
}

pub fn nothing((): ()) -> Empty {
    Ok(())
}

pub fn double_all((numbers, name): (Bulk<f32>, String)) -> Result<(Bulk<f32>, String), Error> {
    let doubled: Vec<f32> = numbers.iter().map(|number| number * 2.0).collect();
    Ok((doubled.into(), name))
}

/// An error with two causes below it.
#[derive(Debug)]
pub struct Outer(Option<Box<Outer>>, &'static str);

impl fmt::Display for Outer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.as_deref().map(|inner| inner as _)
    }
}

pub fn fails(how: String) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    match how.as_str() {
        "text" => Err("only a text".into()),
        "ours" => Err(Error::not_found("no graph").with_remedy("name one").into()),
        _ => Err(Outer(Some(Box::new(Outer(Some(Box::new(Outer(None, "the disk is gone"))), "the file is gone"))), "no data").into()),
    }
}

pub fn panics(what: String) -> Empty {
    panic!("{what} went wrong");
}

/// By a signal, until it does: the first SIGSEGV of a Rust program is looked at by its own handler.
pub fn kills_itself(signal: i32) -> Empty {
    let Some(signal) = Signal::from_named_raw(signal) else { return Err(Error::invalid_argument("no signal")) };
    for _ in 0..3 {
        kill_process(getpid(), signal).map_err(|error| Error::internal(error.to_string()))?;
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

pub fn exits(status: i32) -> Empty {
    std::process::exit(status)
}

pub fn aborts((): ()) -> Empty {
    std::process::abort()
}

pub fn sleeps(milliseconds: u64) -> Result<u64, Error> {
    std::thread::sleep(Duration::from_millis(milliseconds));
    Ok(milliseconds)
}

/// So many bytes, by pieces that are touched.
pub fn allocates(bytes: u64) -> Result<usize, Error> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    for _ in 0..bytes / (8 << 20) {
        all.push(vec![1; 8 << 20]);
    }
    Ok(all.len())
}

pub fn asks_for_too_much((): ()) -> Empty {
    Err(Error::resource_exhausted("2 GiB asked, 1 GiB left").on_device("/device:GPU:0"))
}

/// Reserves so much of the first card, as programs under a lease do, and gives it back.
pub fn reserves(bytes: u64) -> Result<u64, Error> {
    let cards = Cards::find(&Options::new(), &Environment::of(std::env::vars()))?;
    let machine = cards.machine().ok_or_else(|| Error::not_found("no cards"))?;
    let member = machine.join(&Identity::this_process("consumer"))?;
    member.reserve(&[(0, Bytes(bytes))])?;
    member.set_used(0, Bytes(bytes));
    Ok(machine.look()?.cards[0].reserved.0)
}

/// As [`reserves`], and forgets to give it back; or memory of its own.
pub fn keeps((card, own): (u64, u64)) -> Result<u32, Error> {
    if card > 0 {
        let cards = Cards::find(&Options::new(), &Environment::of(std::env::vars()))?;
        let member = cards.machine().ok_or_else(|| Error::not_found("no cards"))?.join(&Identity::this_process("keeps"))?;
        member.reserve(&[(0, Bytes(card))])?;
        std::mem::forget(member);
    }
    std::mem::forget(vec![1u8; own as usize]);
    Ok(std::process::id())
}

/// Writes down that it ran, then may die.
pub fn notes((folder, name, dies): (PathBuf, u32, bool)) -> Result<u32, Error> {
    let wrong = |error: std::io::Error| Error::internal(error.to_string());
    let mut file = std::fs::File::options().create(true).append(true).open(folder.join(name.to_string())).map_err(wrong)?;
    file.write_all(b"x").map_err(wrong)?;
    if dies {
        let _ = kill_process(getpid(), Signal::KILL);
    }
    Ok(name)
}

pub fn says(what: String) -> Empty {
    println!("{what}");
    print!("without an end of line");
    Ok(())
}

pub fn whispers(what: String) -> Empty {
    eprintln!("{what}");
    std::process::abort()
}

/// A value that does something while it is written.
#[derive(Debug)]
pub struct Odd(fn());

impl Serialize for Odd {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        self.0();
        Err(serde::ser::Error::custom("this value is not for others"))
    }
}

impl<'de> Deserialize<'de> for Odd {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Odd, D::Error> {
        Err(serde::de::Error::custom("there is no such value"))
    }
}

pub fn dies_while_written((): ()) -> Result<(Vec<u64>, Odd), Error> {
    Ok((
        vec![7; 100_000],
        Odd(|| {
            let _ = kill_process(getpid(), Signal::KILL);
        }),
    ))
}

pub fn panics_while_written((): ()) -> Result<Odd, Error> {
    Ok(Odd(|| panic!("in the middle of it")))
}

pub fn is_not_written((): ()) -> Result<Odd, Error> {
    Ok(Odd(|| ()))
}

/// Its argument cannot be read: the sender wrote one thing and says that it is another.
#[derive(Debug)]
pub struct Unreadable;

impl Serialize for Unreadable {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(1)
    }
}

impl<'de> Deserialize<'de> for Unreadable {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Unreadable, D::Error> {
        u64::deserialize(deserializer).map(|_| Unreadable)
    }
}

pub fn lies_of_its_length(_: Unreadable) -> Result<Unreadable, Error> {
    Ok(Unreadable)
}

pub fn process((): ()) -> Result<(u32, Vec<String>), Error> {
    Ok((std::process::id(), std::env::args().collect()))
}

/// Whether the shim is loaded here, and in a program that is started here.
pub fn has_the_shim((): ()) -> Result<(bool, bool), Error> {
    let io = |error: std::io::Error| Error::internal(error.to_string());
    let own = std::fs::read_to_string("/proc/self/maps").map_err(io)?;
    let child = std::process::Command::new("cat").arg("/proc/self/maps").output().map_err(io)?;
    let is_in = |maps: &str| maps.contains("libplimsoll_shim.so");
    Ok((is_in(&own), is_in(&String::from_utf8_lossy(&child.stdout))))
}

/// Starts a program that would go on for long.
pub fn leaves_a_child((): ()) -> Result<u32, Error> {
    let child = std::process::Command::new("sleep").arg("300").spawn().map_err(|error| Error::internal(error.to_string()))?;
    Ok(child.id())
}

/// So many bytes, made in shared memory.
pub fn fills(length: usize) -> Result<Bulk<u8>, Error> {
    Bulk::filled(length, |bytes| bytes.fill(7))
}

/// Starts a program in a session of its own, whose parent is gone. Its number.
pub fn leaves_one_apart((): ()) -> Result<u32, Error> {
    let wrong = |error: std::io::Error| Error::internal(error.to_string());
    let mut command = std::process::Command::new("setsid");
    command.args(["--fork", "sh", "-c", "trap : TERM HUP INT; echo $$; while :; do sleep 0.05; done"]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null()).spawn().map_err(wrong)?;
    let mut line = String::new();
    let out = child.stdout.take().ok_or_else(|| Error::internal("no output"))?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).map_err(wrong)?;
    child.wait().map_err(wrong)?;
    line.trim().parse().map_err(|_| Error::internal(line))
}

/// Writes the number of such a program to a file, joins another process group, and goes on for long.
pub fn goes_apart_and_sleeps(path: PathBuf) -> Empty {
    let apart = leaves_one_apart(())?;
    let supervisor = rustix::process::getppid().ok_or_else(|| Error::internal("no parent"))?;
    let group = rustix::process::getpgid(Some(supervisor)).map_err(|error| Error::internal(error.to_string()))?;
    rustix::process::setpgid(None, Some(group)).map_err(|error| Error::internal(error.to_string()))?;
    std::fs::write(path, format!("{apart} {}", std::process::id())).map_err(|error| Error::internal(error.to_string()))?;
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

fn limit(resource: rustix::process::Resource, current: u64) -> Empty {
    let maximum = rustix::process::getrlimit(resource).maximum;
    let limit = rustix::process::Rlimit { current: Some(current), maximum };
    rustix::process::setrlimit(resource, limit).map_err(|error| Error::internal(error.to_string()))
}

/// No more descriptors than there are.
pub fn limits_descriptors((): ()) -> Empty {
    let highest = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let highest = highest.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok()).filter(|number| *number < 1000).max();
    // The highest is that of the folder, which is closed again: all numbers below must be taken.
    let highest = highest.unwrap_or(0);
    let mut fillers = Vec::new();
    loop {
        let file = std::fs::File::open("/dev/null").map_err(|error| Error::internal(error.to_string()))?;
        let number = std::os::fd::AsRawFd::as_raw_fd(&file) as u64;
        fillers.push(file);
        if number >= highest {
            break;
        }
    }
    std::mem::forget(fillers);
    limit(rustix::process::Resource::Nofile, highest + 1)
}

/// So many bytes, where files may have so few, or there is no descriptor left.
pub fn returns_under_limits((length, file_size): (usize, Option<u64>)) -> Result<Vec<u8>, Error> {
    match file_size {
        Some(most) => limit(rustix::process::Resource::Fsize, most)?,
        None => limits_descriptors(())?,
    }
    Ok(vec![7; length])
}

/// The result of a call with so many bytes, by a program under such limits.
pub fn sends_under_limits((length, file_size): (usize, Option<u64>)) -> Result<String, Error> {
    let workers = table().begin();
    let pool = workers.pool(1)?;
    let said = |death: plimsoll_share::Death| format!("{:?}", death.cause);
    pool.submit(count, Bulk::from(vec![1u8])).wait().map_err(|death| Error::internal(said(death)))?;
    match file_size {
        Some(most) => limit(rustix::process::Resource::Fsize, most)?,
        None => limits_descriptors(())?,
    }
    let many = pool.submit(count_text, "x".repeat(length)).wait().map(|_| String::new()).unwrap_or_else(said);
    let one = pool.submit(count_text, "x".into()).wait().map(|outcome| outcome.output.to_string()).unwrap_or_else(said);
    let fresh =
        if file_size.is_none() { workers.isolate(None, count_text, "x".into()).err().map(said).unwrap_or_default() } else { String::new() };
    Ok(format!("{many}|{one}|{fresh}"))
}

pub fn count(bytes: Bulk<u8>) -> Result<usize, Error> {
    Ok(bytes.len())
}

pub fn count_text(text: String) -> Result<usize, Error> {
    Ok(text.len())
}

/// Sends a signal to its supervisor, and goes on for long.
pub fn signals_its_supervisor((signal, path): (i32, PathBuf)) -> Empty {
    let apart = leaves_one_apart(())?;
    std::fs::write(path, apart.to_string()).map_err(|error| Error::internal(error.to_string()))?;
    let supervisor = rustix::process::getppid().ok_or_else(|| Error::internal("no parent"))?;
    if let Some(signal) = Signal::from_named_raw(signal) {
        kill_process(supervisor, signal).map_err(|error| Error::internal(error.to_string()))?;
    }
    std::thread::sleep(Duration::from_secs(600));
    Ok(())
}

/// Is seen by the library that plays the driver to use so many MiB of a card, or a process that stays is.
pub fn uses_a_real_card((mebibytes, stays): (u64, Option<u32>)) -> Result<u32, Error> {
    let wrong = |error: std::io::Error| Error::internal(error.to_string());
    let user = stays.unwrap_or_else(std::process::id);
    let uses = std::env::var("USES").map_err(|error| Error::internal(error.to_string()))?;
    std::fs::write(uses, format!("0 {user} {mebibytes}\n")).map_err(wrong)?;
    Ok(user)
}

/// Until a file is there.
pub fn waits_for(path: PathBuf) -> Empty {
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The square by a worker of the worker's own.
pub fn isolates(x: u64) -> Result<(u32, u32, u64), Error> {
    let outcome = table().begin().isolate(None, square, x)?;
    Ok((std::process::id(), outcome.report.pid, outcome.output))
}

/// Whether a process is there, and no zombie.
pub fn lives(pid: u32) -> bool {
    let there = Pid::from_raw(pid as i32).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok());
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    there && !status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('Z'))
}
