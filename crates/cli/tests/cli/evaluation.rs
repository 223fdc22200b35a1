//! `plimsoll eval`: values, files, checkpoints.

use plimsoll::{HostTensor, npy};

use super::{Folder, document, plimsoll, saved};

fn array(folder: &Folder, name: &str, tensor: &HostTensor) -> String {
    let mut bytes = Vec::new();
    npy::write(tensor, &mut bytes).unwrap();
    folder.write(name, bytes)
}

pub(super) fn scalars(folder: &Folder, values: [f32; 3]) -> String {
    let feed = |(name, value): (&str, f32)| format!("--feed {name}={}", array(folder, &format!("{name}.npy"), &HostTensor::scalar(value)));
    ["a", "x:0", "b"].into_iter().zip(values).map(feed).collect::<Vec<_>>().join(" ")
}

#[test]
fn values_are_printed_or_written() {
    let folder = Folder::new("eval");
    let feeds = scalars(&folder, [2.0, 3.5, -1.0]);
    let said = plimsoll(&format!("eval scalars/graph.pb {feeds}"));
    assert_eq!((said.code, said.out.as_str()), (0, "y:0 float[] = 6.0\n"), "{}", said.err);

    let file = folder.0.join("y.npy").display().to_string();
    let said = plimsoll(&format!("eval scalars/graph.pb {feeds} --fetch y={file} --fetch mul"));
    assert_eq!(said.out, format!("y float[] -> {file}\nmul float[] = 7.0\n"), "{}", said.err);
    assert_eq!(npy::read(&std::fs::read(&file).unwrap()).unwrap(), HostTensor::scalar(6.0f32));
    assert!(std::fs::read_dir(&folder.0).unwrap().all(|entry| entry.unwrap().path().extension().is_some_and(|end| end == "npy")));

    let json = document(&format!("eval scalars/graph.pb {feeds} --json"));
    assert_eq!(json["models"][0]["fetches"][0]["values"], serde_json::json!([6.0]));
}

#[test]
fn a_plan_from_a_file_runs_where_it_was_made_for() {
    let folder = Folder::new("eval-plan");
    let file = folder.0.join("step.plan").display().to_string();
    let shapes = "--feed-shape a= --feed-shape x:0= --feed-shape b=";
    let said = plimsoll(&format!("plan scalars/graph.pb {shapes} --fetch y --fetch mul --output {file}"));
    assert_eq!(said.code, 0, "{}", said.err);
    let feeds = scalars(&folder, [2.0, 3.5, -1.0]);
    let eval = |rest: &str| plimsoll(&format!("eval scalars/graph.pb {feeds} --plan {file} {rest}"));
    // Fetches come in the order of the command line, and need not be all of the plan.
    assert_eq!(eval("--fetch mul --fetch y").out, "mul float[] = 7.0\ny float[] = 6.0\n", "{}", eval("").err);
    assert_eq!(eval("--fetch y").out, "y float[] = 6.0\n");
    let refused =
        |said: super::Said, code: i32, why: &str| assert!(said.code == code && said.err.contains(why), "{} {}", said.code, said.err);
    refused(eval("--fetch x:0"), 2, "the plan does not fetch x:0: it fetches y, mul");
    refused(eval("--fetch y --device-count CPU=3"), 1, "made for other devices: for 1, and here are 3");
    refused(plimsoll(&format!("eval mlp_sgd_ref/graph.pb --fetch w1_now --plan {file}")), 1, "made for another graph");
    refused(plimsoll(&format!("eval scalars/graph.pb --fetch y --plan {file}")), 2, "add --feed a=FILE.npy");
    refused(eval("--fetch y --placement first-fit"), 2, "leave out --placement");
    std::fs::write(&file, "{}").unwrap();
    refused(eval("--fetch y"), 1, "DATA_LOSS");
    refused(
        plimsoll(&format!("plan scalars/graph.pb scalars/graph.pb {shapes} --fetch y --output {file}")),
        2,
        "--output and --svg are for the plan of one model",
    );
}

#[test]
fn models_side_by_side_give_the_same() {
    let folder = Folder::new("eval-parallel");
    let feeds = scalars(&folder, [0.5, 4.0, 0.25]);
    let models = "scalars/graph.pb scalars/graph.pb scalars/graph.pb";
    let in_turn = plimsoll(&format!("eval {models} {feeds}"));
    let together = plimsoll(&format!("eval {models} {feeds} --parallel"));
    assert_eq!(in_turn.out, "y:0 float[] = 2.25\n".repeat(3), "{}", in_turn.err);
    assert_eq!(together.out, in_turn.out, "{}", together.err);
}

#[test]
fn variables_come_from_an_initializer_or_a_checkpoint() {
    let folder = Folder::new("eval-restore");
    let model = "eval mlp_sgd_ref/graph.pb --fetch w1_now";
    let said = plimsoll(model);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("FAILED_PRECONDITION: Attempting to use uninitialized value net/w1"), "{}", said.err);
    assert_eq!(plimsoll(&format!("{model} --init init")).code, 0);

    // A checkpoint of one variable only, which is all that is asked for.
    let devices = plimsoll::Devices::open(&plimsoll::Options::new()).unwrap();
    let mut builder = devices.builder();
    let values: Vec<f32> = (0..48).map(|value| value as f32).collect();
    let value = HostTensor::from_slice([6, 8], &values).unwrap();
    builder.variable_scope("net", Default::default(), |b| {
        b.get_variable("w1", plimsoll::DataType::Float, [6, 8], &plimsoll::builder::Initializer::Value(value)).unwrap();
    });
    builder.global_variables_initializer().unwrap();
    let session = devices.session(builder.finish()).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    session.save(folder.0.join("model")).unwrap();
    for place in [folder.0.clone(), folder.0.join("model")] {
        let json = document(&format!("{model} --json --restore {}", place.display()));
        assert_eq!(json["models"][0]["fetches"][0]["values"], serde_json::json!(values));
    }
    let said = plimsoll(&format!("{model} --restore {}", folder.0.join("none").display()));
    assert_eq!(said.code, 1);
    assert!(said.err.contains("NOT_FOUND: ") && said.err.contains("there is no checkpoint"), "{}", said.err);
}

#[test]
fn a_saved_model_restores_itself_and_its_signatures_are_called_by_their_names() {
    let array = |file: &str| npy::read(&std::fs::read(saved(file)).unwrap()).unwrap();
    let losses = array("losses.npy").to_vec::<f32>().unwrap();
    let (model, x, y) = (saved("model"), saved("x.npy"), saved("y.npy"));
    let (model, feeds) = (model.display(), format!("--feed x={} --feed y={}", x.display(), y.display()));
    // Its only signature need not be named, nor its results.
    for asked in ["", "--signature train", "--fetch loss", "--signature model::train --fetch 1::loss"] {
        let json = document(&format!("eval {model} {feeds} {asked} --json"));
        let fetched = &json["models"][0]["fetches"][0];
        assert_eq!(fetched["name"], "loss");
        assert!((fetched["values"][0].as_f64().unwrap() - f64::from(losses[0])).abs() < 1e-5, "{fetched}");
    }
    // Keras: the functions use other variables than those that the model's own restoring gives values to.
    let json = document(&format!("eval {} --feed inputs={} --json", saved("keras").display(), x.display()));
    let wanted = array("keras_y.npy").to_vec::<f32>().unwrap();
    let values = json["models"][0]["fetches"][0]["values"].as_array().unwrap();
    assert_eq!(values.len(), wanted.len());
    assert!(values.iter().zip(&wanted).all(|(got, want)| (got.as_f64().unwrap() - f64::from(*want)).abs() < 1e-6), "{json}");
    let said = plimsoll(&format!("eval {model} --feed y={}", y.display()));
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("add --feed x=FILE.npy"), "{}", said.err);
    let said = plimsoll(&format!("eval {model} {feeds} --fetch accuracy"));
    assert!(said.code == 2 && said.err.contains("there is no 'accuracy' in the signature 'train'"), "{}", said.err);
    assert!(said.err.contains("hint: arguments: x, y; results: "), "{}", said.err);
    let plan = document(&format!("plan {model} --feed-shape x=12x4 --feed-shape y=12 --json"));
    assert!(plan["devices"][0]["variables_bytes"].as_u64().unwrap() > 0, "{plan}");

    // A step's changes stay.
    let devices = plimsoll::Devices::open(&plimsoll::Options::new()).unwrap();
    let session = devices.load(saved("model")).unwrap();
    for loss in losses {
        let results = session.call("train", &[("x", array("x.npy")), ("y", array("y.npy"))]).unwrap();
        assert_eq!(results[0].0, "loss");
        assert!((results[0].1.to_vec::<f32>().unwrap()[0] - loss).abs() < 1e-5, "{results:?} {loss}");
    }
    let error = session.call("train", &[("z", array("x.npy"))]).unwrap_err();
    assert_eq!(error.message(), "the signature 'train' has no argument 'z'; there are x, y");
    let error = session.call("serve", &[]).unwrap_err();
    assert!(error.message().starts_with("the model has no signature 'serve'; there are "), "{error}");
}

/// Of two networks of which one fits on the card, both run, within both limits, with the values that they have on the processor.
#[test]
fn networks_go_where_there_is_room() {
    let values = |json: &serde_json::Value| -> Vec<serde_json::Value> {
        json["models"].as_array().unwrap().iter().map(|model| model["fetches"][0]["values"].clone()).collect()
    };
    let models = "two/big.pb two/small.pb --init init --fetch y --json";
    let wanted = values(&document(&format!("eval {models}")));
    let limits = "--sim-gpus 1x4GiB --memory-limit GPU:0=8MiB,CPU:0=8MiB";
    for how in
        ["", "--parallel", "--parallel --placement first-fit", "--placement first-fit", "--parallel --placement auto", "--placement auto"]
    {
        let got = document(&format!("eval {models} {limits} {how}"));
        assert_eq!(values(&got), wanted, "{how}");
    }
    let sides = document(&format!("eval {models} {limits} --parallel --placement first-fit"));
    assert_eq!(sides["rounds"], serde_json::json!([[0, 1]]));

    // The plan says the same, node by node.
    let plan = document(&format!("plan two/big.pb two/small.pb --fetch y --placement first-fit {limits} --json"));
    assert_eq!((&plan["fits"], &plan["together"]), (&true.into(), &"side_by_side".into()));
    let nodes = plan["nodes"].as_array().unwrap();
    for (model, device) in [("two/big.pb", "GPU:0"), ("two/small.pb", "CPU:0")] {
        let of_model: Vec<_> = nodes.iter().filter(|node| node["model"] == model).collect();
        assert!(!of_model.is_empty());
        assert!(of_model.iter().all(|node| node["device"].as_str().unwrap().ends_with(device)), "{of_model:?}");
    }

    // A recorded case stays as it is, and names its attempts.
    let said = plimsoll("verify mlp_adam_resource --placement first-fit --sim-gpus 1x4GiB --memory-limit GPU:0=8MiB");
    assert_eq!(said.code, 0, "{}", said.out);
    assert!(said.err.contains("mlp_adam_resource: whole on GPU:0: fits: "), "{}", said.err);
    let said = plimsoll("place two/big.pb --placement first-fit");
    assert!(said.code == 2 && said.err.contains("--fetch"), "{}", said.err);
    let said = plimsoll(&format!("eval two/huge.pb {models} --sim-gpus 1x4GiB --memory-limit GPU:0=3MiB,CPU:0=3MiB --placement first-fit"));
    assert!(said.code == 1 && said.err.contains("the model fits nowhere, whole or in pieces"), "{}", said.err);
}
