use std::sync::Arc;

use plimsoll::share::{Cards, Functions, Request};
use plimsoll::{Devices, Environment, HostTensor, Options, Result};

/// The square, by the card; 13 brings misfortune.
fn square(x: f32) -> Result<f32> {
    if x == 13.0 {
        std::process::exit(13);
    }
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    let node = b.device("/gpu:0", |b| {
        let x = b.constant(HostTensor::from_slice([], &[x])?).build()?;
        b.op("Square").input(x).name("y").build()
    });
    node?;
    let session = devices.session(b.finish())?;
    Ok(session.run(&[], &["y"], &[])?[0].as_slice::<f32>()?[0])
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(square).begin();
    let cards = Cards::find(&Options::new().sim_gpus("2x1GiB"), &Environment::new())?;
    let one = || cards.lease(&Request::cards(1).memory("64MiB".parse()?), &mut |_| false).map(Arc::new);
    let pool = workers.pool_under([one()?, one()?])?; // two workers, a card each

    for answer in pool.map(square, [11.0, 12.0, 13.0, 14.0]) {
        match answer {
            Ok(outcome) => println!("{}", outcome.output),
            Err(death) => println!("{}", death.cause),
        }
    }
    let mut squares: Vec<f32> = pool.as_completed(square, [1.0, 2.0, 3.0]).filter_map(|(_, answer)| Some(answer.ok()?.output)).collect();
    squares.sort_by(f32::total_cmp);
    println!("{squares:?}; {} worker died and was replaced", pool.counts().died);
    Ok(())
}
