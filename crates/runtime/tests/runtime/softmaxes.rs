//! A small session whose runs take as much memory as they have rows.

use std::sync::Arc;

use plimsoll_base::{Bytes, DataType};
use plimsoll_cards::Options;
use plimsoll_graph::{HostTensor, PartialShape};
use plimsoll_kernels::CpuKernels;
use plimsoll_ops::builder::Initializer;
use plimsoll_ops::{GraphBuilder, Registry};
use plimsoll_runtime::{Devices, Session};

/// `y` = softmax of `x`, twice over, times a constant matrix, plus a variable, which the node `init` initializes.
pub fn session(devices: &Devices) -> Session {
    let mut b = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![None, Some(64)]))).build().unwrap();
    let values: Vec<f32> = (0..64 * 64).map(|i| (i % 13) as f32).collect();
    let matrix = b.constant(HostTensor::from_slice([64, 64], &values).unwrap()).build().unwrap();
    let v = b.get_variable("v", DataType::Float, [64], &Initializer::Ones).unwrap();
    b.global_variables_initializer().unwrap();
    let once = b.softmax(x).build().unwrap();
    let twice = b.softmax(once).build().unwrap();
    let product = b.matmul(twice, matrix).build().unwrap();
    let sum = b.add(product, v.value).build().unwrap();
    b.reduce_sum(sum, None).name("y").build().unwrap();
    let registry = b.registry().clone();
    Session::new(devices, &b.finish(), registry).unwrap()
}

/// A value for `x`.
pub fn rows(count: u64) -> HostTensor {
    HostTensor::from_slice([count, 64], &vec![0.5f32; count as usize * 64]).unwrap()
}

/// One processor, with a limit or none.
pub fn open(limit: Option<Bytes>) -> Devices {
    let options = Options::new().intra_op(1);
    Devices::open(&limit.map_or(options.clone(), |limit| options.limit("CPU:0", &limit.0.to_string()))).unwrap()
}
