//! Memory of a device inside this process: the line that holds ([`Ledger`]), mappings that can be given back ([`Backing`]),
//! both together ([`Block`]), the packing of buffers with known lifetimes into one block ([`layout`]), and an allocator for those
//! whose lifetimes or sizes are not known beforehand ([`arena`]).
//!
//! There are two counts, made independently: what was promised (reservations) and what was mapped (backings). A test that
//! compares them compares two facts.

pub mod arena;
mod backing;
mod block;
mod heap;
pub mod layout;
mod ledger;
mod loan;
pub mod machine;
mod pages;
mod sealed;
mod size;

pub use backing::{Backing, page_size, physical_memory};
pub use block::{Block, POISON};
pub use heap::trim_heap;
pub use ledger::{Faults, Holder, Ledger, Refusal, Reservation, Upstream};
pub use loan::Loan;
pub use sealed::Sealed;
