//! SaveV2 and RestoreV2 as commands: in the graph's order, through one buffer, for variables on any device.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use plimsoll_base::{Bytes, Code, DataType, Error, Result};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceKind, DeviceName, DeviceSpec, InstructionSet};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{AttrValue, HostTensor, NodeId, Output, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::builder::{Initializer, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{CheckpointReader, CheckpointWriter, Checkpoints, Devices, Session, Sink, Source};

type Tensors = BTreeMap<String, (DataType, Shape, Vec<u8>)>;

/// Checkpoints in memory.
#[derive(Clone, Default)]
struct Store {
    files: Arc<Mutex<HashMap<String, Tensors>>>,
    /// The longest piece that was handed over.
    longest: Arc<Mutex<usize>>,
    /// The name of a tensor whose bytes are not those that were written.
    broken: Arc<Mutex<Option<String>>>,
}

impl Store {
    fn floats(&self, prefix: &str, name: &str) -> Option<Vec<f32>> {
        let files = self.files.lock().unwrap();
        let (_, _, bytes) = files.get(prefix)?.get(name)?;
        Some(bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect())
    }

    fn put(&self, prefix: &str, name: &str, values: &[f32]) {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let tensor = (DataType::Float, Shape::from([values.len() as u64]), bytes);
        self.files.lock().unwrap().entry(prefix.to_string()).or_default().insert(name.to_string(), tensor);
    }

    fn note(&self, length: usize) {
        let mut longest = self.longest.lock().unwrap();
        *longest = longest.max(length);
    }
}

impl Checkpoints for Store {
    fn open(&self, prefix: &str) -> Result<Box<dyn CheckpointReader>> {
        let files = self.files.lock().unwrap();
        let tensors = files.get(prefix).ok_or_else(|| Error::not_found(format!("no {prefix}")))?.clone();
        Ok(Box::new(Reading { tensors, store: self.clone() }))
    }

    fn create(&self, prefix: &str) -> Result<Box<dyn CheckpointWriter>> {
        Ok(Box::new(Writing { tensors: Tensors::new(), prefix: prefix.to_string(), store: self.clone() }))
    }
}

struct Reading {
    tensors: Tensors,
    store: Store,
}

impl CheckpointReader for Reading {
    fn entry(&self, name: &str) -> Result<(DataType, Shape)> {
        let (data_type, shape, _) = self.tensors.get(name).ok_or_else(|| Error::not_found(format!("no {name}")))?;
        Ok((*data_type, shape.clone()))
    }

    fn stream(&self, name: &str, buffer: &mut [u8], sink: &mut Sink<'_>) -> Result<()> {
        for (index, bytes) in self.tensors[name].2.chunks(buffer.len()).enumerate() {
            self.store.note(bytes.len());
            buffer[..bytes.len()].copy_from_slice(bytes);
            sink((index * buffer.len()) as u64, &buffer[..bytes.len()])?;
        }
        match self.store.broken.lock().unwrap().as_deref() == Some(name) {
            true => Err(Error::data_loss(format!("{name} is broken"))),
            false => Ok(()),
        }
    }
}

struct Writing {
    tensors: Tensors,
    prefix: String,
    store: Store,
}

impl CheckpointWriter for Writing {
    fn add(&mut self, name: &str, data_type: DataType, shape: &Shape, source: &mut Source<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        source(&mut |piece| {
            self.store.note(piece.len());
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        self.tensors.insert(name.to_string(), (data_type, shape.clone(), bytes));
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.store.files.lock().unwrap().insert(self.prefix, self.tensors);
        Ok(())
    }
}

/// Two processors, or a processor and a card.
const SECOND: [&str; 2] = ["/cpu:1", "/gpu:0"];

fn open(second: &str, limits: [Option<Bytes>; 2]) -> Devices {
    let pool = CpuPool::new(2).unwrap();
    let cpu = |index: u32| DeviceSpec::cpu(index, limits[index as usize], 2, InstructionSet::Baseline);
    let other: Arc<dyn Device> = match second {
        "/gpu:0" => {
            let spec = DeviceSpec { name: DeviceName::local("GPU", 0), kind: DeviceKind::Gpu, ..cpu(1) };
            let ledger = Ledger::new(spec.name.to_string(), limits[1]);
            Arc::new(SimDevice::new(spec, ledger, Arc::new(CpuKernels)).unwrap())
        }
        _ => Arc::new(CpuDevice::new(cpu(1), pool.clone(), Arc::new(CpuKernels))),
    };
    Devices::with(vec![Arc::new(CpuDevice::new(cpu(0), pool, Arc::new(CpuKernels))), other], &Options::new()).unwrap()
}

struct Graph(GraphBuilder);

impl Graph {
    fn new() -> Graph {
        let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
        b.set_variable_kind(VariableKind::Resource);
        Graph(b)
    }

    fn session(mut self, devices: &Devices, store: &Store) -> Session {
        self.0.global_variables_initializer().unwrap();
        let registry = self.0.registry().clone();
        Session::with_files(devices, self.0.finish(), registry, Arc::new(store.clone()), &mut |_| Ok(None), &[]).unwrap()
    }

    /// A variable of ones: its handle.
    fn variable(&mut self, name: &str, length: u64, device: &str) -> Output {
        self.0.device(device, |b| b.get_variable(name, DataType::Float, [length], &Initializer::Ones)).unwrap().handle
    }

    fn texts(&mut self, values: &[&str], scalar: bool) -> Output {
        let shape = if scalar { Shape::scalar() } else { Shape::from([values.len() as u64]) };
        let values = values.iter().map(|value| value.as_bytes().to_vec()).collect();
        self.0.constant(HostTensor::from_strings(shape, values).unwrap()).build().unwrap()
    }

    fn after(&mut self, op: &str, inputs: &[Output], attrs: &[(&str, AttrValue)], controls: &[NodeId], device: &str) -> NodeId {
        self.0
            .device(device, |b| {
                let node = controls.iter().fold(b.op(op).inputs(inputs.iter().copied()), |node, control| node.control(*control));
                attrs.iter().fold(node, |node, (name, value)| node.attr(name, value.clone())).build_node()
            })
            .unwrap()
    }

    fn read(&mut self, variable: Output, controls: &[NodeId], device: &str) -> Output {
        let attrs = [("dtype", AttrValue::data_type(DataType::Float))];
        Output { node: self.after("ReadVariableOp", &[variable], &attrs, controls, device), index: 0 }
    }

    fn add(&mut self, variable: Output, length: u64, controls: &[NodeId], device: &str) -> NodeId {
        let ones = self.0.constant(HostTensor::from_slice([length], &vec![1f32; length as usize]).unwrap()).build().unwrap();
        self.after("AssignAddVariableOp", &[variable, ones], &[], controls, device)
    }

    fn save(&mut self, prefix: &str, names: &[&str], values: &[Output], controls: &[NodeId]) -> NodeId {
        let inputs = [self.texts(&[prefix], true), self.texts(names, false), self.texts(&vec![""; names.len()], false)];
        self.after("SaveV2", &[&inputs[..], values].concat(), &[], controls, "/cpu:0")
    }

    /// The nodes that assign.
    fn restore(&mut self, prefix: &str, names: &[&str], variables: &[(Output, &str)], controls: &[NodeId]) -> Vec<NodeId> {
        let inputs = [self.texts(&[prefix], true), self.texts(names, false), self.texts(&vec![""; names.len()], false)];
        let types = [("dtypes", AttrValue::data_types(&vec![DataType::Float; names.len()]))];
        let node = self.after("RestoreV2", &inputs, &types, controls, "/cpu:0");
        let assign = |(index, (variable, device)): (usize, &(Output, &str))| {
            let tensor = Output { node, index: index as u32 };
            self.after("AssignVariableOp", &[*variable, tensor], &[], &[], device)
        };
        variables.iter().enumerate().map(assign).collect()
    }

    fn bool(&mut self, name: &str) -> Output {
        self.0.placeholder(name, DataType::Bool, PartialShape::from(&Shape::scalar())).build().unwrap()
    }
}

fn floats(session: &Session, name: &str) -> Vec<f32> {
    session.read_variable(name).unwrap().to_vec().unwrap()
}

fn holds(value: bool) -> HostTensor {
    HostTensor::from_bools(Shape::scalar(), &[value]).unwrap()
}

#[test]
fn what_is_saved_before_is_restored_behind() {
    for second in SECOND {
        let (store, mut g) = (Store::default(), Graph::new());
        let (v, u) = (g.variable("v", 3, second), g.variable("u", 3, "/cpu:0"));
        let grow = g.add(v, 3, &[], second);
        let value = g.read(v, &[grow], second);
        let save = g.save("p", &["t"], &[value], &[]);
        let assign = g.restore("p", &["t"], &[(u, "/cpu:0")], &[save]);
        g.0.group(&assign, "step").unwrap();
        let devices = open(second, [None; 2]);
        let session = g.session(&devices, &store);
        session.run(&[], &[], &["init"]).unwrap();
        for round in 2..5 {
            session.run(&[], &[], &["step"]).unwrap();
            assert_eq!((floats(&session, "u"), store.floats("p", "t").unwrap()), (vec![round as f32; 3], vec![round as f32; 3]));
        }
    }
}

#[test]
fn what_is_restored_before_is_saved_over_behind() {
    for second in SECOND {
        let (store, mut g) = (Store::default(), Graph::new());
        let (v, u) = (g.variable("v", 3, second), g.variable("u", 3, second));
        let assign = g.restore("p", &["t"], &[(u, second)], &[]);
        let value = g.read(v, &[], second);
        // The value from before the variable grows.
        let grow = g.add(v, 3, &[value.node], second);
        let save = g.save("p", &["t"], &[value], &[assign[0], grow]);
        g.0.group(&[save], "step").unwrap();
        let session = g.session(&open(second, [None; 2]), &store);
        session.run(&[], &[], &["init"]).unwrap();
        store.put("p", "t", &[7.0; 3]);
        for expected in [[7.0f32, 1.0, 2.0], [1.0, 2.0, 3.0]] {
            session.run(&[], &[], &["step"]).unwrap();
            let [u, file, v] = [floats(&session, "u"), store.floats("p", "t").unwrap(), floats(&session, "v")].map(|values| values[0]);
            assert_eq!([u, file, v], expected, "{second}");
        }
    }
}

#[test]
fn a_failure_comes_before_what_is_behind_it_and_after_what_is_before() {
    for second in SECOND {
        let (store, mut g) = (Store::default(), Graph::new());
        let v = g.variable("v", 3, second);
        let value = g.read(v, &[], second);
        let first = g.save("first", &["t"], &[value], &[]);
        let p = g.bool("p");
        let text = g.texts(&["no"], true);
        let check = g.after("Assert", &[p, text], &[("T", AttrValue::data_types(&[DataType::String]))], &[first], second);
        let behind = g.save("behind", &["t"], &[value], &[check]);
        g.0.group(&[behind], "step").unwrap();
        let session = g.session(&open(second, [None; 2]), &store);
        session.run(&[], &[], &["init"]).unwrap();
        for _ in 0..10 {
            assert_eq!(session.run(&[("p", &holds(false))], &[], &["step"]).unwrap_err().code(), Code::InvalidArgument);
            assert_eq!((store.floats("first", "t"), store.floats("behind", "t")), (Some(vec![1.0; 3]), None));
            store.files.lock().unwrap().clear();
        }
        session.run(&[("p", &holds(true))], &[], &["step"]).unwrap();
        assert_eq!(store.floats("behind", "t"), Some(vec![1.0; 3]));
    }
}

#[test]
fn files_are_read_and_written_in_the_branch_that_is_taken() {
    for second in SECOND {
        let (store, mut g) = (Store::default(), Graph::new());
        let v = g.variable("v", 3, second);
        let p = g.bool("p");
        let switch = g.after("Switch", &[p, p], &[], &[], "/cpu:0");
        let [off, on] = [0, 1].map(|index| g.after("Identity", &[Output { node: switch, index }], &[], &[], "/cpu:0"));
        let value = g.read(v, &[off], second);
        let save = g.save("p", &["t"], &[value], &[]);
        let assign = g.restore("p", &["t"], &[(v, second)], &[on]);
        g.0.group(&[save], "off").unwrap();
        g.0.group(&assign, "on").unwrap();
        let session = g.session(&open(second, [None; 2]), &store);
        session.run(&[], &[], &["init"]).unwrap();
        let step = |value: bool| session.run(&[("p", &holds(value))], &[], &["off", "on"]).unwrap();
        step(false);
        assert_eq!((store.floats("p", "t"), floats(&session, "v")), (Some(vec![1.0; 3]), vec![1.0; 3]));
        store.put("p", "t", &[5.0; 3]);
        step(true);
        assert_eq!((store.floats("p", "t"), floats(&session, "v")), (Some(vec![5.0; 3]), vec![5.0; 3]));
    }
}

#[test]
fn what_cannot_be_restored_changes_nothing() {
    for second in SECOND {
        let (store, mut g) = (Store::default(), Graph::new());
        let (v, u) = (g.variable("v", 3, second), g.variable("u", 3, "/cpu:0"));
        let assign = g.restore("p", &["a", "b"], &[(v, second), (u, "/cpu:0")], &[]);
        g.0.group(&assign, "restore").unwrap();
        let session = g.session(&open(second, [None; 2]), &store);
        session.run(&[], &[], &["init"]).unwrap();
        let refused = |code, changed: [f32; 2]| {
            assert_eq!(session.run(&[], &[], &["restore"]).unwrap_err().code(), code);
            assert!(floats(&session, "v").iter().all(|value| *value == 1.0 || *value == changed[0]));
            assert!(floats(&session, "u").iter().all(|value| *value == changed[1]));
        };
        refused(Code::NotFound, [1.0; 2]);
        store.put("p", "a", &[2.0; 3]);
        refused(Code::NotFound, [1.0; 2]);
        store.put("p", "b", &[2.0; 3]);
        *store.broken.lock().unwrap() = Some("b".to_string());
        refused(Code::DataLoss, [1.0; 2]);
        *store.broken.lock().unwrap() = None;
        // One that has another shape: the other may be there.
        store.put("p", "b", &[2.0; 4]);
        refused(Code::InvalidArgument, [2.0, 1.0]);
        store.put("p", "b", &[2.0; 3]);
        session.run(&[], &[], &["restore"]).unwrap();
        assert_eq!((floats(&session, "v"), floats(&session, "u")), (vec![2.0; 3], vec![2.0; 3]));
    }
}

#[test]
fn many_tensors_go_through_one_buffer() {
    const LENGTH: u64 = 300_000;
    const COUNT: usize = 6;
    const BUFFER: u64 = 256 << 10;
    for second in SECOND {
        let store = Store::default();
        let names: Vec<String> = (0..COUNT).map(|index| format!("v{index}")).collect();
        let make = |limits| {
            let mut g = Graph::new();
            let device = |index: usize| if index.is_multiple_of(2) { "/cpu:0" } else { second };
            let variables: Vec<(Output, &str)> =
                names.iter().enumerate().map(|(index, name)| (g.variable(name, LENGTH, device(index)), device(index))).collect();
            let values: Vec<Output> = variables.iter().map(|(variable, device)| g.read(*variable, &[], device)).collect();
            let named: Vec<&str> = names.iter().map(String::as_str).collect();
            let save = g.save("p", &named, &values, &[]);
            g.0.group(&[save], "save").unwrap();
            let assign = g.restore("p", &named, &variables, &[]);
            g.0.group(&assign, "restore").unwrap();
            let devices = open(second, limits);
            let session = g.session(&devices, &store);
            (devices, session)
        };
        let (_, session) = make([None; 2]);
        let plans = [session.plan(&[], &[], &["restore"]).unwrap(), session.plan(&[], &[], &["save"]).unwrap()];
        let stored = |bytes: u64| Bytes(bytes).round_up(64).0 * (COUNT as u64 / 2);
        let variables = Bytes(stored(4 * LENGTH)).round_up(4096);
        for plan in &plans {
            let peaks: Vec<Bytes> = plan.devices.iter().map(|device| device.peak.total()).collect();
            assert_eq!(peaks, [variables + Bytes(BUFFER), variables], "{second}");
        }
        // With no byte more than that.
        let (devices, session) = make([Some(variables + Bytes(BUFFER)), Some(variables)]);
        for (index, name) in names.iter().enumerate() {
            store.put("p", name, &vec![index as f32; LENGTH as usize]);
        }
        session.run(&[], &[], &["restore"]).unwrap();
        let before = std::mem::take(&mut *store.files.lock().unwrap());
        session.run(&[], &[], &["save"]).unwrap();
        assert!(*store.files.lock().unwrap() == before);
        for (index, name) in names.iter().enumerate() {
            assert!(floats(&session, name).iter().all(|value| *value == index as f32), "{name}");
        }
        let held: Vec<Bytes> = devices.report().iter().map(|report| report.peak).collect();
        assert_eq!(held, [variables + Bytes(BUFFER), variables], "{second}");
        assert_eq!(*store.longest.lock().unwrap(), BUFFER as usize);
    }
}
