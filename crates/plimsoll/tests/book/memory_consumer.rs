use plimsoll::builder::Initializer;
use plimsoll::share::{Cards, Functions, Request};
use plimsoll::{Bytes, DataType, Devices, Environment, Options, Result};

/// Fills so many MiB of the card that it sees.
fn consume(mebibytes: u64) -> Result<u64> {
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    b.device("/gpu:0", |b| b.get_variable("numbers", DataType::Float, [mebibytes << 18], &Initializer::Ones))?;
    b.global_variables_initializer()?;
    let session = devices.session(b.finish())?;
    session.run(&[], &[], &["init"])?;
    Ok(devices.memory_allocated("GPU:0")?.0)
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(consume).begin(); // first: workers come this far and no further
    let cards = Cards::find(&Options::new().sim_gpus("1x1GiB"), &Environment::new())?;
    let lease = cards.lease(&Request::cards(1).memory("256MiB".parse()?), &mut |_| false)?;

    let outcome = workers.isolate(&lease, consume, 100)?;
    println!("the function held {}", Bytes(outcome.output));
    println!("{}", outcome.report);
    Ok(())
}
