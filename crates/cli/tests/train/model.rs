//! `plimsoll train MODEL` from the outside, on graphs that TensorFlow made.

use std::path::Path;

use crate::common::{Folder, devices, document, text, train};
use plimsoll::{HostTensor, npy};
use serde_json::Value;

/// A file of a recorded case.
fn case(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(file).display().to_string()
}

/// The arguments that train a case on the feeds of its first step: 12 examples.
fn arguments(case_name: &str) -> Vec<String> {
    let file = |name: &str| case(&format!("{case_name}/{name}"));
    let mut arguments = vec![file("graph.pb"), "--data".to_string(), format!("x={}", file("step0_feed0.npy"))];
    arguments.extend(["--data".to_string(), format!("y:0={}", file("step0_feed1.npy"))]);
    arguments.extend(["--target", "train", "--fetch", "loss", "--batch-size", "12"].map(str::to_string));
    arguments
}

fn with<'a>(arguments: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    arguments.iter().map(String::as_str).chain(more.iter().copied()).collect()
}

/// A file of the recorded SavedModel.
fn saved(file: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/saved").join(file).display().to_string()
}

#[test]
fn a_saved_model_is_trained_by_its_signature() {
    let losses = npy::read(&std::fs::read(saved("losses.npy")).unwrap()).unwrap().to_vec::<f32>().unwrap();
    let (model, x, y) = (saved("model"), format!("x={}", saved("x.npy")), format!("y={}", saved("y.npy")));
    for (step, recorded) in (1..).zip(losses) {
        let steps = format!("{step}");
        let arguments = [&model, "--signature", "train", "--data", &x, "--data", &y, "--batch-size", "12", "--steps", &steps];
        let document = document(&arguments);
        // All examples are in every batch, in another order.
        let loss = document["final_loss"].as_f64().unwrap();
        assert!((loss - f64::from(recorded)).abs() < 1e-5, "step {step}: {loss} {recorded}");
        assert!(devices(&document).iter().all(|device| device.2 == device.3 && device.2 > 0), "{document}");
    }
}

/// The checkpoint of a SavedModel has the keys of its objects, as `tf.train.Checkpoint` reads them; it is resumed and restored.
#[test]
fn a_checkpoint_of_a_saved_model_is_one_of_its_objects() {
    let folder = Folder::new("model-objects");
    let (model, x, y) = (saved("model"), format!("x={}", saved("x.npy")), format!("y={}", saved("y.npy")));
    let [first, second] = ["first", "second"].map(|name| folder.text(name));
    let arguments = [&model, "--signature", "train", "--data", &x, "--data", &y, "--batch-size", "12"];
    let loss = |more: &[&str]| document(&[&arguments[..], more].concat())["final_loss"].as_f64().unwrap();
    loss(&["--steps", "3", "--save", &first]);
    let keys = |prefix: &str| {
        let reader = plimsoll::formats::bundle::BundleReader::open(prefix).unwrap();
        let names = reader.names().filter(|name| !name.starts_with("_PLIMSOLL")).map(str::to_string).collect::<Vec<_>>();
        (names, reader.read("_CHECKPOINTABLE_OBJECT_GRAPH").unwrap())
    };
    assert_eq!(keys(&format!("{first}/model.ckpt-3")), keys(&saved("model/variables/variables")));
    assert_eq!(loss(&["--steps", "5", "--resume", &first, "--save", &second]), loss(&["--steps", "5"]));
    let restored = |checkpoint: &[&str]| {
        let mut command = vec!["eval", &model, "--signature", "train", "--feed", &x, "--feed", &y, "--json"];
        command.extend(checkpoint);
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(command).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["models"][0]["fetches"][0]["values"][0].as_f64().unwrap()
    };
    assert!((restored(&["--restore", &second]) - loss(&["--steps", "6"])).abs() < 1e-6);
    assert!(restored(&[]) > restored(&["--restore", &second]));
}

#[test]
fn epochs_end_with_what_the_held_out_examples_give() {
    let mut arguments = arguments("mlp_sgd_ref");
    *arguments.last_mut().unwrap() = "4".to_string();
    let arguments = with(&arguments, &["--held-out", "0.34", "--evaluate", "loss:0"]);
    let document = |more: &[&str]| document(&[&arguments[..], more].concat());
    let trained = document(&["--epochs", "3"]);
    // 7 of 12 examples are learned from: after 7, 14 and 21 of them an epoch is over.
    assert_eq!(trained["steps"], 6);
    let epochs = trained["epochs"].as_array().unwrap();
    assert_eq!(epochs.iter().map(|epoch| epoch["epoch"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!((&epochs[2]["loss"], &epochs[2]["held_out"]), (&trained["final_loss"], &trained["held_out"]));
    let held_out = |document: &Value| document["held_out"]["loss:0"].as_f64().unwrap();
    assert_eq!(held_out(&document(&["--steps", "6"])), held_out(&trained), "tests change nothing");
    assert_ne!(held_out(&epochs[0]), held_out(&trained));
    let said = text(&train(&[&arguments[..], &["--epochs", "2"]].concat()).stdout);
    assert!(said.contains("\nepoch 2: loss ") && said.contains("; held out: loss:0 ") && said.contains("\nheld out: loss:0 "), "{said}");
}

fn recorded_loss(case_name: &str) -> f64 {
    let bytes = std::fs::read(case(&format!("{case_name}/step0_fetch0.npy"))).unwrap();
    f64::from(npy::read(&bytes).unwrap().to_vec::<f32>().unwrap()[0])
}

#[test]
fn graphs_that_tensorflow_made_learn() {
    for (name, count) in [("mlp_sgd_ref", 1), ("mlp_adam_resource", 1), ("towers", 2)] {
        let arguments = arguments(name);
        let devices_asked = format!("CPU={count}");
        let arguments = with(&arguments, &["--device-count", &devices_asked]);
        let loss = |steps: &str| {
            let document = document(&[&arguments[..], &["--steps", steps]].concat());
            assert_eq!((document["steps"].to_string(), &document["test_accuracy"]), (steps.to_string(), &Value::Null));
            let devices = devices(&document);
            assert!(devices.len() == count && devices.iter().all(|device| device.2 == device.3 && device.2 > 0), "{document}");
            document["final_loss"].as_f64().unwrap()
        };
        // All examples are in the first batch, in another order.
        let (first, last, recorded) = (loss("1"), loss("100"), recorded_loss(name));
        assert!((first - recorded).abs() < 1e-5 * recorded, "{name}: {first} {recorded}");
        assert!(last < 0.5 * first, "{name}: {first} {last}");
    }
}

#[test]
fn it_says_what_the_digits_say() {
    let arguments = arguments("mlp_sgd_ref");
    let output = train(&with(&arguments, &["--steps", "20"]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let out = text(&output.stdout);
    let lines: Vec<&str> = out.lines().collect();
    assert!(lines[0].ends_with("graph.pb: train, batches of 12 of 12 examples, seed 0"), "{out}");
    assert!(lines[1].starts_with("CPU:0: limit none, promised "), "{out}");
    assert!(lines[2].starts_with("step 20: loss ") && !out.contains("held-out"), "{out}");
    assert!(
        lines[3..].iter().any(|line| line.starts_with(lines[1]))
            && out.split_whitespace().collect::<Vec<_>>().join(" ").contains("1 byte short"),
        "{out}"
    );
    assert_eq!(text(&output.stderr).lines().filter(|line| line.contains(": loss ")).count(), 10);

    let silent: Vec<&str> = arguments.iter().map(String::as_str).filter(|argument| !["--fetch", "loss"].contains(argument)).collect();
    let output = train(&[&silent[..], &["--steps", "20", "--json"]].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["steps"], &document["final_loss"]), (&Value::from(20), &Value::Null));
    assert!(text(&output.stderr).contains("step 20\n"), "{}", text(&output.stderr));
}

#[test]
fn runs_at_the_promised_peak_and_is_refused_one_byte_below() {
    let arguments = arguments("mlp_adam_resource");
    let peak = devices(&document(&with(&arguments, &["--steps", "2"])))[0].2;
    let limited = document(&with(&arguments, &["--steps", "2", "--memory-limit", &format!("CPU:0={peak}B")]));
    assert_eq!(devices(&limited)[0].1, Some(peak));
    let output = train(&with(&arguments, &["--steps", "2", "--json", "--memory-limit", &format!("CPU:0={}B", peak - 1)]));
    let err = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true), "{err}");
    assert!(err.starts_with("error: RESOURCE_EXHAUSTED: ") && err.contains(": 1 byte short; at the peak "), "{err}");
}

#[test]
fn a_resumed_training_writes_the_checkpoint_of_an_uninterrupted_one() {
    let folder = Folder::new("model-resume");
    let [first, second, whole] = ["first", "second", "whole"].map(|name| folder.text(name));
    for name in ["mlp_sgd_ref", "mlp_adam_resource"] {
        let mut arguments = arguments(name);
        *arguments.last_mut().unwrap() = "5".to_string();
        document(&with(&arguments, &["--steps", "15", "--seed", "7", "--save", &first]));
        let resumed = document(&with(&arguments, &["--steps", "40", "--resume", &first, "--save", &second]));
        let at_once = document(&with(&arguments, &["--steps", "40", "--seed", "7", "--save", &whole]));
        assert_eq!((&resumed["steps"], &resumed["final_loss"]), (&at_once["steps"], &at_once["final_loss"]));
        let data = |folder: &str| std::fs::read(Path::new(folder).join("model.ckpt-40.data-00000-of-00001")).unwrap();
        assert_eq!(data(&second), data(&whole));
    }
}

#[test]
fn what_is_missing_or_does_not_fit_is_said() {
    let folder = Folder::new("model-refused");
    let write = |name: &str, tensor: &HostTensor| {
        let path = folder.text(name);
        npy::write(tensor, &mut std::fs::File::create(&path).unwrap()).unwrap();
        path
    };
    let floats = |name: &str, shape: &[u64]| {
        let count = shape.iter().product::<u64>() as usize;
        write(name, &HostTensor::from_slice(plimsoll::Shape::new(shape), &vec![0.5f32; count]).unwrap())
    };
    let graph = case("mlp_sgd_ref/graph.pb");
    let [good, narrow, doubles, fewer] = [
        format!("x={}", case("mlp_sgd_ref/step0_feed0.npy")),
        format!("x={}", floats("narrow.npy", &[12, 5])),
        format!("x={}", write("doubles.npy", &HostTensor::from_slice([12, 6], &[0.5f64; 72]).unwrap())),
        format!("x={}", floats("fewer.npy", &[11, 6])),
    ];
    let labels = format!("y={}", case("mlp_sgd_ref/step0_feed1.npy"));
    let columns = folder.text("columns.npy");
    let header = "{'descr': '<f4', 'fortran_order': True, 'shape': (12, 6)}";
    let bytes = [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &[0; 288]].concat();
    std::fs::write(&columns, &bytes).unwrap();
    let cut = folder.text("cut.npy");
    let whole = std::fs::read(case("mlp_sgd_ref/step0_feed0.npy")).unwrap();
    std::fs::write(&cut, &whole[..whole.len() - 1]).unwrap();
    let (columns, cut) = (format!("x={columns}"), format!("x={cut}"));
    let both = ["--data", &good, "--data", &labels];
    let train_target = ["--target", "train"];
    let cases: &[(&[&[&str]], i32, &str)] = &[
        (&[], 2, "name its examples: --data NAME=FILE.npy"),
        (&[&both], 2, "say what a step runs, with --target OPERATION; the graph ends in the operation"),
        (&[&both, &["--target", "trian"]], 2, "there is no 'trian' in the graph\n  hint: did you mean 'train'?"),
        (&[&both, &train_target, &["--fetch", "losses"]], 2, "there is no 'losses' in the graph\n  hint: did you mean 'loss'?"),
        (&[&both, &train_target, &["--init", "start"]], 2, "there is no 'start' in the graph"),
        (&[&both, &train_target, &["--fetch", "net/Relu", "--batch-size", "12"]], 2, "a loss is a scalar of float or double"),
        (&[&["--data", &good], &train_target], 2, "a step needs the placeholder 'y' (int32[?])\n  hint: add --data y=FILE.npy"),
        (&[&["--data", "x"], &train_target], 2, "--data x: write NAME=FILE.npy"),
        (&[&["--data", "x=nothing.npy"], &train_target], 2, "nothing.npy"),
        (&[&["--data", &narrow, "--data", &labels], &train_target], 2, "batches of 128 are float[128,5], and 'x' is float[?,6]"),
        (&[&["--data", &doubles, "--data", &labels], &train_target], 2, "batches of 128 are double[128,6], and 'x' is float[?,6]"),
        (&[&["--data", &fewer, "--data", &labels], &train_target], 2, "step0_feed1.npy has 12 examples (its first axis), and"),
        (&[&["--data", &columns, "--data", &labels], &train_target], 2, "columns.npy is in Fortran order"),
        (&[&["--data", &cut, "--data", &labels], &train_target], 1, "cut.npy, byte"),
        (&[&both, &["--data", &good.replace("x=", "x:0=")], &train_target], 2, "'x:0' is given twice"),
        (&[&["--data", &good.replace("x=", "loss=")], &train_target], 2, "only placeholders are fed"),
        (&[&["--data", &good.replace("x=", "z=")], &train_target], 2, "there is no 'z' in the graph"),
        (&[&both, &train_target, &["--held-out", "0.2"]], 2, "say which scalar the held-out examples give, with --evaluate TENSOR"),
        (&[&both, &train_target, &["--held-out", "0.95", "--evaluate", "loss"]], 2, "leaves nothing on one side"),
        (&[&both, &train_target, &["--held-out", "0.2", "--evaluate", "lost"]], 2, "there is no 'lost' in the graph"),
        (&[&both, &train_target, &["--held-out", "0.2", "--batch-size", "4", "--evaluate", "net/Relu"]], 2, "a score is a scalar"),
        (&[&both, &train_target, &["--held-out", "1.5", "--evaluate", "loss"]], 2, "write a share between 0 and 1"),
        (&[&both, &train_target, &["--epochs", "2", "--steps", "9"]], 2, "cannot be used with"),
        (&[&both, &train_target, &["--towers", "2"]], 2, "--towers: a model has its own"),
        (&[&both, &train_target, &["--optimizer", "sgd"]], 2, "--optimizer: a model has its own"),
        (&[&both, &train_target, &["--signature", "serve"]], 2, "only SavedModels have signatures"),
    ];
    let refused = |args: &[&str], status: i32, fragment: &str| {
        let output = train(args);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {err}");
        assert!(err.contains(fragment) && output.stdout.is_empty(), "{args:?}: {err}\n{fragment}");
    };
    for (args, status, fragment) in cases {
        refused(&[&[graph.as_str()][..], &args.concat()].concat(), *status, fragment);
    }
    let (model, x) = (saved("model"), format!("x={}", saved("x.npy")));
    for (args, fragment) in [
        (&["--data", &x][..], "say which signature trains, with --signature NAME;"),
        (&["--data", &x, "--signature", "serve"], "the model has no signature 'serve'; there are"),
        (&["--data", &x.replace("x=", "z="), "--signature", "train"], "the signature 'train' has no argument 'z'; there are x, y"),
        (&["--data", &x, "--signature", "train"], "a step needs the placeholder 'train_y'"),
        (&["--data", &x, "--signature", "train", "--fetch", "accuracy"], "does not give that; it gives loss"),
        (&["--data", &x, "--signature", "train", "--held-out", "0.5"], "say which signature tests, with --evaluate NAME;"),
        (&["--data", &x, "--signature", "train", "--held-out", "0.5", "--evaluate", "train"], "it takes x, y, and the examples have x"),
    ] {
        refused(&[&[model.as_str()][..], args].concat(), 2, fragment);
    }
}
