use plimsoll::{Devices, HostTensor, Options, Result, model, npy};

pub fn main() -> Result<()> {
    let folder = std::path::Path::new("crates/cli/tests/saved");
    let array = |file: &str| -> Result<HostTensor> { npy::read(&model::read_file(&folder.join(file))?) };

    let devices = Devices::open(&Options::new())?;
    let session = devices.load(folder.join("model"))?; // its variables are read when a run needs them
    for _ in 0..2 {
        for (name, value) in session.call("train", &[("x", array("x.npy")?), ("y", array("y.npy")?)])? {
            println!("{name} {:.3}", value.as_slice::<f32>()?[0]);
        }
    }
    Ok(())
}
