//! A driver without cards, for tests: `libcuda` and `libnvidia-ml` in one library, on a machine that is a folder.
//!
//! It gives out addresses and counts bytes; nothing is ever stored or computed. Memory of a process is free when the process has
//! died, however it died. The use of each card is known at every instant, and the most that was used ([`Machine`]): tests of
//! programs under a limit ask here.
//!
//! A program finds the machine by PLIMSOLL_MOCK_GPUS. CUDA_VISIBLE_DEVICES counts, by index or UUID. Programs of the CUDA runtime cannot
//! run here: they ask for the driver's private tables.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(non_snake_case, reason = "the driver's functions keep their names")]

mod contexts;
mod devices;
mod graphs;
mod lookup;
mod machine;
mod memory;
mod nvml;
mod physical;
mod pools;
mod state;

pub use machine::{Card, MACHINE, Machine, Program};
