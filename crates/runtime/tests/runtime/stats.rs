//! Step statistics (S39): kernels and copies with their times, by device and node.

use std::sync::Arc;

use plimsoll_base::DataType;
use plimsoll_cards::Options;
use plimsoll_device::DeviceKind;
use plimsoll_graph::{HostTensor, Shape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

/// Products in a row on one device, each read on two others, whose sums meet on the first.
fn session(options: &Options) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let mut value = b.placeholder("x", DataType::Float, &Shape::from([32, 32])).build().unwrap();
    let mut sums = Vec::new();
    for layer in 0..8 {
        value = b.matmul(value, value).name(&format!("product_{layer}")).device("/cpu:0").build().unwrap();
        for other in ["/cpu:1", "/cpu:2"] {
            let tanh = b.op("Tanh").input(value).device(other).build().unwrap();
            sums.push(b.reduce_sum(tanh, None).device(other).build().unwrap());
        }
    }
    b.op("AddN").inputs(sums).name("y").device("/cpu:0").build().unwrap();
    let registry = b.registry().clone();
    let devices = Devices::open(options).unwrap();
    Session::new(&devices, &b.finish(), registry).unwrap()
}

/// S39: scheduled <= all_start <= op_start <= op_end <= all_end, and micros are nanos / 1000.
#[test]
fn s39_every_node_is_scheduled_before_it_starts_and_ends_after() {
    let x = HostTensor::from_slice([32, 32], &vec![1f32 / 32.0; 1024]).unwrap();
    for threads in [1, 3] {
        let session = session(&Options::new().intra_op(threads).device_count(DeviceKind::Cpu, 3));
        let plain = session.run(&[("x", &x)], &["y"], &[]).unwrap();
        for _ in 0..20 {
            let (values, metadata) = session.run_with_stats(&[("x", &x)], &["y"], &[]).unwrap();
            assert_eq!(values, plain);
            let devices: Vec<&str> = metadata.step_stats.iter().map(|device| device.device.rsplit("device:").next().unwrap()).collect();
            assert_eq!(devices, ["CPU:0", "CPU:1", "CPU:2"]);
            for device in &metadata.step_stats {
                let mut before = 0;
                for node in &device.node_stats {
                    let start = node.all_start_nanos;
                    let times =
                        [node.scheduled_nanos, start, start + node.op_start_rel_nanos, start + node.op_end_rel_nanos, node.all_end_nanos()];
                    assert!(times.is_sorted(), "{node:?}");
                    assert!(u128::from(node.all_end_nanos()) <= metadata.elapsed.as_nanos(), "{node:?} {:?}", metadata.elapsed);
                    // One at a time.
                    assert!(before <= node.scheduled_nanos, "{before} {node:?}");
                    before = node.all_end_nanos();
                    let micros = [
                        (node.scheduled_micros(), node.scheduled_nanos),
                        (node.all_start_micros(), node.all_start_nanos),
                        (node.op_start_rel_micros(), node.op_start_rel_nanos),
                        (node.op_end_rel_micros(), node.op_end_rel_nanos),
                        (node.all_end_rel_micros(), node.all_end_rel_nanos),
                    ];
                    assert!(micros.into_iter().all(|(micros, nanos)| micros == nanos / 1000));
                }
            }
        }
    }
}

#[test]
fn statistics_name_the_nodes_and_count_their_bytes() {
    let session = session(&Options::new().device_count(DeviceKind::Cpu, 3));
    let x = HostTensor::from_slice([32, 32], &vec![1f32 / 32.0; 1024]).unwrap();
    let (_, metadata) = session.run_with_stats(&[("x", &x)], &["y"], &[]).unwrap();
    let nodes = |device: usize| &metadata.step_stats[device].node_stats;
    let products: Vec<_> = nodes(0).iter().filter(|node| node.operation == "MatMul").collect();
    assert_eq!(products.len(), 8);
    assert_eq!(products[1].timeline_label, "product_1 = MatMul(product_0, product_0)");
    assert!(products.iter().all(|node| (node.bytes_read, node.bytes_written) == (4096, 4096)), "{products:?}");
    for device in [1, 2] {
        let copies: Vec<_> = nodes(device).iter().filter(|node| node.operation == "copy").collect();
        assert_eq!(copies.len(), 8, "{:?}", nodes(device));
        assert_eq!((copies[0].timeline_label.as_str(), copies[0].bytes_read, copies[0].bytes_written), ("copy of product_0", 4096, 4096));
        // A copied value had been made.
        let made = products[0].all_end_nanos();
        assert!(copies[0].scheduled_nanos >= made);
    }
    // The nodes of a kernel beside the one that it is named after.
    let fused: Vec<&str> = nodes(1).iter().flat_map(|node| &node.fused).map(|(_, operation)| operation.as_str()).collect();
    let own = nodes(1).iter().filter(|node| node.operation == "Tanh" || node.operation == "Sum").count();
    assert_eq!(own + fused.iter().filter(|operation| matches!(**operation, "Tanh" | "Sum")).count(), 16);
}
