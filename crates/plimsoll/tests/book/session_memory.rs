use plimsoll::builder::Initializer;
use plimsoll::{Bytes, DataType, Devices, HostTensor, Options, PartialShape, Result};

pub fn main() -> Result<()> {
    let devices = Devices::open(&Options::new().sim_gpus("1x1GiB"))?;
    let show = |when: &str| -> Result<()> {
        let [allocated, reserved, most] =
            [devices.memory_allocated("GPU:0")?, devices.memory_reserved("GPU:0")?, devices.max_memory_allocated("GPU:0")?];
        println!("{when:22} memory_allocated {allocated:>8}, memory_reserved {reserved:>8}, max_memory_allocated {most:>8}");
        Ok(())
    };
    show("nothing yet")?;

    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, PartialShape(Some(vec![Some(1024), Some(1024)]))).build()?;
    b.device("/gpu:0", |b| {
        let w = b.get_variable("w", DataType::Float, [1024, 1024], &Initializer::Ones)?;
        let hidden = b.mul(x, w.value).build()?;
        let output = b.mul(hidden, w.value).build()?;
        b.reduce_mean(output, None).name("mean").build()
    })?;
    b.global_variables_initializer()?;
    let session = devices.session(b.finish())?;
    session.run(&[], &[], &["init"])?;
    show("variables")?;
    let ones = HostTensor::from_slice([1024, 1024], &vec![1.0f32; 1 << 20])?;
    session.run(&[("x", ones)], &["mean"], &[])?;
    show("after a run")?;
    devices.empty_cache();
    show("empty_cache")?;
    drop(session);
    show("the session is closed")?;
    devices.empty_cache();
    show("empty_cache")?;
    assert_eq!(devices.memory_allocated("GPU:0")?, Bytes::ZERO);
    Ok(())
}
