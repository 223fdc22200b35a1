//! Addresses in the memory of any device.

use std::fmt;

/// Where a byte lies in the memory of some device. Only the code of the device whose memory it is knows how to reach it. On a
/// processor it is an address of this process, on a card a number without meaning to the processor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address(*mut u8);

// SAFETY: an address is a number; the code that follows it answers for that.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Address {
    /// Of nothing.
    pub const NULL: Address = Address(std::ptr::null_mut());

    /// An address of this process, or one made from it by a crate that can turn it back.
    pub const fn new(pointer: *mut u8) -> Address {
        Address(pointer)
    }

    /// An address that a driver calls by this number.
    pub fn from_number(number: u64) -> Address {
        Address(std::ptr::without_provenance_mut(number as usize))
    }

    /// The number.
    pub fn number(self) -> u64 {
        self.0.addr() as u64
    }

    /// The address that so many bytes further on has.
    pub fn plus(self, bytes: u64) -> Address {
        Address(self.0.wrapping_add(bytes as usize))
    }

    /// The address that [`Address::new`] was given, plus all offsets added since.
    ///
    /// # Safety
    /// The caller knows the owner of the memory, and the address that the maker started from: only the caller can say whether it
    /// may be followed.
    pub const unsafe fn pointer(self) -> *mut u8 {
        self.0
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.number())
    }
}

impl Default for Address {
    fn default() -> Address {
        Address::NULL
    }
}
