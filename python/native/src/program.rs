//! The command line, for the program `plimsoll` of the wheel (`launcher.rs`). No interpreter runs in its process: nothing that is
//! called from here may touch Python.

/// Runs the command line of this process and ends the process. The name has the version, so that a program and a module of two
/// versions do not meet.
#[unsafe(export_name = concat!("plimsoll_main_", env!("CARGO_PKG_VERSION")))]
pub extern "C" fn main() -> ! {
    // `exit` of this library's own `std` writes the rest of its standard output. 101 is the status of a program that panicked.
    std::process::exit(std::panic::catch_unwind(plimsoll_cli::main).map_or(101, i32::from))
}
