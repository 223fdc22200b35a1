//! The user's view: `transcript.txt` holds commands and their output. `PLIMSOLL_BLESS=1` writes it anew.
//!
//! Lines that begin with `$ ` are commands, run in `tests/cases`. Below them: standard output as it is, standard error with
//! `! ` before each line, and `exit N` where the status is not 0. Sizes and times depend on the machine: they read `#`.

use std::fmt::Write;
use std::path::Path;

use super::{document, plimsoll};

#[test]
fn says_what_it_said() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/transcript.txt");
    let wanted = std::fs::read_to_string(&path).unwrap();
    let mut got: String = wanted.lines().take_while(|line| !line.starts_with("$ ")).flat_map(|line| [line, "\n"]).collect();
    for command in wanted.lines().filter_map(|line| line.strip_prefix("$ plimsoll")) {
        let said = plimsoll(command);
        let _ = writeln!(got, "$ plimsoll{command}");
        got += &masked(&said.out).replace(&architecture(), "#");
        for line in said.err.lines() {
            let _ = writeln!(got, "{}", format!("! {}", masked(line).trim_end()).trim_end());
        }
        if said.code != 0 {
            let _ = writeln!(got, "exit {}", said.code);
        }
        got.push('\n');
    }
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, got).unwrap();
        return;
    }
    for (number, (got, wanted)) in got.lines().zip(wanted.lines()).enumerate() {
        assert_eq!(got, wanted, "line {} of {}; PLIMSOLL_BLESS=1 writes it anew", number + 1, path.display());
    }
    assert_eq!(got.lines().count(), wanted.lines().count());
}

/// The name of this processor in the listing of devices.
fn architecture() -> String {
    let listing = document("devices --json --intra-op 1");
    let description = listing["devices"][0]["description"].as_str().expect("a description");
    description.split(',').next().unwrap_or_default().to_string()
}

/// The text with `#` for sizes, times, errors of values, and all else that depends on the processor; blanks in a row become one,
/// but at the start of a line.
pub fn masked(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = cut(cut(line.to_string(), "at the peak ", " take most"), "most of CPU:0: ", "\n");
        let words: Vec<&str> = line.split_whitespace().collect();
        let mut masked: Vec<String> = Vec::new();
        for (position, word) in words.iter().enumerate() {
            let is_number = |word: &str| word.trim_start_matches('(').parse::<f64>().is_ok();
            let has_unit = |position: usize| words.get(position + 1).is_some_and(|next| is_unit(next));
            masked.push(match word.split_once('=') {
                Some((name @ ("peak" | "worst_error"), _)) => format!("{name}=#"),
                _ if is_number(word) && has_unit(position) => word.replace(|c: char| c.is_ascii_digit() || c == '.', "") + "#",
                _ if is_unit(word) && position > 0 && is_number(words[position - 1]) => {
                    let bare = word.trim_end_matches([',', ')', ';', ':']);
                    let unit = match bare {
                        "us" | "ms" | "s" => "time",
                        "B" | "KiB" | "MiB" | "GiB" => "B",
                        other => other,
                    };
                    format!("{unit}{}", &word[bare.len()..])
                }
                _ => word.to_string(),
            });
        }
        let _ = writeln!(out, "{}{}", &line[..indent], masked.join(" "));
    }
    out
}

/// The text with `#` for the part between `from` and `to`, or the end.
fn cut(text: String, from: &str, to: &str) -> String {
    let Some((before, rest)) = text.split_once(from) else { return text };
    let after = rest.find(to).map_or("", |end| &rest[end..]);
    format!("{before}{from}#{after}")
}

fn is_unit(word: &str) -> bool {
    matches!(
        word.trim_end_matches([',', ')', ';', ':']),
        "B" | "KiB" | "MiB" | "GiB" | "bytes" | "us" | "ms" | "s" | "threads" | "thread" | "cores"
    )
}
