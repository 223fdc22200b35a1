//! The Rust programs in the README and the pages of `docs/`. Each is a file beside this one; the page shows the whole file and its output.
//! They run in the root of the project. `PLIMSOLL_BLESS=1` updates the pages.
//! This test is a program of its own, since a worker is this executable, started again.

mod first;
mod linear;
mod memory_consumer;
mod memory_consumer_fails;
mod numbers;
mod pool;
mod release;
mod saved_model;
mod session_memory;
mod tensors;
mod workers;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

type Example = (&'static str, fn() -> plimsoll::Result<()>);

const EXAMPLES: &[Example] = &[
    ("first", first::main),
    ("linear", linear::main),
    ("saved_model", saved_model::main),
    ("workers", workers::main),
    ("memory_consumer", memory_consumer::main),
    ("memory_consumer_fails", memory_consumer_fails::main),
    ("release", release::main),
    ("pool", pool::main),
    ("numbers", numbers::main),
    ("tensors", tensors::main),
    ("session_memory", session_memory::main),
];

/// The pages with examples.
const PAGES: [&str; 4] = ["README.md", "docs/book.md", "docs/functions.md", "docs/rust.md"];

/// Which program this is, in processes that play one.
const NAME: &str = "PLIMSOLL_TEST_EXAMPLE";

fn main() -> ExitCode {
    if let Ok(name) = std::env::var(NAME) {
        let (_, example) = EXAMPLES.iter().find(|(known, _)| *known == name).expect("an example has a name");
        return match example() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let (mut failed, mut shown) = (Vec::new(), Vec::new());
    for page in PAGES {
        let path = root().join(page);
        let text = std::fs::read_to_string(&path).expect("the page can be read");
        let written = read(page, &text, &mut failed, &mut shown);
        if std::env::var_os("PLIMSOLL_BLESS").is_some() {
            std::fs::write(&path, written).expect("the page can be written");
        }
    }
    failed.extend(
        EXAMPLES.iter().filter(|(name, _)| !shown.iter().any(|shown| shown == name)).map(|(name, _)| format!("no page shows '{name}'")),
    );
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        return ExitCode::SUCCESS;
    }
    failed.iter().for_each(|failed| eprintln!("{failed}"));
    println!("{} examples, {} failed", EXAMPLES.len(), failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The page as it should be; notes its errors, and which examples it shows. An example is a block ```` ```rust NAME ````, and what
/// it prints the block
/// ```` ```text ```` after it.
fn read(page: &str, text: &str, failed: &mut Vec<String>, shown: &mut Vec<String>) -> String {
    let mut written = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        written += &format!("{line}\n");
        let Some(name) = line.strip_prefix("```rust ") else { continue };
        let block = |lines: &mut std::str::Lines<'_>| lines.take_while(|line| *line != "```").map(|line| format!("{line}\n")).collect();
        let program: String = block(&mut lines);
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/book").join(format!("{name}.rs"));
        // The part that makes the file a module stands in front of the example.
        let source = std::fs::read_to_string(&file).unwrap_or_default().replace("pub fn main()", "fn main()");
        if program != source {
            failed.push(format!("'{name}' in {page} is not {}", file.display()));
        }
        written += &format!("{source}```\n");
        let between: Vec<&str> = lines.by_ref().take_while(|line| *line != "```text").collect();
        between.iter().for_each(|line| written += &format!("{line}\n"));
        let wanted: String = block(&mut lines);
        let printed = run(name);
        if printed != wanted {
            failed.push(format!("'{name}' in {page} prints\n{printed}and the page says\n{wanted}"));
        }
        written += &format!("```text\n{printed}```\n");
        shown.push(name.to_string());
    }
    written
}

/// The output of a program, on a machine of its own.
fn run(name: &str) -> String {
    let folder = std::env::temp_dir().join(format!("plimsoll-test-book-{}-{name}", std::process::id()));
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.env(NAME, name).env("PLIMSOLL_STATE_DIR", &folder).env("PLIMSOLL_NVML", "").current_dir(root());
    for name in ["PLIMSOLL_SIM_GPUS", "PLIMSOLL_LEASE", "CUDA_VISIBLE_DEVICES", "TF_FORCE_GPU_ALLOW_GROWTH", "RUST_BACKTRACE"] {
        command.env_remove(name);
    }
    let output = command.output().expect("this program starts");
    let _ = std::fs::remove_dir_all(folder);
    let errors = String::from_utf8_lossy(&output.stderr);
    // Panics of examples say so there; other output on that stream is an error.
    if !output.status.success() { format!("{errors}\n") } else { String::from_utf8_lossy(&output.stdout).into_owned() }
}
