//! The facade from outside: plan, run, save, restore, give back.

use std::path::PathBuf;

use plimsoll::builder::optimizer::{Adam, Optimizer};
use plimsoll::builder::{Initializer, VariableKind};
use plimsoll::graph::AttrValue;
use plimsoll::{Bytes, Code, DataType, Devices, Footprint, Graph, HostTensor, Options, PartialShape, Result, Session, formats};

/// A folder of its own for each test, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Logistic regression on 5 features, noise from a random generator added to the feeds; Adam.
fn build(devices: &Devices, kind: VariableKind) -> Result<Graph> {
    let mut b = devices.builder();
    b.set_seed(Some(7));
    b.set_variable_kind(kind);
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(5)]))).build()?;
    let y = b.placeholder("y", DataType::Int32, PartialShape(Some(vec![None]))).build()?;
    let shape = b.shape(x).build()?;
    let noise = b
        .op("RandomUniform")
        .input(shape)
        .attr("dtype", AttrValue::data_type(DataType::Float))
        .attr("seed", AttrValue::Int(7))
        .name("noise")
        .build()?;
    let noisy = b.add(x, noise).build()?;
    let w = b.get_variable("w", DataType::Float, [5, 3], &Initializer::random_uniform(-1.0, 1.0, Some(1)))?;
    let bias = b.get_variable("b", DataType::Float, [3], &Initializer::Zeros)?;
    let product = b.matmul(noisy, w.value).build()?;
    let logits = b.bias_add(product, bias.value).build()?;
    let losses = b.sparse_softmax_cross_entropy(logits, y).build()?;
    b.reduce_mean(losses, None).name("loss").build()?;
    let loss = b.graph().tensor("loss")?;
    Adam::new(0.1).minimize(&mut b, loss, &[w, bias], "train")?;
    b.global_variables_initializer()?;
    Ok(b.finish())
}

fn feeds() -> [(&'static str, HostTensor); 2] {
    let x: Vec<f32> = (0..20).map(|i| (i * i % 7) as f32 / 7.0).collect();
    [("x", HostTensor::from_slice([4, 5], &x).unwrap()), ("y", HostTensor::from_slice([4], &[0i32, 2, 1, 0]).unwrap())]
}

fn step(session: &Session) -> f32 {
    session.run(&feeds(), &["loss"], &["train"]).unwrap()[0].as_slice::<f32>().unwrap()[0]
}

#[test]
fn a_file_is_loaded_planned_run_and_saved() -> Result<()> {
    let folder = Folder::new("loaded");
    let devices = Devices::open(&Options::new().limit("CPU:0", "1MiB").intra_op(1))?;
    let path = folder.path("model.pb");
    std::fs::write(&path, formats::write_graph_def(&build(&devices, VariableKind::Reference)?.to_def())).unwrap();
    let model = devices.load(&path)?;
    let plan = model.plan(&feeds(), &["loss:0"], &["train"])?;
    assert!(plan.fits());
    assert!(plan.to_string().contains("fits; the smallest limit that does is "), "{plan}");
    model.run(&[], &[], &["init"])?;
    let losses: Vec<f32> = (0..20).map(|_| step(&model)).collect();
    assert!(losses[19] < losses[0], "{losses:?}");
    model.save(folder.path("checkpoint"))?;
    assert!(folder.path("checkpoint.index").exists());
    drop(model);
    assert_eq!(devices.report()[0].in_use, Bytes::ZERO);
    assert_eq!(devices.report()[0].reserved, Bytes::ZERO);
    assert!(devices.max_memory_allocated("CPU:0")? > Bytes::ZERO);
    devices.empty_cache();
    devices.reset_max_memory_allocated("CPU:0")?;
    let left = [devices.memory_allocated("CPU:0")?, devices.memory_reserved("CPU:0")?, devices.max_memory_allocated("CPU:0")?];
    assert_eq!(left, [Bytes::ZERO; 3]);
    Ok(())
}

#[test]
fn what_is_restored_goes_on_with_the_same_bits() -> Result<()> {
    for kind in [VariableKind::Reference, VariableKind::Resource] {
        let folder = Folder::new(&format!("restored-{kind:?}"));
        let devices = Devices::open(&Options::new().intra_op(1))?;
        let first = devices.session(build(&devices, kind)?)?;
        first.run(&[], &[], &["init"])?;
        step(&first);
        first.save(folder.path("model-1"))?;
        step(&first);
        first.save(folder.path("model-2"))?;
        let wanted = [step(&first), step(&first)];

        // The latest of the folder, the callable prepared, so that the random generator goes on as well.
        let second = devices.session(build(&devices, kind)?)?;
        second.callable_for(&feeds(), &["loss"], &["train"])?;
        let restored = second.restore(&folder.0)?;
        assert_eq!(restored.missing, Vec::<String>::new());
        assert!(restored.restored.contains(&"noise".to_string()), "{restored:?}");
        assert_eq!([step(&second), step(&second)], wanted, "{kind:?}");

        // Without: variables only.
        let third = devices.session(build(&devices, kind)?)?;
        let restored = third.restore(folder.path("model-2"))?;
        assert!(restored.restored.contains(&"w".to_string()) && !restored.restored.contains(&"noise".to_string()), "{restored:?}");
        assert_ne!(step(&third), wanted[0]);
    }
    Ok(())
}

#[test]
fn a_checkpoint_that_does_not_fit_the_graph_changes_nothing() -> Result<()> {
    let folder = Folder::new("wrong");
    let devices = Devices::open(&Options::new().intra_op(1))?;
    let session = devices.session(build(&devices, VariableKind::Resource)?)?;
    let error = session.save(folder.path("model")).unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition, "{error}");
    assert_eq!(session.restore(folder.path("model")).unwrap_err().code(), Code::NotFound);
    assert_eq!(session.restore(&folder.0).unwrap_err().code(), Code::NotFound);

    let mut b = devices.builder();
    b.get_variable("b", DataType::Float, [3], &Initializer::Ones)?;
    b.get_variable("w", DataType::Float, [5, 4], &Initializer::Ones)?;
    b.global_variables_initializer()?;
    let other = devices.session(b.finish())?;
    other.run(&[], &[], &["init"])?;
    other.save(folder.path("model"))?;
    session.run(&[], &[], &["init"])?;
    let before = session.read_variable("b")?;
    let error = session.restore(folder.path("model")).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("variable 'w' is float[5,3], in the checkpoint float[5,4]"), "{error}");
    assert_eq!(session.read_variable("b")?, before);
    Ok(())
}

#[test]
fn at_the_smallest_limit_it_runs_and_one_byte_below_it_does_not() -> Result<()> {
    let open = |limit: u64| Devices::open(&Options::new().limit("CPU:0", &limit.to_string()).intra_op(1));
    let needed = {
        let devices = open(1 << 30)?;
        let session = devices.session(build(&devices, VariableKind::Reference)?)?;
        let mut footprint = Footprint::new(devices.specs());
        let init = session.plan(&[], &[], &["init"])?;
        footprint.add(&init);
        let train = session.plan(&feeds(), &["loss"], &["train"])?;
        footprint.add(&train);
        footprint.minimum_limit().0
    };
    let devices = open(needed)?;
    let session = devices.session(build(&devices, VariableKind::Reference)?)?;
    session.run(&[], &[], &["init"])?;
    step(&session);
    session.run(&[], &[], &["init"])?;
    step(&session);
    assert_eq!(devices.report()[0].peak, Bytes(needed));

    let devices = open(needed - 1)?;
    let session = devices.session(build(&devices, VariableKind::Reference)?)?;
    let plan = session.plan(&feeds(), &["loss"], &["train"])?;
    assert_eq!((plan.fits(), plan.shortfall(), plan.minimum_limit()), (false, Bytes(1), Bytes(needed)));
    assert!(plan.to_string().contains("does not fit: 1 byte short"), "{plan}");
    let error = session.run(&feeds(), &["loss"], &["train"]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().contains("1 byte short"), "{error}");
    assert_eq!(devices.report()[0].peak, Bytes::ZERO, "it is refused before anything is taken");
    Ok(())
}

#[test]
fn models_without_a_graph_and_other_files_are_refused_with_what_to_do() -> Result<()> {
    let folder = Folder::new("others");
    let devices = Devices::open(&Options::new())?;
    std::fs::write(folder.path("saved_model.pbtxt"), "saved_model_schema_version: 1").unwrap();
    let error = devices.load(&folder.0).unwrap_err();
    assert_eq!(error.code(), Code::NotFound, "{error}");
    assert_eq!(devices.load(folder.path("none.pb")).unwrap_err().code(), Code::NotFound);
    std::fs::write(folder.path("zip.pb"), b"PK\x03\x04 and more").unwrap();
    assert!(devices.load(folder.path("zip.pb")).unwrap_err().remedy().is_some());
    Ok(())
}
