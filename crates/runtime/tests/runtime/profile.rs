//! Profiles of runs.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_base::DataType;
use plimsoll_cards::Options;
use plimsoll_device::{CardPart, Device, DeviceKind, DeviceName, DeviceSpec, ModelledLink};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Signature};
use plimsoll_runtime::{Devices, Session};

/// `tanh(x w + 1)` on one device, its sum on another.
fn session() -> Session {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
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

fn signature() -> Signature {
    let feed = |name: &str| Feed { tensor: name.into(), data_type: DataType::Float, shape: Shape::from(vec![8, 8]), value: None };
    Signature { feeds: ["x", "w"].map(feed).to_vec(), fetches: vec!["y:0".into()], targets: vec![], ..Signature::default() }
}

#[test]
fn a_profile_names_every_command_and_changes_nothing() {
    let session = session();
    let signature = signature();
    let callable = session.callable(&signature).unwrap();
    let values: Vec<f32> = (0..64).map(|i| (i % 7) as f32 / 8.0).collect();
    let x = HostTensor::from_slice([8, 8], &values).unwrap();
    let plain = callable.run(&[&x, &x]).unwrap().remove(0);
    let mut y = callable.outputs().unwrap().remove(0);
    let profile = callable.profile(&[&x, &x], &mut [&mut y], 3).unwrap();
    assert_eq!(y, plain);

    let commands: usize = callable.plan().queues.iter().map(|queue| queue.program.commands.len()).sum();
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

/// Two parts of the steps on two logical devices of simulated cards of modelled speed.
fn on_cards(cards: [u32; 2]) -> (Session, Signature) {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let shape = Shape::from(vec![64, 64]);
    let x = builder.placeholder("x", DataType::Float, &shape).build().unwrap();
    let products = [0, 1].map(|gpu| builder.op("MatMul").inputs([x, x]).device(&format!("/gpu:{gpu}")).build().unwrap());
    builder.op("AddN").inputs(products).device("/cpu:0").name("sum").build().unwrap();
    let registry = builder.registry().clone();
    let options = Options::new();
    let cpu = options.resolve().unwrap().remove(0);
    let gpu = |index: usize| {
        let modelled = Some(ModelledLink { latency: 0.0, bandwidth: 1e12, peers: vec![] });
        let card = Some(CardPart { card: cards[index], priority: 0, modelled, real: None });
        let name = DeviceName::local("GPU", index as u32);
        // A product takes a second.
        let spec = DeviceSpec { name, kind: DeviceKind::Gpu, flops: 2.0 * 64f64.powi(3), bandwidth: 1e15, card, ..cpu.clone() };
        Arc::new(SimDevice::new(spec, Ledger::new(format!("GPU:{index}"), None), Arc::new(CpuKernels)).unwrap()) as Arc<dyn Device>
    };
    let pool = CpuPool::new(options.threads().unwrap()).unwrap();
    let devices = vec![Arc::new(CpuDevice::new(cpu.clone(), pool, Arc::new(CpuKernels))) as Arc<dyn Device>, gpu(0), gpu(1)];
    let session = Session::new(&Devices::with(devices, &options).unwrap(), &builder.finish(), registry).unwrap();
    let feed = Feed { tensor: "x".into(), data_type: DataType::Float, shape, value: None };
    (session, Signature { feeds: vec![feed], fetches: vec!["sum:0".into()], targets: vec![], ..Signature::default() })
}

#[test]
fn the_virtual_clock_does_not_depend_on_the_processor() {
    let x = HostTensor::from_slice([64, 64], &[0.5f32; 64 * 64]).unwrap();
    let modelled = |cards| {
        let (session, signature) = on_cards(cards);
        let callable = session.callable(&signature).unwrap();
        let mut sum = callable.outputs().unwrap().remove(0);
        let profile = callable.profile(&[&x], &mut [&mut sum], 3).unwrap();
        let modelled = profile.modelled.unwrap();
        assert_eq!(modelled.as_nanos(), (callable.plan().seconds * 1e9).round() as u128);
        assert!(profile.commands.iter().all(|command| command.modelled.is_some_and(|(start, took)| start + took <= modelled)));
        // Products take a second there, and far less here.
        assert!(
            profile
                .commands
                .iter()
                .filter(|command| command.operation == "MatMul")
                .all(|command| command.modelled.unwrap().1 >= Duration::from_secs(1))
        );
        modelled
    };
    let ([two, one], again) = ([[0, 1], [0, 0]].map(modelled), modelled([0, 1]));
    assert_eq!(two, again);
    let about = |duration: Duration, seconds: f64| (seconds..seconds + 0.01).contains(&duration.as_secs_f64());
    assert!(about(two, 1.0) && about(one, 2.0), "{two:?} {one:?}");
    // Without a card of modelled speed there is none.
    let session = session();
    let callable = session.callable(&signature()).unwrap();
    let x = HostTensor::from_slice([8, 8], &[0.5f32; 64]).unwrap();
    let mut y = callable.outputs().unwrap().remove(0);
    assert_eq!(callable.profile(&[&x, &x], &mut [&mut y], 1).unwrap().modelled, None);
}
