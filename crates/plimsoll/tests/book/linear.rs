use plimsoll::builder::Initializer;
use plimsoll::builder::optimizer::{GradientDescent, Optimizer};
use plimsoll::{DataType, Devices, HostTensor, Options, Result, Shape};

pub fn main() -> Result<()> {
    let devices = Devices::open(&Options::new().limit("CPU:0", "1MiB"))?;
    let mut b = devices.builder();
    let x = b.placeholder("x", DataType::Float, &Shape::new([4])).build()?;
    let y = b.placeholder("y", DataType::Float, &Shape::new([4])).build()?;
    let slope = b.get_variable("slope", DataType::Float, [], &Initializer::Zeros)?;
    let offset = b.get_variable("offset", DataType::Float, [], &Initializer::Zeros)?;
    let product = b.mul(slope.value, x).build()?;
    let line = b.add(product, offset.value).build()?;
    let distance = b.sub(line, y).build()?;
    let loss = b.l2_loss(distance).name("loss").build()?;
    GradientDescent::new(0.1).minimize(&mut b, loss, &[slope, offset], "train")?;
    b.global_variables_initializer()?;

    let session = devices.session(b.finish())?;
    session.run(&[], &[], &["init"])?;
    let [x, y] = [[-1.0f32, 0.0, 1.0, 2.0], [-1.0, 1.0, 3.0, 5.0]].map(|values| HostTensor::from_slice([4], &values));
    let (x, y) = (x?, y?);

    // A prepared signature: after its first runs a step allocates nothing.
    let step = session.callable_for(&[("x", x.clone()), ("y", y.clone())], &["loss:0"], &["train"])?;
    let mut fetches = step.outputs()?;
    for _ in 0..200 {
        step.run_into(&[&x, &y], &mut fetches.iter_mut().collect::<Vec<_>>())?;
    }
    for variable in session.run(&[], &["slope:0", "offset:0"], &[])? {
        println!("{:.3}", variable.as_slice::<f32>()?[0]);
    }
    Ok(())
}
