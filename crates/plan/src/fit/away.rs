//! The slower memory in which values of a device can wait.

use plimsoll_base::Bytes;
use plimsoll_device::DeviceKind;
use plimsoll_fit::Slow;
use plimsoll_graph::id::Id;

use crate::Request;
use crate::evaluate::queue_of;
use crate::lir::Lir;
use crate::plan::DeviceId;
use crate::report::outside_arena;

/// A device whose values can wait in a slower memory, if it has one.
#[derive(Clone, Copy)]
pub(super) struct Away {
    pub device: DeviceId,
    pub slow: Option<SlowMemory>,
}

/// A slower memory, and the queue of the moves to it and back.
#[derive(Clone, Copy)]
pub(super) struct SlowMemory {
    /// The device whose memory it is.
    pub device: DeviceId,
    /// The device that moves: a card moves to the host in the queue of its copies, a file in its own.
    pub carrier: DeviceId,
    pub is_beside: bool,
}

impl Away {
    /// For values of a card the host's memory, for those of a processor a file, where there is one.
    pub fn of(request: &Request<'_>, device: DeviceId) -> Away {
        let slow = match request.devices[device.index()].kind {
            DeviceKind::Gpu => Some(SlowMemory { device: request.placement.host, carrier: device, is_beside: true }),
            DeviceKind::Cpu => {
                let file = request.devices.iter().position(|spec| spec.kind == DeviceKind::Spill).map(DeviceId::from_index);
                file.map(|file| SlowMemory { device: file, carrier: file, is_beside: false })
            }
            DeviceKind::Spill => None,
        };
        Away { device, slow }
    }
}

impl SlowMemory {
    /// As the search knows it, for values of that device and with so many bytes: moves are copies in a queue, one behind another.
    pub fn for_search(self, request: &Request<'_>, from: DeviceId, bytes: Bytes) -> Slow {
        const MANY: f64 = 1e9;
        let (spec, slow) = (&request.devices[from.index()], &request.devices[self.device.index()]);
        let latency = request.costs.copy_seconds(spec, slow, 0.0);
        let seconds_per_byte = (request.costs.copy_seconds(spec, slow, MANY) - latency) / MANY;
        let queue = queue_of(self.carrier, self.is_beside, request.devices.len());
        Slow { queue_out: queue, queue_in: queue, latency, seconds_per_byte, bytes: bytes.0, granularity: slow.alignment }
    }

    /// What arenas may take of it: its line without what else the plan has there. None where it has no line.
    pub fn room(self, request: &Request<'_>, lir: &Lir) -> Option<Bytes> {
        let limit = request.devices[self.device.index()].memory_limit?;
        Some(limit - outside_arena(request, lir, self.device).total())
    }
}
