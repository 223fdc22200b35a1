//! Graphs that save and restore themselves, as `tf.compat.v1.train.Saver` makes them.

use std::path::PathBuf;

use plimsoll::builder::{Initializer, VariableKind};
use plimsoll::graph::AttrValue;
use plimsoll::{Code, DataType, Devices, Error, HostTensor, Options, Output, PartialShape, Session, Shape};

/// The prefix of a checkpoint in a folder of its own, removed at the end.
struct Checkpoint(PathBuf);

impl Checkpoint {
    fn new(name: &str) -> Checkpoint {
        let folder = std::env::temp_dir().join(format!("plimsoll-saver-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Checkpoint(folder)
    }

    fn prefix(&self) -> HostTensor {
        text(self.0.join("model").to_str().unwrap())
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn text(value: &str) -> HostTensor {
    HostTensor::from_strings(Shape::scalar(), vec![value.as_bytes().to_vec()]).unwrap()
}

fn texts(values: &[&str]) -> HostTensor {
    HostTensor::from_strings([values.len() as u64], values.iter().map(|value| value.as_bytes().to_vec()).collect()).unwrap()
}

fn open() -> Devices {
    Devices::open(&Options::new().device_count(plimsoll::DeviceKind::Cpu, 2).limit("CPU:0", "64KiB").limit("CPU:1", "64KiB")).unwrap()
}

/// A reference `w` of that shape, a resource `h` on another device, and the Saver's nodes.
fn session(devices: &Devices, shape: [u64; 2], names: &[&str]) -> Session {
    let mut b = devices.builder();
    let w = b.get_variable("w", DataType::Float, shape, &Initializer::Ones).unwrap();
    let growth = b.constant(HostTensor::from_slice(shape, &vec![0.5f32; (shape[0] * shape[1]) as usize]).unwrap()).build().unwrap();
    b.op("AssignAdd").inputs([w.handle, growth]).name("grow").build_node().unwrap();
    b.set_variable_kind(VariableKind::Resource);
    let h = b.device("/cpu:1", |b| b.get_variable("h", DataType::Int64, [], &Initializer::Ones)).unwrap();
    b.global_variables_initializer().unwrap();
    let default = b.constant(text("model")).build().unwrap();
    let scalar = AttrValue::Shape(PartialShape::from(&Shape::scalar()));
    let prefix = b.op("PlaceholderWithDefault").input(default).attr("shape", scalar).name("save/Const").build().unwrap();
    let names = b.constant(texts(names)).build().unwrap();
    let slices = b.constant(texts(&["", ""])).build().unwrap();
    let save = b.op("SaveV2").inputs([prefix, names, slices, h.value, w.handle]).name("save/SaveV2").build_node().unwrap();
    b.op("Identity").input(prefix).control(save).name("save/control_dependency").build_node().unwrap();
    let types = AttrValue::data_types(&[DataType::Int64, DataType::Float]);
    let restored = b.op("RestoreV2").inputs([prefix, names, slices]).attr("dtypes", types).name("save/RestoreV2").build_node().unwrap();
    let output = |index| Output { node: restored, index };
    let through = b.op("Identity").input(output(0)).build().unwrap();
    let first = b.op("AssignVariableOp").inputs([h.handle, through]).build_node().unwrap();
    let second = b.op("Assign").inputs([w.handle, output(1)]).build_node().unwrap();
    b.group(&[first, second], "save/restore_all").unwrap();
    devices.session(b.finish()).unwrap()
}

fn restore(session: &Session, prefix: &HostTensor) -> Result<(), Error> {
    session.run(&[("save/Const:0", prefix.clone())], &[], &["save/restore_all"]).map(drop)
}

#[test]
fn a_graph_saves_itself_and_another_restores_it() {
    let (checkpoint, devices) = (Checkpoint::new("both"), open());
    let prefix = checkpoint.prefix();
    let first = session(&devices, [2, 3], &["h", "w"]);
    first.run(&[], &[], &["init"]).unwrap();
    first.run(&[], &[], &["grow"]).unwrap();
    first.write_variable("h", &HostTensor::scalar(42i64)).unwrap();
    first.run(&[("save/Const:0", prefix.clone())], &[], &["save/control_dependency"]).unwrap();
    let second = session(&devices, [2, 3], &["h", "w"]);
    restore(&second, &prefix).unwrap();
    assert_eq!(second.read_variable("w").unwrap().to_vec::<f32>().unwrap(), [1.5; 6]);
    assert_eq!(second.read_variable("h").unwrap().to_vec::<i64>().unwrap(), [42]);
    // Files are read through one buffer, a page for tensors as small as these, which the plan counts; so is the fed prefix.
    let plan = second.plan(&[("save/Const:0", prefix.clone())], &[], &["save/restore_all"]).unwrap();
    assert_eq!((plan.devices()[0].peak.workspace.0, plan.devices()[0].peak.transfer.0), (4096, 4096), "{:?}", plan.devices()[0].peak);
}

#[test]
fn what_cannot_be_restored_is_said_in_tensorflows_words() {
    let (checkpoint, devices) = (Checkpoint::new("errors"), open());
    let prefix = checkpoint.prefix();
    let saved = session(&devices, [2, 3], &["h", "w"]);
    let missing = restore(&saved, &prefix).unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    assert!(missing.to_string().contains("Failed to find any matching files for"), "{missing}");
    saved.run(&[], &[], &["init"]).unwrap();
    saved.run(&[("save/Const:0", prefix.clone())], &[], &["save/SaveV2"]).unwrap();
    for (shape, names, code, words) in [
        ([2, 3], ["h", "v"], Code::NotFound, "Key v not found in checkpoint"),
        ([2, 3], ["w", "h"], Code::InvalidArgument, "expected dtype int64 does not equal original dtype float"),
        ([3, 2], ["h", "w"], Code::InvalidArgument, "lhs shape= [3,2] rhs shape= [2,3]"),
    ] {
        let error = restore(&session(&devices, shape, &names), &prefix).unwrap_err();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}
