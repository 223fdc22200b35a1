//! The addresses of a program's arguments in one run.

use plimsoll_memory::Address;

use super::Loaded;
use crate::{Bindings, Place};

/// The alignment of what has no address.
const ALIGNMENT: usize = 64;

/// Addresses for one run, kept for the next.
#[derive(Debug, Default)]
pub struct Bound {
    pointers: Vec<*mut u8>,
    last: Bindings,
}

// SAFETY: the pointers are only followed by threads that run steps, under the contract of [`super::execute`].
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

impl Bound {
    /// Addresses of the program's blocks in `bindings`, which have them all, as pointers that the device's threads can follow.
    /// Allocates nothing where the program is the same as the last time. Returns whether more than feeds and fetches may have moved
    /// since.
    pub fn bind(&mut self, loaded: &Loaded, bindings: &Bindings, reach: impl Fn(Address) -> *mut u8) -> bool {
        // Arguments of no bytes lie in blocks of none, too.
        let block = |place: Place| match reach(bindings.base(place)) {
            none if none.is_null() => std::ptr::without_provenance_mut(ALIGNMENT),
            block => block,
        };
        let pointer = |(place, offset): (Place, u64)| block(place).wrapping_add(offset as usize);
        let Bindings { arenas, variables, flags, constants, .. } = bindings;
        let last = &mut self.last;
        let stayed = *arenas == last.arenas && *variables == last.variables && *flags == last.flags && *constants == last.constants;
        if stayed && self.pointers.len() == loaded.pointers.len() {
            for &index in &loaded.moving {
                self.pointers[index as usize] = pointer(loaded.pointers[index as usize]);
            }
            return false;
        }
        last.arenas.clone_from(arenas);
        last.variables.clone_from(variables);
        last.flags.clone_from(flags);
        last.constants.clone_from(constants);
        self.pointers.clear();
        self.pointers.extend(loaded.pointers.iter().copied().map(pointer));
        true
    }

    /// The addresses, in the order of [`Loaded::pointers`].
    pub fn pointers(&self) -> &[*mut u8] {
        &self.pointers
    }
}
