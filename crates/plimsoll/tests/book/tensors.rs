use plimsoll::share::Functions;
use plimsoll::{DataType, Devices, HostTensor, Options, PartialShape, Result};

/// Rows that sum to 1.
fn softmax(logits: HostTensor) -> Result<HostTensor> {
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, PartialShape(None)).build()?;
    b.op("Softmax").input(x).name("y").build()?;
    let session = devices.session(b.finish())?;
    Ok(session.run(&[("x", logits)], &["y"], &[])?.remove(0))
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(softmax).begin();
    let logits = HostTensor::from_slice([2, 2], &[0.0f32, 0.0, 1.0, 1.0])?;
    let rows = workers.isolate(None, softmax, logits)?.output;
    println!("{} {:?}", rows.shape(), rows.as_slice::<f32>()?);
    Ok(())
}
