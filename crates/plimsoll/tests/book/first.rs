use plimsoll::{Devices, HostTensor, Options, Result, model, npy};

pub fn main() -> Result<()> {
    let case = std::path::Path::new("crates/cli/tests/cases/mlp_sgd_ref");
    let array = |file: &str| -> Result<HostTensor> { npy::read(&model::read_file(&case.join(file))?) };
    let feeds = [("x", array("step0_feed0.npy")?), ("y", array("step0_feed1.npy")?)];

    let devices = Devices::open(&Options::new().limit("CPU:0", "64MiB"))?;
    let session = devices.load(case.join("graph.pb"))?;
    let plan = session.plan(&feeds, &["loss:0"], &["train"])?;
    println!("fits: {}", plan.fits()); // println!("{plan}") says what it takes of each device

    session.run(&[], &[], &["init"])?; // first values; or session.restore("checkpoint")
    for step in 1..=3 {
        let loss = session.run(&feeds, &["loss:0"], &["train"])?;
        println!("step {step}: loss {:.3}", loss[0].as_slice::<f32>()?[0]);
    }
    session.save("target/mlp/model.ckpt")?; // a checkpoint that TensorFlow reads
    Ok(()) // what the session holds goes back to the devices
}
