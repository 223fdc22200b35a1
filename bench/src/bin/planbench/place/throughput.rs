//! The time between two results of a stream: what the most loaded device does for each. An accelerator takes its nodes, each distinct
//! output of others that they read, and each of their outputs that others read. The host's cores share its nodes evenly.

use plimsoll_placer::{Choices, Device, Model, Rating};

use super::instance::Instance;

pub struct Throughput<'a> {
    instance: &'a Instance,
    loads: Vec<f64>,
    bytes: Vec<f64>,
}

impl<'a> Throughput<'a> {
    pub fn new(instance: &'a Instance) -> Throughput<'a> {
        let devices = instance.accelerators + 1;
        Throughput { instance, loads: vec![0.0; devices], bytes: vec![0.0; devices] }
    }
}

impl Model for Throughput<'_> {
    fn choices(&self) -> &Choices {
        &self.instance.choices
    }

    fn beside(&self, part: usize) -> &[u32] {
        &self.instance.beside[part]
    }

    fn rate(&mut self, devices: &[Device]) -> Rating {
        self.loads.fill(0.0);
        self.bytes.fill(0.0);
        for node in &self.instance.nodes {
            let here = devices[node.part];
            let at = usize::from(here);
            self.loads[at] += if at == 0 { node.seconds[0] / self.instance.cores } else { node.seconds[1] };
            self.bytes[at] += node.bytes;
            let mut readers: Vec<Device> = node.readers.iter().map(|reader| devices[self.instance.nodes[*reader].part]).collect();
            readers.sort_unstable();
            readers.dedup();
            let mut elsewhere = readers.into_iter().filter(|device| *device != here).peekable();
            if at > 0 && elsewhere.peek().is_some() {
                self.loads[at] += node.moving;
            }
            elsewhere.filter(|device| *device > 0).for_each(|device| self.loads[usize::from(device)] += node.moving);
        }
        let over = self.bytes[1..].iter().map(|bytes| (bytes / self.instance.limit - 1.0).max(0.0)).sum();
        Rating { over, seconds: self.loads.iter().copied().fold(0.0, f64::max) }
    }
}
