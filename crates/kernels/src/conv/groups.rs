//! Channels in groups of 16.

use std::ops::Range;

/// Elements of a group.
pub(crate) const GROUP: usize = 16;

/// The first `count` elements at `from` (at most 16), then `rest`.
///
/// # Safety
/// They are there.
#[inline(always)]
pub(crate) unsafe fn get<T: Copy>(from: *const T, count: usize, rest: T) -> [T; GROUP] {
    // SAFETY: the caller's promise.
    unsafe {
        if count == GROUP {
            return from.cast::<[T; GROUP]>().read();
        }
        let mut group = [rest; GROUP];
        std::ptr::copy_nonoverlapping(from, group.as_mut_ptr(), count);
        group
    }
}

/// Writes the first `count` elements of `group` (at most 16).
///
/// # Safety
/// There is room for them.
#[inline(always)]
pub(crate) unsafe fn put<T: Copy>(to: *mut T, count: usize, group: [T; GROUP]) {
    // SAFETY: the caller's promise.
    unsafe {
        if count == GROUP {
            to.cast::<[T; GROUP]>().write(group);
        } else {
            std::ptr::copy_nonoverlapping(group.as_ptr(), to, count);
        }
    }
}

/// The starts of the groups of `channels`, with how many elements each has.
#[inline(always)]
pub(crate) fn groups(channels: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let end = channels.end;
    channels.step_by(GROUP).map(move |start| (start, GROUP.min(end - start)))
}
