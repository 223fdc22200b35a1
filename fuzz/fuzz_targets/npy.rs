#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_formats::npy;

fuzz_target!(|bytes: &[u8]| {
    let Ok(tensor) = npy::read(bytes) else { return };
    let mut written = Vec::new();
    npy::write(&tensor, &mut written).unwrap();
    assert_eq!(npy::read(&written).unwrap(), tensor);
});
