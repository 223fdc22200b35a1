#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/runtime/tests/open_regions/model/mod.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::drive(bytes));
