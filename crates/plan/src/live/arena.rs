//! The buffers of one arena: values, each for all that share its bytes, and the scratch of each work.

use plimsoll_base::Bytes;
use plimsoll_device::DeviceSpec;
use plimsoll_graph::IdVec;
use plimsoll_memory::layout::Buffer;

use super::{Lane, Ranges, Sharing};
use crate::lir::{Lir, ValueId, WorkId};

/// The buffers of an arena, and how much is live at each position of its queue.
pub(crate) struct Arena {
    /// Values first, then scratch.
    pub buffers: Vec<Buffer>,
    /// How many of the buffers hold values.
    pub value_buffers: usize,
    /// The values, in the order in which they are defined, with their buffers.
    pub values: Vec<(ValueId, usize)>,
    /// For each work of the queue, the buffer of its scratch.
    pub scratch: Vec<Option<usize>>,
    /// For each position, the bytes of the buffers that are live there. Each counts for its slot: with the gap that the alignment
    /// of the next one leaves.
    pub profile: Vec<Bytes>,
}

impl Arena {
    pub fn new(lir: &Lir, order: &[WorkId], lane: &Lane, ranges: &Ranges, spec: &DeviceSpec) -> Arena {
        let sharing = Sharing::new(lir, lane, ranges);
        let align = spec.alignment;
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut of_root: IdVec<ValueId, Option<u32>> = IdVec::filled(None, lir.values.len());
        let mut values: Vec<(ValueId, usize)> = Vec::new();
        for &id in order {
            for &output in lir.works[id].outputs.iter().filter(|output| !lane.is_beside && lir.values[**output].device == lane.device) {
                let Some(range) = ranges[output] else { continue };
                let buffer = *of_root[sharing.root(output)].get_or_insert_with(|| {
                    buffers.push(Buffer { first: range.first, last: range.last, bytes: lir.values[output].bytes, align });
                    buffers.len() as u32 - 1
                }) as usize;
                buffers[buffer].first = buffers[buffer].first.min(range.first);
                buffers[buffer].last = buffers[buffer].last.max(range.last);
                values.push((output, buffer));
            }
        }
        let value_buffers = buffers.len();
        let mut scratch = Vec::with_capacity(lane.works.len());
        for (position, id) in lane.works.iter().enumerate() {
            let bytes = lir.scratch(&lir.works[*id], lane.device);
            scratch.push((bytes > 0).then(|| {
                buffers.push(Buffer { first: position as u32, last: position as u32, bytes, align });
                buffers.len() - 1
            }));
        }
        let profile = profile(&buffers, lane.works.len(), spec);
        Arena { buffers, value_buffers, values, scratch, profile }
    }

    /// The most bytes that are live at once.
    pub fn peak(&self) -> Bytes {
        self.profile.iter().copied().max().unwrap_or_default()
    }
}

fn profile(buffers: &[Buffer], positions: usize, spec: &DeviceSpec) -> Vec<Bytes> {
    // An arena without works of its own holds what others write there: at one position.
    let mut change = vec![0i128; positions.max(1) + 1];
    for buffer in buffers {
        let slot = i128::from(spec.slot(Bytes(buffer.bytes)).0);
        change[buffer.first as usize] += slot;
        change[buffer.last as usize + 1] -= slot;
    }
    change.pop();
    let mut live = 0i128;
    let at = |change: i128| {
        live += change;
        Bytes(u64::try_from(live).unwrap_or(u64::MAX))
    };
    change.into_iter().map(at).collect()
}
