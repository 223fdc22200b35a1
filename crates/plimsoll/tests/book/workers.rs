use plimsoll::Result;
use plimsoll::share::Functions;

fn train(seed: u64) -> Result<f64> {
    Ok(0.9 + seed as f64 / 100.0) // the accuracy, say
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(train).begin(); // first: workers are this program, started again
    for answer in workers.pool(4)?.map(train, 0..3) {
        match answer {
            Ok(outcome) => println!("{:.2}", outcome.output),
            Err(death) => println!("{death}"), // an error, a panic, a signal by name, out of memory, too late
        }
    }
    Ok(())
}
