//! What a plan moves between devices.

use std::collections::BTreeMap;

use plimsoll_device::{Place, Work};
use plimsoll_graph::id::Id;

use crate::plan::{DeviceId, Plan};

/// Bytes that a run copies from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Where they are: the index of the device in [`Plan::devices`].
    pub from: usize,
    /// Where they go.
    pub to: usize,
    /// How many, in a run.
    pub bytes: u64,
}

impl Plan {
    /// What a run copies between devices, one entry for each pair of devices, in their order. Fed and fetched tensors are on the
    /// host's device.
    pub fn transfers(&self) -> Vec<Transfer> {
        let mut pairs: BTreeMap<(DeviceId, DeviceId), u64> = BTreeMap::new();
        let commands = self.queues().iter().flat_map(|queue| &queue.program.commands);
        for command in commands.filter(|command| matches!(command.work, Work::Copy)) {
            let [source, target] = command.args[..] else { continue };
            if let (Some(from), Some(to)) = (self.device_of(source.place), self.device_of(target.place))
                && from != to
            {
                *pairs.entry((from, to)).or_default() += target.bytes;
            }
        }
        pairs.into_iter().map(|((from, to), bytes)| Transfer { from: from.index(), to: to.index(), bytes }).collect()
    }

    fn device_of(&self, place: Place) -> Option<DeviceId> {
        match place {
            Place::Arena(index) => Some(DeviceId::from_index(index as usize)),
            Place::Variable(index) | Place::VariableFlag(index) => self.variables.get(index as usize).map(|variable| variable.device),
            Place::Constant(index) => self.constants.get(index as usize).and_then(|constant| constant.device),
            Place::Feed(_) | Place::Fetch(_) => Some(self.host),
        }
    }
}
