//! Plans for machines that are not here: `devices --describe` there, `--devices` here.

use super::{Folder, plimsoll};

const RUN: &str = "two/big.pb --init init --fetch y";

/// A file that describes this machine with these cards.
fn described(folder: &Folder, name: &str, cards: &str) -> String {
    let file = folder.write(name, "");
    let said = plimsoll(&format!("devices {cards} --describe {file}"));
    assert_eq!(said.code, 0, "{}", said.err);
    file
}

#[test]
fn the_plan_for_a_described_machine_is_the_plan_on_it() {
    let folder = Folder::new("described");
    for (name, cards) in [
        ("none.json", "--sim-gpus="),
        ("two.json", "--sim-gpus 2x1GiB"),
        ("mixed.json", "--sim-gpus t4:2x,speed=1,peers=all,overhead=193MiB+k520:1GiB,link=4GiB,numa=1"),
    ] {
        let file = described(&folder, name, cards);
        for options in [
            "",
            "--json",
            "--device-count CPU=2 --memory-limit CPU:0=64MiB,CPU:1=1GiB --intra-op 3",
            "--placement auto --json",
            "--placement first-fit --memory-fraction 0.01",
            "--memory-limit GPU:0=200MiB+300MiB --after pack",
            "--visible-devices 1,0 --log-placement",
            "--allow-growth --after select",
        ] {
            let (here, there) =
                (plimsoll(&format!("plan {RUN} {options} {cards}")), plimsoll(&format!("plan {RUN} {options} --devices {file}")));
            assert_eq!((here.code, &here.out, &here.err), (there.code, &there.out, &there.err), "{cards} {options}");
            let (here, there) =
                (plimsoll(&format!("place {RUN} {options} {cards}")), plimsoll(&format!("place {RUN} {options} --devices {file}")));
            assert_eq!((here.code, &here.out, &here.err), (there.code, &there.out, &there.err), "place {cards} {options}");
        }
        let output = |name: &str, machine: &str| {
            let plan = folder.write(name, "");
            assert_eq!(plimsoll(&format!("plan {RUN} {machine} --output {plan}")).code, 0);
            std::fs::read(plan).unwrap()
        };
        assert_eq!(output("here.plan", cards), output("there.plan", &format!("--devices {file}")), "{cards}");
    }
}

#[test]
fn a_described_machine_is_none_of_this_one() {
    let folder = Folder::new("another");
    let file = described(&folder, "here.json", "--sim-gpus=");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut machine: serde_json::Value = serde_json::from_str(&text).unwrap();
    let mut planned = |instructions: &str, cores: u32, options: &str| {
        machine["processor"]["instructions"] = instructions.into();
        machine["processor"]["cores"] = cores.into();
        machine["processor"]["bf16"] = serde_json::Value::Null;
        let file = folder.write("there.json", machine.to_string());
        let said = plimsoll(&format!("plan {RUN} --devices {file} {options}"));
        assert_eq!(said.code, 0, "{}", said.err);
        said.out
    };
    // The kernels of its processor, and its threads.
    let [avx2, avx512, neon] = ["Avx2", "Avx512", "Neon"].map(|instructions| planned(instructions, 64, "--after select"));
    assert!(avx2.contains("avx2") && avx512.contains("avx512") && !avx512.contains("avx2"), "{avx512}");
    assert!(!neon.contains("avx"), "{neon}");
    let mut seconds = |cores| {
        let plan: serde_json::Value = serde_json::from_str(&planned("Avx512", cores, "--json")).unwrap();
        plan["predicted_step_seconds"].as_f64().unwrap()
    };
    assert!(seconds(1) > 1.2 * seconds(2), "{} {}", seconds(1), seconds(2));
}

/// A description with an H200, of which no cuDNN is said.
const H200: &str = r#"{"version": 1, "processor": {"instructions": "Avx512", "cores": 16, "caches": {"l1": 49152, "l2": 2097152, "l3": 272629760},
    "memory_bytes": 25276502016}, "cards": [{"ordinal": 0, "name": "NVIDIA H200", "pci_bus_id": "0000:00:06.0",
    "uuid": "GPU-3955c1a5-4598-cc08-b6a2-c540194bfc43", "compute_capability": [9, 0], "multiprocessors": 132, "clock_mhz": 1980,
    "bandwidth_bytes_per_second": 4814304000000.0, "total_bytes": 150754820096, "available_bytes": 150106472448, "overhead_bytes": 572522496,
    "granularity_bytes": 2097152, "numa_node": null, "unified_memory": false, "peers": [], "leased": false, "unusable": null, "simulation": null}]}"#;

/// A real card is priced by what is known of it, and never by the table of the processor beside it.
#[test]
fn a_real_card_has_prices_of_its_own() {
    let folder = Folder::new("priced");
    let planned = |change: &dyn Fn(&mut serde_json::Value), options: &str| {
        let mut machine: serde_json::Value = serde_json::from_str(H200).unwrap();
        change(&mut machine);
        let file = folder.write("h200.json", machine.to_string());
        let shapes = "--feed-shape x=4096x6 --feed-shape y=4096";
        let said = plimsoll(&format!("plan mlp_sgd_ref/graph.pb {shapes} --fetch loss --target train --json --devices {file} {options}"));
        assert_eq!(said.code, 0, "{}", said.err);
        let plan: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        (plan["predicted_step_seconds"].as_f64().unwrap(), plan["costs"].as_str().unwrap().to_string())
    };
    let (seconds, costs) = planned(&|_| {}, "");
    assert!((1e-4..5e-4).contains(&seconds) && costs.contains("-cards-"), "{seconds} {costs}");
    // Another processor changes nothing, another card does, and its name.
    assert_eq!(planned(&|machine| machine["processor"]["instructions"] = "Baseline".into(), ""), (seconds, costs.clone()));
    let slow = |machine: &mut serde_json::Value| machine["cards"][0]["bandwidth_bytes_per_second"] = 1e9.into();
    assert!(planned(&slow, "").0 > 1.1 * seconds);
    let (_, other) = planned(&|machine| machine["cards"][0]["name"] = "Some card".into(), "");
    assert!(other.contains("-cards-") && other != costs, "{other} {costs}");
    // A table of a file is for the cards that it names.
    let rates = r#"{"call": 0.125, "fork": 0, "issued": 0, "elementwise": 0, "near": 0, "far": 0}"#;
    let table = |card: &str| {
        let table = format!(
            r#"{{"version": 1, "tables": [{{"processor": "made up", "card": "{card}", "instructions": "Avx512", "caches": {{"l1": 0, "l2": 0, "l3": 0}},
                "threads": 1, "command": 0, "rates": {{"other": {rates}}}}}]}}"#
        );
        folder.write("costs.json", table)
    };
    let (priced, named) = planned(&|_| {}, &format!("--costs {}", table("NVIDIA H200")));
    assert!(priced > 1.0 && !named.contains("-cards-"), "{priced} {named}");
    assert_eq!(planned(&|_| {}, &format!("--costs {}", table("Another card"))).0, seconds);
}

#[test]
fn nothing_runs_on_a_machine_that_is_not_here() {
    let folder = Folder::new("absent");
    let file = described(&folder, "here.json", "--sim-gpus 1x1GiB");
    for command in ["eval two/big.pb --init init --fetch y", "verify scalars", "bench scalars", "train", "devices"] {
        let said = plimsoll(&format!("{command} --devices {file}"));
        assert!(said.code == 2 && said.err.contains("is not here, and this command does more than plan"), "{command}: {}", said.err);
        assert!(said.out.is_empty() && said.err.contains(&file), "{command}: {}", said.err);
    }
    let said = plimsoll(&format!("plan {RUN} --devices {file} --sim-gpus 2x1GiB"));
    assert!(said.code == 2 && said.err.contains("has the cards that its description says"), "{}", said.err);
}

#[test]
fn the_largest_batch_of_a_training_is_that_of_the_described_machine() {
    let folder = Folder::new("largest");
    let cards = "--sim-gpus 2x1GiB";
    let file = described(&folder, "two.json", cards);
    for train in [
        "train digits --towers 2 --memory-limit GPU:0=1MiB,GPU:1=1MiB",
        "train digits --memory-limit CPU:0=1MiB",
        "train digits --towers auto --memory-limit GPU:0=1MiB,GPU:1=1MiB",
        "train towers2_adam_ref/graph.pb --target train --data x=towers2_adam_ref/step0_feed0.npy --data y=towers2_adam_ref/step0_feed1.npy",
    ] {
        let ask = |machine: &str| plimsoll(&format!("{train} --largest-batch {machine}"));
        let (here, there) = (ask(cards), ask(&format!("--devices {file}")));
        assert_eq!((here.code, &here.out, &here.err), (there.code, &there.out, &there.err), "{train}");
    }
    let said = plimsoll(&format!("train digits --memory-limit GPU:0=1MiB --largest-batch --devices {file}"));
    assert!(said.code == 0 && said.out.trim().parse::<u64>().is_ok_and(|batch| batch > 1), "{}{}", said.out, said.err);
}

#[test]
fn a_file_that_describes_no_machine_says_where() {
    let folder = Folder::new("flawed");
    let text = std::fs::read_to_string(described(&folder, "here.json", "--sim-gpus 2x1GiB")).unwrap();
    for (from, to, place) in [
        ("{", "[", "invalid type"),
        ("\"version\": 1", "\"version\": 7", "a description of form 7"),
        ("\"cores\": ", "\"cores\": -", "at line 5 column"),
        ("\"total_bytes\": 1073741824", "\"total_bytes\": 18446744073709551615", "cards[0].total_bytes"),
        ("\"bandwidth_bytes_per_second\": ", "\"bandwidth_bytes_per_second\": -", "cards[0].bandwidth_bytes_per_second"),
    ] {
        assert!(text.contains(from), "{from}: {text}");
        let file = folder.write("flawed.json", text.replacen(from, to, 1));
        let said = plimsoll(&format!("plan {RUN} --devices {file}"));
        assert!(said.code == 2 && said.err.contains(&file) && said.err.contains(place), "{to}: {}", said.err);
    }
    let missing = plimsoll(&format!("place {RUN} --devices missing.json"));
    assert!(missing.code == 2 && missing.err.contains("missing.json"), "{}", missing.err);
}
