//! The addresses of a program's arguments in one run.

use super::Loaded;
use crate::Bindings;

/// Addresses for one run, kept for the next.
#[derive(Debug, Default)]
pub struct Bound {
    pointers: Vec<*mut u8>,
    last: Bindings,
}

// SAFETY: the pointers are only followed by who runs steps, under the contract of [`super::execute`].
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

impl Bound {
    /// Addresses of the program's blocks in `bindings`, which have them all. Allocates nothing where the program is the same
    /// as the last time.
    pub fn bind(&mut self, loaded: &Loaded, bindings: &Bindings) {
        let Bindings { arenas, variables, flags, constants, .. } = bindings;
        let last = &mut self.last;
        let stayed = *arenas == last.arenas && *variables == last.variables && *flags == last.flags && *constants == last.constants;
        if stayed && self.pointers.len() == loaded.pointers.len() {
            for &index in &loaded.moving {
                let (place, offset) = loaded.pointers[index as usize];
                self.pointers[index as usize] = bindings.base(place).wrapping_add(offset as usize);
            }
            return;
        }
        last.arenas.clone_from(arenas);
        last.variables.clone_from(variables);
        last.flags.clone_from(flags);
        last.constants.clone_from(constants);
        self.pointers.clear();
        self.pointers.extend(loaded.pointers.iter().map(|&(place, offset)| bindings.base(place).wrapping_add(offset as usize)));
    }

    /// The addresses, in the order of [`Loaded::pointers`].
    pub fn pointers(&self) -> &[*mut u8] {
        &self.pointers
    }
}
