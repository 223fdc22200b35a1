//! Training the handwritten digits from the outside: results, memory, refusals, resuming.

use std::path::PathBuf;

use plimsoll::formats::bundle::BundleReader;
use plimsoll::{Bytes, Code, Devices, Options};
use plimsoll_train::model::OptimizerKind;
use plimsoll_train::{Config, Every, Saver, Trainer};

fn cpus(count: i32) -> Options {
    let mut options = Options::new();
    options.device_count.insert("CPU".to_string(), count);
    options
}

fn trainer(options: &Options, config: &Config) -> Trainer {
    Trainer::digits(&Devices::open(options).unwrap(), config).unwrap()
}

fn losses(trainer: &mut Trainer, steps: usize) -> Vec<f32> {
    (0..steps).map(|_| trainer.step().unwrap().loss.unwrap()).collect()
}

/// A folder of this test alone, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-train-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn towers_follow_the_loss_curve_of_one_tower_with_their_batches_together() {
    for (optimizer, rate) in [(OptimizerKind::Sgd, 0.1), (OptimizerKind::Momentum, 0.02)] {
        let config =
            |towers| Config { towers, batch_size: 96, optimizer: Some(optimizer), learning_rate: Some(rate), seed: 3, ..Config::default() };
        let one = losses(&mut trainer(&cpus(1), &config(1)), 30);
        assert!(one[29] < 0.8 * one[0], "{one:?}");
        for towers in [2, 3] {
            let many = losses(&mut trainer(&cpus(towers as i32), &config(towers)), 30);
            let worst = one.iter().zip(&many).map(|(a, b)| ((a - b) / a).abs()).fold(0f32, f32::max);
            assert!(worst < 1e-5, "{optimizer}, {towers} towers: {worst}\n{one:?}\n{many:?}");
        }
    }
}

#[test]
fn the_number_of_devices_and_threads_changes_no_bit() {
    let config = Config { batch_size: 64, ..Config::default() };
    let two = losses(&mut trainer(&cpus(2), &config), 10);
    assert_eq!(losses(&mut trainer(&cpus(1), &config), 10), two);
    assert_eq!(losses(&mut trainer(&cpus(2).intra_op(1), &config), 10), two);
    assert_eq!(losses(&mut trainer(&cpus(2).intra_op(3), &config), 10), two);
    let other = Config { seed: 1, ..config };
    assert_ne!(losses(&mut trainer(&cpus(2), &other), 10), two);
}

#[test]
fn every_optimizer_learns() {
    for optimizer in [OptimizerKind::Sgd, OptimizerKind::Momentum, OptimizerKind::Adam] {
        let mut trainer = trainer(&cpus(2), &Config { optimizer: Some(optimizer), ..Config::default() });
        let before = trainer.evaluate().unwrap();
        losses(&mut trainer, 60);
        let after = trainer.evaluate().unwrap();
        assert!(
            before.get("accuracy").unwrap() < 0.4
                && after.get("accuracy").unwrap() > 0.8
                && after.get("loss").unwrap() < 0.6 * before.get("loss").unwrap(),
            "{optimizer}: {before:?} {after:?}"
        );
    }
}

#[test]
fn measured_is_what_was_promised() {
    for (towers, optimizer) in [(1, OptimizerKind::Sgd), (2, OptimizerKind::Momentum), (2, OptimizerKind::Adam)] {
        let config = Config { towers, optimizer: Some(optimizer), ..Config::default() };
        let devices = Devices::open(&cpus(towers as i32)).unwrap();
        let mut trainer = Trainer::digits(&devices, &config).unwrap();
        assert!(devices.report().iter().all(|device| device.in_use == Bytes::ZERO), "planning takes no device memory");
        let promised: Vec<(String, Bytes)> = trainer.promise().devices().iter().map(|device| (device.name.clone(), device.peak)).collect();
        losses(&mut trainer, 3);
        trainer.evaluate().unwrap();
        let measured: Vec<(String, Bytes)> = devices.report().into_iter().map(|device| (device.name, device.peak)).collect();
        assert_eq!(measured, promised, "{towers} towers, {optimizer}");
        assert!(promised.iter().all(|(_, peak)| *peak > Bytes::ZERO));
        drop(trainer);
        assert!(devices.report().iter().all(|device| device.in_use == Bytes::ZERO), "{devices:?}");
    }
}

#[test]
fn runs_at_the_promised_peaks_and_is_refused_one_byte_below() {
    let config = Config { optimizer: Some(OptimizerKind::Adam), ..Config::default() };
    let promised = trainer(&cpus(2), &config).promise().devices().to_vec();
    let limited = |less: [u64; 2]| {
        let mut options = cpus(2).fit(false);
        for (index, less) in less.iter().enumerate() {
            options = options.limit(&format!("CPU:{index}"), &(promised[index].peak.0 - less).to_string());
        }
        Devices::open(&options).unwrap()
    };
    let devices = limited([0, 0]);
    let mut trainer = Trainer::digits(&devices, &config).unwrap();
    assert_eq!(losses(&mut trainer, 2).len(), 2);
    trainer.evaluate().unwrap();
    for (index, report) in devices.report().iter().enumerate() {
        assert_eq!((report.limit, report.peak), (Some(promised[index].peak), promised[index].peak));
        let mut less = [0, 0];
        less[index] = 1;
        let devices = limited(less);
        let error = Trainer::digits(&devices, &config).err().unwrap();
        assert_eq!((error.code(), error.device()), (Code::ResourceExhausted, Some(promised[index].name.as_str())));
        assert!(error.message().contains(": 1 byte short; at the peak"), "{error}");
        assert!(error.remedy().unwrap().contains(&promised[index].peak.0.to_string()), "{error}");
        assert!(trainer.promise().one_byte_less(index).unwrap().message().contains("1 byte short"));
        assert!(devices.report().iter().all(|device| device.peak == Bytes::ZERO));
    }
}

#[test]
fn a_resumed_training_is_bit_identical_to_an_uninterrupted_one() {
    for optimizer in [OptimizerKind::Momentum, OptimizerKind::Adam] {
        let folder = Folder::new(&format!("resume-{optimizer}"));
        let config = Config { batch_size: 100, optimizer: Some(optimizer), seed: 5, ..Config::default() };
        let mut whole = trainer(&cpus(2), &config);
        let curve = losses(&mut whole, 40);
        let mut first = trainer(&cpus(2), &config);
        assert_eq!(losses(&mut first, 17), curve[..17]);
        let prefix = first.save(&folder.0).unwrap();
        assert!(prefix.ends_with("model.ckpt-17"));
        // The seed of the data's order is in the checkpoint.
        let mut second = trainer(&cpus(2), &Config { seed: 0, ..config });
        second.start(Some(&folder.0)).unwrap();
        assert_eq!(losses(&mut second, 23), curve[17..]);
        assert_eq!(second.steps(), 40);
        for variable in whole.session().variables().iter().filter(|variable| !variable.is_state) {
            let value = |trainer: &Trainer| trainer.session().read_variable(&variable.name).unwrap();
            assert_eq!(value(&whole), value(&second), "{}", variable.name);
        }
        assert_eq!(whole.evaluate().unwrap(), second.evaluate().unwrap());
    }
}

#[test]
fn a_checkpoint_of_tensorflow_counts_on() {
    let folder = Folder::new("tensorflow");
    let config = Config { towers: 1, optimizer: Some(OptimizerKind::Sgd), ..Config::default() };
    let mut first = trainer(&cpus(1), &config);
    losses(&mut first, 3);
    // A checkpoint of TensorFlow's has the variables alone.
    for (name, has_counter, expected) in [("model.ckpt-91", true, 3), ("model.ckpt-91", false, 0), ("other", false, 0)] {
        let wanted = |variable: &plimsoll::VariableInfo| !variable.is_state && (has_counter || variable.name != "global_step");
        plimsoll::checkpoint::save_with(first.session(), &folder.0.join(name), wanted, &[]).unwrap();
        let mut second = trainer(&cpus(1), &config);
        let begun = second.start(Some(&folder.0));
        match has_counter {
            true => assert_eq!(begun.map(|()| second.steps()), Ok(expected)),
            false => assert!(begun.unwrap_err().message().contains("Key global_step not found")),
        }
    }
}

#[test]
fn checkpoints_on_the_way_are_by_steps_or_time_and_the_latest_five_stay() {
    let folder = Folder::new("every");
    let config = Config { towers: 2, batch_size: 32, ..Config::default() };
    for is_async in [false, true] {
        let mut trainer = trainer(&cpus(2), &Config { is_async, ..config.clone() });
        let written = std::sync::Mutex::new(Vec::new());
        let mut saver = Saver::new(&folder.0, [Every::Steps(4)]);
        let note = |path: plimsoll::Result<&std::path::Path>| written.lock().unwrap().push(path.unwrap().to_path_buf());
        trainer.run_and_save(30, &mut saver, &|| false, &|_| {}, &note).unwrap();
        saver.save(&trainer).unwrap();
        let steps: Vec<PathBuf> = [4, 8, 12, 16, 20, 24, 28].map(|step| folder.0.join(format!("model.ckpt-{step}"))).into();
        assert_eq!(*written.lock().unwrap(), steps);
        let mut left: Vec<String> =
            std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.retain(|name| name.ends_with(".index") || name.contains("tmp") || name.contains("temp"));
        left.sort();
        assert_eq!(left, [16, 20, 24, 28, 30].map(|step| format!("model.ckpt-{step}.index")));
        let state = plimsoll::formats::bundle::read_checkpoint_state(&folder.0).unwrap().unwrap();
        assert_eq!((state.model_checkpoint_path.as_str(), state.all_model_checkpoint_paths.len()), ("model.ckpt-30", 5));
        let _ = std::fs::remove_dir_all(&folder.0);
    }
    // A period that is over at once: after every step, and never without one.
    let mut often = trainer(&cpus(2), &config);
    let count = std::sync::atomic::AtomicU64::new(0);
    let note = |path: plimsoll::Result<&std::path::Path>| {
        path.unwrap();
        count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let mut saver = Saver::new(&folder.0, [Every::Time(std::time::Duration::from_nanos(1))]);
    often.run_and_save(5, &mut saver, &|| false, &|_| {}, &note).unwrap();
    assert_eq!(count.into_inner(), 4);
}

#[test]
fn checkpoints_name_variables_as_tensorflow_does() {
    let folder = Folder::new("names");
    let mut trainer = trainer(&cpus(1), &Config { towers: 1, optimizer: Some(OptimizerKind::Adam), ..Config::default() });
    losses(&mut trainer, 3);
    let reader = BundleReader::open(trainer.save(&folder.0).unwrap()).unwrap();
    // Beside how far it has come and the states of the initializers' random generators.
    let names: Vec<&str> = reader.names().filter(|name| !name.starts_with("_PLIMSOLL_")).collect();
    for name in ["beta2_power", "global_step", "hidden1/weights", "hidden1/weights/Adam_1", "softmax_linear/biases"] {
        assert!(names.contains(&name), "{name} in {names:?}");
    }
    assert_eq!(names.len(), 1 + 2 + 3 * 6);
    assert_eq!(reader.read("global_step").unwrap().to_i64s().unwrap(), [3]);
    assert_eq!(reader.read(plimsoll_train::checkpoint::POSITION).unwrap().to_i64s().unwrap(), [3 * 128]);
}

#[test]
fn what_cannot_be_trained_or_resumed_is_said() {
    let devices = Devices::open(&cpus(2)).unwrap();
    let error = |config: &Config| Trainer::digits(&devices, config).err().unwrap();
    assert!(error(&Config { towers: 3, ..Config::default() }).message().contains("128 cannot be divided evenly among 3 towers"));
    assert_eq!(error(&Config { towers: 0, ..Config::default() }).code(), Code::InvalidArgument);
    assert_eq!(error(&Config { batch_size: 0, ..Config::default() }).code(), Code::InvalidArgument);
    assert_eq!(error(&Config { learning_rate: Some(f32::NAN), ..Config::default() }).code(), Code::InvalidArgument);

    let folder = Folder::new("errors");
    let mut sgd = Trainer::digits(&devices, &Config { optimizer: Some(OptimizerKind::Sgd), ..Config::default() }).unwrap();
    std::fs::create_dir_all(&folder.0).unwrap();
    let error = sgd.start(Some(&folder.0)).unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    sgd.step().unwrap();
    sgd.save(&folder.0).unwrap();
    let mut adam = Trainer::digits(&devices, &Config { optimizer: Some(OptimizerKind::Adam), ..Config::default() }).unwrap();
    let error = adam.start(Some(&folder.0)).unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    assert!(error.message().contains("not found in checkpoint") && error.remedy().unwrap().contains("optimizer"), "{error}");
}
