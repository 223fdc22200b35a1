//! Bytes at a 64-byte boundary.

/// Owned bytes that begin at a multiple of 64.
pub(crate) struct AlignedBytes {
    lines: Vec<Line>,
    len: usize,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl AlignedBytes {
    pub(crate) fn zeroed(len: usize) -> AlignedBytes {
        // One line even for nothing, so that the pointer is never dangling.
        AlignedBytes { lines: vec![Line([0; 64]); len.div_ceil(64).max(1)], len }
    }

    pub(crate) fn copy_of(bytes: &[u8]) -> AlignedBytes {
        let mut copy = AlignedBytes::zeroed(bytes.len());
        for (line, chunk) in copy.lines.iter_mut().zip(bytes.chunks(64)) {
            line.0[..chunk.len()].copy_from_slice(chunk);
        }
        copy
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: `lines` holds at least `len` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}
