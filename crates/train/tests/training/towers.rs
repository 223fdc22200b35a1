//! Towers of the CIFAR-10 tutorial's network on small synthetic images: their results, memory, copies and waiting.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use plimsoll::{Bytes, Cancellation, Code, Devices, HostTensor, Options};
use plimsoll_train::data::{DataSet, Examples};
use plimsoll_train::model::{CIFAR10, DIGITS, OptimizerKind, Towers};
use plimsoll_train::{Config, Trainer};

const SIDE: usize = 6;
const ALL: [OptimizerKind; 3] = [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam];

fn cpus(count: usize) -> Options {
    let mut options = Options::new();
    options.device_count.insert("CPU".to_string(), count as i32);
    options
}

/// Images of [`SIDE`] * [`SIDE`] * 3 with noise around their class's image.
fn images(count: usize, seed: u32) -> Examples {
    let mut state = seed;
    let mut random = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32 - 0.5
    };
    let labels: Vec<i32> = (0..count as i32).map(|number| number % 10).collect();
    let mut pixels = Vec::new();
    for label in &labels {
        let class = |at: usize| if (at * 7 + *label as usize * 13) % 10 < 4 { 1.0 } else { -0.7 };
        pixels.extend((0..SIDE * SIDE * 3).map(|at| class(at) + 0.5 * random()));
    }
    let images = HostTensor::from_slice([count as u64, SIDE as u64, SIDE as u64, 3], &pixels).unwrap();
    Examples::new(vec![("images", images), ("labels", HostTensor::from_slice([count as u64], &labels).unwrap())]).unwrap()
}

fn cifar10(devices: &Devices, config: &Config) -> plimsoll::Result<Trainer> {
    Trainer::new(devices, &CIFAR10, DataSet::new(images(60, 1), Some(images(30, 2)), config.seed)?, config)
}

fn config(towers: usize) -> Config {
    Config { towers, batch_size: 12, seed: 3, ..Config::default() }
}

fn losses(trainer: &mut Trainer, steps: usize) -> Vec<f32> {
    (0..steps).map(|_| trainer.step().unwrap().loss.unwrap()).collect()
}

/// Takes steps up to `until` and gives their numbers and losses in the order in which they came.
fn run(trainer: &mut Trainer, until: u64) -> Vec<(u64, f32)> {
    let seen = Mutex::new(Vec::new());
    trainer.run(until, &|| false, &|step| seen.lock().unwrap().push((step.step, step.loss.unwrap()))).unwrap();
    seen.into_inner().unwrap()
}

fn value(trainer: &Trainer, name: &str) -> Vec<f32> {
    trainer.session().read_variable(name).unwrap().to_vec().unwrap()
}

#[test]
fn towers_are_on_the_cards_where_there_are_cards() {
    let devices = |options: &Options| Devices::open(options).unwrap();
    let cards = devices(&cpus(2).sim_gpus("3x1GiB"));
    assert_eq!(
        (Towers::on(&cards).devices, Towers::on(&cards).variables),
        (["/gpu:0", "/gpu:1", "/gpu:2"].map(str::to_string).to_vec(), "/cpu:0".to_string())
    );
    assert_eq!(Towers::many_on(&cards, 4).devices[2..], ["/gpu:2", "/gpu:0"]);
    let cpus = devices(&cpus(2));
    assert_eq!(Towers::on(&cpus), Towers::on_cpus(2));
    assert_eq!(Towers::many_on(&cpus, 3), Towers::on_cpus(3));
}

/// A training that may finish its step has taken whole steps; one that is cut short saves nothing.
#[test]
fn a_cancelled_training_knows_whether_its_variables_are_whole() {
    let devices = Devices::open(&cpus(2)).unwrap();
    let run = |end: fn(&Cancellation)| {
        let cancellation = Cancellation::new();
        let mut trainer = cifar10(&devices, &config(2)).unwrap().until(&cancellation);
        trainer.start(None).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(40));
                end(&cancellation);
            });
            trainer.run(u64::MAX, &|| false, &|_| {}).unwrap();
        });
        trainer
    };
    let folder = std::env::temp_dir().join(format!("plimsoll-train-cancelled-{}", std::process::id()));
    let finished = run(Cancellation::finish);
    assert!(!finished.is_torn());
    finished.save(&folder).unwrap();
    let mut whole = cifar10(&devices, &config(2)).unwrap();
    losses(&mut whole, finished.steps() as usize);
    assert_eq!(value(&finished, "conv1/weights"), value(&whole, "conv1/weights"));
    let torn = (0..20).map(|_| run(Cancellation::cancel)).find(Trainer::is_torn).expect("a step that was under way");
    assert_eq!(torn.save(&folder).unwrap_err().code(), Code::FailedPrecondition);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn towers_give_what_one_tower_gives_with_the_whole_batch() {
    for (optimizer, rate) in ALL.into_iter().zip([0.05, 0.005, 0.0005]) {
        let config = |towers| Config { optimizer: Some(optimizer), learning_rate: Some(rate), ..config(towers) };
        let devices = Devices::open(&cpus(3)).unwrap();
        let mut one = cifar10(&devices, &config(1)).unwrap();
        let alone = losses(&mut one, 6);
        for towers in [2, 3] {
            let mut many = cifar10(&devices, &config(towers)).unwrap();
            let worst = losses(&mut many, 6).iter().zip(&alone).map(|(a, b)| ((a - b) / b).abs()).fold(0f32, f32::max);
            assert!(worst < 2e-5, "{optimizer}, {towers} towers: {worst}");
            for name in ["conv1/weights", "conv2/biases", "local3/weights", "softmax_linear/weights/ExponentialMovingAverage"] {
                // Adam divides gradients that are rounding errors by their size.
                let close = if optimizer == OptimizerKind::Adam { 6.0 * rate } else { 1e-5 };
                let difference = value(&one, name).iter().zip(value(&many, name)).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
                assert!(difference <= close, "{optimizer}, {towers} towers, {name}: {difference}");
            }
        }
    }
}

#[test]
fn the_number_of_devices_and_threads_changes_no_bit() {
    let with = |options: &Options| {
        let mut trainer = cifar10(&Devices::open(options).unwrap(), &config(2)).unwrap();
        (losses(&mut trainer, 4), trainer.evaluate().unwrap(), trainer.evaluate_averages().unwrap(), value(&trainer, "local4/weights"))
    };
    let want = with(&cpus(2));
    for options in [cpus(1), cpus(2).intra_op(1), cpus(2).intra_op(3), cpus(3).intra_op(4)] {
        assert_eq!(with(&options), want, "{options:?}");
    }
}

#[test]
fn the_tutorials_training_is_all_there() {
    let mut trainer = cifar10(&Devices::open(&cpus(2)).unwrap(), &config(2)).unwrap();
    losses(&mut trainer, 25);
    let names: Vec<String> = trainer.session().variables().into_iter().filter(|v| !v.is_state).map(|v| v.name).collect();
    let layers = ["conv1", "conv2", "local3", "local4", "softmax_linear"];
    for name in layers.iter().flat_map(|layer| [format!("{layer}/weights"), format!("{layer}/biases")]) {
        assert!(names.contains(&name) && names.contains(&format!("{name}/ExponentialMovingAverage")), "{names:?}");
    }
    assert_eq!(names.len(), 1 + 2 * 10);
    assert_eq!(value_i64(&trainer, "global_step"), 25);
    let graph = trainer.session().graph();
    let of = |name: &str| graph.node(graph.find(name).unwrap_or_else(|| panic!("there is no node {name}")));
    let nodes = [
        ("tower_1/conv1/Conv2D", "Conv2D", "/device:CPU:1"),
        ("tower_0/conv1/conv1", "Relu", "/device:CPU:0"),
        ("tower_1/norm1", "LRN", "/device:CPU:1"),
        ("tower_0/local3/weight_loss", "Mul", "/device:CPU:0"),
        ("tower_1/total_loss", "AddN", "/device:CPU:1"),
        ("tower_1/gradients/tower_1/conv2/Conv2D_grad/Conv2DBackpropFilter", "Conv2DBackpropFilter", "/device:CPU:1"),
        ("ExponentialDecay", "Mul", "/device:CPU:0"),
        ("ExponentialMovingAverage/AssignMovingAvg", "AssignSub", "/device:CPU:0"),
        ("conv1/weights", "VariableV2", "/device:CPU:0"),
    ];
    for (name, op, device) in nodes {
        assert_eq!((of(name).op.as_str(), of(name).device.as_str()), (op, device), "{name}");
    }
    // Averages follow the variables: after a few steps they are near them, and not equal.
    let (variable, average) = (value(&trainer, "conv2/biases"), value(&trainer, "conv2/biases/ExponentialMovingAverage"));
    let moved = variable.iter().map(|v| (v - 0.1).abs()).fold(0f32, f32::max);
    let behind = variable.iter().zip(&average).map(|(v, a)| (v - a).abs()).fold(0f32, f32::max);
    assert!(0.0 < behind && behind < moved, "{behind} {moved}");
    assert_ne!(trainer.evaluate().unwrap().get("loss"), trainer.evaluate_averages().unwrap().unwrap().get("loss"));
}

fn value_i64(trainer: &Trainer, name: &str) -> i64 {
    trainer.session().read_variable(name).unwrap().to_vec::<i64>().unwrap()[0]
}

#[test]
fn the_network_learns_in_both_forms() {
    for is_async in [false, true] {
        let config = Config { optimizer: Some(OptimizerKind::Adam), learning_rate: Some(0.002), is_async, ..config(2) };
        let mut trainer = cifar10(&Devices::open(&cpus(2)).unwrap(), &config).unwrap();
        let before = trainer.evaluate().unwrap();
        run(&mut trainer, 80);
        let after = trainer.evaluate().unwrap();
        let (accuracy, loss) = if is_async { (0.2, 0.9) } else { (0.4, 0.7) };
        assert!(
            before.get("accuracy").unwrap() < 0.2
                && after.get("accuracy").unwrap() > accuracy
                && after.get("loss").unwrap() < loss * before.get("loss").unwrap(),
            "async {is_async}: {before:?} {after:?}"
        );
    }
}

#[test]
fn the_rate_decays_by_steps() {
    // 60 examples in batches of 12: an epoch is 5 steps, 350 of them are too many to wait for.
    let model = plimsoll_train::model::Model { decay: Some(plimsoll_train::model::Decay { epochs: 0.4, factor: 0.0 }), ..CIFAR10 };
    let data = DataSet::new(images(60, 1), None, 3).unwrap();
    let mut trainer = Trainer::new(&Devices::open(&cpus(1)).unwrap(), &model, data, &config(1)).unwrap();
    losses(&mut trainer, 2);
    let before = value(&trainer, "local4/weights");
    losses(&mut trainer, 2);
    assert_eq!(value(&trainer, "local4/weights"), before, "after two steps the rate is 0");
}

#[test]
fn in_both_forms_measured_is_promised_and_one_byte_less_is_refused() {
    for (towers, optimizer, is_async) in [
        (2, OptimizerKind::Sgd, false),
        (3, OptimizerKind::Momentum, false),
        (1, OptimizerKind::Sgd, true),
        (2, OptimizerKind::Adam, true),
        (3, OptimizerKind::Sgd, true),
    ] {
        let config = Config { optimizer: Some(optimizer), is_async, ..config(towers) };
        let devices = Devices::open(&cpus(2)).unwrap();
        let mut trainer = cifar10(&devices, &config).unwrap();
        assert!(devices.report().iter().all(|device| device.in_use == Bytes::ZERO), "planning takes no device memory");
        let promised: Vec<Bytes> = trainer.promise().devices().iter().map(|device| device.peak).collect();
        run(&mut trainer, 2 * towers as u64);
        trainer.evaluate().unwrap();
        trainer.evaluate_averages().unwrap();
        let measured: Vec<Bytes> = devices.report().iter().map(|device| device.peak).collect();
        assert_eq!(measured, promised, "{towers} towers, {optimizer}, async {is_async}");
        let limited = |less: [u64; 2]| {
            let limit =
                |options: Options, index: usize| options.limit(&format!("CPU:{index}"), &(promised[index].0 - less[index]).to_string());
            Devices::open(&limit(limit(cpus(2), 0), 1).fit(false)).unwrap()
        };
        let mut exact = cifar10(&limited([0, 0]), &config).unwrap();
        run(&mut exact, towers as u64);
        exact.evaluate().unwrap();
        let used = promised.iter().filter(|peak| **peak > Bytes::ZERO).count();
        for index in 0..used {
            let mut less = [0, 0];
            less[index] = 1;
            let devices = limited(less);
            let error = cifar10(&devices, &config).err().unwrap();
            assert_eq!(error.code(), Code::ResourceExhausted, "{error}");
            assert!(error.message().contains(": 1 byte short; at the peak"), "{error}");
            assert!(trainer.promise().one_byte_less(index).unwrap().message().contains("1 byte short"));
            assert!(devices.report().iter().all(|device| device.peak == Bytes::ZERO));
        }
        drop(trainer);
        assert!(devices.report().iter().all(|device| device.in_use == Bytes::ZERO), "{devices:?}");
    }
}

#[test]
fn towers_apart_learn_and_count_every_step() {
    // Gradients of old variables ask for smaller rates; their age is up to the machine.
    for (optimizer, rate) in ALL.into_iter().zip([0.05, 0.01, 0.001]) {
        for towers in [1, 2, 4] {
            let devices = Devices::open(&cpus(towers)).unwrap();
            let of = Config { towers, optimizer: Some(optimizer), learning_rate: Some(rate), batch_size: 64, ..Config::default() };
            let config = Config { is_async: true, ..of };
            let mut trainer = Trainer::digits(&devices, &config).unwrap();
            let before = trainer.evaluate().unwrap();
            let seen = run(&mut trainer, 120);
            let after = trainer.evaluate().unwrap();
            assert!(
                after.get("accuracy").unwrap() > 0.25 && after.get("loss").unwrap() < 0.9 * before.get("loss").unwrap(),
                "{optimizer}, {towers} towers: {before:?} {after:?}"
            );
            let mut numbers: Vec<u64> = seen.iter().map(|(step, _)| *step).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (1..=120).collect::<Vec<_>>());
            assert_eq!((trainer.steps(), value_i64(&trainer, "global_step")), (120, 120));
            let report = trainer.report();
            let staleness = report.staleness.unwrap();
            assert_eq!((report.towers.len(), staleness.steps), (towers, 120));
            assert_eq!(report.towers.iter().map(|tower| tower.steps).sum::<u64>(), 120);
            // A tower's variables change by the steps of others only, and there are no more than those.
            let others = report.towers.iter().map(|tower| 120 - tower.steps).max().unwrap();
            assert!(staleness.max <= others && staleness.mean() <= staleness.max as f64, "{report:?}");
            assert_eq!(towers == 1, others == 0);
        }
    }
}

#[test]
fn one_tower_apart_does_what_one_tower_does() {
    let with = |is_async| {
        let mut trainer = cifar10(&Devices::open(&cpus(1)).unwrap(), &Config { is_async, ..config(1) }).unwrap();
        let losses = run(&mut trainer, 5);
        (losses, value(&trainer, "conv1/weights"), value(&trainer, "local3/weights/ExponentialMovingAverage"), trainer.evaluate().unwrap())
    };
    assert_eq!(with(true), with(false));
}

#[test]
fn what_is_moved_is_what_towers_elsewhere_need() {
    let devices = Devices::open(&cpus(2)).unwrap();
    let parameters = |trainer: &Trainer| -> u64 {
        let variables = trainer.session().variables();
        let is_learned = |name: &str| name.ends_with("weights") || name.ends_with("biases");
        let learned = variables.iter().filter(|variable| is_learned(&variable.name) && !variable.name.starts_with("tower_"));
        learned.map(|variable| 4 * variable.shape.elements().unwrap()).sum()
    };
    let batch = |examples: u64| examples * (SIDE * SIDE * 3 + 1) as u64 * 4;
    for (is_async, each) in [(false, 6), (true, 12)] {
        let mut trainer = cifar10(&devices, &Config { is_async, ..config(2) }).unwrap();
        run(&mut trainer, 6);
        let report = trainer.report();
        let [own, other] = &report.towers[..] else { panic!("{report:?}") };
        assert_eq!(own.moved_bytes_per_step, 0, "its variables are where it is");
        // The variables there, the gradients back, the batch there, and the loss.
        assert_eq!(other.moved_bytes_per_step, 2 * parameters(&trainer) + batch(each) + 4, "async {is_async}");
        for tower in &report.towers {
            assert!(tower.waiting <= tower.running && tower.running > Duration::ZERO, "{report:?}");
        }
        assert_eq!(report.staleness.is_some(), is_async);
    }
    // On one device nothing is moved.
    let mut trainer = cifar10(&Devices::open(&cpus(1)).unwrap(), &config(2)).unwrap();
    run(&mut trainer, 1);
    assert!(trainer.report().towers.iter().all(|tower| tower.moved_bytes_per_step == 0));
}

#[test]
fn checkpoints_go_from_one_form_to_the_other() {
    let folder = std::env::temp_dir().join(format!("plimsoll-train-towers-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let devices = Devices::open(&cpus(2)).unwrap();
    let new =
        |is_async| Trainer::digits(&devices, &Config { is_async, optimizer: Some(OptimizerKind::Momentum), ..Config::default() }).unwrap();
    let mut apart = new(true);
    run(&mut apart, 40);
    let prefix = apart.save(&folder).unwrap();
    assert!(prefix.ends_with("model.ckpt-40"));
    let evaluation = apart.evaluate().unwrap();
    let mut together = new(false);
    together.start(Some(&folder)).unwrap();
    let same = together.evaluate().unwrap();
    // They evaluate in batches of other sizes.
    assert_eq!((together.steps(), same.get("accuracy").unwrap()), (40, evaluation.get("accuracy").unwrap()));
    assert!((same.get("loss").unwrap() - evaluation.get("loss").unwrap()).abs() < 1e-5 * evaluation.get("loss").unwrap());
    run(&mut together, 45);
    together.save(&folder).unwrap();
    let mut again = new(true);
    again.start(Some(&folder)).unwrap();
    assert_eq!((again.steps(), again.evaluate().unwrap().get("accuracy")), (45, together.evaluate().unwrap().get("accuracy")));
    run(&mut again, 50);
    assert_eq!(value_i64(&again, "global_step"), 50);
    let reader = plimsoll::formats::bundle::BundleReader::open(&prefix).unwrap();
    assert!(reader.names().all(|name| !name.starts_with("tower_")), "copies are not saved");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn a_training_stops_between_steps_and_says_what_went_wrong() {
    let devices = Devices::open(&cpus(2)).unwrap();
    for is_async in [false, true] {
        let mut trainer = Trainer::digits(&devices, &Config { is_async, ..Config::default() }).unwrap();
        let taken = std::sync::atomic::AtomicU64::new(0);
        let count = || taken.load(std::sync::atomic::Ordering::SeqCst);
        let show = |_| {
            taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        };
        let last = trainer.run(1_000_000, &|| count() >= 5, &show).unwrap().unwrap();
        assert_eq!((trainer.steps(), last.step), (count(), count()));
        assert!((5..=6).contains(&count()), "a tower that has begun a step ends it");
        assert_eq!(value_i64(&trainer, "global_step"), count() as i64);
        // Steps that were taken already are not taken again.
        assert_eq!(trainer.run(3, &|| false, &|_| {}).unwrap(), None);
        trainer.session().close();
        assert_eq!(trainer.run(100, &|| false, &|_| {}).unwrap_err().code(), Code::Cancelled);
    }
    let error = Trainer::digits(&devices, &Config { towers: 0, is_async: true, ..Config::default() }).err().unwrap();
    assert_eq!(error.code(), Code::InvalidArgument);
    // Each takes whole batches.
    assert!(Trainer::digits(&devices, &Config { towers: 3, batch_size: 64, is_async: true, ..Config::default() }).is_ok());
    assert_eq!(DIGITS.rate(OptimizerKind::Adam), 0.002);
}

/// The folder of the workspace's data, where there is one.
fn shared() -> Option<PathBuf> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/cifar10");
    if folder.is_dir() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not there", folder.display());
    None
}

#[test]
fn cifar10_itself_trains_under_its_promise() {
    use plimsoll_train::data::cifar10::{Inputs, data_set};
    let Some(folder) = shared() else { return };
    for (is_async, inputs) in [(false, Inputs::Central), (true, Inputs::Distorted)] {
        let devices = Devices::open(&cpus(2)).unwrap();
        let config = Config { batch_size: 8, is_async, ..Config::default() };
        let mut trainer = Trainer::new(&devices, &CIFAR10, data_set(&folder, inputs, 0).unwrap(), &config).unwrap();
        let seen = run(&mut trainer, 4);
        assert!(seen.iter().all(|(_, loss)| (4.0..6.0).contains(loss)), "{seen:?}");
        for (promised, measured) in trainer.promise().devices().iter().zip(devices.report()) {
            assert!(measured.peak <= promised.peak, "{} {}", measured.peak, promised.peak);
        }
    }
}

/// The numbers in docs/training.md: moved bytes are exact, promises may be a tenth off, since kernels take scratch by the
/// processor.
#[test]
fn the_tables_of_the_page_on_training_are_true() {
    let page = include_str!("../../../../docs/training.md");
    let cells = |row: &str| -> Vec<String> {
        let line = page.lines().find(|line| line.starts_with(&format!("| {row}"))).unwrap_or_else(|| panic!("no row '{row}'"));
        line.trim_matches('|').split('|').skip(1).map(|cell| cell.trim().to_string()).collect()
    };
    let images = HostTensor::zeros(plimsoll::DataType::Float, plimsoll::Shape::from([256, 24, 24, 3])).unwrap();
    let labels = HostTensor::zeros(plimsoll::DataType::Int32, plimsoll::Shape::from([256])).unwrap();
    let examples = Examples::new(vec![("images", images), ("labels", labels)]).unwrap();
    let rows = [
        ("one tower", 1, false, None),
        ("two towers together |", 2, false, Some("together (64")),
        ("two towers apart |", 2, true, Some("apart (128")),
    ];
    for (row, towers, is_async, moved) in rows {
        let config = Config { towers, is_async, batch_size: 128, ..Config::default() };
        let devices = Devices::open(&cpus(towers)).unwrap();
        let data = DataSet::new(examples.clone(), Some(examples.clone()), 0).unwrap();
        let trainer = Trainer::new(&devices, &CIFAR10, data, &config).unwrap();
        let promised: Vec<f64> = trainer.promise().devices().iter().map(|device| device.peak.0 as f64 / f64::from(1 << 20)).collect();
        let said: Vec<f64> = cells(row).iter().filter_map(|cell| cell.strip_suffix(" MiB")?.parse().ok()).collect();
        let is_near = promised.len() == said.len() && promised.iter().zip(&said).all(|(a, b)| (a - b).abs() <= 0.1 * b);
        assert!(is_near, "{row}: {promised:.1?}, and the page says {said:?}");
        if let Some(moved) = moved {
            let bytes = trainer.report().towers[1].moved_bytes_per_step;
            let said = cells(moved).last().unwrap().trim_end_matches(" bytes").replace(',', "");
            assert_eq!(bytes.to_string(), said, "{moved}");
        }
    }
}
