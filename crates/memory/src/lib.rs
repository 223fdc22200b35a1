//! Memory of a device inside this process: the line that holds ([`Ledger`]), mappings that can be given back ([`Backing`]),
//! both together ([`Block`]), and the packing of buffers with known lifetimes into one arena ([`layout`]).
//!
//! There are two counts, made independently: what was promised (reservations) and what was mapped (backings). A test that
//! compares them compares two facts.

mod backing;
mod block;
pub mod layout;
mod ledger;
mod loan;

pub use backing::{Backing, page_size, physical_memory};
pub use block::{Block, POISON};
pub use ledger::{Holder, Ledger, Refusal, Reservation};
pub use loan::Loan;
