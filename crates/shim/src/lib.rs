//! A library between a program and NVIDIA's driver, loaded by LD_PRELOAD, that holds the program to its lease.
//!
//! **How calls come here.** The functions of the driver that allocate, free and report memory have a wrapper of the same name
//! ([`table`]): linking finds it. For all other ways the address is exchanged: [`hook`] stands before `dlsym`, [`lookup`] before
//! `cuGetProcAddress`. Each asks the real one first, and exchanges addresses that are known to be the driver's functions.
//!
//! **What a wrapper does.** It reserves in the ledger of the lease ([`process`]), then calls the driver. Bytes that the driver did
//! not take are given back. Reserving is one transaction for all programs under the lease. Freed bytes are given back after the
//! driver has freed them. A wrapper whose request has no room answers CUDA_ERROR_OUT_OF_MEMORY.
//!
//! **All functions.** `data/entry_points.txt` says of every function of `cuda.h` what becomes of it, and a test compares it with the
//! table. No name is matched by its beginning.
//!
//! **What it leaves alone.** Nothing happens before the first of these calls: no file is opened, no library loaded, no
//! thread started. Without PLIMSOLL_LEASE every call goes straight to the driver. The shim prints nothing, handles no signal, and
//! a panic inside of it is CUDA_ERROR_UNKNOWN.
#![cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(non_snake_case, non_upper_case_globals, reason = "the driver's functions keep their names")]

mod abi;
mod array;
mod context;
mod driver;
mod file_limit;
mod graph;
mod hook;
mod info;
mod loader;
mod lookup;
mod nvml;
mod order;
mod plain;
mod pool;
mod process;
mod size;
mod table;
mod vmm;

/// By this symbol `plimsoll` knows this library (`share/src/enforce/marker.rs`). The number grows when programs are told of their
/// lease in another way.
#[unsafe(no_mangle)]
pub static plimsoll_shim_1: u8 = 1;
