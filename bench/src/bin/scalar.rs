//! `a * x + b` on scalars through `Callable::run_into`: nanoseconds a call, median of batches.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin scalar

use std::sync::Arc;
use std::time::Instant;

use plimsoll::builder::GraphBuilder;
use plimsoll::{DataType, Devices, Feed, HostTensor, Options, Registry, Shape, Signature};
use plimsoll_kernels::CpuKernels;

fn main() -> plimsoll::Result<()> {
    let mut builder = GraphBuilder::new(Arc::new(Registry::standard(Arc::new(CpuKernels))));
    let [a, x, b] = ["a", "x", "b"].map(|name| builder.placeholder(name, DataType::Float, &Shape::scalar()).build());
    let product = builder.mul(a?, x?).build()?;
    builder.add(product, b?).name("y").build()?;
    let session = Devices::open(&Options::new())?.session(builder.finish())?;
    let feed = |name: &str| Feed { tensor: name.into(), data_type: DataType::Float, shape: Shape::scalar(), value: None };
    let signature =
        Signature { feeds: ["a", "x", "b"].map(feed).to_vec(), fetches: vec!["y:0".into()], targets: vec![], ..Signature::default() };
    let callable = session.callable(&signature)?;
    let [a, x, b] = [2f32, 3.0, 1.0].map(HostTensor::scalar);
    let mut y = callable.outputs()?.remove(0);
    let mut nanoseconds: Vec<f64> = (0..200)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..1000 {
                callable.run_into(&[&a, &x, &b], &mut [&mut y]).expect("it runs");
            }
            start.elapsed().as_nanos() as f64 / 1000.0
        })
        .collect();
    nanoseconds.sort_by(f64::total_cmp);
    println!(
        "a*x+b = {:?}: {:.0} ns a call (p10 {:.0}, p90 {:.0})",
        y.to_vec::<f32>()?,
        nanoseconds[100],
        nanoseconds[20],
        nanoseconds[180]
    );
    Ok(())
}
