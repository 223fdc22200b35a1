//! The drawings in `docs/pictures` show the plans, measurements and trainings of today. `PLIMSOLL_BLESS=1` draws them anew.

use std::path::{Path, PathBuf};

use plimsoll::page::{chart, svg};
use plimsoll::{Devices, Feed, Options, Shape, Signature};
use plimsoll_train::data::Component;
use plimsoll_train::model::{CIFAR10, OptimizerKind, Recipe, Steps, Towers, TrainingGraph};
use plimsoll_train::{Config, Trainer};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a drawing with the one in the documents, whose numbers may be so far off.
fn assert_drawn(name: &str, drawn: &str, slack: f64) {
    let path = root().join("docs/pictures").join(name);
    if std::env::var_os("PLIMSOLL_BLESS").is_some() {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("the folder is there");
        std::fs::write(&path, drawn).expect("the drawing is written");
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    let is_same = known == drawn || (slack > 0.0 && apart(&known, drawn).is_some_and(|apart| apart <= slack));
    assert!(is_same, "docs/pictures/{name} is out of date: PLIMSOLL_BLESS=1 cargo test -p plimsoll-cli --test cli drawings");
}

/// The largest difference between numbers of two texts that are the same otherwise.
fn apart(a: &str, b: &str) -> Option<f64> {
    let words = |text: &str| text.split([' ', ',', '"']).map(str::to_string).collect::<Vec<_>>();
    let (a, b) = (words(a), words(b));
    let mut most = 0f64;
    for (one, other) in a.iter().zip(&b).filter(|(one, other)| one != other) {
        most = most.max((one.parse::<f64>().ok()? - other.parse::<f64>().ok()?).abs());
    }
    (a.len() == b.len()).then_some(most)
}

/// A training step of the CIFAR-10 network under a line.
#[test]
fn the_step_of_cifar_is_drawn() {
    let devices = Devices::open(&Options::new().limit("CPU:0", "40MiB").intra_op(2)).expect("a device");
    let recipe = Recipe { optimizer: OptimizerKind::Sgd, learning_rate: 0.1, decay: None, moving_average: None, seed: 0 };
    let components =
        [Component::new("images", plimsoll::DataType::Float, &[24, 24, 3]), Component::new("labels", plimsoll::DataType::Int32, &[])];
    let registry = std::sync::Arc::clone(devices.registry());
    let built = TrainingGraph::together(&registry, &CIFAR10.network, &components, &Towers::on_cpus(1), &recipe).expect("a graph");
    let Steps::Together(steps) = &built.parts.steps else { panic!("the towers step together") };
    let feed = |(tensor, component): (&String, &Component)| {
        let dims: Vec<u64> = std::iter::once(128).chain(component.shape.dims().iter().copied()).collect();
        Feed { tensor: tensor.clone(), data_type: component.data_type, shape: Shape::new(dims), value: None }
    };
    let signature = Signature {
        feeds: steps.feeds[0].iter().zip(&components).map(feed).collect(),
        fetches: steps.loss.iter().cloned().collect(),
        targets: steps.train.clone(),
        ..Signature::default()
    };
    let session = devices.session(built.graph.clone()).expect("a session");
    let model = session.plan_signature(&signature).expect("a plan").picture_of_model("cifar10", &[]);
    let drawn = svg::memory(&model, "A training step of the CIFAR-10 network, batch 128, under a line of 40 MiB").expect("a drawing");
    // Kernels take their scratch by the processor: this says of which one the drawing is.
    let spec = &devices.specs()[0];
    let processor = format!("<!-- {}, caches {:?}, 2 threads -->\n", spec.instructions, spec.caches);
    let known = std::fs::read_to_string(root().join("docs/pictures/cifar10.svg")).unwrap_or_default();
    if !known.ends_with(&processor) && known.contains("<!-- ") && std::env::var_os("PLIMSOLL_BLESS").is_none() {
        eprintln!("skipped: the drawing is of a processor with {}", known.lines().last().unwrap_or_default());
        return;
    }
    assert_drawn("cifar10.svg", &(drawn + &processor), 0.0);
}

/// The tables that `bench/compare.py` writes, as bars.
#[test]
fn the_benchmarks_are_drawn() {
    let page = std::fs::read_to_string(root().join("docs/benchmarks.md")).expect("the page");
    let rows = page.lines().skip_while(|line| !line.starts_with("| work ")).skip(2).take_while(|line| line.starts_with('|'));
    let milliseconds = |cell: &str| cell.strip_suffix(" ms").and_then(|number| number.parse::<f64>().ok());
    let mut groups: Vec<chart::Group> = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (Some(ours), Some(theirs)) = (milliseconds(cells[2]), milliseconds(cells[3])) else { continue };
        let longest = ours.max(theirs);
        groups.push((cells[1].to_string(), vec![(ours / longest, cells[2].to_string()), (theirs / longest, cells[3].to_string())]));
    }
    assert!(groups.len() >= 4, "the table of docs/benchmarks.md was not found");
    assert_drawn(
        "benchmarks.svg",
        &chart::bars("Time beside TensorFlow 2.21, two threads each; shorter is better", &["Plimsoll", "TensorFlow"], &groups),
        0.0,
    );
}

/// The losses of the digits with each optimizer, ten steps a point.
#[test]
fn the_losses_of_a_training_are_drawn() {
    const STEPS: usize = 200;
    let mut series = Vec::new();
    for (name, optimizer) in [("sgd", OptimizerKind::Sgd), ("momentum", OptimizerKind::Momentum), ("adam", OptimizerKind::Adam)] {
        let devices = Devices::open(&Options::new().limit("CPU:0", "8MiB").intra_op(1)).expect("a device");
        let config = Config { towers: 1, optimizer: Some(optimizer), ..Config::default() };
        let mut trainer = Trainer::digits(&devices, &config).expect("a training");
        let losses: Vec<f64> = (0..STEPS).map(|_| f64::from(trainer.step().expect("a step").loss.expect("a loss"))).collect();
        series.push((name, losses.chunks(10).map(|ten| ten.iter().sum::<f64>() / ten.len() as f64).collect::<Vec<_>>()));
    }
    let drawn = chart::curves("The loss of the digits over 200 steps, batch 128, seed 0", &series, 2.4, STEPS, ("step", "loss"));
    assert_drawn("digits.svg", &drawn, 2.0);
}
