//! NVIDIA cards, whose driver and compiler are mocks, opened by path as the real ones are: the values of the processor, the line, the
//! ledger, and machines that lack something.

#[path = "../../../device-cuda/tests/computing/machine.rs"]
#[allow(dead_code, reason = "tests of several crates share it")]
pub mod mock;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Said, cases, networks, outcome};
use mock::Machine;

const MIB: u64 = 1 << 20;

/// What a logical device keeps for graphs; the mock's take nothing.
const GRAPHS: u64 = 8 * MIB;

/// `plimsoll ARGS` on a machine with mock cards, and a ledger of their own.
fn command(machine: &Machine, args: &str) -> Command {
    let folder = machine.folder();
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.args(args.split_whitespace()).current_dir(cases()).env_remove("PLIMSOLL_SIM_GPUS").env_remove("CUDA_VISIBLE_DEVICES");
    command.env("PLIMSOLL_NVML", folder.join("libnvidia-ml.so.1")).env("PLIMSOLL_CUDA_LIBS", folder).env("PLIMSOLL_SHIM", "");
    command.env("PLIMSOLL_STATE_DIR", folder.join("state")).env("XDG_CACHE_HOME", folder.join("cache"));
    command
}

fn plimsoll(machine: &Machine, args: &str) -> Said {
    outcome(&mut command(machine, args))
}

fn document(machine: &Machine, args: &str) -> Value {
    let said = plimsoll(machine, args);
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{args}: {error}: {}{}", said.out, said.err))
}

/// The devices of a case that was replayed, and compared with TensorFlow's values.
fn verified(machine: &Machine, case: &str, options: &str) -> Value {
    let case = document(machine, &format!("verify {case} --json {options}"))[0].clone();
    assert_eq!(case["status"], "OK", "{case}");
    case["devices"].clone()
}

#[test]
fn a_card_is_the_first_gpu_and_gives_the_processors_values() {
    let Some(machine) = Machine::new("cli-values", &[4096]) else { return };
    let seen = document(&machine, "devices --json -v");
    assert_eq!((&seen["cards"][0]["unused"], &seen["cards"][0]["compute_capability"]), (&Value::Null, &json!("9.0")), "{seen}");
    assert_eq!((&seen["devices"][1]["card"], &seen["devices"][1]["limit_bytes"]), (&json!(0), &json!((4096 - 1800) * MIB)), "{seen}");
    assert!(seen["log"].to_string().contains("name: Mock card, pci bus id: 0000:01:00.0, compute capability: 9.0\""), "{seen}");

    for case in ["mlp_sgd_ref", "mlp_adam_resource", "separable_momentum_ref", "fail_gather"] {
        machine.gpus.reset_peak(0).unwrap();
        let devices = verified(&machine, case, "");
        let card = devices.as_array().unwrap().last().unwrap();
        let (planned, measured) = (&card["planned_peak_bytes"], &card["measured_peak_bytes"]);
        // Promised, counted, and given by the driver or kept for graphs.
        assert_eq!((planned, measured), (&json!(machine.gpus.peak(0).unwrap() + GRAPHS), planned), "{case}: {devices}");
        assert!(planned.as_u64() >= Some(2 * MIB + GRAPHS), "{case}: {devices}");
        assert_eq!(machine.used(0), 0, "{case} gives all back");
    }
}

#[test]
fn a_context_is_measured_and_charged() {
    let Some(machine) = Machine::new("cli-context", &[1024]) else { return };
    machine.gpus.set_context(0, 99 * MIB + 1).unwrap();
    let plain = verified(&machine, "scalars", "--device-count GPU=0");
    assert_eq!((plain.as_array().unwrap().len(), machine.used(0)), (1, 0), "no context where no card is used");
    machine.gpus.reset_peak(0).unwrap();
    let devices = verified(&machine, "mlp_sgd_ref", "");
    // Its bytes are rounded up to pieces of the card.
    let planned = devices[1]["planned_peak_bytes"].as_u64().unwrap();
    assert_eq!(planned, machine.gpus.peak(0).unwrap() - (99 * MIB + 1) + 100 * MIB + GRAPHS, "{devices}");
    // Also those that the driver counts as no process's, where they are few.
    for (beside, counted) in [(6, 0), (16, 0), (20, 4)] {
        machine.gpus.set_beside(0, beside * MIB).unwrap();
        let devices = verified(&machine, "mlp_sgd_ref", "");
        assert_eq!(devices[1]["planned_peak_bytes"], json!(planned - counted * MIB), "{beside} MiB: {devices}");
    }
    machine.gpus.set_beside(0, 0).unwrap();
    let said = plimsoll(&machine, "verify mlp_sgd_ref --memory-limit GPU:0=110MiB");
    assert!(said.out.contains("INVALID_ARGUMENT") && said.out.contains("the overhead of the card alone takes 110 MiB"), "{}", said.out);
    // Two logical devices share the context, and each has a piece of the card, and room for graphs, for itself.
    let parts = verified(&machine, "mlp_sgd_ref", "--memory-limit GPU:0=200MiB+200MiB");
    let alone = parts[2]["planned_peak_bytes"].as_u64().unwrap();
    assert_eq!(alone, 52 * MIB + GRAPHS, "{parts}");
}

#[test]
fn memory_that_the_driver_keeps_is_never_granted() {
    let Some(machine) = Machine::new("cli-kept", &[1024]) else { return };
    machine.gpus.set_reserved(0, 100 * MIB).unwrap();
    let seen = document(&machine, "devices --json");
    assert_eq!(seen["devices"][1]["limit_bytes"], json!((1024 - 100 - 225) * MIB), "{seen}");
    assert_eq!(seen["cards"][0]["total_bytes"], json!(1024 * MIB), "{seen}");
    // The whole of what there is can be had, and no more.
    verified(&machine, "scalars", "--memory-limit GPU:0=924MiB");
    for options in ["--memory-limit GPU:0=925MiB", "--memory-limit GPU:0=925MiB --wait 60s"] {
        let said = plimsoll(&machine, &format!("verify scalars {options}"));
        assert!(said.code != 0 && said.out.contains("the card has 924 MiB"), "{options}: {}{}", said.out, said.err);
    }
    // Programs for which memory is leased are not promised it, either.
    let said = outcome(command(&machine, "run --gpus 1 --memory all -- env").env_remove("PLIMSOLL_SIM_GPUS"));
    assert!(said.err.contains("run: 924 MiB of GPU 0"), "{}{}", said.out, said.err);
}

#[test]
fn a_cards_line_holds_to_the_byte() {
    let Some(machine) = Machine::new("cli-line", &[4096]) else { return };
    let peak = verified(&machine, "mlp_adam_resource", "")[1]["planned_peak_bytes"].as_u64().unwrap();
    verified(&machine, "mlp_adam_resource", &format!("--fit=off --memory-limit GPU:0={peak}B"));
    let said = plimsoll(&machine, &format!("verify mlp_adam_resource --fit=off --memory-limit GPU:0={}B", peak - 1));
    assert_eq!(said.code, 1, "{}", said.out);
    assert!(said.out.contains("RESOURCE_EXHAUSTED") && said.out.contains("GPU:0"), "{}", said.out);
}

#[test]
fn training_on_a_card_gives_the_processors_losses() {
    let Some(machine) = Machine::new("cli-train", &[4096]) else { return };
    let train = |options: &str| document(&machine, &format!("train digits --towers 1 --steps 12 --json {options}"));
    machine.gpus.reset_peak(0).unwrap();
    let on_the_card = train("");
    let device = &on_the_card["devices"][1];
    assert_eq!(on_the_card["towers"][0]["device"], "/job:localhost/replica:0/task:0/device:GPU:0", "{on_the_card}");
    assert_eq!(
        (&device["planned_peak_bytes"], &device["measured_peak_bytes"]),
        (&json!(machine.gpus.peak(0).unwrap() + GRAPHS), &device["planned_peak_bytes"])
    );
    let loss = |document: &Value| document["final_loss"].as_f64().unwrap();
    let (card, processor) = (loss(&on_the_card), loss(&train("--device-count GPU=0")));
    assert!((card - processor).abs() < 1e-4 * processor, "{card} {processor}");
}

#[test]
fn values_are_the_processors() {
    let Some(machine) = Machine::new("cli-eval", &[4096]) else { return };
    let eval = |options: &str| {
        let feeds = "--feed x=mlp_sgd_ref/step0_feed0.npy --feed y=mlp_sgd_ref/step0_feed1.npy";
        let said = plimsoll(&machine, &format!("eval mlp_sgd_ref/graph.pb {feeds} --init init --fetch loss {options}"));
        assert_eq!(said.code, 0, "{}", said.err);
        let value: f64 = said.out.trim().rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{}", said.out));
        (value, said.err)
    };
    let ((card, log), (processor, none)) = (eval(""), eval("--device-count GPU=0"));
    assert!((card - processor).abs() <= 1e-5 * processor.abs(), "{card} {processor}");
    assert!(log.contains("Created device /job:localhost/replica:0/task:0/device:GPU:0 with ") && !none.contains("Created"), "{log} {none}");
}

/// A program on the card, until it is killed.
struct Holder(Child);

impl Holder {
    /// Starts it, and waits until it has its part.
    fn start(machine: &Machine, options: &str) -> Holder {
        let mut command = command(machine, &format!("bench mlp_sgd_ref --runs 10000000 {options}"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let holder = Holder(child);
        let start = Instant::now();
        // From its first step on it has all that it promises.
        while machine.used(0) < 6 * MIB {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        holder
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn programs_see_what_others_hold_and_a_killed_one_holds_nothing() {
    let Some(machine) = Machine::new("cli-holders", &[1024]) else { return };
    let first = Holder::start(&machine, "--memory-fraction 0.6");
    let pid = first.0.id();
    let seen = document(&machine, "devices --json");
    let [process] = &seen["processes"].as_array().unwrap()[..] else { panic!("{seen}") };
    let part = 1024 * MIB * 6 / 10 + 2 * MIB + GRAPHS;
    assert_eq!((&process["pid"], &process["reserved_bytes"]), (&json!(pid), &json!(part)), "{seen}");
    // As the driver says: a context, variables, and what a step has just then.
    assert!(process["used_bytes"].as_u64().is_some_and(|used| (4 * MIB..=16 * MIB).contains(&used)), "{seen}");
    // The line is the same whoever else runs, and the ledger says who has the bytes.
    assert_eq!(seen["devices"][1]["limit_bytes"], json!((1024 - 225) * MIB));
    let second = plimsoll(&machine, "bench mlp_sgd_ref --runs 2 --memory-fraction 0.6");
    assert_eq!(second.code, 1, "{}", second.err);
    for words in ["CUDA_ERROR_OUT_OF_MEMORY", "624.40 MiB (654730854 bytes) asked", &format!("held by pid {pid} ")] {
        assert!(second.err.contains(words), "{words}: {}", second.err);
    }
    assert!(!second.err.contains("by this program itself"), "{}", second.err);
    // What fits beside it runs.
    let beside = plimsoll(&machine, "bench mlp_sgd_ref --runs 2");
    assert_eq!(beside.code, 0, "{}", beside.err);

    let waits = command(&machine, "bench mlp_sgd_ref --runs 2 --memory-fraction 0.6 --wait 60s")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(300));
    drop(first);
    let waited = waits.wait_with_output().unwrap();
    assert!(waited.status.success(), "{}", String::from_utf8_lossy(&waited.stderr));
    let after = document(&machine, "devices --json");
    assert_eq!((&after["cards"][0]["reserved_bytes"], &after["processes"], machine.used(0)), (&json!(0), &json!([]), 0));
}

#[test]
fn a_lost_card_ends_the_run() {
    let Some(machine) = Machine::new("cli-lost", &[1024]) else { return };
    let mut holder = Holder::start(&machine, "");
    machine.gpus.lose(0).unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut holder.0.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(holder.0.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("error: UNAVAILABLE: "), "{said}");
    // A card on which nothing works is left out, with the driver's words.
    let said = plimsoll(&machine, "verify mlp_sgd_ref");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.err.contains("note: NVIDIA cards are not used: "), "{}", said.err);
    machine.gpus.mend(0).unwrap();
    assert_eq!(verified(&machine, "mlp_sgd_ref", "").as_array().unwrap().len(), 2);
}

#[test]
fn without_the_compiler_a_sentence_says_so_and_the_processor_computes() {
    let Some(machine) = Machine::new("cli-missing", &[1024]) else { return };
    std::fs::remove_file(machine.compiler()).unwrap();
    let run = |args: &str| {
        let mut command = command(&machine, args);
        outcome(command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env("PATH", ""))
    };
    let seen = run("devices");
    if !seen.out.contains("NVRTC was not found") {
        eprintln!("skipped: this machine has the compiler where all programs find it");
        return;
    }
    assert!(seen.out.contains("warning: NVIDIA cards are not used: NVRTC was not found: "), "{}", seen.out);
    assert!(seen.out.contains("; pip install nvidia-cuda-nvrtc\n"), "{}", seen.out);
    let said = run("verify mlp_sgd_ref");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("note: NVIDIA cards are not used: NVRTC was not found: "), "{}", said.err);
    // A GPU that is asked for is an error.
    let said = run("plan mlp_sgd_ref/graph.pb --target train --visible-devices 0");
    assert_eq!(said.code, 2, "{}{}", said.out, said.err);
    for words in
        ["--visible-devices 0: no GPU is seen", "hint: NVIDIA cards are not used: NVRTC was not found", "pip install nvidia-cuda-nvrtc"]
    {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
}

#[test]
fn convolutions_are_cudnns_where_it_is_found_and_wanted() {
    let Some(machine) = Machine::new("cli-cudnn", &[4096]) else { return };
    const CASE: &str = "separable_momentum_ref";
    let without = verified(&machine, CASE, "");
    // Nothing but its own folder is looked at.
    let run = |args: &str| {
        let mut command = command(&machine, args);
        outcome(command.env_remove("VIRTUAL_ENV").env_remove("CONDA_PREFIX").env("PATH", ""))
    };
    let seen = run("devices -v");
    if seen.out.contains("cuDNN was not found") {
        assert!(seen.out.contains("; pip install nvidia-cudnn-cu13\n"), "{}", seen.out);
        let said = run(&format!("verify {CASE}"));
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(said.err.contains("note: products and convolutions are computed without cuDNN: cuDNN was not found: "), "{}", said.err);
        // Where it has to compute, the card is left out with the reason.
        let said = run(&format!("verify {CASE} --cudnn always"));
        assert!(said.err.contains("note: NVIDIA cards are not used: cuDNN was not found: "), "{}", said.err);
    } else {
        eprintln!("skipped: this machine has cuDNN where all programs find it");
    }
    machine.add_cudnn();
    let seen = plimsoll(&machine, "devices -v --tensor-float-32 --cudnn-workspace 1MiB");
    for words in ["note: cuDNN 9.26.99: ", "with floats rounded to TF32 and at most 1 MiB of workspace"] {
        assert!(seen.out.contains(words), "{words}: {}", seen.out);
    }
    let planned = |devices: &Value| devices[1]["planned_peak_bytes"].as_u64().unwrap();
    for (handle, options) in [(0, "--cudnn always"), (10 * MIB, "--cudnn always"), (10 * MIB, "--cudnn never")] {
        machine.gpus.set_handle(0, handle).unwrap();
        machine.gpus.reset_peak(0).unwrap();
        let devices = verified(&machine, CASE, options);
        // What the handle takes is a part of the promise, to the byte, and so are workspaces.
        assert_eq!(planned(&devices), machine.gpus.peak(0).unwrap() + GRAPHS, "{options}: {devices}");
        assert_eq!((machine.used(0), &devices[1]["measured_peak_bytes"]), (0, &devices[1]["planned_peak_bytes"]));
        if options.contains("never") {
            assert_eq!(planned(&devices), planned(&without));
        } else {
            assert!(planned(&devices) >= planned(&without) + handle, "{devices} {without}");
        }
    }
    // The plan names the engines.
    let of = "plan towers2_adam_ref/graph.pb --target train --feed-shape x=64x8x8x3 --feed-shape y=64 --after select";
    let [always, never] = ["always", "never"].map(|mode| plimsoll(&machine, &format!("{of} --cudnn {mode}")).out);
    assert!(always.contains("cudnn-9.26.99/70/2=12,18=0/") && !never.contains("cudnn-"), "{always}\n{never}");
}

/// A step with convolutions and products on a card of rounded floats.
const TUNED: &str = "towers2_adam_ref/graph.pb --target train --feed-shape x=64x8x8x3 --feed-shape y=64 --tensor-float-32";

#[test]
fn ways_are_timed_and_plans_take_the_fastest() {
    let Some(machine) = Machine::new("cli-tune", &[4096]) else { return };
    machine.add_cudnn();
    // By the card's clock: 20 ms for a kernel, 1 ms for a unit of cuDNN's work. An engine for whole floats has three.
    machine.gpus.set_times(0, 20_000_000, 1_000_000).unwrap();
    let file = machine.folder().join("times").display().to_string();
    let tune = |options: &str| document(&machine, &format!("tune {TUNED} --rounds 1 --json {options}"));
    machine.gpus.reset_peak(0).unwrap();
    let tuned = tune(&format!("--output {file}"));
    let device = &tuned["devices"][0];
    let (planned, measured) = (device["planned_peak_bytes"].as_u64().unwrap(), device["measured_peak_bytes"].as_u64().unwrap());
    // As promised, to the byte, and all of it goes back.
    assert_eq!((planned, measured, machine.used(0)), (machine.gpus.peak(0).unwrap() + GRAPHS, planned, 0), "{device}");
    assert_eq!((&tuned["left_out"], device["timed"].as_u64().unwrap() >= 5, &device["known"]), (&json!([]), true, &json!(0)), "{tuned}");
    assert!(device["changed"].as_u64().unwrap() > 0, "{device}");
    let ways = device["requests"].as_array().unwrap().iter().flat_map(|request| request["ways"].as_array().unwrap());
    let seconds: Vec<(String, f64)> =
        ways.map(|way| (way["name"].as_str().unwrap().to_string(), way["seconds"].as_f64().unwrap())).collect();
    let of = |part: &str| seconds.iter().filter(|(name, _)| name.contains(part)).map(|(_, seconds)| *seconds).collect::<Vec<_>>();
    assert!(of("/70/").contains(&3e-3) && of("cuda").iter().all(|seconds| *seconds >= 20e-3), "{seconds:?}");

    // The plan has the fastest way, and the table's name; it is the same each time.
    let plan = |options: &str| plimsoll(&machine, &format!("plan {TUNED} --after select {options}"));
    let (with, without) = (plan(&format!("--tuned {file}")), plan(""));
    assert!(with.out.contains(" by cudnn-9.26.99/70/2=12,18=0/") && !without.out.contains("cudnn-"), "{}", with.out);
    assert_eq!(with.out, plan(&format!("--tuned {file}")).out);
    assert!(!with.err.contains("--tuned"), "{}", with.err);
    let costs = |options: &str| document(&machine, &format!("plan {TUNED} --json {options}"))["costs"].as_str().unwrap().to_string();
    assert_eq!(costs(&format!("--tuned {file}")), format!("{}-tuned-{}", costs(""), tuned["table"].as_str().unwrap()));
    // A step with it gives the processor's values.
    verified(&machine, "towers2_adam_ref", &format!("--tensor-float-32 --tuned {file}"));

    // What is known is not timed again, and stays in the table.
    let again = tune(&format!("--tuned {file} --output {file}"));
    assert_eq!((&again["devices"][0]["timed"], &again["devices"][0]["known"]), (&json!(0), &device["timed"]), "{again}");
    assert_eq!(again["table"], tuned["table"]);

    // The line holds: with a byte less than what was promised, ways that do not fit are left out, and said.
    let other = machine.folder().join("other").display().to_string();
    assert_eq!(tune(&format!("--output {other} --memory-limit GPU:0={planned}B"))["devices"][0]["planned_peak_bytes"], json!(planned));
    let short = tune(&format!("--output {other} --memory-limit GPU:0={}B", planned - 1));
    assert!(short["left_out"][0].as_str().unwrap().contains("GPU:0 has no room under its line"), "{short}");
    assert!(short["devices"][0]["planned_peak_bytes"].as_u64().unwrap() < planned, "{short}");
    assert_eq!(short["devices"][0]["measured_peak_bytes"], short["devices"][0]["planned_peak_bytes"], "{short}");
}

/// A recorded case says its runs by itself, and may stand beside models.
#[test]
fn recorded_cases_are_timed() {
    let Some(machine) = Machine::new("cli-tune-cases", &[4096]) else { return };
    machine.add_cudnn();
    machine.gpus.set_times(0, 5_000_000, 3_000_000).unwrap();
    let file = machine.folder().join("times").display().to_string();
    let tune = |what: &str| document(&machine, &format!("tune {what} --rounds 1 --json --output {file}"));
    let case = tune("mlp_sgd_ref");
    let count = |tuned: &serde_json::Value, of: &str| tuned["devices"][0][of].as_u64().unwrap();
    assert!(count(&case, "timed") >= 3 && count(&case, "known") == 0, "{case}");
    // The same runs as a model's are known then; another case's are not.
    let model = "mlp_sgd_ref/graph.pb --feed-shape x=12x6 --feed-shape y=12 --fetch loss --target train";
    let again = tune(&format!("mlp_sgd_ref {model} --tuned {file}"));
    assert_eq!((count(&again, "timed"), count(&again, "known")), (0, count(&case, "timed")), "{again}");
    let both = tune(&format!("mlp_sgd_ref mlp_adam_resource --tuned {file}"));
    assert!(count(&both, "known") >= count(&case, "timed"), "{both}");
    // What is asked is asked of models.
    let said = plimsoll(&machine, "tune mlp_sgd_ref --target train");
    assert!(said.code == 2 && said.out.is_empty(), "{} {}", said.code, said.err);
}

#[test]
fn times_of_another_card_or_cudnn_are_not_used_and_a_note_says_so() {
    let Some(machine) = Machine::new("cli-tuned", &[4096]) else { return };
    let file = machine.folder().join("times");
    // Without cuDNN there is one way for each, which is timed.
    machine.gpus.set_times(0, 5_000_000, 3_000_000).unwrap();
    let said = plimsoll(&machine, &format!("tune {TUNED} --rounds 1 --cudnn never"));
    assert!(said.code == 0 && said.out.contains("card Mock card\ncudnn none\nrequest ") && !said.out.contains(" cudnn-"), "{}", said.out);
    assert!(said.err.contains("timing: GPU:0: convolution float ") && said.err.contains(" timed, 0 have a faster way"), "{}", said.err);
    machine.add_cudnn();
    let own = "card Mock card\ncudnn 9.26.99\ntensor-float-32 on\nworkspace 33554432\nrequest 0123456789abcdef\n1e-3 cuda\n";
    let notes = |table: &str, options: &str| {
        std::fs::write(&file, table).unwrap();
        let said = plimsoll(&machine, &format!("plan {TUNED} --tuned {} {options}", file.display()));
        assert_eq!(said.code, 0, "{}", said.err);
        said.err.lines().filter(|line| line.contains("--tuned")).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!(notes(own, ""), Vec::<String>::new());
    let mine = "GPU:0, Mock card with cuDNN 9.26.99, TF32 and 32 MiB of workspace";
    for (from, to, there) in [
        ("Mock card", "NVIDIA H200", "NVIDIA H200 with cuDNN 9.26.99, TF32 and 32 MiB of workspace"),
        ("9.26.99", "9.19.0", "Mock card with cuDNN 9.19.0, TF32 and 32 MiB of workspace"),
        ("-32 on", "-32 off", "Mock card with cuDNN 9.26.99, whole floats and 32 MiB of workspace"),
        ("33554432", "1048576", "Mock card with cuDNN 9.26.99, TF32 and 1 MiB of workspace"),
    ] {
        let expected = format!("note: the table of times (--tuned) has none for {mine}: it is for {there}");
        assert_eq!(notes(&own.replace(from, to), ""), [expected]);
    }
    assert_eq!(notes("", ""), [format!("note: the table of times (--tuned) has none for {mine}: it is empty")]);
    let none = "note: the table of times (--tuned) is not used: it is for Mock card with cuDNN 9.26.99, TF32 and 32 MiB of workspace, \
                and no NVIDIA card computes here";
    assert_eq!(notes(own, "--device-count GPU=0"), [none]);
    // A described machine reads the table, too.
    let described = machine.folder().join("machine.json").display().to_string();
    assert_eq!(plimsoll(&machine, &format!("devices --describe {described}")).code, 0);
    assert_eq!(notes(own, &format!("--devices {described}")), Vec::<String>::new());
    assert_eq!(notes(&own.replace("Mock", "Other"), &format!("--devices {described}")).len(), 1);
    // What is no table is wrong use, and names its line.
    std::fs::write(&file, own.replace("1e-3 cuda", "cuda")).unwrap();
    let said = plimsoll(&machine, &format!("plan {TUNED} --tuned {}", file.display()));
    assert!(said.code == 2 && said.err.contains("not a table of times: line 5: a request without times"), "{} {}", said.code, said.err);
    // Without a card there is nothing to time.
    let said = plimsoll(&machine, &format!("tune {TUNED} --device-count GPU=0"));
    assert!(said.code == 1 && said.err.contains("there is no card here on which kernels could be timed"), "{} {}", said.code, said.err);
    let said = plimsoll(&machine, "tune towers2_adam_ref/graph.pb --target train");
    assert!(said.code == 2 && said.err.contains("times are for one size"), "{} {}", said.code, said.err);
}

#[test]
fn a_card_that_cannot_compute_leaves_the_others() {
    let Some(machine) = Machine::new("cli-bad", &[1024; 4]) else { return };
    machine.gpus.set_mig(0, true).unwrap();
    machine.gpus.set_hidden(1, true).unwrap();
    let seen = document(&machine, "devices --json");
    let unused = |card: usize| seen["cards"][card]["unused"].as_str().unwrap_or_default().to_string();
    assert!(unused(0).contains("divided (MIG)") && unused(1).contains("the driver does not show GPU-"), "{seen}");
    assert_eq!((&seen["cards"][2]["unused"], seen["devices"].as_array().unwrap().len()), (&Value::Null, 3), "{seen}");
    // CUDA_ERROR_DEVICE_UNAVAILABLE, as for a card in exclusive mode that another process has. Another card comes in its place.
    machine.gpus.refuse_contexts(2, 46).unwrap();
    let said = plimsoll(&machine, "verify mlp_sgd_ref --device-count GPU=1 --wait 60s");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let used = [0, 1, 2, 3].map(|card| machine.gpus.peak(card).unwrap() > 0);
    assert_eq!(used, [false, false, false, true], "{}", said.err);
    assert!(said.err.contains("Ignoring visible gpu device (device: 2, ") && !said.err.contains("are not used"), "{}", said.err);
    assert!(said.err.contains("device:GPU:0 with 789 MB memory:  -> device: 3, "), "{}", said.err);
    // None is left.
    machine.gpus.refuse_contexts(3, 46).unwrap();
    let said = plimsoll(&machine, "verify mlp_sgd_ref");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.err.contains("note: NVIDIA cards are not used: Mock card (card "), "{}", said.err);
    let seen = document(&machine, "devices --json");
    assert!(seen["cards"].as_array().unwrap().iter().all(|card| card["reserved_bytes"] == json!(0)), "{seen}");
}

#[test]
fn a_driver_that_cannot_be_used_is_said_where_cards_are_wanted() {
    let Some(machine) = Machine::new("cli-driver", &[1024]) else { return };
    let run = |args: &str, library: &str| {
        let said = outcome(command(&machine, args).env("PLIMSOLL_NVML", machine.folder().join(library)));
        assert_eq!(said.code, 0, "{args}: {}{}", said.out, said.err);
        said
    };
    std::fs::write(machine.folder().join("broken.so"), "no library").unwrap();
    let note = "NVIDIA cards are not used: the NVIDIA driver's library cannot be loaded: ";
    assert!(run("verify scalars", "broken.so").err.contains(&format!("note: {note}")));
    assert!(run("devices", "broken.so").out.contains(&format!("warning: {note}")));
    // A library that is not there is no driver, and an ordinary machine.
    assert!(!run("verify scalars", "missing.so").err.contains("NVIDIA"));
    // Programs that want no card look for none, and make no ledger.
    for options in ["--device-count GPU=0", "--visible-devices -1"] {
        let said = run(&format!("verify scalars {options}"), "broken.so");
        assert!(!said.err.contains("NVIDIA"), "{options}: {}", said.err);
    }
    for args in ["verify scalars --device-count GPU=0", "verify scalars --visible-devices -1"] {
        assert!(!run(args, "libnvidia-ml.so.1").err.contains("NVIDIA"));
    }
    let said = outcome(command(&machine, "verify scalars").env("CUDA_VISIBLE_DEVICES", ""));
    assert_eq!((said.code, machine.folder().join("state").exists()), (0, false), "{}", said.err);
    run("verify scalars", "libnvidia-ml.so.1");
    assert!(machine.folder().join("state").exists());
}

#[test]
fn cards_are_known_by_their_uuids() {
    let Some(machine) = Machine::new("cli-two", &[2048, 1024]) else { return };
    let seeing = |list: &str, args: &str| {
        (0..2).for_each(|card| machine.gpus.reset_peak(card).unwrap());
        let said = outcome(command(&machine, args).env("CUDA_VISIBLE_DEVICES", list));
        assert_eq!(said.code, 0, "{}{}", said.out, said.err);
        (said.err, [0, 1].map(|card| machine.gpus.peak(card).unwrap() > 0))
    };
    let (log, used) = seeing("1", "verify mlp_sgd_ref");
    assert!(log.contains("with properties: name: Mock card, pci bus id: 0000:02:00.0") && used == [false, true], "{used:?} {log}");
    let first = machine.gpus.cards()[0].name();
    assert_eq!(seeing(&first, "verify mlp_sgd_ref").1, [true, false]);
    let (log, used) = seeing("1,0", "verify towers2_adam_ref");
    assert!(
        log.contains("device:GPU:0 with 789 MB memory:  -> device: 0, name: Mock card, pci bus id: 0000:02:00.0") && used == [true, true],
        "{log}"
    );
    assert_eq!(seeing("", "verify mlp_sgd_ref").1, [false, false]);
    assert_eq!((machine.used(0), machine.used(1)), (0, 0));
}

#[test]
fn under_a_lease_a_card_is_the_leased_part() {
    let Some(machine) = Machine::new("cli-lease", &[1024]) else { return };
    let under = |args: &str| {
        let mut run = command(&machine, "run --gpus 1 --memory 256MiB --");
        outcome(run.arg(env!("CARGO_BIN_EXE_plimsoll")).args(args.split(' ')))
    };
    let said = under("bench mlp_sgd_ref --runs 3");
    assert_eq!(said.code, 0, "{}", said.err);
    for words in ["run: 256 MiB of GPU 0 (Mock card); held", "total memory: 256 MiB", "device:GPU:0 with 246 MB memory"] {
        assert!(said.err.contains(words), "{words}: {}", said.err);
    }
    let said = under("bench mlp_sgd_ref --runs 3 --memory-limit GPU:0=300MiB");
    assert!(said.code != 0 && said.err.contains("--memory-limit GPU:0=300MiB: the card has 256 MiB"), "{}", said.err);
    assert_eq!(document(&machine, "devices --json")["cards"][0]["reserved_bytes"], json!(0));
}

/// Recorded networks beside the project.
#[test]
#[ignore = "takes minutes: scripts/long"]
fn recorded_networks_agree_on_a_card() {
    let Some(machine) = Machine::new("cli-networks", &[16384]) else { return };
    let cases = networks::recorded();
    let mut wrong = Vec::new();
    for case in &cases {
        let said = plimsoll(&machine, &format!("verify {} --json", case.display()));
        let verdict: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}{}", said.out, said.err));
        if verdict[0]["status"] != "OK" && !networks::is_not_yet(&verdict[0]) {
            wrong.push(format!("{}: {}", case.display(), verdict[0]));
        }
        assert_eq!(machine.used(0), 0, "{} gives all back", case.display());
    }
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), cases.len());
}

#[test]
fn under_the_shim_bytes_count_once() {
    let Some(machine) = Machine::new("cli-shim", &[1024]) else { return };
    machine.gpus.set_context(0, 10 * MIB).unwrap();
    let shim = std::env::current_exe().unwrap().with_file_name("libplimsoll_shim.so");
    // All of the lease: bytes that counted twice would not fit.
    let mut run = command(&machine, "run --gpus 1 --memory 256MiB --enforce shim --");
    run.env("PLIMSOLL_SHIM", shim)
        .env("LD_LIBRARY_PATH", machine.folder())
        .env("CUDA_MPS_PIPE_DIRECTORY", machine.folder().join("no-pipes"));
    // A program that is not known to hold its lease by itself.
    run.arg("env").arg(env!("CARGO_BIN_EXE_plimsoll")).args("bench mlp_sgd_ref --runs 3 --memory-limit GPU:0=256MiB".split(' '));
    let said = outcome(&mut run);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.err.contains("; shim: ") && said.err.contains("device:GPU:0 with 236 MB memory"), "{}", said.err);
}

#[test]
fn a_context_that_the_driver_does_not_attribute_counts_as_much_as_is_expected() {
    let Some(machine) = Machine::new("cli-unlisted", &[1024]) else { return };
    machine.gpus.set_unlisted(0, true).unwrap();
    let said = plimsoll(&machine, "verify mlp_sgd_ref --memory-limit GPU:0=74MiB");
    assert!(said.out.contains("the overhead of the card alone takes 74 MiB"), "{}", said.out);
    // The program's own bytes are not taken for those of another program, as it grows.
    verified(&machine, "mlp_adam_resource", "--memory-limit GPU:0=1000MiB --allow-growth");
    let _first = Holder::start(&machine, "--memory-fraction 0.8");
    verified(&machine, "mlp_sgd_ref", "--memory-fraction 0.05");
    assert_eq!(plimsoll(&machine, "bench mlp_sgd_ref --runs 2 --memory-fraction 0.2").code, 1);
}

#[test]
fn after_a_wait_a_line_is_what_there_is_then() {
    let Some(machine) = Machine::new("cli-later", &[1024]) else { return };
    let first = Holder::start(&machine, "--memory-fraction 0.95");
    let waits = command(&machine, "bench mlp_sgd_ref --runs 2 --wait 60s").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while document(&machine, "devices --json")["waiters"].as_array().is_none_or(|waiters| waiters.is_empty()) {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not wait");
    }
    // Meanwhile there is less memory to be had.
    machine.gpus.set_reserved(0, 200 * MIB).unwrap();
    drop(first);
    let said = String::from_utf8(waits.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("device:GPU:0 with 589 MB memory"), "{said}");
}

#[test]
fn programs_outside_of_the_ledger_are_left_what_they_use() {
    let Some(machine) = Machine::new("cli-outside", &[1024]) else { return };
    machine.gpus.set_context(0, 600 * MIB).unwrap();
    // Another ledger is none.
    let mut other = command(&machine, "bench mlp_sgd_ref --runs 10000000");
    let other = Holder(
        other.env("PLIMSOLL_STATE_DIR", machine.folder().join("other")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap(),
    );
    let start = Instant::now();
    while machine.used(0) < 600 * MIB {
        assert!(start.elapsed() < Duration::from_secs(60), "it does not start");
    }
    machine.gpus.set_context(0, 0).unwrap();
    let said = plimsoll(&machine, "bench mlp_sgd_ref --runs 2 --memory-fraction 0.5");
    assert!(said.code == 1 && said.err.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{}", said.err);
    drop(other);
    assert_eq!(plimsoll(&machine, "bench mlp_sgd_ref --runs 2 --memory-fraction 0.5").code, 0);
}

#[test]
fn plans_are_made_for_a_card_that_a_file_describes() {
    let Some(machine) = Machine::new("cli-described", &[4096, 1024]) else { return };
    machine.gpus.set_context(0, 99 * MIB + 1).unwrap();
    let file = machine.folder().join("machine.json").display().to_string();
    let describe = || {
        let said = plimsoll(&machine, &format!("devices --describe {file}"));
        assert_eq!((said.code, machine.used(0)), (0, 0), "{}", said.err);
    };
    let plan = |options: &str| {
        let model = "plan mlp_sgd_ref/graph.pb --fetch loss:0 --target train --feed-shape x=12x6 --feed-shape y=12 --cudnn never --json";
        plimsoll(&machine, &format!("{model} {options}"))
    };
    describe();
    for options in ["", "--memory-limit GPU:0=200MiB+200MiB", "--visible-devices 1", "--placement auto --memory-fraction 0.2"] {
        let (here, there) = (plan(options), plan(&format!("{options} --devices {file}")));
        assert!(here.code == 0 && here.out.contains("GPU:0"), "{options}: {}", here.err);
        assert_eq!((&here.out, &here.err), (&there.out, &there.err), "{options}");
    }
    // What a context takes is in the file, or no plan is made.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"granularity_bytes\": 2097152", "\"granularity_bytes\": null")).unwrap();
    let said = plan(&format!("--devices {file}"));
    assert!(said.code == 1 && said.err.contains("was not opened when the machine was described"), "{}", said.err);
    // cuDNN plans for it where it is there and here, in one version.
    machine.add_cudnn();
    machine.gpus.set_handle(0, 10 * MIB).unwrap();
    describe();
    // What a handle takes is in plans of programs that have one.
    let peak = |options: &str| {
        document(
            &machine,
            &format!("plan mlp_sgd_ref/graph.pb --fetch loss:0 --target train --feed-shape x=12x6 --feed-shape y=12 --json {options}"),
        )["devices"][1]["peak_bytes"]
            .as_u64()
            .unwrap()
    };
    for (mode, handle) in [("never", 0), ("auto", 10 * MIB)] {
        let (here, there) = (peak(&format!("--cudnn {mode}")), peak(&format!("--cudnn {mode} --devices {file}")));
        assert_eq!((here, there), (there, peak("--cudnn never") + handle), "{mode}");
    }
    let model = "plan towers2_adam_ref/graph.pb --target train --feed-shape x=64x8x8x3 --feed-shape y=64 --after select";
    for (options, is_cudnns) in [
        ("--cudnn always", true),
        ("--cudnn always --tensor-float-32", true),
        ("--cudnn always --cudnn-workspace 0MiB", false),
        ("--cudnn never", false),
    ] {
        let here = plimsoll(&machine, &format!("{model} {options}"));
        let there = plimsoll(&machine, &format!("{model} {options} --devices {file}"));
        assert_eq!((&here.out, &here.err, here.code), (&there.out, &there.err, 0), "{options}");
        assert_eq!(here.out.contains("cudnn-9.26.99/"), is_cudnns, "{options}: {}", here.out);
    }
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"version\": 92699"), "{text}");
    std::fs::write(&file, text.replace("\"version\": 92699", "\"version\": 92600")).unwrap();
    let why = "the machine has cuDNN 9.26.0, and this one 9.26.99";
    let said = plimsoll(&machine, &format!("{model} --devices {file}"));
    let note = format!("note: products and convolutions are computed without cuDNN: {why}; install cuDNN 9.26.0 here, too");
    assert!(said.code == 0 && said.err.contains(&note) && !said.out.contains("cudnn-"), "{}", said.err);
    let said = plimsoll(&machine, &format!("{model} --cudnn always --devices {file}"));
    assert!(said.code == 1 && said.err.contains(why), "{}", said.err);
    // A card that programs cannot use is described as such.
    machine.gpus.set_mig(1, true).unwrap();
    describe();
    let (here, there) = (plan(""), plan(&format!("--devices {file}")));
    assert!(here.code == 0 && here.err.contains("it is divided (MIG)"), "{}", here.err);
    assert_eq!((&here.out, &here.err), (&there.out, &there.err));
}

#[test]
fn two_cards_train_together_and_a_killed_program_leaves_nothing_on_either() {
    let Some(machine) = Machine::new("cli-two-cards", &[1024; 2]) else { return };
    let both = || [0, 1].map(|card| machine.used(card));
    // Cards that reach each other, and cards between which the host carries bytes.
    for alone in [false, true] {
        machine.gpus.set_alone(1, alone).unwrap();
        let devices = verified(&machine, "towers2_adam_ref", "");
        for card in [1, 2] {
            let (planned, measured) = (&devices[card]["planned_peak_bytes"], &devices[card]["measured_peak_bytes"]);
            assert!(planned == measured && planned.as_u64() > Some(2 * MIB + GRAPHS), "{devices}");
        }
        assert_eq!(both(), [0, 0]);
        let mut program = command(&machine, "bench towers2_adam_ref --runs 10000000");
        let program = Holder(program.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        while both().contains(&0) {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not start");
        }
        // In the middle of steps.
        std::thread::sleep(Duration::from_millis(500));
        drop(program);
        assert_eq!(both(), [0, 0]);
    }
}
