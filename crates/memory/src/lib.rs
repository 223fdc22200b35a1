//! Memory of a device. A [`Ledger`] holds the line, and an [`AddressSpace`] is the seam behind which memory is had and given back
//! ([`HostPages`]: pages of this machine). A [`Block`] is both together. [`layout`] packs buffers with known lifetimes into one
//! block.
//!
//! There are two counts, made independently: promised bytes (reservations) and mapped bytes (backings). A test that compares them
//! compares two facts.

mod address;
mod backing;
mod block;
mod heap;
pub mod layout;
mod ledger;
mod limits;
mod loan;
pub mod pages;
mod sealed;
mod space;

pub use address::Address;
pub use backing::{Backing, page_size, physical_memory};
pub use block::Block;
pub use heap::trim_heap;
pub use ledger::{Denied, Faults, Holder, Ledger, Listener, Refusal, Reservation, Upstream};
pub use limits::{check_file_size, no_room};
pub use loan::Loan;
pub use sealed::{Sealed, Unsealed};
pub use space::{AddressSpace, HostPages, Region};
