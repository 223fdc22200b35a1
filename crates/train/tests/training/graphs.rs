//! Training graphs that are not ours, on arrays in files; and data sets as they are published.

use std::path::{Path, PathBuf};

use plimsoll::builder::GraphBuilder;
use plimsoll::builder::Initializer;
use plimsoll::builder::optimizer::{GradientDescent, Optimizer, compute_gradients};
use plimsoll::{Code, DataType, Devices, Graph, HostTensor, Options, PartialShape};
use plimsoll_train::Trainer;
use plimsoll_train::data::{BatchSource, DataSet, Examples, InOrder, arrays, cifar10};
use plimsoll_train::model::{Parts, Together};

/// A folder of this test alone, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-train-graphs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn array(&self, name: &str, tensor: &HostTensor) -> PathBuf {
        let path = self.0.join(name);
        plimsoll::npy::write(tensor, &mut std::fs::File::create(&path).unwrap()).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `y = x * w` by least squares; the loss in double precision. The initializer is not called `init`.
fn regression(devices: &Devices) -> (Graph, String, Together) {
    let mut b = GraphBuilder::new(devices.registry().clone());
    let placeholder = |b: &mut GraphBuilder, name: &str, width: u64| {
        b.placeholder(name, DataType::Float, PartialShape(Some(vec![None, Some(width)]))).build().unwrap()
    };
    let (x, y) = (placeholder(&mut b, "x", 2), placeholder(&mut b, "y", 1));
    let w = b.get_variable("w", DataType::Float, [2, 1], &Initializer::Zeros).unwrap();
    let product = b.matmul(x, w.value).build().unwrap();
    let error = b.sub(product, y).build().unwrap();
    let squared = b.mul(error, error).build().unwrap();
    let loss = b.reduce_mean(squared, None).build().unwrap();
    b.cast(loss, DataType::Double).name("reported").build().unwrap();
    let variables = b.trainable_variables();
    let gradients = compute_gradients(&mut b, loss, &variables).unwrap();
    let train = GradientDescent::new(0.3).apply_gradients(&mut b, &gradients, "step").unwrap();
    let init = b.global_variables_initializer().unwrap();
    let init = b.node(init).name.clone();
    let steps = Together {
        train: vec![b.node(train).name.clone()],
        loss: Some("reported:0".to_string()),
        metrics: Vec::new(),
        feeds: vec![vec!["x".to_string(), "y:0".to_string()]],
    };
    (b.finish(), init, steps)
}

/// 40 examples of `y = 3 x0 - 2 x1`.
fn examples(folder: &Folder) -> Examples {
    let x: Vec<f32> = (0..80).map(|i| ((i * 37 % 41) as f32 - 20.0) / 20.0).collect();
    let y: Vec<f32> = x.chunks_exact(2).map(|x| 3.0 * x[0] - 2.0 * x[1]).collect();
    let x = folder.array("x.npy", &HostTensor::from_slice([40, 2], &x).unwrap());
    let y = folder.array("y.npy", &HostTensor::from_slice([40, 1], &y).unwrap());
    arrays::open(&[("x".to_string(), x.as_path()), ("y".to_string(), y.as_path())]).unwrap()
}

fn trainer(devices: &Devices, folder: &Folder, change: impl FnOnce(&mut Together)) -> plimsoll::Result<Trainer> {
    let (graph, init, mut steps) = regression(devices);
    change(&mut steps);
    Trainer::with_graph(devices, graph, Parts::new(vec![init], steps), DataSet::new(examples(folder), None, 4)?, 10, 4)
}

#[test]
fn a_graph_from_the_builder_learns_from_arrays() {
    let (folder, devices) = (Folder::new("learns"), Devices::open(&Options::new()).unwrap());
    let mut trainer = trainer(&devices, &folder, |_| {}).unwrap();
    let losses: Vec<f32> = (0..120).map(|_| trainer.step().unwrap().loss.unwrap()).collect();
    assert!(losses[0] > 0.5 && losses[119] < 1e-6, "{} {}", losses[0], losses[119]);
    let w = trainer.session().read_variable("w").unwrap().to_vec::<f32>().unwrap();
    assert!((w[0] - 3.0).abs() < 1e-2 && (w[1] + 2.0).abs() < 1e-2, "{w:?}");
    assert_eq!(devices.report()[0].peak, trainer.promise().devices()[0].peak);
    assert_eq!(trainer.evaluate().unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(devices.report()[0].peak, trainer.promise().devices()[0].peak);
}

#[test]
fn checkpoints_of_others_count_on_from_the_number_of_their_name() {
    let (folder, devices) = (Folder::new("foreign"), Devices::open(&Options::new()).unwrap());
    let (graph, init, _) = regression(&devices);
    let session = devices.session(graph).unwrap();
    session.run(&[], &[], &[&init]).unwrap();
    session.write_variable("w", &HostTensor::from_slice([2, 1], &[3f32, -2.0]).unwrap()).unwrap();
    session.save(folder.0.join("saved/model.ckpt-500")).unwrap();
    let mut trainer = trainer(&devices, &folder, |_| {}).unwrap();
    trainer.start(Some(&folder.0.join("saved"))).unwrap();
    assert_eq!(trainer.steps(), 500);
    assert!(trainer.step().unwrap().loss.unwrap() < 1e-10);
    // From its own it goes on where it was.
    let prefix = trainer.save(&folder.0.join("own")).unwrap();
    assert!(prefix.ends_with("model.ckpt-501"));
    let next = trainer.step().unwrap();
    let mut resumed = self::trainer(&devices, &folder, |_| {}).unwrap();
    resumed.start(Some(&folder.0.join("own"))).unwrap();
    assert_eq!(resumed.step().unwrap(), next);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let (folder, devices) = (Folder::new("refused"), Devices::open(&Options::new()).unwrap());
    let error = |change: fn(&mut Together)| trainer(&devices, &folder, change).err().unwrap();
    assert!(error(|steps| steps.loss = Some("w".to_string())).message().contains("a loss is a scalar of float or double"));
    assert!(error(|steps| steps.feeds.clear()).message().contains("2 components"));
    assert!(error(|steps| steps.feeds[0].truncate(1)).message().contains("2 components"));
    assert_eq!(error(|steps| steps.train = vec!["nothing".to_string()]).code(), Code::NotFound);
    let mut silent = trainer(&devices, &folder, |steps| steps.loss = None).unwrap();
    assert_eq!(silent.step().unwrap().loss, None);
}

#[test]
fn cifar10_as_it_is_published_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/cifar10");
    if !folder.is_dir() {
        eprintln!("skipped: {} is not there", folder.display());
        return;
    }
    let training = cifar10::training(&folder, cifar10::Inputs::Central).unwrap();
    let test = cifar10::test(&folder, cifar10::Inputs::Central).unwrap();
    assert!(training.count() >= 10_000 && test.count() >= 2_000);
    let mut batch = test.batch(test.count()).unwrap();
    InOrder::new(test).next_into(&mut batch).unwrap();
    let mut counts = [0; cifar10::CLASSES];
    batch[1].as_slice::<i32>().unwrap().iter().for_each(|label| counts[*label as usize] += 1);
    assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    for image in batch[0].as_slice::<f32>().unwrap().chunks_exact(24 * 24 * 3) {
        let mean = image.iter().map(|value| f64::from(*value)).sum::<f64>() / 1728.0;
        assert!(mean.abs() < 1e-4, "{mean}");
    }
}
