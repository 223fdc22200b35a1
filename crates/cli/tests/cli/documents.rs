//! The documents of `--json`.

use serde_json::Value;

use super::{Folder, document, plimsoll};

/// The keys of an object, which come in the order of the contract.
fn keys(text: &str, object: &Value) -> Vec<String> {
    let mut keys: Vec<String> = object.as_object().expect("an object").keys().cloned().collect();
    keys.sort_by_key(|key| text.find(&format!("\"{key}\"")));
    keys
}

const MLP: &str = "plan mlp_sgd_ref/graph.pb --fetch loss:0 --target train --feed-shape x=12x6 --feed-shape y:0=12 --intra-op 1";

#[test]
fn a_plan() {
    let text = plimsoll(&format!("{MLP} --json")).out;
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        keys(&text, &plan),
        [
            "fits",
            "shortfall_bytes",
            "minimum_limit_bytes",
            "devices",
            "predicted_step_seconds",
            "costs",
            "nodes",
            "recomputed",
            "offloaded_bytes"
        ]
    );
    let device = &plan["devices"][0];
    let parts = ["variables_bytes", "constants_bytes", "activations_bytes", "workspace_bytes", "transfer_bytes", "overhead_bytes"];
    let packing = ["packed_bytes", "live_bytes", "unused_bytes", "lower_bound_bytes"];
    assert_eq!(keys(&text, device), [&["name", "limit_bytes", "peak_bytes", "certainty"], &parts[..], &packing].concat());
    let [packed, live, unused, lower_bound] = packing.map(|key| device[key].as_u64().unwrap());
    assert!(live > 0 && packed == live + unused && packed <= device["peak_bytes"].as_u64().unwrap(), "{device}");
    assert!(lower_bound > 0 && Some(lower_bound) <= device["peak_bytes"].as_u64(), "{device}");
    assert_eq!(device["name"], "/job:localhost/replica:0/task:0/device:CPU:0");
    assert_eq!((&device["limit_bytes"], &device["certainty"], &plan["fits"]), (&Value::Null, &"exact".into(), &true.into()));
    let sum: u64 = parts.iter().map(|part| device[part].as_u64().unwrap()).sum();
    assert_eq!(device["peak_bytes"].as_u64(), Some(sum));
    assert_eq!(plan["minimum_limit_bytes"], device["peak_bytes"]);
    assert!(plan["predicted_step_seconds"].as_f64().is_some_and(|seconds| (1e-7..1.0).contains(&seconds)), "{plan}");
    assert_eq!(plan["costs"].as_str().map(str::len), Some(16));
    let names: Vec<&str> = plan["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"loss") && names.contains(&"net/w1") && !names.contains(&"w1_now"), "{names:?}");
}

/// The peak of a run in stages: of the greatest of a few plans, or open.
#[test]
fn a_plan_in_stages() {
    let plan = |request: &str| -> Value { serde_json::from_str(&plimsoll(&format!("plan {request} --json --intra-op 1")).out).unwrap() };
    let sides = plan("late_assigns/graph.pb --fetch y:0 --init init");
    assert_eq!(sides["stages"][0]["plans"], 2);
    assert!(sides["stages"][0]["tensors"].as_array().is_some_and(|tensors| tensors.len() == 1), "{sides}");
    let names: Vec<&str> = sides["nodes"].as_array().unwrap().iter().map(|node| node["name"].as_str().unwrap()).collect();
    assert!(names.iter().any(|name| name.contains("/then/")) && names.iter().any(|name| name.contains("/else/")), "{names:?}");
    let open = plan("late_reshape/graph.pb --fetch y:0");
    assert_eq!((&open["devices"][0]["certainty"], &open["stages"][0]["plans"]), (&"open".into(), &0.into()));
    assert_eq!((&open["stages"][0]["from"], &open["predicted_step_seconds"]), (&"Reshape".into(), &Value::Null));
    let text = plimsoll("plan late_reshape/graph.pb --fetch y:0").out;
    assert!(
        text.contains("open from Reshape") && text.contains("in stages: the size of Reshape depends on Reshape/shape:0; the rest"),
        "{text}"
    );
    assert!(text.contains("fits as far as it is known; no limit below "), "{text}");
    // A mask keeps no more than there is; a loop on two devices is a part of the plan; a loop that grows is the session's.
    let mask = plan("late_where/graph.pb --fetch y:0");
    assert_eq!((&mask["devices"][0]["certainty"], &mask["stages"][0]["plans"]), (&"at_most".into(), &1.into()));
    let two = plan("while_two_devices/graph.pb --fetch y:0 --device-count CPU=2");
    assert_eq!((&two["devices"][1]["certainty"], &two["stages"][0]["loops"]), (&"exact".into(), &Value::Null));
    assert!(two["devices"][1]["peak_bytes"].as_u64() > Some(0), "{two}");
    let grows = plan("while_grows/graph.pb --fetch y:0");
    assert_eq!((&grows["devices"][0]["certainty"], &grows["stages"][0]["plans"]), (&"open".into(), &0.into()));
    let text = plimsoll("plan while_grows/graph.pb --fetch y:0").out;
    assert!(text.contains("in stages: the session runs the iterations of while/StatelessWhile/loop_cond one by one"), "{text}");
    let file = Folder::new("stages");
    let said = plimsoll(&format!("plan late_reshape/graph.pb --fetch y:0 --output {}", file.write("plan", String::new())));
    assert!(said.err.contains("not yet: a file for the plan of a run in stages"), "{}", said.err);
}

#[test]
fn a_plan_by_a_table_of_costs_that_is_named() {
    let folder = Folder::new("costs");
    let committed = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../device/data/costs.json")).unwrap();
    let mut dear: Value = serde_json::from_str(&committed).unwrap();
    for table in dear["tables"].as_array_mut().unwrap() {
        table["command"] = 0.5.into();
    }
    let (same, dear) = (folder.write("same.json", committed.clone()), folder.write("dear.json", dear.to_string()));
    let planned = |options: &str| {
        let said = plimsoll(&format!("{MLP} --json {options}"));
        let plan: Value = serde_json::from_str(&said.out).expect(&said.err);
        (plan["costs"].as_str().unwrap().to_string(), plan["predicted_step_seconds"].as_f64().unwrap())
    };
    let own = planned("");
    assert_eq!(planned(&format!("--costs {same}")), own, "the committed table");
    let (name, seconds) = planned(&format!("--costs {dear}"));
    assert!(name != own.0 && seconds > 5.0, "{name}: {seconds}");
    for (text, why) in [
        (committed.replacen("\"version\": 1", "\"version\": 9", 1), "measure it again with `plimsoll calibrate`"),
        (committed.replacen("\"command\": ", "\"command\": -", 1), "are not those of a machine"),
        ("{}".to_string(), "not a table of costs"),
    ] {
        let said = plimsoll(&format!("{MLP} --costs {}", folder.write("bad.json", text)));
        assert!(said.code == 2 && said.err.contains(why) && said.err.contains("bad.json"), "{}", said.err);
    }
    let unwritable = plimsoll(&format!("calibrate --output {}/none/costs.json", folder.0.display()));
    assert!(unwritable.code != 0 && !unwritable.err.contains("measuring"), "nothing is measured: {}", unwritable.err);
}

/// The costs of a profile that was recorded: `bench` of an MLP of 50 examples on one thread of an Intel Xeon, where the committed table
/// is of an AMD EPYC. The numbers were computed apart from this program. Files of real runs are read as well.
#[test]
fn a_table_of_costs_from_profiles() {
    let folder = Folder::new("costs-from");
    let recorded = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profiles/mlp.json");
    let (table, again) = (folder.write("table.json", ""), folder.write("again.json", ""));
    let calibrate = |options: &str| plimsoll(&format!("calibrate --output {table} {options}"));
    let read = |path: &str| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let of_set =
        |tables: &Value| tables["tables"].as_array().unwrap().iter().find(|table| table["instructions"] == "Avx512").unwrap().clone();
    let said = calibrate(&format!("--from {recorded}"));
    assert!(said.code == 0 && said.err.contains("costs ") && !said.err.contains("measuring"), "{}", said.err);
    let old = of_set(&read(concat!(env!("CARGO_MANIFEST_DIR"), "/../device/data/costs.json")));
    let new = of_set(&read(&table));
    let rates = |table: &Value, class: &str| -> Vec<f64> {
        table["rates"][class].as_object().unwrap().values().map(|rate| rate.as_f64().unwrap()).collect()
    };
    let factor = |class: &str| rates(&new, class).iter().sum::<f64>() / rates(&old, class).iter().sum::<f64>();
    // Products are nearly all of the step; classes of little time come close to the factor of all kernels, and those of none have it.
    for (class, expected) in
        [("product", 0.72150), ("loss", 0.88209), ("reduction", 0.78429), ("expression", 0.75964), ("pooling", 0.72921)]
    {
        assert!((factor(class) / expected - 1.0).abs() < 1e-4, "{class}: {}", factor(class));
        for (new, old) in rates(&new, class).into_iter().zip(rates(&old, class)) {
            assert!((new - factor(class) * old).abs() <= 1e-9 * new, "{class}: {new} for {old}");
        }
    }
    let measured = &read(recorded)["measured"][0];
    assert_eq!([&new["caches"], &new["processor"]], [&measured["caches"], &measured["processor"]]);
    // It is a table to scale, which changes nothing, and one to plan by.
    let said = plimsoll(&format!("calibrate --from {recorded} {recorded} --costs {table} --output {again}"));
    assert_eq!(said.code, 0, "{}", said.err);
    let sum = |table: &Value| rates(table, "product").iter().sum::<f64>();
    assert!((sum(&of_set(&read(&again))) / sum(&new) - 1.0).abs() < 1e-3);
    let named = |options: &str| serde_json::from_str::<Value>(&plimsoll(&format!("{MLP} --json {options}")).out).unwrap()["costs"].clone();
    let name = named(&format!("--costs {again}"));
    assert!(said.err.contains(&format!("costs {} are in {again}", name.as_str().unwrap())), "{name}: {}", said.err);
    assert_ne!(name, named(""));
    // What bench, train and eval write.
    let profile = folder.write("profile.json", "");
    for run in ["bench mlp_sgd_ref --runs 3", "train --steps 2", "eval two/big.pb --init init --fetch y"] {
        let said = plimsoll(&format!("{run} --profile {profile}"));
        assert_eq!(said.code, 0, "{}", said.err);
        let said = calibrate(&format!("--from {profile} {profile}"));
        assert_eq!(said.code, 0, "{run}: {}", said.err);
        assert!(!read(&profile)["measured"][0]["kernels"].as_array().unwrap().is_empty(), "{run}");
    }
}

#[test]
fn profiles_that_say_nothing_of_a_processor_are_refused() {
    let folder = Folder::new("costs-refused");
    let recorded = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profiles/mlp.json")).unwrap();
    let kernels = recorded.find("\"kernels\": [").unwrap();
    let other = |from: &str, to: &str| {
        assert!(recorded.contains(from), "{from}");
        recorded.replacen(from, to, 1)
    };
    let remedy = "write one with `--profile FILE` of bench, train or eval";
    for (text, why, remedy) in [
        (String::new(), "not a profile: EOF", remedy),
        (recorded[..kernels].to_string(), "not a profile: EOF", remedy),
        ("{\"traceEvents\": []}".to_string(), "a profile without measured kernels", remedy),
        ("{\"measured\": []}".to_string(), "no kernel of a processor took time", "profile a step that computes on a processor"),
        (other("\"seconds\": ", "\"seconds\": -"), "numbers that nothing measured", remedy),
        (other("\"chunks\": ", "\"pieces\": "), "not a profile: unknown field `pieces`", remedy),
        (other("\"Avx512\"", "\"Neon\""), "no table of costs is for", "measure one there with `plimsoll calibrate`"),
    ] {
        let path = folder.write("bad.json", text);
        let said = plimsoll(&format!("calibrate --from {path} --output {}/none.json", folder.0.display()));
        assert!(
            said.code == 2 && said.err.contains("bad.json: ") && said.err.contains(why) && said.err.contains(remedy),
            "{why}: {}",
            said.err
        );
        assert!(!folder.0.join("none.json").exists(), "{why}");
    }
    // Only modelled cards compute: the clock says nothing of a processor.
    let profile = folder.write("profile.json", "");
    let said = plimsoll(&format!("eval two/big.pb --init init --fetch y --sim-gpus 1x64MiB,speed=2 --profile {profile}"));
    assert_eq!(said.code, 0, "{}", said.err);
    let said = plimsoll(&format!("calibrate --from {profile}"));
    assert!(said.code == 2 && said.err.contains("no kernel of a processor took time"), "{}", said.err);
    let missing = plimsoll(&format!("calibrate --from {}/missing.json", folder.0.display()));
    assert!(missing.code == 2 && missing.err.contains("missing.json"), "{}", missing.err);
    let alone = plimsoll("calibrate --costs table.json");
    assert!(alone.code == 2 && alone.err.contains("--from"), "{}", alone.err);
}

#[test]
fn what_there_is_after_a_pass() {
    for pass in ["lower", "soften", "patch", "transfer", "fuse", "select", "hazard", "order"] {
        let text = plimsoll(&format!("{MLP} --after {pass}")).out;
        assert!(text.starts_with("device CPU:0\nvariable0 = ") && text.contains("\nw0 on CPU:0 of "), "{pass}: {text}");
        // Variants are chosen in one pass, and works prepared in another.
        let said = [text.contains(" = request "), text.contains(" by "), text.contains(" scratch ")];
        let expected = match pass {
            "select" | "hazard" => [false, true, false],
            "order" => [false, true, true],
            _ => [true, false, false],
        };
        assert_eq!(said, expected, "{pass}: {text}");
    }
    // Fusions are numbered, and stop at a number.
    let fused = |most: &str| plimsoll(&format!("{MLP} --after fuse{most}")).out.lines().filter(|line| line.starts_with("fusion ")).count();
    let all = fused("");
    assert!(all > 3, "{all}");
    assert_eq!((fused(" --fusions 0"), fused(" --fusions 2"), fused(" --fusions 100")), (0, 2, all));
    let plan = plimsoll(&format!("{MLP} --after pack")).out;
    assert!(plan.starts_with("CPU:0: peak ") && plan.contains("\nqueue 0 on CPU:0:\n"), "{plan}");
    let other = plimsoll(&format!("{MLP} --after fues"));
    assert!(
        other.code != 0
            && other.err.contains("the passes are lower, soften, patch, transfer")
            && other.err.contains("did you mean 'fuse'?"),
        "{}",
        other.err
    );
    assert!(plimsoll(&format!("{MLP} --after fuse --json")).err.contains("--after prints text"));
}

#[test]
fn a_plan_that_does_not_fit() {
    let minimum = document(&format!("{MLP} --json"))["minimum_limit_bytes"].as_u64().unwrap();
    let said = plimsoll(&format!("{MLP} --json --memory-limit CPU:0={}B", minimum - 100));
    assert_eq!(said.code, 1);
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&plan["fits"], &plan["shortfall_bytes"], &plan["minimum_limit_bytes"]), (&false.into(), &100.into(), &minimum.into()));
    assert_eq!(plimsoll(&format!("{MLP} --memory-limit CPU:0={minimum}B")).code, 0);
}

#[test]
fn a_plan_for_several_devices_and_several_models() {
    let towers =
        "plan towers/graph.pb --config towers/config.pbtxt --fetch loss --target train --feed-shape x=12x6 --feed-shape y=12 --json";
    let plan = document(towers);
    let peak = |plan: &Value, device: usize| plan["devices"][device]["peak_bytes"].as_u64().unwrap();
    assert_eq!(plan["minimum_limit_bytes"].as_u64(), Some(peak(&plan, 0).max(peak(&plan, 1))));
    let limited = document(&format!("{towers} --memory-limit CPU:1=1MiB"));
    assert_eq!(limited["minimum_limit_bytes"].as_u64(), Some(peak(&plan, 1)), "the line that there is counts");

    let twice = document("plan scalars/graph.pb scalars/graph.pb --json");
    let once = document("plan scalars/graph.pb --json");
    assert_eq!(peak(&twice, 0), 2 * peak(&once, 0));
    // Of several models, each has its own arena.
    let (both, one) = (&twice["devices"][0], &once["devices"][0]);
    assert!(both["packed_bytes"].is_null() && one["packed_bytes"].as_u64() > Some(0), "{both} {one}");
    assert!((0..2).all(|model| both["models"][model]["packed_bytes"] == one["packed_bytes"]), "{both} {one}");
    assert_eq!((&twice["devices"][0]["certainty"], &twice["nodes"][0]["model"]), (&"at_most".into(), &"scalars/graph.pb".into()));
}

#[test]
fn shapes_may_come_from_a_file() {
    let folder = super::Folder::new("shapes");
    let lines = folder.write("lines.txt", "# a batch\nx=12x6\n\ny = 12\n".replace(" = ", "="));
    let json = folder.write("shapes.json", r#"{"x": [12, 6], "y:0": [12]}"#);
    let wanted = document(&format!("{MLP} --json"));
    for file in [lines, json] {
        assert_eq!(
            document(&format!("plan mlp_sgd_ref/graph.pb --fetch loss:0 --target train --shapes {file} --json --intra-op 1")),
            wanted
        );
    }
}

#[test]
fn a_placement() {
    let text = plimsoll("place towers/graph.pb --device-count CPU=2 --json").out;
    let placement: Value = serde_json::from_str(&text).unwrap();
    let nodes = placement["nodes"].as_array().unwrap();
    assert_eq!(keys(&text, &nodes[0]), ["name", "op", "device", "why"]);
    let find = |name: &str| nodes.iter().find(|node| node["name"] == name).unwrap();
    assert_eq!(find("tower_1/net/Relu")["device"], "/job:localhost/replica:0/task:0/device:CPU:1");
    assert_eq!(find("tower_1/net/Relu")["why"], "requested");
    assert_eq!(find("net/w1")["device"], "/job:localhost/replica:0/task:0/device:CPU:0");
    assert_eq!(find("x")["why"], "default");
}

#[test]
fn a_log_of_placements_leaves_room_for_the_document() {
    let lines = "c: (MatMul): /job:localhost/replica:0/task:0/device:GPU:0\n\
                 a: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n\
                 b: (Const): /job:localhost/replica:0/task:0/device:CPU:0\n";
    let command = "eval product_of_cpu/graph.pb --fetch c --log-placement --sim-gpus 1x64MiB";
    let said = plimsoll(command);
    assert!(said.out.starts_with(lines) && said.err.contains("Device mapping:\n/job:localhost/replica:0/task:0/device:GPU:0 -> "));
    let said = plimsoll(&format!("{command} --json"));
    assert!(said.err.contains(lines), "{}", said.err);
    assert!(serde_json::from_str::<Value>(&said.out).is_ok(), "{}", said.out);
}

#[test]
fn a_bench() {
    let text = plimsoll("bench mlp_sgd_ref --runs 5 --json --memory-limit CPU:0=1MiB").out;
    let bench: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        keys(&text, &bench),
        ["case", "median_ms", "p10_ms", "p90_ms", "runs", "predicted_ms", "modelled_ms", "devices", "max_rss_bytes"]
    );
    let device = &bench["devices"][0];
    assert_eq!(keys(&text, device), ["name", "limit_bytes", "planned_peak_bytes", "measured_peak_bytes"]);
    assert_eq!(device["planned_peak_bytes"], device["measured_peak_bytes"]);
    let ms = |key: &str| bench[key].as_f64().unwrap();
    assert!(0.0 < ms("p10_ms") && ms("p10_ms") <= ms("median_ms") && ms("median_ms") <= ms("p90_ms"), "{bench}");
    assert_eq!(bench["runs"], 5);
}

#[test]
fn a_profile() {
    let folder = super::Folder::new("profile");
    let file = folder.write("profile.json", "");
    let said = plimsoll(&format!("bench mlp_sgd_ref --runs 5 --profile {file}"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.contains("operation\n") && said.out.contains("MatMul"), "{}", said.out);
    let profile: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let list = |key: &str| profile[key].as_array().unwrap().clone();
    let sum = |values: &[Value], key: &str| values.iter().map(|value| value[key].as_f64().unwrap()).sum::<f64>();
    let (operations, commands) = (list("operations"), list("commands"));
    assert_eq!((&profile["case"], &profile["runs"]), (&"mlp_sgd_ref".into(), &5.into()));
    assert!((sum(&operations, "share") - 1.0).abs() < 1e-9);
    assert!((sum(&operations, "total_us") - sum(&commands, "duration_us")).abs() < 1e-3);
    assert_eq!(sum(&operations, "commands") as usize, commands.len());
    let products: Vec<&Value> = commands.iter().filter(|command| command["op"] == "MatMul").collect();
    assert!(!products.is_empty());
    for product in products {
        assert_eq!(product["ops"].as_array().unwrap().len(), product["nodes"].as_array().unwrap().len());
        assert!(product["gflops"].as_f64().unwrap() > 0.0 && product["runs"] == 5, "{product}");
    }
    // One queue: commands follow each other.
    for pair in commands.windows(2) {
        assert!(pair[0]["start_us"].as_f64().unwrap() <= pair[1]["start_us"].as_f64().unwrap(), "{pair:?}");
    }
    assert_eq!(list("traceEvents").iter().filter(|event| event["ph"] == "X").count(), commands.len());
}

/// Whether viewers can show a trace: every event has the fields of its kind, devices are processes with names, threads have names
/// and their slices follow each other. Gives the names of the processes and how many slices there are.
fn shown(trace: &Value) -> (Vec<String>, usize) {
    let events = trace["traceEvents"].as_array().expect("events");
    let (mut processes, mut threads, mut slices) = (Vec::new(), Vec::new(), 0);
    let mut ends: std::collections::BTreeMap<(u64, u64), f64> = Default::default();
    for event in events {
        let number = |key: &str| event[key].as_f64().unwrap_or_else(|| panic!("{key} of {event}"));
        let thread = (number("pid") as u64, number("tid") as u64);
        assert!(!event["name"].as_str().expect("a name").is_empty(), "{event}");
        match event["ph"].as_str() {
            Some("M") if event["name"] == "process_name" => {
                processes.push((thread.0, event["args"]["name"].as_str().unwrap().to_string()));
            }
            Some("M") if event["name"] == "thread_name" => {
                assert!(event["args"]["name"].is_string() && !threads.contains(&thread), "{event}");
                threads.push(thread);
            }
            Some("X") => {
                let (start, duration) = (number("ts"), number("dur"));
                let before = ends.entry(thread).or_default();
                // Sums of thousandths are not exact.
                assert!(
                    start >= *before - 1e-6 && duration >= 0.0 && event["cat"].is_string() && event["args"].is_object(),
                    "{before} {event}"
                );
                *before = start + duration;
                slices += 1;
            }
            _ => panic!("{event}"),
        }
    }
    let ids: std::collections::BTreeSet<u64> = processes.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(ids.len(), processes.len(), "a process has one name");
    assert!(ends.keys().all(|thread| threads.contains(thread) && ids.contains(&thread.0)), "{ends:?} {threads:?}");
    (processes.into_iter().map(|(_, name)| name).collect(), slices)
}

#[test]
fn a_trace_can_be_shown() {
    let folder = super::Folder::new("trace");
    let file = folder.write("trace.json", "");
    let read = || serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap();
    let device = |name: &str| format!("/job:localhost/replica:0/task:0/device:{name}");
    let scalars = "scalars/graph.pb --feed a=scalars/step0_feed0.npy --feed x=scalars/step0_feed1.npy --feed b=scalars/step0_feed2.npy";
    let said = plimsoll(&format!("eval {scalars} --stats --profile {file}"));
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.out.starts_with("y:0 float[] = 6.0\nscalars/graph.pb: "), "{}", said.out);
    assert!(said.out.contains("  waited us ") && said.out.contains("y = AddV2(mul, b) (+1)"), "{}", said.out);
    let (processes, slices) = shown(&read());
    assert_eq!(processes, [device("CPU:0")]);
    assert!(slices > 0);
    // Models that run side by side are threads of the devices.
    assert_eq!(plimsoll(&format!("eval scalars/graph.pb {scalars} --parallel --profile {file}")).code, 0);
    assert_eq!(shown(&read()), (vec![device("CPU:0")], 2 * slices));

    // A step of two towers, on two CPUs or on two cards beside the variables' CPU; of towers apart, three runs of one of them.
    for (options, devices) in
        [("--towers 2", &["CPU:0", "CPU:1"][..]), ("", &["CPU:0", "GPU:0", "GPU:1"]), ("--async", &["CPU:0", "GPU:0"])]
    {
        let said = plimsoll(&format!("train --steps 3 --profile {file} --stats --json {options}"));
        assert_eq!(said.code, 0, "{}", said.err);
        let document: Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(document["steps"], 3);
        assert!(said.err.contains("MatMul("), "{}", said.err);
        let trace = read();
        assert_eq!(shown(&trace).0, devices.iter().map(|name| device(name)).collect::<Vec<_>>(), "{options}");
        let copied = trace["traceEvents"].as_array().unwrap().iter().filter(|event| event["cat"] == "copy").count();
        assert!(copied > 0, "{trace}");
    }
    // Cards whose speed is modelled are there on the virtual clock, too.
    let modelled = "eval two/big.pb --init init --fetch y --sim-gpus 1x64MiB,speed=2";
    assert_eq!(plimsoll(&format!("{modelled} --profile {file}")).code, 0);
    let (processes, _) = shown(&read());
    assert!(processes.contains(&device("GPU:0")) && processes.contains(&(device("GPU:0") + " on the virtual clock")), "{processes:?}");
    let bench = plimsoll(&format!("bench towers --runs 2 --profile {file}"));
    assert_eq!(bench.code, 0, "{}", bench.err);
    assert_eq!(shown(&read()).0, [device("CPU:0"), device("CPU:1")]);
}

/// Eight towers on eight cards, and on eight parts of one card: the clock shows more than two cores can, and shows it again.
#[test]
fn the_virtual_clock() {
    let folder = super::Folder::new("clock");
    let file = folder.write("profile.json", "");
    let modelled = |options: &str| {
        let bench = document(&format!("bench towers8_sgd_ref --runs 2 --json {options}"));
        bench["modelled_ms"].as_f64().unwrap_or_else(|| panic!("{bench}"))
    };
    let cards = format!("--sim-gpus 8x64MiB,speed=0.001 --profile {file}");
    let eight = modelled(&cards);
    let profile: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert!((profile["modelled_step_us"].as_f64().unwrap() - 1e3 * eight).abs() < 1e-6, "{profile}");
    let (processes, _) = shown(&profile);
    for gpu in 0..8 {
        let name = format!("device:GPU:{gpu} on the virtual clock");
        assert_eq!(processes.iter().filter(|process| process.ends_with(&name)).count(), 1, "{processes:?}");
    }
    let parts = format!("GPU:0={}", ["8MiB"; 8].join("+"));
    let one = modelled(&format!("--sim-gpus 1x64MiB,speed=0.001 --memory-limit {parts}"));
    assert!((5.0..8.0).contains(&(one / eight)), "{one} {eight}");
    assert_eq!(modelled(&cards), eight);
    // Cards without a speed are not timed.
    assert!(document("bench towers8_sgd_ref --runs 2 --json --sim-gpus 8x64MiB")["modelled_ms"].is_null());
}

#[test]
fn a_verification_is_a_list() {
    let said = plimsoll("verify scalars towers --json");
    let verdicts: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, verdicts.as_array().unwrap().len()), (0, 2));
    for (verdict, (name, steps)) in verdicts.as_array().unwrap().iter().zip([("scalars", 2), ("towers", 3)]) {
        assert_eq!((&verdict["name"], &verdict["steps"], &verdict["status"]), (&name.into(), &steps.into(), &"OK".into()));
        for device in verdict["devices"].as_array().unwrap() {
            assert_eq!(device["planned_peak_bytes"], device["measured_peak_bytes"], "{name}");
        }
    }
}

#[test]
fn devices() {
    let text = plimsoll("devices --json --device-count CPU=2 --memory-limit CPU:1=64MiB").out;
    let listing: Value = serde_json::from_str(&text).unwrap();
    let parts = ["driver", "cards", "devices", "ledger", "shared", "processes", "waiters", "log", "warnings", "notes"];
    assert_eq!(keys(&text, &listing), parts);
    let devices = listing["devices"].as_array().unwrap();
    let device = ["name", "description", "card", "limit_bytes", "overhead_bytes", "reserve", "priority", "numa_node", "links", "reasons"];
    assert_eq!(keys(&text, &devices[0]), device);
    assert_eq!((&devices[0]["limit_bytes"], &devices[1]["limit_bytes"]), (&Value::Null, &(64u64 << 20).into()));
    assert!(listing["notes"].to_string().contains("NVIDIA cards are not looked for: PLIMSOLL_NVML is empty"));
}
