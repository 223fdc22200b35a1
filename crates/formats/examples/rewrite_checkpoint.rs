//! Reads a checkpoint and writes it again: `rewrite_checkpoint IN OUT`, where both are prefixes.

use std::error::Error;

use plimsoll_formats::bundle::{BundleReader, BundleWriter};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &arguments[..] else { return Err("usage: rewrite_checkpoint IN OUT".into()) };
    let reader = BundleReader::open(from)?;
    let mut writer = BundleWriter::create(to)?;
    for name in reader.names() {
        writer.add(name, &reader.read(name)?)?;
    }
    writer.finish()?;
    Ok(())
}
