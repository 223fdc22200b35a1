//! Functions in processes of their own: a call's time on a warm pool and without one, and how fast results come back.
//!
//!     cargo run --release --manifest-path bench/Cargo.toml --bin isolate
//!
//! `bench/isolate.py` measures the Python package, `concurrent.futures` with spawn and loky in the same way.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use plimsoll::share::{Bulk, Functions, Pool};
use plimsoll::{Bytes, Result};

const BYTES: usize = 100_000_000;

fn nothing((): ()) -> Result<()> {
    Ok(())
}

/// Made once, so that the making is not measured.
static KEPT: OnceLock<Vec<u8>> = OnceLock::new();

fn kept(length: usize) -> Result<Bulk<u8>> {
    Bulk::copy_of(KEPT.get_or_init(|| vec![7; length]))
}

fn filled(length: usize) -> Result<Bulk<u8>> {
    Bulk::filled(length, |bytes| bytes.fill(7))
}

fn vector(length: usize) -> Result<Vec<f64>> {
    Ok(vec![7.0; length / 8])
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Results are dropped outside of the time.
fn rounds<T>(count: usize, mut run: impl FnMut() -> T) -> Vec<Duration> {
    (0..count)
        .map(|_| {
            let begin = Instant::now();
            let _kept = run();
            begin.elapsed()
        })
        .collect()
}

fn rate(name: &str, times: Vec<Duration>) {
    let time = median(times);
    println!("100 MB, {name}: {time:.1?} = {:.2} GB/s", BYTES as f64 / 1e9 / time.as_secs_f64());
}

fn pool_times(pool: &Pool) {
    rounds(200, || pool.submit(nothing, ()).wait().expect("it returns"));
    let mut times = rounds(5000, || pool.submit(nothing, ()).wait().expect("it returns"));
    times.sort();
    println!(
        "empty function, warm pool of {}: median {:.1?}, 99 %: {:.1?}, most {:.1?}",
        pool.size(),
        times[2500],
        times[4950],
        times[4999]
    );
    let begin = Instant::now();
    let count = pool.map(nothing, vec![(); 20_000]).filter(|answer| answer.is_ok()).count();
    println!("{count} empty calls by map: {:.1?} each", begin.elapsed() / count as u32);
}

fn main() -> Result<()> {
    let workers = Functions::new().with(nothing).with(kept).with(filled).with(vector).begin().keep(Bytes(1 << 30)); // what `kept` keeps
    let pool = workers.pool(1)?;
    pool_times(&pool);
    pool_times(&workers.pool(2)?);
    let cold = rounds(50, || workers.isolate(None, nothing, ()).expect("it returns"));
    println!("empty function, a process of its own (isolate): median {:.1?}", median(cold));
    rounds(1, || pool.submit(kept, BYTES).wait().expect("it returns"));
    rate("Bulk<u8> that is a copy of what the worker has", rounds(15, || pool.submit(kept, BYTES).wait().expect("it returns")));
    rate("Bulk<u8>, filled by the worker", rounds(15, || pool.submit(filled, BYTES).wait().expect("it returns")));
    rate("Vec<f64>, made by the worker and number by number", rounds(15, || pool.submit(vector, BYTES).wait().expect("it returns")));
    let back = pool.submit(kept, BYTES).wait().map_err(plimsoll::Error::from)?.output;
    println!(
        "and read where it is: {:.1?}",
        median(rounds(9, || std::hint::black_box(back.iter().map(|byte| u64::from(*byte)).sum::<u64>())))
    );
    rate("a copy in this process, without any other", rounds(9, || back.to_vec()));
    Ok(())
}
