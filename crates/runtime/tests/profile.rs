//! Profiles of runs.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::DataType;
use plimsoll_device::{DeviceKind, Options};
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Devices, Session};

/// `tanh(x w + 1)` on one device, its sum on another.
fn session() -> Session {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard()));
    let shape = Shape::from(vec![8, 8]);
    let x = builder.placeholder("x", DataType::Float, &shape).build().unwrap();
    let w = builder.placeholder("w", DataType::Float, &shape).build().unwrap();
    let product = builder.matmul(x, w).name("product").build().unwrap();
    let one = builder.constant(HostTensor::scalar(1f32)).build().unwrap();
    let sum = builder.add(product, one).build().unwrap();
    let tanh = builder.op("Tanh").input(sum).build().unwrap();
    builder.op("Neg").input(tanh).name("y").device("/cpu:1").build().unwrap();
    let registry = builder.registry().clone();
    let devices = Devices::open(&Options::new().device_count(DeviceKind::Cpu, 2)).unwrap();
    Session::new(&devices, &builder.finish(), registry).unwrap()
}

#[test]
fn a_profile_names_every_command_and_changes_nothing() {
    let session = session();
    let feed = |name: &str| Feed { tensor: name.into(), data_type: DataType::Float, shape: Shape::from(vec![8, 8]), value: None };
    let signature = Signature { feeds: ["x", "w"].map(feed).to_vec(), fetches: vec!["y:0".into()], targets: vec![] };
    let callable = session.callable(&signature).unwrap();
    let values: Vec<f32> = (0..64).map(|i| (i % 7) as f32 / 8.0).collect();
    let x = HostTensor::from_slice([8, 8], &values).unwrap();
    let plain = callable.run(&[&x, &x]).unwrap().remove(0);
    let mut y = callable.outputs().unwrap().remove(0);
    let profile = callable.profile(&[&x, &x], &mut [&mut y], 3).unwrap();
    assert_eq!(y, plain);

    let commands: usize = callable.plan().queues().iter().map(|queue| queue.program.commands.len()).sum();
    assert_eq!((profile.runs, profile.commands.len()), (3, commands));
    assert!(profile.step > Duration::ZERO);
    let product = profile.commands.iter().find(|command| command.operation == "MatMul").unwrap();
    assert_eq!(product.nodes[0], ("product".to_string(), "MatMul".to_string()));
    assert!(product.nodes.iter().any(|(_, op)| op == "Tanh"), "{product:?}");
    assert!(product.cost.flops >= 2.0 * 512.0 && product.gflops().is_some() && product.runs == 3);
    let devices: Vec<&str> = profile.commands.iter().map(|command| command.device.as_str()).collect();
    assert!(devices.iter().any(|name| name.ends_with("CPU:0")) && devices.iter().any(|name| name.ends_with("CPU:1")));

    let operations = profile.operations();
    assert!(operations.windows(2).all(|pair| pair[0].duration >= pair[1].duration));
    assert_eq!(operations.iter().map(|operation| operation.commands as usize).sum::<usize>(), commands);
    assert_eq!(operations.iter().map(|operation| operation.duration).sum::<Duration>(), profile.busy());
    assert!((operations.iter().map(|operation| operation.share).sum::<f64>() - 1.0).abs() < 1e-9);
    assert_eq!(callable.run(&[&x, &x]).unwrap()[0], plain);
}
