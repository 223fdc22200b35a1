//! The tensors that a plan moves between devices.

use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_device::{Command, Place, Work};
use plimsoll_graph::id::Id;

use crate::plan::{DeviceId, Plan};

/// A tensor that a run copies from one device to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The node that makes it.
    pub node: Arc<str>,
    /// Where it is: the index of the device in [`Plan::devices`].
    pub from: usize,
    /// Where it goes.
    pub to: usize,
    /// Its size.
    pub bytes: u64,
}

impl Plan {
    /// The copies of a run between devices: each tensor once for each device that reads it. Fed and fetched tensors are on the
    /// host's device. In the order of the queues that copy.
    pub fn transfers(&self) -> Vec<Transfer> {
        let commands = self.queues.iter().flat_map(|queue| &queue.program.commands);
        let transfer = |command: &Command| {
            let [source, target] = command.args[..] else { return None };
            let (from, to) = (self.device_of(source.place)?, self.device_of(target.place)?);
            (from != to).then(|| Transfer { node: Arc::clone(&command.label), from: from.index(), to: to.index(), bytes: target.bytes })
        };
        commands.filter(|command| matches!(command.work, Work::Copy)).filter_map(transfer).collect()
    }

    /// The bytes that a run copies from one device to another.
    pub fn moved_bytes(&self) -> Bytes {
        Bytes(self.transfers().iter().map(|transfer| transfer.bytes).sum())
    }

    /// The device in whose memory a place is.
    pub(crate) fn device_of(&self, place: Place) -> Option<DeviceId> {
        match place {
            Place::Arena(index) => Some(DeviceId::from_index(index as usize)),
            Place::Variable(index) | Place::VariableFlag(index) => self.variables.get(index as usize).map(|variable| variable.device),
            Place::Constant(index) => self.constants.get(index as usize).and_then(|constant| constant.device),
            Place::Feed(_) | Place::Fetch(_) => Some(self.host),
        }
    }
}
