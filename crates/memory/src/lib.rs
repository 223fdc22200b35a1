//! Memory of a device: the line that holds ([`Ledger`]), the seam behind which memory is had and given back ([`AddressSpace`]; pages
//! of this machine are one, [`HostPages`]), both together ([`Block`]), the packing of buffers with known lifetimes into one block
//! ([`layout`]), and an allocator for those whose lifetimes or sizes are not known beforehand ([`arena`]).
//!
//! There are two counts, made independently: what was promised (reservations) and what was mapped (backings). A test that
//! compares them compares two facts.

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
