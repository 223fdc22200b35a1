//! The README and the pages in `docs/` are true. Their `console` blocks are run, and their output is compared; their `sh` blocks
//! work as pasted. `PLIMSOLL_BLESS=1` writes differing output anew.
//!
//! A line of a `console` block that begins with `$ ` is a command; below it is its output on standard output and standard error, as
//! a terminal shows it. Process ids, sizes, times and errors of values may differ. The sizes in lines about promises may be an eighth
//! or two pages off, since kernels take their scratch by the processor. A block is a shell of its own on a machine of its own; of
//! what shells know, it has:
//!
//! - `export NAME=VALUE`, and `NAME=VALUE` before a command;
//! - `plimsoll …`, which may be written `cargo run --release -- …`, in the foreground: it fails where it prints an error, or that a plan
//!   does not fit, and only there;
//! - `plimsoll … &`: runs on; below it is its first output. The next command is run again until the programs in the background have
//!   come so far that it prints the page's text, or patience ends;
//! - `$HOME/` at the beginning of a word, which is the block's own folder;
//! - a line `[...]`, at most one below a command, for lines of output that the page leaves out;
//! - `kill %N` and `kill -9 %N` for the N-th of those, and `wait %N`, which prints the rest of its output until it ends.
//!
//! In `sh` blocks every line that begins with `cargo run --release -- ` must succeed, in the order of the page; ` # ` begins a
//! comment. Files under `target/` go to a folder of the test's own.
//!
//! A `python` block is a program. `python3` runs it with the package in `python/`, on a machine of its own with two simulated cards
//! of 4 GiB. Its output is in the `text` block that follows. Where there is no python3 of 3.9 or later, it is skipped.

use std::io::{BufRead, BufReader, PipeReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::transcript::masked;
use super::{Folder, cases};

/// More than any of this takes on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// The least number of blocks of a page, so that a page whose blocks are no longer found is noticed.
struct Least {
    compared: usize,
    pasted: usize,
}

#[test]
fn the_book_is_true() {
    page("docs/book.md", &cases(), &Least { compared: 30, pasted: 0 });
}

#[test]
fn the_readme_is_true() {
    page("README.md", &root(), &Least { compared: 3, pasted: 1 });
}

#[test]
fn the_page_on_commands_is_true() {
    page("docs/commands.md", &root(), &Least { compared: 0, pasted: 12 });
}

#[test]
fn the_page_on_fitting_is_true() {
    page("docs/fit.md", &root(), &Least { compared: 0, pasted: 1 });
}

#[test]
fn the_page_on_functions_is_true() {
    page("docs/functions.md", &root(), &Least { compared: 1, pasted: 0 });
}

#[test]
fn the_page_on_training_is_true() {
    page("docs/training.md", &root(), &Least { compared: 2, pasted: 6 });
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs the blocks of a page in `place`.
fn page(name: &str, place: &Path, least: &Least) {
    let path = root().join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let bless = std::env::var_os("PLIMSOLL_BLESS").is_some();
    let kept = Folder::new(&format!("page-{}", name.replace('/', "-")));
    let begin = |number: usize| Shell::new(&format!("{}-{number}", name.replace('/', "-")), place, &kept.0, bless);
    let (mut written, mut lines) = (String::new(), text.lines().enumerate());
    let (mut count, mut pasted) = (0, 0);
    while let Some((number, line)) = lines.next() {
        written += &format!("{line}\n");
        let place_of = |at: usize| format!("{name}:{}", number + 2 + at);
        match line {
            "```python" => {
                let program: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                let follows: Vec<&str> = lines.by_ref().map(|(_, line)| line).take(2).collect();
                assert_eq!(follows, ["", "```text"], "{}: what the program prints follows it", place_of(0));
                let wanted: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                let (program, wanted) = (program.join("\n"), wanted.join("\n"));
                count += 1;
                let printed = python(&program, &format!("{}-{number}", name.replace('/', "-"))).unwrap_or_else(|| wanted.clone());
                let same = is_same(&printed, &wanted);
                assert!(bless || same, "{} prints\n{printed}\nand the page says\n{wanted}", place_of(0));
                written += &format!("{program}\n```\n\n```text\n{}\n```\n", if same { wanted } else { printed });
            }
            "```console" => {
                let block: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
                count += 1;
                let mut shell = begin(number);
                let mut commands = block.iter().enumerate().filter(|(_, line)| line.starts_with("$ ")).map(|(at, _)| at).peekable();
                assert_eq!(commands.peek(), Some(&0), "{}: a block begins with a command", place_of(0));
                while let Some(at) = commands.next() {
                    let wanted = block[at + 1..*commands.peek().unwrap_or(&block.len())].join("\n");
                    let printed = shell.run(&block[at][2..], &wanted);
                    let same = is_same(&printed, &wanted);
                    let place = place_of(at);
                    assert!(bless || same, "{place}: {}\nprints\n{printed}\nand the page says\n{wanted}", block[at]);
                    let shown = if same { wanted } else { elided(&printed, &wanted) };
                    written += &format!("{}\n{shown}{}", block[at], if shown.is_empty() { "" } else { "\n" });
                }
                written += "```\n";
            }
            "```sh" => {
                let mut shell = begin(number);
                for (at, line) in lines.by_ref().take_while(|(_, line)| *line != "```") {
                    written += &format!("{line}\n");
                    if line.starts_with("cargo run --release -- ") {
                        let command = line.split_once(" # ").map_or(line, |(command, _comment)| command.trim_end());
                        let said = shell.run(command, "");
                        assert!(!said.lines().any(|line| line.starts_with("error: ")), "{name}:{}: {line}\n{said}", at + 1);
                        pasted += 1;
                    }
                }
                written += "```\n";
            }
            _ => {}
        }
    }
    let Least { compared, pasted: least } = least;
    assert!(count >= *compared && pasted >= *least, "{name}: only {count} blocks and {pasted} commands were found");
    if bless {
        std::fs::write(&path, written).unwrap();
    }
}

/// Whether a command prints the page's text, but for the parts that may differ.
fn is_same(printed: &str, wanted: &str) -> bool {
    let promises = |text: &str| -> Vec<f64> {
        let lines = text.lines().filter(|line| line.contains("promised "));
        let words = lines.flat_map(str::split_whitespace).collect::<Vec<_>>();
        words
            .windows(2)
            .filter(|pair| pair[1].starts_with("bytes"))
            .filter_map(|pair| pair[0].trim_start_matches('(').parse().ok())
            .collect()
    };
    let is_near = |(got, want): (&f64, &f64)| (got - want).abs() <= f64::max(0.125 * want, 8192.0);
    let (printed, wanted) = (unwrapped(printed), unwrapped(wanted));
    let printed = elided(&printed, &wanted);
    let (got, want) = (promises(&printed), promises(&wanted));
    masks(&printed) == masks(&wanted) && got.len() == want.len() && got.iter().zip(&want).all(is_near)
}

/// The printed text with a line `[...]` in place of the lines for which `wanted` has one.
fn elided(printed: &str, wanted: &str) -> String {
    let Some((head, tail)) = wanted.split_once("\n[...]\n") else { return printed.to_string() };
    let (head, tail, lines) = (head.lines().count(), tail.lines().count(), printed.lines().collect::<Vec<_>>());
    match lines.len().checked_sub(tail).filter(|end| *end >= head) {
        Some(end) => [&lines[..head], &["[...]"], &lines[end..]].concat().join("\n"),
        None => printed.to_string(),
    }
}

/// The text with one line for each refusal that a training wraps: where it does depends on its numbers.
fn unwrapped(text: &str) -> String {
    let is_refusal = |line: &str| ["  a limit of ", "  with --fit=off a limit of "].iter().any(|start| line.starts_with(start));
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        match lines.last_mut().filter(|last| is_refusal(last) && line.starts_with("    ")) {
            Some(last) => *last += &format!(" {}", line.trim_start()),
            None => lines.push(line.to_string()),
        }
    }
    lines.join("\n")
}

/// The text without the parts that differ from run to run, or from processor to processor.
fn masks(text: &str) -> String {
    let of_the_table = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["|", gpu, pid, "C", ..] => line.replacen(pid, "#", if gpu == pid { 2 } else { 1 }),
            ["|", "plimsoll", version, "Driver", ..] => line.replacen(version, "#", 1),
            // The line of a sweep about a run: its numbers are sizes and times.
            [first, .., "done"] if !first.starts_with('|') => without_numbers(line),
            [first, .., "s"] if first.split_once('/').is_some_and(|(at, of)| at.parse::<u32>().and(of.parse::<u32>()).is_ok()) => {
                without_numbers(line)
            }
            ["|", "CPU:0", ..] => line.split_once(" as planned ").map_or(line, |(before, _)| before).to_string(),
            _ => line.to_string(),
        }
    };
    let text = text.lines().map(of_the_table).collect::<Vec<_>>().join("\n");
    let text = text.as_str();
    let mut words: Vec<String> = masked(text).split_inclusive([' ', '\n']).map(str::to_string).collect();
    for at in 1..words.len() {
        match words[at - 1].trim_start_matches('(') {
            "pid " => words[at] = words[at].replace(|c: char| c.is_ascii_digit(), ""),
            // The results of a training, and the time it takes to print them.
            "loss " => words[at] = without_digits(&words[at]),
            "images: " | "averages: " => {
                words[at] = words[at].trim().parse::<f64>().map_or(words[at].clone(), |value| format!("{value:.0} "))
            }
            // Values, of which processors differ in the last digits.
            "= " => words[at] = words[at].parse::<f64>().map_or(words[at].clone(), |value| format!("{value:.3}")),
            _ => {}
        }
    }
    words.concat().trim_end().to_string()
}

/// The word with `#` for the number that it begins with.
fn without_digits(word: &str) -> String {
    let rest = word.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | 'e' | '#'));
    format!("#{rest}")
}

/// The line with `#` for numbers, but for the first word.
fn without_numbers(line: &str) -> String {
    let is_number = |word: &str| word.trim_end_matches(',').parse::<f64>().is_ok();
    let words = line.split_whitespace().enumerate().map(|(at, word)| if at > 0 && is_number(word) { "#" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

/// The output of a Python program; none where there is no Python that could run it.
fn python(program: &str, block: &str) -> Option<String> {
    let is_there = Command::new("python3").args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a python block of a page (no python3 of 3.9 or later)");
        return None;
    }
    let machine = Folder::new(&format!("python-{block}"));
    let file = machine.0.join("example.py");
    std::fs::write(&file, program).unwrap();
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let mut command = Command::new("python3");
    command.arg(&file).env("PYTHONPATH", package).env("PLIMSOLL_BINARY", env!("CARGO_BIN_EXE_plimsoll")).env_remove("CUDA_VISIBLE_DEVICES");
    command.env("PLIMSOLL_STATE_DIR", &machine.0).env("PLIMSOLL_SIM_GPUS", "2x4GiB").env("PLIMSOLL_NVML", "");
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    Some(Job::start(command).rest())
}

/// Runs the commands of one block.
struct Shell {
    bless: bool,
    /// Where commands run.
    place: PathBuf,
    /// The folder in place of `target/`.
    kept: PathBuf,
    /// Exported variables; the state folder is the machine.
    exported: Vec<(String, String)>,
    jobs: Vec<Job>,
    machine: Folder,
}

impl Shell {
    fn new(block: &str, place: &Path, kept: &Path, bless: bool) -> Shell {
        let machine = Folder::new(&format!("shell-{block}"));
        let exported = vec![("PLIMSOLL_STATE_DIR".to_string(), machine.0.display().to_string())];
        Shell { bless, place: place.to_path_buf(), kept: kept.to_path_buf(), exported, jobs: Vec::new(), machine }
    }

    /// Does the line's command. The output: the expected one, if it comes to that in time.
    fn run(&mut self, line: &str, wanted: &str) -> String {
        if let Some(assignment) = line.strip_prefix("export ") {
            self.exported.push(assigned(assignment).unwrap_or_else(|| panic!("{line}: NAME=VALUE")));
            return String::new();
        }
        if let Some(job) = line.strip_prefix("kill -9 %") {
            self.job(job).kill();
            return String::new();
        }
        if let Some(job) = line.strip_prefix("kill %") {
            self.job(job).ask_to_end();
            return String::new();
        }
        if let Some(job) = line.strip_prefix("wait %") {
            return self.job(job).rest();
        }
        if let Some(line) = line.strip_suffix(" &") {
            let mut job = Job::start(self.command(line));
            let printed =
                if self.bless { job.first(usize::MAX, Duration::from_secs(3)) } else { job.first(wanted.lines().count(), PATIENCE) };
            self.jobs.push(job);
            return printed;
        }
        let line = line.replacen("cargo run --release -- ", "plimsoll ", 1);
        let line = line.as_str();
        let start = Instant::now();
        loop {
            let mut job = Job::start(self.command(line));
            let printed = job.rest().replace(&format!("{}/", self.kept.display()), "target/");
            let is_short = |line: &str| line.starts_with("does not fit") || line.starts_with("at the same time: do not fit");
            let fails = |line: &str| line.starts_with("error: ") || line.ends_with(" FAIL") || line.contains(" FAIL ") || is_short(line);
            let fails = printed.lines().any(fails);
            assert_eq!(job.child.wait().unwrap().success(), !fails, "{line}: {printed}");
            let is_final = is_same(&printed, wanted) || self.jobs.is_empty() || self.bless || start.elapsed() > PATIENCE;
            if is_final {
                return printed;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn job(&mut self, number: &str) -> &mut Job {
        let job = number.parse::<usize>().ok().and_then(|number| self.jobs.get_mut(number.wrapping_sub(1)));
        job.unwrap_or_else(|| panic!("there is no %{number}"))
    }

    fn command(&self, line: &str) -> Command {
        // By its name, so that it is seen under that.
        let mut command = Command::new("plimsoll");
        let own = Path::new(env!("CARGO_BIN_EXE_plimsoll")).parent().unwrap().as_os_str().to_os_string();
        let others = std::env::var_os("PATH").unwrap_or_default();
        command.env("PATH", [own, others].join(std::ffi::OsStr::new(":")));
        for name in ["PLIMSOLL_SIM_GPUS", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "TF_FORCE_GPU_ALLOW_GROWTH"] {
            command.env_remove(name);
        }
        command.env("PLIMSOLL_NVML", "").current_dir(&self.place).envs(self.exported.iter().cloned());
        let mut words = line.split_whitespace();
        let program = words.by_ref().find(|word| match assigned(word) {
            Some((name, value)) => {
                command.env(name, value);
                false
            }
            None => true,
        });
        assert_eq!(program, Some("plimsoll"), "{line}: pages run plimsoll and nothing else");
        let kept = format!("{}/", self.kept.display());
        command.args(words.map(|word| match word.strip_prefix("$HOME/") {
            Some(file) => self.machine.0.join(file).into_os_string(),
            None => word.replace("target/", &kept).into(),
        }));
        command
    }
}

fn assigned(word: &str) -> Option<(String, String)> {
    let (name, value) = word.split_once('=')?;
    name.chars().all(|c| c.is_ascii_uppercase() || c == '_').then(|| (name.to_string(), value.to_string()))
}

/// A program that runs, and its output. Killed in the end.
struct Job {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
    /// How many of them were shown.
    shown: usize,
    reader: Option<JoinHandle<()>>,
}

impl Job {
    fn start(mut command: Command) -> Job {
        let (reader, writer) = std::io::pipe().unwrap();
        let child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
        let lines = Arc::default();
        let reader = Some(std::thread::spawn({
            let lines = Arc::clone(&lines);
            move || keep(reader, &lines)
        }));
        Job { child, lines, shown: 0, reader }
    }

    /// The first lines, as soon as there are so many.
    fn first(&mut self, count: usize, patience: Duration) -> String {
        let start = Instant::now();
        while self.lines.lock().unwrap().len() < count && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.show(count)
    }

    /// The output that it has not shown yet, when it has ended.
    fn rest(&mut self) -> String {
        let start = Instant::now();
        if let Some(reader) = self.reader.take() {
            while !reader.is_finished() && start.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert!(reader.is_finished(), "it does not end: {:?}", self.lines);
            reader.join().unwrap();
        }
        self.show(usize::MAX)
    }

    fn show(&mut self, count: usize) -> String {
        let lines = self.lines.lock().unwrap();
        let end = lines.len().min(self.shown.saturating_add(count));
        let shown = lines[self.shown..end].join("\n");
        self.shown = end;
        shown
    }

    fn ask_to_end(&mut self) {
        assert!(Command::new("kill").arg(self.child.id().to_string()).status().unwrap().success());
    }

    fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // A program under a lease outlives the process that started it; asked to end, both do.
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.ask_to_end();
            std::thread::sleep(Duration::from_millis(100));
        }
        self.kill();
    }
}

fn keep(reader: PipeReader, lines: &Mutex<Vec<String>>) {
    for line in BufReader::new(reader).lines() {
        lines.lock().unwrap().push(line.unwrap());
    }
}
