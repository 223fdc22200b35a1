//! Two computations that do not know of each other, at once.

use std::thread::{Builder, scope};

/// The stack of a thread: what programs have in their first one.
pub(crate) const STACK: usize = 8 << 20;

/// Both results. The first has a thread, where the system has one for it.
pub(crate) fn both<T: Send, U>(one: impl Fn() -> T + Sync, other: impl FnOnce() -> U) -> (T, U) {
    scope(|scope| {
        let thread = Builder::new().stack_size(STACK).spawn_scoped(scope, &one);
        let other = other();
        match thread {
            Ok(thread) => (thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), other),
            Err(_) => (one(), other),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_those_of_one_after_the_other() {
        assert_eq!(both(|| (0..100).sum::<u32>(), || "other"), (4950, "other"));
        let caught = std::panic::catch_unwind(|| both(|| panic!("as if it were here"), || ()));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"as if it were here"));
    }
}
