//! ARCHITECTURE.md is true. Crates depend downwards only, a heavy dependency has one crate, `unsafe` is in the crates that are named,
//! and planning reaches no device. The page's map, paths and plan are those of the code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// For each crate, the crates of the project that it may use; lower crates first.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("memory", &["base"]),
    ("page", &["base"]),
    ("fit", &["base"]),
    ("placer", &["base"]),
    ("machine", &["base", "memory"]),
    ("ptx", &[]),
    ("mock-driver", &["ptx"]),
    ("mock-cudnn", &["base"]),
    ("shim", &["base", "machine"]),
    ("graph", &["base"]),
    ("request", &["base"]),
    ("device", &["base", "memory", "request"]),
    ("kernels", &["base", "request", "device"]),
    ("device-sim", &["base", "memory", "device"]),
    ("device-cpu", &["base", "memory", "device"]),
    ("device-spill", &["base", "memory", "request", "device"]),
    ("cards", &["base", "machine", "device"]),
    ("device-cuda", &["base", "memory", "machine", "request", "device", "cards"]),
    ("formats", &["base", "graph", "cards"]),
    ("ops", &["base", "graph", "request", "device"]),
    ("plan", &["base", "memory", "fit", "placer", "graph", "request", "device", "ops"]),
    (
        "runtime",
        &[
            "base",
            "memory",
            "machine",
            "graph",
            "device",
            "cards",
            "ops",
            "plan",
            "kernels",
            "device-cpu",
            "device-sim",
            "device-spill",
            "device-cuda",
        ],
    ),
    ("share", &["base", "memory", "machine", "page", "cards", "device-cuda"]),
    ("plimsoll", &["base", "machine", "graph", "device", "cards", "ops", "formats", "page", "plan", "runtime", "share", "device-cuda"]),
    ("train", &["plimsoll"]),
    ("cli", &["plimsoll", "train"]),
];

/// The packages of others, and the crates that may use each. A heavy one has one crate.
const FOREIGN: &[(&str, &[&str])] = &[
    ("bytemuck", &["base", "graph", "share"]),
    ("clap", &["cli"]),
    ("crc32c", &["formats"]),
    ("libc", &["memory", "machine", "device-cuda", "shim", "mock-cudnn", "mock-driver", "ptx"]),
    ("libm", &["kernels", "request"]),
    ("realfft", &["kernels"]),
    ("rustfft", &["kernels"]),
    ("rustix", &["base", "device-spill", "share"]),
    ("serde", &["base", "request", "device", "cards", "graph", "plan", "share", "plimsoll", "cli"]),
    ("serde_json", &["device", "cards", "page", "plan", "share", "plimsoll", "cli", "mock-cudnn"]),
    ("sha2", &["device", "graph", "page"]),
    ("signal-hook", &["share", "cli"]),
    ("snap", &["formats"]),
    ("strsim", &["base"]),
];

/// Crates without `unsafe`.
const SAFE: &[&str] = &[
    "base", "fit", "page", "placer", "request", "cards", "graph", "formats", "ops", "plan", "runtime", "share", "plimsoll", "train", "cli",
];

/// Libraries that are loaded into programs which know nothing of them: statics are the only place for the state of their functions.
const LOADED: &[&str] = &["shim", "mock-cudnn", "mock-driver"];

/// Every crate of the workspace with its dependencies (not for tests, not for builds).
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let text = |value: &Value| value.as_str().expect("a text").to_string();
    let krate = |name: String| name.strip_prefix("plimsoll-").map(str::to_string).unwrap_or(name);
    metadata["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let normal = package["dependencies"].as_array().expect("dependencies").iter().filter(|dependency| dependency["kind"].is_null());
            (krate(text(&package["name"])), normal.map(|dependency| krate(text(&dependency["name"]))).collect())
        })
        .collect()
}

fn page() -> String {
    std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page can be read")
}

/// The lines of the page's section under a heading.
fn section(heading: &str) -> String {
    let page = page();
    let section = page.split("\n## ").find(|section| section.starts_with(heading)).expect("the page has the section");
    section.to_string()
}

#[test]
fn the_map_of_the_page_has_all_crates_from_the_top_down() {
    let map = section("The map");
    let rows = map.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let drawn: Vec<&str> = rows.map(|(name, _)| name).collect();
    let mut crates: Vec<&str> = drawn.clone();
    crates.sort_unstable();
    let dependencies = dependencies();
    assert_eq!(crates, dependencies.keys().map(String::as_str).collect::<Vec<_>>());
    for (at, krate) in drawn.iter().enumerate() {
        let above: Vec<&String> = dependencies[*krate].iter().filter(|used| drawn[..at].contains(&used.as_str())).collect();
        assert!(above.is_empty(), "{krate} stands below {above:?}, which it uses");
    }
}

#[test]
fn the_paths_on_the_page_exist() {
    let (page, mut count) = (page(), 0);
    // Words in backquotes are the odd parts of a line.
    for word in page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
        let is_path = word.contains('/') && !word.contains(['<', '*', ' ', ':']);
        if is_path {
            count += 1;
            let places = [root().join("crates").join(word), root().join(word)];
            assert!(places.iter().any(|path| path.exists()), "ARCHITECTURE.md names {word}");
        }
    }
    assert!(count > 30, "only {count} paths were found");
}

#[test]
fn the_plan_on_the_page_is_the_recorded_one() {
    let plan = std::fs::read_to_string(root().join("crates/plan/tests/plans/epilogue.txt")).expect("the plan can be read");
    assert!(page().contains(&format!("```text\n{plan}```")), "ARCHITECTURE.md does not show this plan:\n{plan}");
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn arrows_point_down() {
    let dependencies = dependencies();
    let allowed: BTreeMap<&str, &[&str]> = ARROWS.iter().copied().collect();
    for (krate, uses) in &dependencies {
        let may = allowed.get(krate.as_str()).unwrap_or_else(|| panic!("crate {krate} is not in ARROWS"));
        for used in uses.iter().filter(|used| dependencies.contains_key(*used)) {
            assert!(may.contains(&used.as_str()), "{krate} uses {used}, and ARROWS does not allow that");
        }
    }
    for (position, (krate, may)) in ARROWS.iter().enumerate() {
        for used in *may {
            assert!(ARROWS[..position].iter().any(|(lower, _)| lower == used), "{krate} -> {used} does not point down");
        }
    }
}

#[test]
fn packages_of_others_have_their_crates() {
    let (dependencies, foreign) = (dependencies(), BTreeMap::from_iter(FOREIGN.iter().copied()));
    let mut seen = BTreeSet::new();
    for (krate, uses) in &dependencies {
        for used in uses.iter().filter(|used| !dependencies.contains_key(*used)) {
            let owners = foreign.get(used.as_str()).unwrap_or_else(|| panic!("{krate} uses {used}, which no crate may use"));
            assert!(owners.contains(&krate.as_str()), "{krate} uses {used}, which belongs to {owners:?}");
            seen.insert(used.as_str());
        }
    }
    let unused: Vec<&&str> = foreign.keys().filter(|name| !seen.contains(**name)).collect();
    assert!(unused.is_empty(), "no crate uses {unused:?}");
}

/// A crate with all crates that it reaches through its dependencies.
fn reached(krate: &str) -> BTreeSet<String> {
    let dependencies = dependencies();
    let mut reached = BTreeSet::new();
    let mut stack = vec![krate.to_string()];
    while let Some(krate) = stack.pop() {
        if reached.insert(krate.clone()) {
            stack.extend(dependencies.get(&krate).into_iter().flatten().cloned());
        }
    }
    reached
}

#[test]
fn planning_reaches_no_device() {
    let reached = reached("plan");
    let devices: Vec<&String> = reached.iter().filter(|krate| krate.starts_with("device-")).collect();
    assert!(devices.is_empty(), "plan reaches {devices:?}");
    assert!(reached.contains("ops"));
    assert!(!reached.contains("kernels"), "plan reaches code for a processor");
}

/// Requests, kernels, operations and plans see seams and specifications: neither a machine's cards nor what programs hold on them.
#[test]
fn kernels_and_plans_reach_no_machine() {
    for krate in ["request", "device", "kernels", "ops", "plan"] {
        let reached = reached(krate);
        let beyond: Vec<&&str> = ["machine", "cards", "shim", "share", "runtime"].iter().filter(|room| reached.contains(**room)).collect();
        assert!(beyond.is_empty(), "{krate} reaches {beyond:?}");
    }
    assert!(reached("kernels").contains("device") && reached("share").contains("machine") && reached("runtime").contains("cards"));
}

#[test]
fn unsafe_stays_in_its_rooms() {
    for krate in SAFE {
        let sources = root().join("crates").join(krate).join("src");
        let roots = ["lib.rs", "main.rs"].map(|name| sources.join(name)).into_iter().filter(|path| path.exists()).collect::<Vec<_>>();
        assert!(!roots.is_empty(), "{krate} has no root");
        for root in roots {
            let text = std::fs::read_to_string(&root).expect("it can be read");
            assert!(text.contains("#![forbid(unsafe_code)]"), "{} does not forbid unsafe code", root.display());
        }
    }
}

/// Every Rust file under a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn no_state_hides_in_statics() {
    let mut looked_at = 0;
    for krate in dependencies().keys().filter(|krate| !LOADED.contains(&krate.as_str())) {
        for file in sources(&root().join("crates").join(krate).join("src")) {
            let text = std::fs::read_to_string(&file).expect("it can be read");
            looked_at += 1;
            for line in text.lines().map(str::trim_start) {
                let declared = line.strip_prefix("pub ").unwrap_or(line);
                let is_static = declared.starts_with("static ")
                    || declared.starts_with("pub(super) static ")
                    || declared.starts_with("pub(crate) static ");
                let mutable = ["mut ", "Atomic", "Mutex", "RwLock", "Cell", "Once", "Lazy"].iter().any(|word| declared.contains(word));
                let hidden = declared.starts_with("thread_local!") || (is_static && mutable);
                assert!(!hidden, "{}: {line}", file.display());
            }
        }
    }
    assert!(looked_at > 100, "only {looked_at} files");
}

/// Kernels and programs are trusted with shapes and offsets; every block that relies on that says so.
#[test]
fn every_unsafe_block_says_why() {
    for krate in dependencies().keys().filter(|krate| !SAFE.contains(&krate.as_str())) {
        for file in sources(&root().join("crates").join(krate).join("src")) {
            let text = std::fs::read_to_string(&file).expect("it can be read");
            if text.contains("unsafe {") {
                assert!(text.contains("// SAFETY: "), "{} has unsafe blocks and no reason", file.display());
            }
        }
    }
}
