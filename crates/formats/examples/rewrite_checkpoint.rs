//! Reads a checkpoint and writes it again: `rewrite_checkpoint IN OUT`, where both are prefixes; or merges several into one:
//! `rewrite_checkpoint IN IN… OUT`.

use std::error::Error;

use plimsoll_formats::bundle::{BundleReader, BundleWriter, merge};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [from, to] = &arguments[..] else {
        let (to, from) = arguments.split_last().ok_or("usage: rewrite_checkpoint IN… OUT")?;
        return Ok(merge(from, to)?);
    };
    let reader = BundleReader::open(from)?;
    let mut writer = BundleWriter::create(to)?;
    for name in reader.names() {
        writer.add(name, &reader.read(name)?)?;
    }
    writer.finish()?;
    Ok(())
}
