//! `plan --html`, `plan --svg` and `bench --html`: the numbers on the page are those of `--json`.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::{Folder, document, plimsoll};

/// The data of a page.
fn data(page: &Path) -> Value {
    let html = std::fs::read_to_string(page).expect("the page was written");
    let data = html.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("it has data");
    serde_json::from_str(data).expect("JSON")
}

fn numbers(values: &Value) -> Vec<u64> {
    values.as_array().expect("a list").iter().map(|value| value.as_u64().expect("a number")).collect()
}

const PARTS: [&str; 6] = ["variables_bytes", "constants_bytes", "activations_bytes", "workspace_bytes", "transfer_bytes", "overhead_bytes"];

/// A model on the page has the numbers of the document.
fn assert_same(model: &Value, json: &Value) {
    assert_eq!(model["fits"], json["fits"]);
    assert_eq!(model["shortfall"], json["shortfall_bytes"]);
    assert_eq!(model["minimum"], json["minimum_limit_bytes"]);
    assert_eq!(model["seconds"], json["predicted_step_seconds"]);
    assert_eq!(model["costs"], json["costs"]);
    let devices = json["devices"].as_array().expect("devices");
    assert_eq!(model["needs"].as_array().expect("needs").len(), devices.len());
    for (need, device) in model["needs"].as_array().expect("needs").iter().zip(devices) {
        assert_eq!([&need["name"], &need["limit"], &need["peak"]], [&device["name"], &device["limit_bytes"], &device["peak_bytes"]]);
        assert_eq!(numbers(&need["parts"]), PARTS.map(|part| device[part].as_u64().expect("a part")));
    }
}

/// What a device's picture shows adds up to what the document says.
fn assert_adds_up(device: &Value, stage: &Value, json: &Value) {
    let of = &json["devices"][device["need"].as_u64().expect("a device") as usize];
    assert_eq!([&device["packed"], &device["live"]], [&of["packed_bytes"], &of["live_bytes"]]);
    let bands: u64 = device["bands"].as_array().expect("bands").iter().map(|band| band["bytes"].as_u64().expect("bytes")).sum();
    assert_eq!(bands + device["arena"].as_u64().expect("an arena"), device["peak"].as_u64().expect("a peak"));
    let buffers = &device["buffers"];
    let [offset, bytes, slot, first, last] = ["offset", "bytes", "slot", "first", "last"].map(|column| numbers(&buffers[column]));
    let commands = device["queue"].as_u64().map_or(0, |queue| numbers(&stage["queues"][queue as usize]["work"]).len());
    let live =
        |at: u64| (0..slot.len()).filter(|&buffer| first[buffer] <= at && at <= last[buffer]).map(|buffer| slot[buffer]).sum::<u64>();
    let most = (0..commands.max(1) as u64).map(live).max();
    assert_eq!(most, device["live"].as_u64(), "the most that is live");
    // No two buffers share bytes at a time.
    for a in 0..offset.len() {
        for b in 0..a {
            let is_apart =
                last[a] < first[b] || last[b] < first[a] || offset[a] + bytes[a] <= offset[b] || offset[b] + bytes[b] <= offset[a];
            assert!(is_apart || bytes[a] == 0 || bytes[b] == 0, "buffers {a} and {b} lie on each other");
        }
        assert!(offset[a] + bytes[a] <= device["packed"].as_u64().expect("packed"));
        assert!(first[a] <= last[a] && last[a] < commands.max(1) as u64);
    }
}

#[test]
fn the_numbers_of_a_page_are_those_of_the_document() {
    let folder = Folder::new("page");
    let page = folder.0.join("plan.html");
    let towers = "plan towers2_adam_ref/graph.pb --target train --feed-shape x=64x8x8x3 --feed-shape y=64";
    for request in [
        "plan mlp_sgd_ref/graph.pb --feed-shape x=32x6 --feed-shape y=32 --target train --memory-limit CPU:0=64KiB".to_string(),
        towers.to_string(),
        format!("{towers} --sim-gpus 2x128KiB"),
        format!("{towers} --memory-limit CPU:0=160KiB"),
        format!("{towers} --memory-limit CPU:0=64KiB"),
        "plan while_decodes/graph.pb --feed-shape x=2 --fetch y".to_string(),
        "plan late_assigns/graph.pb --init init --fetch y".to_string(),
        "plan late_reshape/graph.pb --fetch y".to_string(),
    ] {
        let json = document(&format!("{request} --json --html {}", page.display()));
        let data = data(&page);
        let model = &data["models"][0];
        assert_same(model, &json);
        let stages = model["stages"].as_array().expect("stages");
        if stages.len() == 1 {
            stages[0]["devices"].as_array().expect("devices").iter().for_each(|device| assert_adds_up(device, &stages[0], &json));
        }
        let again = json["recomputed"].as_array().expect("a list").len();
        assert_eq!(model["fitting"]["recomputed"].as_array().map_or(0, Vec::len), again, "{request}");
        let drawn =
            stages[0]["queues"].as_array().expect("queues").iter().flat_map(|queue| numbers(&queue["work"])).filter(|work| *work == 4);
        assert!((again == 0) == (drawn.count() == 0), "{request}");
    }
}

#[test]
fn several_models_share_a_page() {
    let folder = Folder::new("pages");
    let page = folder.0.join("plan.html");
    let json = document(&format!(
        "plan mlp_sgd_ref/graph.pb mlp_sgd_ref/graph.pb --fetch loss --feed-shape x=32x6 --feed-shape y=32 --json --html {}",
        page.display()
    ));
    let data = data(&page);
    assert_eq!(data["models"].as_array().expect("models").len(), 2, "{json}");
    for (model, share) in data["models"].as_array().expect("models").iter().zip(json["devices"][0]["models"].as_array().expect("shares")) {
        assert_eq!(model["needs"][0]["peak"], share["peak_bytes"]);
    }
}

#[test]
fn a_page_in_n_has_three_plans_and_the_peaks_of_every_n() {
    let folder = Folder::new("page-in-n");
    let (page, drawing) = (folder.0.join("plan.html"), folder.0.join("plan.svg"));
    let whole = |n: u64| format!("plan mlp_sgd_ref/graph.pb --fetch loss --target train --feed-shape x={n}x6 --feed-shape y={n}");
    let files = format!("--html {} --svg {}", page.display(), drawing.display());
    for (feeds, limit) in [("--feed-shape x=Nx6 --feed-shape y=N", "64KiB"), ("", "64KiB"), ("", "5GiB"), ("", "1KiB")] {
        let of = format!("plan mlp_sgd_ref/graph.pb --fetch loss --target train {feeds} --memory-limit CPU:0={limit}");
        let said = plimsoll(&format!("{of} --json {files}"));
        let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|_| panic!("{}", said.err));
        let data = data(&page);
        let sizes = json["sizes"].as_array().expect("sizes");
        // Every N, with its numbers.
        let sampled = data["sizes"]["sampled"].as_array().expect("sizes");
        assert_eq!((sampled.len(), &data["sizes"]["largest"]), (sizes.len(), &json["largest_n"]));
        for (size, of) in sampled.iter().zip(sizes) {
            assert_eq!([&size["n"], &size["fits"], &size["minimum"]], [&of["n"], &of["fits"], &of["minimum_limit_bytes"]]);
            let [need, device] = [&size["needs"][0], &of["devices"][0]];
            assert_eq!([&need[0], &need[1], &need[2]], [&"CPU:0".into(), &device["limit_bytes"], &device["peak_bytes"]]);
        }
        // Three plans: those of their N.
        let fitting: Vec<&Value> = sizes.iter().filter(|size| size["fits"] == true).collect();
        let drawn: Vec<u64> = match fitting.len() {
            0 => vec![1],
            count => [0, count / 2, count - 1].map(|at| fitting[at]["n"].as_u64().expect("N")).to_vec(),
        };
        assert_eq!(numbers(&data["sizes"]["drawn"]), drawn, "{of}");
        let models = data["models"].as_array().expect("models");
        assert_eq!(models.len(), drawn.len());
        for (n, model) in drawn.iter().zip(models) {
            let size = sizes.iter().find(|size| size["n"] == *n).expect("it is sampled");
            assert_eq!([&model["minimum"], &model["fits"]], [&size["minimum_limit_bytes"], &size["fits"]]);
            assert_eq!(model["needs"][0]["peak"], size["devices"][0]["peak_bytes"]);
            assert!(model["name"].as_str().is_some_and(|name| name.ends_with(&format!(", N = {n}"))));
            let said = plimsoll(&format!("{} --memory-limit CPU:0={limit} --json", whole(*n)));
            let json: Value = serde_json::from_str(&said.out).expect("a document");
            assert_eq!(
                [&model["seconds"], &model["shortfall"]],
                [&json["predicted_step_seconds"], &json["shortfall_bytes"]],
                "{of} N = {n}"
            );
            let stage = &model["stages"][0];
            stage["devices"].as_array().expect("devices").iter().for_each(|device| assert_adds_up(device, stage, &json));
        }
        let svg = std::fs::read_to_string(&drawing).expect("it was written");
        assert!(svg.starts_with("<svg ") && svg.contains(&format!("N = {}", drawn[drawn.len() - 1])), "{svg}");
        if limit == "64KiB" {
            assert_eq!(drawn.last().copied(), json["largest_n"].as_u64());
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let said = plimsoll("plan scalars/graph.pb --html /nowhere/at/all.html");
    assert!(said.code != 0 && said.err.contains("/nowhere/at/all.html"), "{}", said.err);
}

#[test]
fn a_drawing_shows_the_line() {
    let folder = Folder::new("drawing");
    let file = folder.0.join("plan.svg");
    let said = plimsoll(&format!(
        "plan mlp_sgd_ref/graph.pb --feed-shape x=32x6 --feed-shape y=32 --target train --memory-limit CPU:0=20KiB --svg {}",
        file.display()
    ));
    assert_eq!(said.code, 0, "{}", said.err);
    let svg = std::fs::read_to_string(&file).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.contains("limit 20 KiB") && svg.contains("net/Relu"), "{svg}");
}

#[test]
fn a_measured_page_has_both_times() {
    let folder = Folder::new("measured");
    let page = folder.0.join("bench.html");
    let json = document(&format!("bench mlp_sgd_ref --runs 5 --json --html {}", page.display()));
    let data = data(&page);
    let model = &data["models"][0];
    assert_eq!(model["measured"][0].as_f64().map(|seconds| seconds * 1e3), json["median_ms"].as_f64());
    assert_eq!(model["needs"][0]["measured"], json["devices"][0]["measured_peak_bytes"]);
    let queue = &model["stages"][0]["queues"][0];
    let ends = queue["measured"]["end"].as_array().expect("measured times");
    assert_eq!(ends.len(), queue["end"].as_array().expect("predicted times").len());
    assert!(ends.iter().any(Value::is_number));
}

/// Names that a graph may have, in a file whose name is markup: text on the page, in the drawing and to a terminal.
#[test]
fn a_hostile_graph_is_text() {
    let folder = Folder::new("hostile");
    let long = format!("0>-->/{}", "a/".repeat(32_765));
    assert_eq!(long.len(), 65_536);
    let names = [long.as_str(), "constructor/__proto__", "x.-->/x", "0/-->/hasOwnProperty"];
    let mut graph = String::new();
    let matrix = "attr { key: 'dtype' value { type: DT_FLOAT } }";
    graph += &format!("node {{ name: 'x' op: 'Placeholder' {matrix} }}\n");
    let (mut before, float) = ("x", "attr { key: 'T' value { type: DT_FLOAT } }");
    for name in names {
        graph += &format!("node {{ name: '{name}' op: 'Neg' input: '{before}' {float} }}\n");
        before = name;
    }
    let file = folder.0.join("\u{202e}<img src=x onerror=document.title='pwned'>\u{1b}[31m\nשלום'\"&amp;.pbtxt");
    std::fs::write(&file, &graph).expect("the graph is written");
    let (page, drawing) = (folder.0.join("plan.html"), folder.0.join("plan.svg"));
    for shape in ["x=4x4", "x=Nx4"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.arg("plan").arg(&file).args(["--feed-shape", shape, "--memory-limit", "CPU:0=64KiB", "--html"]);
        command.arg(&page).arg("--svg").arg(&drawing);
        names.iter().for_each(|name| {
            command.args(["--fetch", name]);
        });
        let said = crate::said(&mut command);
        assert_eq!(said.code, 0, "{}", said.err);
        let html = std::fs::read_to_string(&page).expect("the page was written");
        let svg = std::fs::read_to_string(&drawing).expect("the drawing was written");
        for written in [&html, &svg] {
            for acts in ["<img", "\u{202e}", "\u{1b}"] {
                assert!(!written.contains(acts), "{shape}: {acts:?}");
            }
        }
        assert_eq!((html.matches("<script").count(), html.matches("</script>").count()), (2, 2));
        assert!(html.len() < 150_000 && svg.len() < 20_000, "{} and {} bytes", html.len(), svg.len());
        let Some(document) = opened(&folder, &page) else { continue };
        assert!(document.contains("Memory over a step") && !document.contains("<title>pwned"), "{document}");
        for text in ["\\u{202e}&lt;img src=x onerror=", "\\u{1b}[31m\\u{a}שלום", "(65536 bytes)", "constructor/__proto__", "x.--&gt;"] {
            assert!(document.contains(text), "{shape}: the page lacks {text}");
        }
    }
    // Names that no graph may have come to no page.
    std::fs::remove_file(&page).expect("the page is there");
    std::fs::write(&file, graph.replace("constructor/__proto__", "<script>/\u{202e}")).expect("the graph is written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    let said = crate::said(command.arg("plan").arg(&file).args(["--feed-shape", "x=4x4", "--html"]).arg(&page));
    assert!(said.code == 1 && said.err.contains("is not a node name") && !page.exists(), "{}", said.err);
}

/// A page as Chromium has it once its script has run; none where there is no Chromium.
fn opened(folder: &Folder, page: &Path) -> Option<String> {
    let profile = format!("--user-data-dir={}", folder.0.join("profile").display());
    let arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=4000", "--dump-dom"];
    let Ok(output) = Command::new("chromium").args(arguments).arg(profile).arg(format!("file://{}", page.display())).output() else {
        eprintln!("skipped: there is no Chromium");
        return None;
    };
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A terminal shows the memory over the step below the table. script(1) makes one.
#[test]
fn a_terminal_shows_the_step() {
    let program = env!("CARGO_BIN_EXE_plimsoll");
    let command = format!("stty cols 80 rows 24; {program} plan mlp_sgd_ref/graph.pb --feed-shape x=32x6 --feed-shape y=32 --target train");
    let script = Command::new("script").args(["-qec", &command, "/dev/null"]).current_dir(crate::cases()).output();
    let Some(output) = script.ok().filter(|output| output.status.success()) else {
        eprintln!("skipped: there is no script(1)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
    let (_, drawn) = text.split_once("CPU:0 over a step of ").unwrap_or_else(|| panic!("no picture: {text}"));
    assert!(drawn.contains('█') && drawn.contains('▲') && drawn.contains("peak 12 KiB: command "), "{text}");
    assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn machines_and_leases_have_pages() {
    let folder = Folder::new("machine-page");
    let page = folder.0.join("devices.html");
    let said = plimsoll(&format!("devices --sim-gpus 2x4GiB --html {}", page.display()));
    assert_eq!(said.code, 0, "{}", said.err);
    let html = std::fs::read_to_string(&page).expect("the page was written");
    assert!(html.contains("4 GiB, 4 GiB free") && html.contains("GPU:1") && !html.contains("<script"), "{html}");
    let report = folder.0.join("report.html");
    let said = plimsoll(&format!("run --sim-gpus 1x1GiB --report {} -- true", report.display()));
    assert_eq!(said.code, 0, "{}", said.err);
    let html = std::fs::read_to_string(&report).expect("the report was written");
    assert!(html.contains("1 GiB reserved") && html.contains("done") && !html.contains("<script"), "{html}");
}
