//! First fit: networks that do not fit on one card together run on card and processor, within both limits. They have the bits that
//! they have on the processor alone.

use std::sync::{Arc, Barrier};

use plimsoll_base::{Bytes, Code, DataType};
use plimsoll_cards::Options;
use plimsoll_device::{Device, DeviceKind, DeviceName, DeviceSpec};
use plimsoll_device_cpu::{CpuDevice, CpuPool};
use plimsoll_device_sim::SimDevice;
use plimsoll_graph::id::Id;
use plimsoll_graph::{AttrValue, Graph, HostTensor, PartialShape, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_memory::Ledger;
use plimsoll_ops::builder::optimizer::{GradientDescent, Optimizer};
use plimsoll_ops::builder::{Initializer, Variable, VariableKind};
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_plan::{Feed, Fitted, Signature};
use plimsoll_runtime::{Devices, Session};

const BATCH: u64 = 16;
const WIDTH: u64 = 64;

/// A processor and cards, each with a line; a card's own overhead is part of its line.
fn devices(cpu: Option<Bytes>, cards: &[Bytes], overhead: Bytes) -> Devices {
    let mut options = Options::new().intra_op(2);
    if let Some(limit) = cpu {
        options = options.limit("CPU:0", &limit.0.to_string());
    }
    let pool = CpuPool::new(2).unwrap();
    let mut all: Vec<Arc<dyn Device>> = options
        .resolve()
        .unwrap()
        .into_iter()
        .map(|spec| Arc::new(CpuDevice::new(spec, pool.clone(), Arc::new(CpuKernels))) as Arc<dyn Device>)
        .collect();
    for (index, limit) in (0..).zip(cards) {
        let name = DeviceName::local("GPU", index);
        let spec = DeviceSpec { name, kind: DeviceKind::Gpu, memory_limit: Some(*limit), overhead, ..all[0].spec().clone() };
        let ledger = Ledger::new(spec.name.to_string(), Some(*limit));
        all.push(Arc::new(SimDevice::new(spec, ledger, Arc::new(CpuKernels)).unwrap()));
    }
    Devices::with(all, &options).unwrap()
}

/// So many layers, trained; `pinned` is where the last one asks to be.
fn network(layers: usize, kind: VariableKind, pinned: Option<&str>) -> Graph {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    b.set_variable_kind(kind);
    let mut value = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(WIDTH)]))).build().unwrap();
    let mut variables: Vec<Variable> = Vec::new();
    for layer in 0..layers {
        let device = pinned.filter(|_| layer + 1 == layers).unwrap_or_default();
        value = b.device(device, |b| {
            let elements: Vec<f32> = (0..WIDTH * WIDTH).map(|i| ((i * 7 + layer as u64) % 23) as f32 / 230.0 - 0.05).collect();
            let first = Initializer::Value(HostTensor::from_slice([WIDTH, WIDTH], &elements).unwrap());
            let weights = b.get_variable(&format!("w{layer}"), DataType::Float, [WIDTH, WIDTH], &first).unwrap();
            variables.push(weights.clone());
            let product = b.matmul(value, weights.value).name(&format!("layer{layer}")).build().unwrap();
            b.op("Tanh").input(product).attr("T", AttrValue::data_type(DataType::Float)).build().unwrap()
        });
    }
    b.reduce_mean(value, None).name("loss").build().unwrap();
    let loss = b.graph().tensor("loss").unwrap();
    GradientDescent::new(0.5).minimize(&mut b, loss, &variables, "train").unwrap();
    b.global_variables_initializer().unwrap();
    b.finish()
}

/// The initializer, then predictions.
fn predictions() -> Vec<Signature> {
    let [init, step] = [runs().remove(0), runs().remove(1)];
    vec![init, Signature { targets: Vec::new(), ..step }]
}

/// The initializer, then steps.
fn runs() -> Vec<Signature> {
    let x = Feed { tensor: "x".into(), data_type: DataType::Float, shape: Shape::from([BATCH, WIDTH]), value: None };
    let init = Signature { targets: vec!["init".into()], ..Signature::default() };
    vec![init, Signature { feeds: vec![x], fetches: vec!["loss".into()], targets: vec!["train".into()], ..Signature::default() }]
}

fn open(devices: &Devices, graph: &Graph) -> Session {
    Session::new(devices, graph, Arc::new(Registry::standard(Arc::new(CpuKernels)))).unwrap()
}

/// The losses of some steps, and the variables after them.
fn train(session: &Session) -> Vec<Vec<u32>> {
    run(session, &["train"])
}

fn run(session: &Session, targets: &[&str]) -> Vec<Vec<u32>> {
    let bits = |tensor: &HostTensor| tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let values: Vec<f32> = (0..BATCH * WIDTH).map(|i| (i as f32 * 0.37).sin()).collect();
    let x = HostTensor::from_slice([BATCH, WIDTH], &values).unwrap();
    session.run(&[], &[], &["init"]).unwrap();
    session.release_unused();
    let mut seen: Vec<Vec<u32>> = (0..3).map(|_| bits(&session.run(&[("x", &x)], &["loss"], targets).unwrap()[0])).collect();
    let names: Vec<String> = session.variables().into_iter().map(|variable| variable.name).collect();
    seen.extend(names.iter().map(|name| bits(&session.read_variable(name).unwrap())));
    seen
}

/// The bytes of a card for a network that is whole on it, beside the processor's feeds.
fn whole(graph: &Graph) -> Bytes {
    let devices = devices(None, &[Bytes(1 << 30)], Bytes::ZERO);
    open(&devices, graph).first_fit(&runs(), &[]).unwrap().footprint.needs()[1].peak
}

/// The bytes of the processor for a network where there is no card. Scratch depends on the instruction set, and with it the sum.
fn alone(graph: &Graph) -> Bytes {
    open(&devices(None, &[], Bytes::ZERO), graph).first_fit(&runs(), &[]).unwrap().footprint.needs()[0].peak
}

fn on_processor(graph: &Graph) -> Vec<Vec<u32>> {
    train(&open(&devices(None, &[], Bytes::ZERO), graph))
}

fn short_names(fitted: &Fitted) -> Vec<&str> {
    fitted.tried.last().unwrap().pieces().iter().map(|piece| piece.device.as_str()).collect()
}

fn within_limits(devices: &Devices) {
    for report in devices.report() {
        assert!(report.limit.is_none_or(|limit| report.peak <= limit), "{report:?}");
    }
}

#[test]
fn two_networks_of_which_one_fits_on_the_card_run_on_card_and_processor() {
    const OVERHEAD: Bytes = Bytes(4096);
    for kind in [VariableKind::Reference, VariableKind::Resource] {
        let graphs = [network(4, kind, None), network(3, kind, None)];
        let wanted = graphs.each_ref().map(on_processor);
        // One byte more than the first needs: no room for anything of the second.
        let card = whole(&graphs[0]) + OVERHEAD + Bytes(1);
        let free = devices(None, &[card], OVERHEAD);
        let first = open(&free, &graphs[0]).first_fit(&runs(), &[]).unwrap();
        let taken: Vec<Bytes> = first.footprint.needs().iter().zip(free.specs()).map(|(need, spec)| need.peak - spec.overhead).collect();
        let second = open(&free, &graphs[1]).first_fit(&runs(), &taken).unwrap();
        assert_eq!((short_names(&first), short_names(&second)), (vec!["GPU:0"], vec!["CPU:0"]));
        // The attempts name the compared bytes.
        let tried: Vec<String> = second.tried.iter().map(ToString::to_string).collect();
        assert!(
            tried.len() == 2 && tried[0].starts_with("whole on GPU:0: does not fit: ") && tried[0].contains("has 1 B left"),
            "{tried:?}"
        );

        // The processor's limit is the need of both, to the byte.
        let processor = first.footprint.needs()[0].peak + second.footprint.needs()[0].peak;
        let devices = devices(Some(processor), &[card], OVERHEAD);
        let sessions = [(&graphs[0], first), (&graphs[1], second)]
            .map(|(graph, fitted)| open(&devices, graph).with_placement(fitted.placement).unwrap());
        let start = Barrier::new(2);
        let got = std::thread::scope(|scope| {
            let go = |session| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    train(session)
                })
            };
            sessions.each_ref().map(go).map(|thread| thread.join().unwrap())
        });
        assert_eq!(got, wanted);
        within_limits(&devices);
        assert!(devices.report()[1].peak > OVERHEAD);
    }
}

#[test]
fn a_network_too_large_for_any_device_is_cut_into_pieces() {
    for kind in [VariableKind::Reference, VariableKind::Resource] {
        let graph = network(6, kind, None);
        let (wanted, all) = (run(&open(&devices(None, &[], Bytes::ZERO), &graph), &[]), whole(&graph));
        for share in [3, 4] {
            // Two cards that each hold a part, the rest on the processor.
            let part = Bytes(all.0 / share);
            let devices = devices(Some(Bytes(100 << 10)), &[part, part], Bytes::ZERO);
            let session = open(&devices, &graph);
            let fitted = session.first_fit(&predictions(), &[]).unwrap();
            let chosen = fitted.tried.last().unwrap();
            assert_eq!(short_names(&fitted), ["GPU:0", "GPU:1", "CPU:0"], "{chosen}");
            assert!(chosen.pieces().iter().all(|piece| piece.nodes > 0) && chosen.fits(), "{chosen}");
            assert_eq!(fitted.tried.len(), 4);
            // A variable and all that touches it are in one piece, and pieces follow each other along the layers.
            let device = |name: &str| fitted.placement.devices[session.graph().find(name).unwrap()];
            let order: Vec<usize> = (0..6).map(|layer| [2, 0, 1][device(&format!("w{layer}")).index()]).collect();
            assert!(order.is_sorted(), "{order:?}");
            assert!((0..6).all(|layer| device(&format!("w{layer}")) == device(&format!("w{layer}/Assign"))));
            assert_eq!(run(&session.with_placement(fitted.placement.clone()).unwrap(), &[]), wanted);
            within_limits(&devices);
            let again = session.first_fit(&predictions(), &[]).unwrap();
            assert_eq!(again.placement, fitted.placement, "first fit is deterministic");
        }
    }
}

#[test]
fn training_in_pieces_has_the_same_bits() {
    let graph = network(12, VariableKind::Reference, None);
    let all = whole(&graph);
    let devices = devices(Some(Bytes(alone(&graph).0 - 1)), &[Bytes(2 * all.0 / 3)], Bytes::ZERO);
    let session = open(&devices, &graph);
    let fitted = session.first_fit(&runs(), &[]).unwrap();
    assert_eq!(short_names(&fitted), ["GPU:0", "CPU:0"], "{:?}", fitted.tried);
    assert_eq!(train(&session.with_placement(fitted.placement.clone()).unwrap()), on_processor(&graph));
    within_limits(&devices);
}

#[test]
fn what_is_asked_for_stays() {
    let graph = network(3, VariableKind::Resource, Some("/cpu:0"));
    let devices = devices(None, &[Bytes(1 << 30)], Bytes::ZERO);
    let session = open(&devices, &graph);
    let fitted = session.first_fit(&runs(), &[]).unwrap();
    let device = |name: &str| fitted.placement.devices[session.graph().find(name).unwrap()];
    assert_eq!(["w0", "w1", "w2", "layer2"].map(|name| device(name) == device("layer0")), [true, true, false, false]);
    assert_eq!(train(&session.with_placement(fitted.placement.clone()).unwrap()), on_processor(&graph));
}

#[test]
fn what_fits_nowhere_is_refused_with_all_that_was_tried() {
    let graph = network(4, VariableKind::Resource, None);
    let small = Bytes(whole(&graph).0 / 2);
    let devices = devices(Some(small), &[small], Bytes::ZERO);
    let error = open(&devices, &graph).first_fit(&runs(), &[]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    for part in ["fits nowhere", "whole on GPU:0: does not fit", "whole on CPU:0: does not fit", "in pieces, ", "bytes short"] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}
