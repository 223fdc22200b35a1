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
