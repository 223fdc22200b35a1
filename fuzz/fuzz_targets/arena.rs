#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/memory/tests/model/mod.rs"]
mod model;

fuzz_target!(|bytes: &[u8]| model::drive(bytes));
