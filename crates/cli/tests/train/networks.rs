//! `plimsoll train mnist` and `cifar10`, together and apart, on small files in the published formats.

use std::path::PathBuf;

use serde_json::Value;

use crate::common::{document, stopped, text, train};

/// Data sets of a test, removed when dropped: 40 images to learn from, 20 to test with.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-cli-networks-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a folder");
        let folder = Folder(path);
        let pixel = |image: usize, at: usize| ((at * (image % 10 + 3)) % 251) as u8;
        for (name, count) in [("data_batch_1.bin", 40), ("test_batch.bin", 20)] {
            let record = |image: usize| std::iter::once((image % 10) as u8).chain((0..3072).map(move |at| pixel(image, at)));
            folder.write(name, (0..count).flat_map(record).collect());
        }
        for (name, count) in [("train", 40usize), ("t10k", 20)] {
            let images = [0, 0, 8, 3, 0, 0, 0, count as u8, 0, 0, 0, 28, 0, 0, 0, 28].into_iter();
            let pixels = (0..count).flat_map(|image| (0..784).map(move |at| pixel(image, at)));
            folder.write(&format!("{name}-images-idx3-ubyte"), images.chain(pixels).collect());
            let labels = [0, 0, 8, 1, 0, 0, 0, count as u8].into_iter();
            folder.write(&format!("{name}-labels-idx1-ubyte"), labels.chain((0..count).map(|image| (image % 10) as u8)).collect());
        }
        folder
    }

    fn write(&self, name: &str, bytes: Vec<u8>) {
        std::fs::write(self.0.join(name), bytes).expect("a file");
    }

    fn text(&self) -> String {
        self.0.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn data_sets_are_learned_under_the_lines_in_both_forms() {
    let folder = Folder::new("learned");
    let data = folder.text();
    let cases: [&[&str]; 7] = [
        &["cifar10"],
        &["cifar10", "--towers", "2"],
        &["cifar10", "--augment"],
        &["cifar10", "--async"],
        &["cifar10", "--async", "--towers", "2"],
        &["mnist"],
        &["mnist", "--async", "--optimizer", "adam", "--towers", "2"],
    ];
    for case in cases {
        let document = document(&[case, &["--data", &data, "--steps", "4", "--batch-size", "8"]].concat());
        assert_eq!(document["steps"], 4);
        assert!(document["final_loss"].as_f64().unwrap() > 0.0 && document["test_accuracy"].is_f64(), "{document}");
        let is_async = case.contains(&"--async");
        let has_averages = case[0] == "cifar10";
        assert_eq!((document["staleness"].is_object(), document["averages_accuracy"].is_f64()), (is_async, has_averages), "{document}");
        let shown = if has_averages { &document["averages_accuracy"] } else { &document["variables_accuracy"] };
        assert_eq!(&document["test_accuracy"], shown);
        let mut limits = 0;
        for device in document["devices"].as_array().unwrap() {
            assert_eq!(device["planned_peak_bytes"], device["measured_peak_bytes"], "{case:?}: {document}");
            limits += number(&device["limit_bytes"]);
        }
        assert!(number(&document["max_rss_bytes"]) <= limits + (40 << 20), "{document}");
        let towers = document["towers"].as_array().unwrap();
        assert_eq!(towers.iter().map(|tower| number(&tower["steps"])).sum::<u64>(), if is_async { 4 } else { 8 });
        // The variables are on the first CPU.
        assert_eq!(number(&towers[0]["moved_bytes_per_step"]) == 0, case.contains(&"--towers"), "{case:?}");
        assert!(number(&towers[1]["moved_bytes_per_step"]) > 0);
        assert!(towers.iter().all(|tower| tower["wait_seconds"].as_f64().unwrap() <= tower["seconds"].as_f64().unwrap()));
    }
}

#[test]
fn one_byte_below_the_promise_of_towers_apart_is_refused() {
    let arguments = ["--async", "--towers", "2", "--steps", "6", "--batch-size", "16"];
    let promised = document(&arguments);
    let peaks: Vec<u64> = promised["devices"].as_array().unwrap().iter().map(|device| number(&device["planned_peak_bytes"])).collect();
    let limits = |less: u64| format!("CPU:0={}B,CPU:1={}B", peaks[0], peaks[1] - less);
    let exact = document(&[&arguments[..], &["--memory-limit", &limits(0)]].concat());
    assert_eq!(number(&exact["devices"][1]["measured_peak_bytes"]), peaks[1]);
    let output = train(&[&arguments[..], &["--fit=off", "--memory-limit", &limits(1)]].concat());
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("1 byte short"), "{}", text(&output.stderr));
}

#[test]
fn the_summary_says_how_towers_fared() {
    let output = train(&["--async", "--towers", "3", "--steps", "9"]);
    let out = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for fragment in ["3 towers that each take steps of 128 images", "tower 2 on CPU:2: ", "ms of them waiting; ", "staleness: "] {
        assert!(out.contains(fragment), "{fragment} in {out}");
    }
    let together = text(&train(&["--steps", "3"]).stdout);
    assert!(together.contains("tower 0 on GPU:0: 3 steps of ") && !together.contains("staleness"), "{together}");
}

#[test]
fn ctrl_c_ends_towers_apart_with_a_checkpoint_to_go_on_from() {
    let folder = Folder::new("stop");
    let saved = folder.0.join("saved").display().to_string();
    let output = stopped(&["--async", "--steps", "20000000", "--save", &saved, "--json"], "INT");
    assert_eq!(output.status.code(), Some(130), "{:?}", output.status);
    let steps = number(&serde_json::from_slice::<Value>(&output.stdout).unwrap()["steps"]);
    assert!(steps < 20_000_000);
    let resumed = document(&["--resume", &saved, "--steps", &(steps + 5).to_string()]);
    assert_eq!(number(&resumed["steps"]), steps + 5);
}

#[test]
fn what_is_wrong_with_data_is_said() {
    let folder = Folder::new("wrong");
    let data = folder.text();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["cifar10"], 2, "plimsoll train cifar10 --data FOLDER"),
        (&["mnist", "--data", "/nowhere"], 2, "/nowhere: no such folder"),
        (&["mnist", "--data", &data, "--augment"], 2, "only for the images of cifar10"),
        (&["cifar10", "--data", &data, "--fetch", "loss"], 2, "the network for cifar10 is built in"),
        (&["cifar10", "--data", &data, "--towers", "3"], 2, "cannot be divided evenly among 3 towers"),
    ];
    for (args, status, fragment) in cases {
        let output = train(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(*status), "{args:?}: {err}");
        assert!(err.contains(fragment), "{args:?}: {err}");
    }
    folder.write("data_batch_1.bin", vec![1; 5000]);
    let output = train(&["cifar10", "--data", &data]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("DATA_LOSS"), "{}", text(&output.stderr));
}
