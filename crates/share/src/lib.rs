//! A machine's cards between programs: leases, programs under a lease, functions in processes of their own.
//!
//! Nothing here knows graphs. The ledger of a machine's cards ([`plimsoll_machine`]) has the holders and decides the
//! grants; this crate puts programs behind it.
#![forbid(unsafe_code)]

pub mod doctor;
pub mod enforce;
pub mod framework;
pub mod isolate;
pub mod lease;
pub mod pool;
pub mod run;
pub mod supervise;
pub mod sweep;
pub mod terminal;
mod tree;
mod wire;

pub use isolate::{Cause, Death, Functions, Outcome, Workers};
pub use lease::{Amount, Cards, Lease, Part, Peak, Report, Request, Which};
pub use pool::Pool;
pub use wire::Bulk;
