//! The lists that loops write whole, found in the commands: no command has to write them before.

use std::collections::HashMap;

use plimsoll_device::BufferRef;

use super::commands::Accesses;
use super::{Checked, Slot};
use crate::access::Access;
use crate::whole::{Commands, has_loops, of_constants, written_whole};

impl Checked<'_> {
    /// For the first commands of loops, the lists that these write whole.
    pub(super) fn written_whole(&self, accesses: &Accesses) -> HashMap<Slot, Vec<BufferRef>> {
        if !has_loops(self.queues) {
            return HashMap::new();
        }
        let written: Vec<Vec<Vec<BufferRef>>> = accesses
            .iter()
            .map(|queue| {
                let of = |accesses: &Vec<Access>| accesses.iter().filter(|access| access.writes).map(|access| access.buffer).collect();
                queue.iter().map(of).collect()
            })
            .collect();
        let constants = of_constants(self.plan);
        let each = self.queues.iter().zip(&written).enumerate().flat_map(|(queue, (commands, of))| {
            let others = Commands::others(self.queues, queue);
            let commands = Commands { commands: &commands.program.commands, written: of, others: &others, constants: &constants };
            written_whole(&commands).into_iter().map(move |(number, lists)| ((queue, number), lists))
        });
        each.collect()
    }
}
