//! Cases of TensorFlow's best-fit allocator, as data: `arena.txt`. `PLIMSOLL_BLESS=1` writes the results anew.
//!
//! Each runs on a whole [`Arena`] over an address space that has numbers but no memory. The text behind `->` or `|` is a result.
//! Addresses are region and distance, `2+0x100`, the regions in the order in which they were granted.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::script::{Machine, Step};

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/open_regions/arena.txt")
}

/// The file with the results that the arena gives.
fn run(text: &str) -> String {
    let mut out = String::new();
    let mut machine = Machine::default();
    let mut lines = text.lines().filter(|line| !line.trim_start().starts_with("| ")).peekable();
    while let Some(line) = lines.next() {
        let command = line.split(" -> ").next().unwrap_or_default().trim_end();
        if command.is_empty() || command.starts_with(['#', '=']) || ["why:", "table:"].iter().any(|word| command.starts_with(word)) {
            out += &format!("{line}\n");
            continue;
        }
        // A repeated line shows its last result.
        let result = match machine.step(command) {
            Step::Repeat(times) => {
                let body: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != "end").collect();
                let commands: Vec<&str> = body.iter().map(|line| line.split(" -> ").next().unwrap_or_default().trim()).collect();
                let mut results = Vec::new();
                for _ in 0..times {
                    results = commands.iter().map(|command| machine.step(command)).collect();
                }
                let lines = commands.iter().zip(&results).map(|(command, result)| shown(&format!("  {command}"), result));
                out += &format!("{command}\n{}end\n", lines.collect::<String>());
                continue;
            }
            result => result,
        };
        out += &shown(command, &result);
    }
    out
}

fn shown(command: &str, result: &Step) -> String {
    match result {
        Step::Quiet | Step::Repeat(_) => format!("{command}\n"),
        Step::Line(line) => format!("{command} -> {line}\n"),
        Step::Text(text) => format!("{command}\n{}", text.lines().map(|line| format!("| {line}\n")).collect::<String>()),
    }
}

#[test]
fn every_case_gives_its_results() {
    let expected = std::fs::read_to_string(path()).unwrap();
    let got = run(&expected);
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(path(), got).unwrap();
        return;
    }
    for (number, (got, expected)) in got.lines().zip(expected.lines()).enumerate() {
        assert_eq!(got, expected, "line {} of {}; PLIMSOLL_BLESS=1 writes it anew", number + 1, path().display());
    }
    assert_eq!(got.lines().count(), expected.lines().count());
}

#[test]
fn every_case_says_whether_it_departs() {
    let text = std::fs::read_to_string(path()).unwrap();
    let table = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md")).unwrap();
    let mut ids = BTreeSet::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(header) = line.strip_prefix("== ") else { continue };
        let (id, kind) = header.split_once(": ").unwrap();
        assert!(ids.insert(id.to_string()), "{id} is there twice");
        assert!(lines.next().unwrap().starts_with("table: "), "{id} does not say what is expected");
        let why = lines.peek().unwrap().starts_with("why: ");
        match kind {
            "as TensorFlow" => assert!(!why, "{id}"),
            "departure" => assert!(why && table.contains(&format!("({id}")) | table.contains(&format!(", {id}")), "{id} is not explained"),
            other => panic!("{id}: {other}"),
        }
    }
    let of_the_table = [1, 2, 4, 5, 6, 7, 9, 10, 11, 12, 14, 15, 16, 17, 19, 20, 21, 22, 24].map(|number| format!("B{number}"));
    assert!(of_the_table.iter().all(|id| ids.contains(id)), "{ids:?}");
}
