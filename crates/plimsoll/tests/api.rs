//! `api.txt` lists the public interface: every item that the crate names, with the public functions of its types, wherever those
//! are written. `PLIMSOLL_BLESS=1` writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// More items than this in the root of the crate are too many.
const MOST_IN_ROOT: usize = 65;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|end| end == "rs") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// The file without comments and tests, a statement or an opening a line.
fn code(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The names of `a::{b, c as d, e::{f}}` with their names here and the path that they come from.
fn names(path: &str, out: &mut Vec<(String, String)>) {
    let path = path.trim();
    let Some((before, list)) = path.split_once('{') else {
        let (from, name) = path.split_once(" as ").unwrap_or((path, path.rsplit("::").next().unwrap_or(path)));
        out.push((name.trim().to_string(), from.trim().to_string()));
        return;
    };
    let list = list.trim().strip_suffix('}').unwrap_or(list);
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in list.char_indices().chain([(list.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let one = list[start..at].trim();
                if !one.is_empty() {
                    names(&format!("{before}{one}"), out);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Statements that begin with `start`, up to one of the ends, on one line.
fn statements<'a>(code: &'a str, start: &'a str, ends: &'a [char]) -> impl Iterator<Item = String> + 'a {
    code.match_indices(start).filter_map(move |(at, _)| {
        let is_first = code[..at].chars().next_back().is_none_or(|before| before.is_whitespace());
        let rest = &code[at..];
        let end = rest.find(ends)?;
        is_first.then(|| rest[..end].split_whitespace().collect::<Vec<_>>().join(" "))
    })
}

/// The body of the block that begins at the first brace from `at` on.
fn body(code: &str, at: usize) -> &str {
    let Some(open) = code[at..].find('{').map(|open| at + open) else { return "" };
    let mut depth = 0;
    for (place, letter) in code[open..].char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth == 1 => return &code[open + 1..open + place],
            '}' => depth -= 1,
            _ => {}
        }
    }
    ""
}

/// For each crate and type, the public functions of the type's `impl` blocks.
fn functions() -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut functions: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for folder in std::fs::read_dir(root()).unwrap().flatten() {
        let room = folder.file_name().to_string_lossy().into_owned();
        for path in sources(&folder.path().join("src")) {
            let code = code(&path);
            for (at, _) in code.match_indices("\nimpl") {
                let head = code[at + 5..].split('{').next().unwrap_or_default().trim();
                let head = if head.starts_with('<') { head.split_once("> ").map_or("", |(_, rest)| rest) } else { head };
                let name: String = head.trim().chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
                if !head.contains(" for ") && !name.is_empty() {
                    functions.entry((room.clone(), name)).or_default().extend(statements(body(&code, at), "pub fn ", &['{', ';']));
                }
            }
        }
    }
    functions
}

#[test]
fn the_interface_is_the_one_that_is_written_down() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let functions = functions();
    let mut modules: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for path in sources(&source) {
        let code = code(&path);
        let relative = path.strip_prefix(&source).unwrap().with_extension("").display().to_string();
        let module = relative.trim_end_matches("/mod").replace('/', "::");
        let module = if module == "lib" { String::new() } else { module };
        let inline: Vec<(usize, String)> = code
            .match_indices("\npub mod ")
            .filter_map(|(at, _)| code[at + 9..].split_once(" {").map(|(name, _)| (at, name.to_string())))
            .filter(|(_, name)| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_'))
            .collect();
        let mut own = code.clone();
        for (at, name) in inline {
            let inside = body(&code, at);
            own = own.replace(inside, "");
            let list = modules.entry(name).or_default();
            statements(inside, "pub use ", &[';']).for_each(|item| names(item.trim_start_matches("pub use "), list));
        }
        let list = modules.entry(module).or_default();
        statements(&own, "pub use ", &[';']).for_each(|item| names(item.trim_start_matches("pub use "), list));
        let top = own.lines().filter(|line| line.starts_with("pub ") && !line.starts_with("pub use") && !line.starts_with("pub mod"));
        for line in top {
            let mut words = line.trim_start_matches("pub ").split_whitespace();
            if let (Some(_), Some(name)) = (words.next(), words.next()) {
                let name: String = name.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect();
                list.push((name.clone(), format!("crate::{name}")));
            }
        }
    }
    // Private modules are seen through the names that the root takes from them.
    let lib = code(&source.join("lib.rs"));
    modules.retain(|module, _| module.is_empty() || lib.contains(&format!("pub mod {module}")));
    let mut text = String::new();
    for (module, items) in &mut modules {
        items.sort();
        items.dedup();
        let prefix = if module.is_empty() { "plimsoll".to_string() } else { format!("plimsoll::{module}") };
        for (name, from) in items.iter() {
            text += &format!("{prefix}::{name}\n");
            let item = from.rsplit("::").next().unwrap_or(from);
            let room = from.split("::").next().and_then(|first| first.strip_prefix("plimsoll_")).unwrap_or("plimsoll").replace('_', "-");
            for function in functions.get(&(room, item.to_string())).into_iter().flatten() {
                text += &format!("    {function}\n");
            }
        }
    }
    let in_root = modules[""].len();
    assert!(in_root <= MOST_IN_ROOT, "{in_root} items in the root: put what few users need into a module");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("api.txt");
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let difference = text.lines().filter(|line| !written.lines().any(|other| other == *line)).map(|line| format!("+ {line}"));
    let missing = written.lines().filter(|line| !text.lines().any(|other| other == *line)).map(|line| format!("- {line}"));
    let difference: Vec<String> = difference.chain(missing).collect();
    assert!(text == written, "the interface differs from api.txt:\n{}", difference.join("\n"));
}

/// A library prints nothing, and its inner types stay inside: no type stands for another one.
#[test]
fn the_facade_prints_nothing_and_derefs_to_nothing() {
    for path in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        let code = code(&path);
        for word in ["println!", "eprintln!", "print!", "stdout()", "stderr()", "impl Deref", "dbg!"] {
            assert!(!code.contains(word), "{}: {word}", path.display());
        }
    }
}
