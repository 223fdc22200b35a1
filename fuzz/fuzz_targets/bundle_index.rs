#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_formats::bundle::BundleReader;

fuzz_target!(|index: &[u8]| {
    let Ok(reader) = BundleReader::from_index("no/such/checkpoint", index) else { return };
    for name in reader.names() {
        let _ = reader.entry(name);
        assert!(reader.read(name).is_err(), "there is no data");
    }
});
