#![no_main]

use libfuzzer_sys::fuzz_target;
use plimsoll_formats::{print_config, read_config, to_options, write_config};

fuzz_target!(|text: &str| {
    let Ok(config) = read_config(text.as_bytes()) else { return };
    let written = write_config(&config);
    assert_eq!(write_config(&read_config(print_config(&config).as_bytes()).unwrap()), written);
    let _ = to_options(&config);
});
