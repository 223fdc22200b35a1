//! A file as a second line: what a larger one would do.

use plimsoll::builder::{Initializer, VariableKind};
use plimsoll::{Bytes, DataType, Devices, Graph, HostTensor, Options, Result, Shape};

const LAYERS: usize = 12;
const SIDE: u64 = 64;

/// Layers whose weights change before their results are read again: these cannot be computed twice.
fn graph(devices: &Devices) -> Result<Graph> {
    let mut b = devices.builder();
    b.set_variable_kind(VariableKind::Resource);
    let x = b.placeholder("x", DataType::Float, &Shape::from([SIDE, SIDE])).build()?;
    let first = Initializer::Value(HostTensor::from_slice([SIDE, SIDE], &vec![0.01f32; (SIDE * SIDE) as usize])?);
    let w = b.get_variable("w", DataType::Float, [SIDE, SIDE], &first)?;
    let before = b.read(&w)?;
    let mut layers = vec![x];
    for _ in 0..LAYERS {
        let product = b.matmul(layers[layers.len() - 1], before).build()?;
        layers.push(b.op("Tanh").input(product).build()?);
    }
    let changed = b.assign_sub(&w, layers[LAYERS])?;
    let after = b.control_dependencies(&[changed], |b| b.read(&w))?;
    let mut sum = layers[LAYERS];
    for layer in layers[1..].iter().rev() {
        let product = b.matmul(sum, after).build()?;
        sum = b.add(product, *layer).build()?;
    }
    b.identity(sum).name("y").build()?;
    Ok(b.finish())
}

#[test]
fn a_file_that_would_lower_the_smallest_limit_is_named() -> Result<()> {
    let value = 4 * SIDE * SIDE;
    let larger = |size: &str, limit: &str| -> Result<Option<(Bytes, Bytes)>> {
        let options = Options::new().spill(env!("CARGO_TARGET_TMPDIR"), size).limit("CPU:0", limit);
        let devices = Devices::open(&options)?;
        let session = devices.session(graph(&devices)?)?;
        let x = HostTensor::from_slice([SIDE, SIDE], &vec![0.5f32; (SIDE * SIDE) as usize])?;
        let signature = session.signature(&[("x", x)], &["y"], &[])?;
        let plan = session.plan_signature(&signature)?;
        let least = plan.minimum_limit();
        let found = session.larger_file(&[signature], plan.footprint())?;
        if let Some((size, limit)) = found {
            assert!(size.0 >= 4 * value && limit < least, "{size} {limit} {least}");
        }
        Ok(found)
    };
    // A file of one block has no room for a value.
    assert!(larger("4KiB", "64KiB")?.is_some());
    assert_eq!(larger("4KiB", "64MiB")?, None, "it fits as it is");
    assert_eq!(larger("4MiB", "512KiB")?, None, "all that may wait has room");
    Ok(())
}
