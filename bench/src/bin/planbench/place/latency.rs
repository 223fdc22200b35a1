//! The latency of a split, by the cost model of the instances' authors: what an accelerator holds is cut into contiguous pieces. A
//! piece starts when all that it reads is there, then takes its inputs over, runs its nodes, and gives its outputs back. The host
//! runs any number of nodes side by side.

use plimsoll_placer::{Choices, Cuttable, Device, Model, Rating};

use super::instance::Instance;

/// The most accelerators of an instance.
pub const MOST: usize = 32;

pub struct Latency<'a> {
    instance: &'a Instance,
    /// For each node, how many pieces of each accelerator lie before it, or with it.
    levels: Vec<[u16; MOST]>,
    /// For each node its piece, and for each piece its nodes' end in `members`, what it waits for, and when it ends.
    piece: Vec<u32>,
    device: Vec<Device>,
    starts: Vec<u32>,
    members: Vec<u32>,
    waiting: Vec<u32>,
    ends: Vec<f64>,
    /// By which piece a node's output was taken over last.
    taken: Vec<u32>,
    bytes: Vec<f64>,
    ready: Vec<u32>,
    numbers: Vec<u32>,
    kinds: Vec<Vec<Device>>,
    nodes_of: Vec<Vec<u32>>,
    readers: Vec<Vec<u32>>,
    /// For each node its position in the order that is cut, and that of the last node that reads it.
    at: Vec<u32>,
    last: Vec<u32>,
    host: Vec<f64>,
}

impl<'a> Latency<'a> {
    pub fn new(instance: &'a Instance) -> Latency<'a> {
        let nodes = instance.nodes.len();
        let mut nodes_of = vec![Vec::new(); instance.parts];
        let mut readers: Vec<Vec<u32>> = vec![Vec::new(); instance.parts];
        for (index, node) in instance.nodes.iter().enumerate() {
            nodes_of[node.part].push(index as u32);
            for &reader in &node.readers {
                let part = instance.nodes[reader].part as u32;
                if part as usize != node.part && !readers[node.part].contains(&part) {
                    readers[node.part].push(part);
                }
            }
        }
        Latency {
            instance,
            levels: vec![[0; MOST]; nodes],
            piece: vec![0; nodes],
            device: vec![0; nodes],
            starts: Vec::new(),
            members: vec![0; nodes],
            waiting: Vec::new(),
            ends: Vec::new(),
            taken: vec![0; nodes],
            bytes: vec![0.0; instance.accelerators + 1],
            ready: Vec::new(),
            numbers: Vec::new(),
            kinds: vec![vec![0; 4], (1..=instance.accelerators as Device).collect()],
            nodes_of,
            readers,
            at: vec![0; nodes],
            last: vec![u32::MAX; nodes],
            host: vec![0.0; nodes],
        }
    }

    /// Numbers the pieces. How many there are.
    fn cut(&mut self) -> u32 {
        let width = self.instance.accelerators;
        let mut most = 0;
        for (index, node) in self.instance.nodes.iter().enumerate() {
            let device = self.device[index] as usize;
            let mut level = [0; MOST];
            if device > 0 {
                level[device - 1] = 1;
            }
            for &read in &node.reads {
                let before = &self.levels[read];
                for lane in 0..width {
                    level[lane] = level[lane].max(before[lane]);
                }
                if device > 0 && self.device[read] as usize != device {
                    level[device - 1] = level[device - 1].max(before[device - 1] + 1);
                }
            }
            most = most.max(if device > 0 { level[device - 1] } else { 0 });
            self.levels[index] = level;
        }
        let most = usize::from(most) + 1;
        self.numbers.clear();
        self.numbers.resize(most * width, u32::MAX);
        let mut pieces = 0;
        for index in 0..self.device.len() {
            let device = self.device[index] as usize;
            let piece = match device {
                0 => &mut u32::MAX.clone(),
                _ => &mut self.numbers[(device - 1) * most + usize::from(self.levels[index][device - 1])],
            };
            if *piece == u32::MAX {
                *piece = pieces;
                pieces += 1;
            }
            self.piece[index] = *piece;
        }
        pieces
    }

    /// The end of the last piece; none where pieces wait for each other.
    fn latency(&mut self) -> Option<f64> {
        let pieces = self.cut() as usize;
        let nodes = &self.instance.nodes;
        self.starts.clear();
        self.starts.resize(pieces + 1, 0);
        self.waiting.clear();
        self.waiting.resize(pieces, 0);
        self.ends.clear();
        self.ends.resize(pieces, 0.0);
        for (index, node) in nodes.iter().enumerate() {
            let piece = self.piece[index] as usize;
            self.starts[piece + 1] += 1;
            self.waiting[piece] += node.reads.iter().filter(|read| self.piece[**read] as usize != piece).count() as u32;
        }
        for piece in 0..pieces {
            self.starts[piece + 1] += self.starts[piece];
        }
        for index in (0..nodes.len()).rev() {
            let piece = self.piece[index] as usize;
            self.starts[piece + 1] -= 1;
            self.members[self.starts[piece + 1] as usize] = index as u32;
        }
        // The start of piece p is now at p + 1, and its end at p + 2.
        let range =
            |starts: &[u32], piece: usize| starts[piece + 1] as usize..starts.get(piece + 2).map_or(nodes.len(), |end| *end as usize);
        self.taken.fill(u32::MAX);
        self.ready.clear();
        self.ready.extend((0..pieces as u32).filter(|piece| self.waiting[*piece as usize] == 0));
        let (mut done, mut latest) = (0, 0.0f64);
        while let Some(piece) = self.ready.pop() {
            done += 1;
            let (mut start, mut seconds) = (0.0f64, 0.0);
            let members = range(&self.starts, piece as usize);
            for member in members.clone() {
                let index = self.members[member] as usize;
                let node = &nodes[index];
                let on_host = self.device[index] == 0;
                seconds += node.seconds[usize::from(!on_host)];
                for &read in &node.reads {
                    let other = self.piece[read];
                    if other != piece {
                        start = start.max(self.ends[other as usize]);
                        if !on_host && self.taken[read] != piece {
                            self.taken[read] = piece;
                            seconds += nodes[read].moving;
                        }
                    }
                }
                if !on_host && node.readers.iter().any(|reader| self.piece[*reader] != piece) {
                    seconds += node.moving;
                }
            }
            self.ends[piece as usize] = start + seconds;
            latest = latest.max(start + seconds);
            for member in members {
                for &reader in &nodes[self.members[member] as usize].readers {
                    let other = self.piece[reader] as usize;
                    if other != piece as usize {
                        self.waiting[other] -= 1;
                        if self.waiting[other] == 0 {
                            self.ready.push(other as u32);
                        }
                    }
                }
            }
        }
        (done == pieces).then_some(latest)
    }
}

impl Model for Latency<'_> {
    fn choices(&self) -> &Choices {
        &self.instance.choices
    }

    fn beside(&self, part: usize) -> &[u32] {
        &self.instance.beside[part]
    }

    fn rate(&mut self, devices: &[Device]) -> Rating {
        self.bytes.fill(0.0);
        for (index, node) in self.instance.nodes.iter().enumerate() {
            self.device[index] = devices[node.part];
            self.bytes[usize::from(devices[node.part])] += node.bytes;
        }
        let over = self.bytes[1..].iter().map(|bytes| (bytes / self.instance.limit - 1.0).max(0.0)).sum();
        match self.latency() {
            Some(seconds) => Rating { over, seconds },
            None => Rating { over: f64::INFINITY, seconds: f64::INFINITY },
        }
    }
}

impl Cuttable for Latency<'_> {
    fn readers(&self, part: usize) -> &[u32] {
        &self.readers[part]
    }

    fn kinds(&self) -> &[Vec<Device>] {
        &self.kinds
    }

    fn stretches(&mut self, order: &[u32], first: usize, kind: usize, costs: &mut Vec<f64>) {
        let nodes = &self.instance.nodes;
        if first == 0 {
            let all = order.iter().flat_map(|part| &self.nodes_of[*part as usize]);
            all.enumerate().for_each(|(position, node)| self.at[*node as usize] = position as u32);
            for (last, node) in self.last.iter_mut().zip(nodes) {
                *last = node.readers.iter().map(|reader| self.at[*reader]).max().unwrap_or(u32::MAX);
            }
        }
        let first_node = order.get(first).and_then(|part| self.nodes_of[*part as usize].first()).map_or(0, |node| self.at[*node as usize]);
        let on_host = kind == 0;
        self.taken.fill(u32::MAX);
        let (mut seconds, mut bytes, mut inputs, mut outputs, mut longest) = (0.0, 0.0, 0.0, 0.0, 0.0f64);
        for &part in &order[first..] {
            if !self.instance.choices.allows(part as usize, kind as Device) {
                return;
            }
            for &index in &self.nodes_of[part as usize] {
                let node = &nodes[index as usize];
                seconds += node.seconds[usize::from(!on_host)];
                bytes += node.bytes;
                let mut start = 0.0f64;
                for &read in &node.reads {
                    if self.at[read] < first_node {
                        if self.taken[read] == u32::MAX {
                            self.taken[read] = 0;
                            inputs += nodes[read].moving;
                        }
                    } else {
                        start = start.max(self.host[read]);
                        // Its last reader is here: it need not be given back.
                        if self.last[read] == self.at[index as usize] {
                            outputs -= nodes[read].moving;
                        }
                    }
                }
                if !node.readers.is_empty() {
                    outputs += node.moving;
                }
                self.host[index as usize] = start + node.seconds[0];
                longest = longest.max(start + node.seconds[0]);
            }
            if !on_host && bytes > self.instance.limit {
                return;
            }
            costs.push(if on_host { longest } else { seconds + inputs + outputs });
        }
    }
}
