use plimsoll::builder::Initializer;
use plimsoll::share::{Cards, Functions, Request};
use plimsoll::{Bytes, DataType, Devices, Environment, Options, Result};

/// Fills so many MiB of the card, and never gives them back.
fn leak(mebibytes: u64) -> Result<u64> {
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    b.device("/gpu:0", |b| b.get_variable("numbers", DataType::Float, [mebibytes << 18], &Initializer::Ones))?;
    b.global_variables_initializer()?;
    let session = devices.session(b.finish())?;
    session.run(&[], &[], &["init"])?;
    let held = devices.memory_allocated("GPU:0")?.0;
    std::mem::forget((session, devices));
    Ok(held)
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(leak).begin();
    let cards = Cards::find(&Options::new().sim_gpus("1x1GiB"), &Environment::new())?;
    let machine = cards.machine().expect("there is a card");
    println!("free before: {}", machine.look()?.cards[0].free);

    let lease = cards.lease(&Request::cards(1).memory("256MiB".parse()?), &mut |_| false)?;
    println!("with a lease: {}", machine.look()?.cards[0].free);
    for call in 1..=3 {
        let outcome = workers.isolate(&lease, leak, 200)?; // twice would be more than the lease has
        println!(
            "call {call} held {}: {}",
            Bytes(outcome.output),
            if outcome.report.all_back() { "all is back" } else { "not all is back" }
        );
    }
    drop(lease);
    println!("free after: {}", machine.look()?.cards[0].free);
    Ok(())
}
