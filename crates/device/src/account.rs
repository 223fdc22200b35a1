//! Accounting: the bytes that buffers and reservations count for on a device. The planner counts with it and the runtime allocates
//! with it, so that a promise and a reservation are the same number.
//!
//! Memory counts as follows: variables; constants that kernels read; one arena per device and run, for values and scratch; copies
//! from other devices; fed and fetched tensors while a run uses them. Blocks are rounded up to pages. A constant that is only copied
//! into a variable stays in the graph's memory. Graph, plan, program and stacks are overhead of the process, as are the states of
//! random generators, of a few bytes each.

use plimsoll_base::Bytes;

use crate::DeviceSpec;

impl DeviceSpec {
    /// The bytes of a buffer, with the gap that the alignment of the next one leaves.
    pub fn slot(&self, buffer: Bytes) -> Bytes {
        buffer.round_up(self.alignment)
    }

    /// The bytes that a reservation of `bytes` counts for under the device's limit.
    pub fn reserved(&self, bytes: Bytes) -> Bytes {
        bytes.round_up(self.granularity)
    }

    /// The bytes that one reservation for these buffers, one behind the other, counts for.
    pub fn reserved_for(&self, buffers: impl IntoIterator<Item = Bytes>) -> Bytes {
        self.reserved(Offsets::total(self, buffers))
    }
}

/// The offsets of buffers that lie one behind the other in a block.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    alignment: u64,
    next: Bytes,
}

impl Offsets {
    /// Of a block on `spec`'s device.
    pub fn new(spec: &DeviceSpec) -> Offsets {
        Offsets { alignment: spec.alignment, next: Bytes::ZERO }
    }

    /// Of a block in the host's memory that belongs to no device.
    pub fn of_host() -> Offsets {
        Offsets { alignment: DeviceSpec::CPU_ALIGNMENT, next: Bytes::ZERO }
    }

    /// The offset of the next buffer, of that size.
    pub fn push(&mut self, buffer: Bytes) -> u64 {
        let offset = self.next;
        self.next += buffer.round_up(self.alignment);
        offset.0
    }

    /// The bytes of all buffers so far, gaps included.
    pub fn end(&self) -> Bytes {
        self.next
    }

    fn total(spec: &DeviceSpec, buffers: impl IntoIterator<Item = Bytes>) -> Bytes {
        let mut offsets = Offsets::new(spec);
        for buffer in buffers {
            offsets.push(buffer);
        }
        offsets.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::InstructionSet;

    #[test]
    fn a_block_is_reserved_for_what_its_buffers_need() {
        let spec = DeviceSpec::cpu(0, None, 1, InstructionSet::Baseline);
        let buffers = [1, 64, 65, 0, 4000].map(Bytes);
        let mut offsets = Offsets::new(&spec);
        assert_eq!(buffers.map(|buffer| offsets.push(buffer)), [0, 64, 128, 256, 256]);
        assert_eq!((offsets.end(), spec.reserved_for(buffers)), (Bytes(256 + 4032), Bytes(8192)));
        assert_eq!(spec.reserved_for([]), Bytes::ZERO);
        assert_eq!(spec.reserved_for([Bytes(u64::MAX), Bytes(1)]), spec.reserved(Bytes(u64::MAX)), "saturates");
    }
}
