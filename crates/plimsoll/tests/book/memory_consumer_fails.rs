use plimsoll::builder::Initializer;
use plimsoll::share::{Cards, Cause, Functions, Request};
use plimsoll::{DataType, Devices, Environment, Error, Options, Result};

/// Fills so many MiB of the card that it sees, and then something goes wrong.
fn consume_and_fail((mebibytes, how): (u64, String)) -> Result<()> {
    let devices = Devices::open(&Options::new())?;
    let mut b = devices.builder();
    b.device("/gpu:0", |b| b.get_variable("numbers", DataType::Float, [mebibytes << 18], &Initializer::Ones))?;
    b.global_variables_initializer()?;
    let session = devices.session(b.finish())?;
    session.run(&[], &[], &["init"])?;
    match how.as_str() {
        "error" => Err(Error::invalid_argument("the labels are not digits")),
        "panic" => panic!("the labels are not digits"),
        "abort" => std::process::abort(),
        _ => std::process::exit(3),
    }
}

pub fn main() -> Result<()> {
    let workers = Functions::new().with(consume_and_fail).begin();
    let cards = Cards::find(&Options::new().sim_gpus("1x1GiB"), &Environment::new())?;
    let lease = cards.lease(&Request::cards(1).memory("256MiB".parse()?), &mut |_| false)?;

    for (mebibytes, how) in [(100, "error"), (100, "panic"), (100, "abort"), (100, "exit"), (300, "error")] {
        let Err(death) = workers.isolate(&lease, consume_and_fail, (mebibytes, how.to_string())) else { continue };
        let what = match &death.cause {
            Cause::Error { message, .. } => format!("error: {message}"),
            Cause::Panic { message, .. } => format!("panic: {message}"),
            Cause::Signal { name, .. } => format!("signal: {name}"),
            Cause::Lost { status, .. } => format!("lost: {status:?}"),
            Cause::OutOfMemory { of, .. } => format!("out of memory: {of:?}"),
            other => other.to_string(),
        };
        println!("{what}; {}", death.report);
    }
    Ok(())
}
