//! The log of nodes that the host computes in place of a card.

use std::sync::{Arc, Mutex};

use plimsoll::{DataType, Devices, Error, HostTensor, Options, PartialShape, PlacementLog, Result};
use plimsoll_device::{CpuLibrary, Device, DeviceKind, DeviceName, DeviceSpec, KernelCall, Library, Prepared, Variant};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_request::KernelRequest;

/// The processor's kernels without softmax.
#[derive(Debug)]
struct Hard;

impl Library for Hard {
    fn variants(&self, spec: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        match request {
            KernelRequest::Nn(_) => Err(Error::unimplemented("the card knows no softmax")),
            _ => CpuKernels.variants(spec, request),
        }
    }
}

impl CpuLibrary for Hard {
    fn code(&self, spec: &DeviceSpec, call: &KernelCall) -> Result<Prepared> {
        CpuKernels.code(spec, call)
    }
}

/// A processor, and a card without softmax.
fn devices(options: &Options) -> Result<Devices> {
    let cpu = options.resolve()?.remove(0);
    let spec = DeviceSpec { name: DeviceName::local("GPU", 0), kind: DeviceKind::Gpu, ..cpu.clone() };
    let card = SimDevice::new(spec.clone(), Ledger::new(spec.name.to_string(), None), Arc::new(Hard))?;
    let host = CpuDevice::new(cpu, CpuPool::new(1)?, Arc::new(CpuKernels));
    let all: Vec<Arc<dyn Device>> = vec![Arc::new(host), Arc::new(card)];
    Ok(Devices::from(plimsoll_runtime::Devices::with(all, options)?))
}

#[test]
fn the_log_names_a_node_that_the_host_computes_once() -> Result<()> {
    let mut options = Options::new();
    options.log_placement = true;
    let said: Arc<Mutex<Vec<PlacementLog>>> = Arc::default();
    let log = said.clone();
    let devices = devices(&options)?.with_placement_log(move |placed| log.lock().unwrap().push(placed.clone()));
    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, PartialShape::unknown()).build()?;
    let product = b.matmul(x, x).build()?;
    b.softmax(product).name("p").build()?;
    let graph = b.finish();
    let nodes = graph.nodes().len();
    let session = devices.session(graph)?;
    let tensor = |side: u64| HostTensor::from_slice([side, side], &vec![1f32; (side * side) as usize]);
    for side in [2, 3, 2] {
        let p = session.run(&[("x", tensor(side)?)], &["p"], &[])?.remove(0).to_vec::<f32>()?;
        assert!(p.iter().all(|p| (p - 1.0 / side as f32).abs() < 1e-6), "{p:?}");
    }
    let note = "Node 'p' (Softmax) is computed on /job:localhost/replica:0/task:0/device:CPU:0 because soft placement is on and \
         /job:localhost/replica:0/task:0/device:GPU:0 cannot compute it: the card knows no softmax";
    // The lines are TensorFlow's: the node is on the card.
    let said: Vec<(Vec<String>, usize)> = said.lock().unwrap().iter().map(|log| (log.notes.clone(), log.lines.len())).collect();
    assert_eq!(said, [(vec![], nodes), (vec![note.to_string()], 0)]);
    assert!(session.placement_log().any(|line| line == "p: (Softmax): /job:localhost/replica:0/task:0/device:GPU:0"));
    let plan = session.plan(&[("x", tensor(2)?)], &["p"], &[])?;
    assert_eq!(plan.softened().collect::<Vec<_>>(), [("p", "/job:localhost/replica:0/task:0/device:GPU:0")]);
    assert!(plan.to_string().contains("\ncomputed by CPU:0: p, which GPU:0 cannot compute\n"), "{plan}");
    Ok(())
}
