//! The arenas of a session: taken by a run, handed back after it, shared by its plans.

use std::sync::{Mutex, PoisonError};

use plimsoll_base::{Bytes, Result};
use plimsoll_device::Device;
use plimsoll_memory::Block;

/// Arenas that no run uses, one list for each device.
#[derive(Debug)]
pub(crate) struct Arenas {
    idle: Vec<Mutex<Vec<Block>>>,
}

/// More idle arenas than this of one device are given back.
const MAX_IDLE: usize = 16;

impl Arenas {
    pub fn new(devices: usize) -> Arenas {
        Arenas { idle: (0..devices).map(|_| Mutex::new(Vec::with_capacity(MAX_IDLE))).collect() }
    }

    /// An idle arena of `bytes` or more, or a new one after the idle ones that are too small were given back. Allocates
    /// nothing where one is idle.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the line has no room.
    pub fn take(&self, index: usize, device: &dyn Device, bytes: Bytes, holder: &str) -> Result<Block> {
        let mut idle = self.idle[index].lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = idle.iter().enumerate().filter(|(_, block)| block.bytes() >= bytes).min_by_key(|(_, block)| block.bytes());
        if let Some((position, _)) = fitting {
            return Ok(idle.swap_remove(position));
        }
        idle.clear();
        drop(idle);
        device.allocate(bytes, holder)
    }

    pub fn put(&self, index: usize, block: Block) {
        let mut idle = self.idle[index].lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(block);
        }
    }

    /// Gives all idle arenas back.
    pub fn clear(&self) {
        for idle in &self.idle {
            idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        }
    }
}
