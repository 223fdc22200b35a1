//! A driver without cards, for tests: `libcuda`, `libnvidia-ml` and `libnvrtc` in one library, on a machine that is a folder.
//!
//! It counts the bytes of cards. Memory that is mapped is there, under addresses that no processor can follow, and streams are
//! threads: they copy, and run kernels that the C compiler has translated. Other allocations are numbers alone. Memory of a process is free when the process has
//! died, however it died. The use of each card is known at every instant, and the most that was used ([`Machine`]): tests of
//! programs under a limit ask here.
//!
//! A program finds the machine by PLIMSOLL_MOCK_GPUS, else in the library's own folder. CUDA_VISIBLE_DEVICES counts, by index or UUID. Programs of the CUDA runtime cannot
//! run here: they ask for the driver's private tables.
#![cfg(all(target_os = "linux", target_pointer_width = "64"))]
#![allow(non_snake_case, reason = "the driver's functions keep their names")]

mod calls;
mod conditions;
mod contexts;
mod devices;
mod graphs;
mod images;
mod lookup;
mod machine;
mod memory;
mod modules;
mod nodes;
mod nvml;
mod nvrtc;
mod physical;
mod pinned;
mod pools;
mod space;
mod state;
mod streams;

pub use machine::{Card, Idle, MACHINE, Machine, Program};
