//! Arithmetic on int32 is placed on a card and done in the host's memory, as TensorFlow's kernels do it.

use std::sync::Arc;

use plimsoll_base::DataType;
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceKind, DeviceName, DeviceSpec};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{AttrValue, HostTensor, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::Plan;
use plimsoll_runtime::{Devices, Session};

const COUNT: usize = 64;

/// One CPU, and one card or none.
fn devices(has_card: bool) -> Devices {
    let options = Options::new().intra_op(1);
    let pool = CpuPool::new(1).unwrap();
    let cpu = options.resolve().unwrap().remove(0);
    let mut devices: Vec<Arc<dyn Device>> = vec![Arc::new(CpuDevice::new(cpu.clone(), pool, Arc::new(CpuKernels)))];
    if has_card {
        let spec = DeviceSpec { name: DeviceName::local("GPU", 0), kind: DeviceKind::Gpu, ..cpu };
        let ledger = Ledger::new(spec.name.to_string(), None);
        devices.push(Arc::new(SimDevice::new(spec, ledger, Arc::new(CpuKernels)).unwrap()));
    }
    Devices::with(devices, &options).unwrap()
}

/// `y = x w Cast(max(i + i, 7))`, where nothing names a device.
fn session(has_card: bool) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let shape = || PartialShape::from(&Shape::from([COUNT as u64]));
    let i = b.placeholder("i", DataType::Int32, shape()).build().unwrap();
    let x = b.placeholder("x", DataType::Float, shape()).build().unwrap();
    let w = b.get_variable("w", DataType::Float, [COUNT as u64], &Initializer::Ones).unwrap();
    b.global_variables_initializer().unwrap();
    let sum = b.add(i, i).name("sum").build().unwrap();
    let seven = b.constant(HostTensor::from_slice([COUNT as u64], &(0..COUNT as i32).collect::<Vec<_>>()).unwrap()).build().unwrap();
    let most = b.op("Maximum").inputs([sum, seven]).name("most").build().unwrap();
    let float = b.op("Cast").input(most).attr("DstT", AttrValue::data_type(DataType::Float)).name("float").build().unwrap();
    let w = b.read(&w).unwrap();
    let scaled = b.mul(x, w).build().unwrap();
    b.mul(scaled, float).name("y").build().unwrap();
    let registry = b.registry().clone();
    Session::new(&devices(has_card), &b.finish(), registry).unwrap()
}

fn feeds() -> [HostTensor; 2] {
    let i: Vec<i32> = (0..COUNT as i32).map(|i| 40 - i).collect();
    let x: Vec<f32> = (0..COUNT).map(|i| i as f32 * 0.37 - 3.0).collect();
    [HostTensor::from_slice([COUNT as u64], &i).unwrap(), HostTensor::from_slice([COUNT as u64], &x).unwrap()]
}

/// The device whose queue does a node.
fn worker(session: &Session, plan: &Plan, node: &str) -> String {
    let id = session.graph().find(node).unwrap();
    let queue = plan.queues.iter().find(|queue| queue.nodes.iter().any(|nodes| nodes.contains(&id)));
    plan.devices[plimsoll_graph::id::Id::index(queue.unwrap_or_else(|| panic!("nobody does {node}")).device)].name.clone()
}

#[test]
fn int32_arithmetic_of_a_card_is_done_by_the_host() {
    let [i, x] = feeds();
    let run = |session: &Session, fetches: &[&str]| {
        session.run(&[], &[], &["init"]).unwrap();
        session.run(&[("i", &i), ("x", &x)], fetches, &[]).unwrap()
    };
    let session = session(true);
    let on = |name: &str| {
        let device = session.placement().devices[session.graph().find(name).unwrap()];
        session.devices().specs()[plimsoll_graph::id::Id::index(device)].name.short()
    };
    assert_eq!(["sum", "most", "float", "y", "w"].map(on), ["GPU:0"; 5], "all of it is placed on the card");
    let plan = session.plan(&[("i", &i), ("x", &x)], &["y"], &[]).unwrap();
    assert!(["sum", "most"].iter().all(|node| worker(&session, &plan, node).ends_with("CPU:0")), "{plan}");
    assert!(["float", "y"].iter().all(|node| worker(&session, &plan, node).ends_with("GPU:0")), "{plan}");
    // The card gets the result, once, and x; the constant and the sum stay where they are.
    let constants: Vec<_> = plan.constants.iter().filter(|constant| constant.device == Some(plan.host)).collect();
    assert_eq!(constants.len(), 1, "{plan}");
    let [cpu, gpu] = [&plan.devices[0], &plan.devices[1]];
    assert!(cpu.peak.constants.0 >= COUNT as u64 * 4 && gpu.peak.constants.0 == 0, "{plan}");
    let crossing: Vec<_> = plan.transfers().into_iter().filter(|copy| copy.to == 1).map(|copy| copy.node).collect();
    assert_eq!(crossing.len(), 2, "{crossing:?} {plan}");
    assert_eq!(run(&session, &["y", "most"]), run(&self::session(false), &["y", "most"]));
}
