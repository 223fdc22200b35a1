//! Memory of a device. A [`Ledger`] holds the line, and an [`AddressSpace`] is the seam behind which memory is had and given back
//! ([`HostPages`]: pages of this machine). A [`Block`] is both together. [`layout`] packs buffers with known lifetimes into one
//! block; [`arena`] is an allocator for buffers whose lifetimes or sizes are not known beforehand.
//!
//! There are two counts, made independently: promised bytes (reservations) and mapped bytes (backings). A test that compares them
//! compares two facts.

mod address;
pub mod arena;
mod backing;
mod block;
mod heap;
pub mod layout;
mod ledger;
mod limits;
mod loan;
pub mod machine;
mod pages;
mod sealed;
mod signals;
mod size;
mod space;
mod usage;

pub use address::Address;
pub use backing::{Backing, page_size, physical_memory};
pub use block::Block;
pub use heap::trim_heap;
pub use ledger::{Faults, Holder, Ledger, Refusal, Reservation, Upstream};
pub use limits::no_room;
pub use loan::Loan;
pub use sealed::{Sealed, Unsealed};
pub use signals::{end_by_signal, send_signal};
pub use space::{AddressSpace, HostPages, Region};
pub use usage::{ChildrenUsage, children_usage};
