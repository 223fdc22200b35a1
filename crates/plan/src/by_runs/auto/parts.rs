//! Parts: nodes that go to one device together.

use std::collections::HashMap;

use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_placer::Device;

use super::super::PlaceRequest;
use super::super::wholes::Wholes;
use super::bodies::Order;
use crate::lir::{Home, Lir};
use crate::plan::DeviceId;

/// Units that are placed as one: nodes of a work, and those of a loop with its body, or else all that write what it carries.
pub(super) struct Groups {
    unit_of: IdVec<NodeId, Option<u32>>,
    /// For each unit its part; none where nothing of it runs.
    pub unit_part: Vec<Option<u32>>,
    /// For each part its devices.
    pub choices: Vec<Vec<Device>>,
    /// The parts of devices that hold what is not free.
    of_device: HashMap<DeviceId, u32>,
}

impl Groups {
    pub fn new(request: &PlaceRequest<'_>, wholes: &Wholes, lir: &Lir, order: &Order) -> Groups {
        let units = &wholes.units.free;
        let mut unit_of = IdVec::filled(None, request.graph.nodes().len());
        units.iter().enumerate().for_each(|(unit, nodes)| nodes.iter().for_each(|node| unit_of[*node] = Some(unit as u32)));
        // A device is a choice where the placement in which it comes first puts some node of the unit there.
        let mut of_unit: Vec<Vec<Device>> = Vec::with_capacity(units.len());
        for nodes in units {
            let is_there = |(device, whole): &&(DeviceId, _)| nodes.iter().any(|node| placed(whole, *node) == *device);
            let mut devices: Vec<Device> = wholes.of.iter().filter(is_there).map(|(device, _)| device.index() as Device).collect();
            devices.sort_unstable();
            of_unit.push(devices);
        }
        // What the host computes in place of a device stays where it is.
        lir.softened.iter().for_each(|softened| unit_of[softened.node] = None);
        let mut roots: Vec<u32> = (0..units.len() as u32).collect();
        let root = |roots: &mut Vec<u32>, mut unit: u32| {
            while roots[unit as usize] != unit {
                roots[unit as usize] = roots[roots[unit as usize] as usize];
                unit = roots[unit as usize];
            }
            unit
        };
        let unite = |one: Option<u32>, other: Option<u32>, roots: &mut Vec<u32>, of_unit: &mut Vec<Vec<Device>>| {
            let (Some(one), Some(other)) = (one, other) else { return };
            let (one, other) = (root(roots, one), root(roots, other));
            let both: Vec<Device> =
                of_unit[one as usize].iter().copied().filter(|device| of_unit[other as usize].contains(device)).collect();
            if one != other && !both.is_empty() {
                roots[one.max(other) as usize] = one.min(other);
                of_unit[one.min(other) as usize] = both;
            }
        };
        for work in order.works(lir).map(|id| &lir.works[id]) {
            let mut nodes = work.nodes.clone();
            let mut regions = work.regions().to_vec();
            while let Some(region) = regions.pop() {
                for inner in &lir.regions[region].works {
                    nodes.extend(&lir.works[*inner].nodes);
                    regions.extend(lir.works[*inner].regions());
                }
            }
            let first = nodes.iter().find_map(|node| unit_of[*node]);
            nodes.iter().for_each(|node| unite(first, unit_of[*node], &mut roots, &mut of_unit));
        }
        // What a loop carries is in one place, and written there: the rows of a list, for instance.
        let mut writers: HashMap<Home, u32> = HashMap::new();
        for work in order.works(lir).map(|id| &lir.works[id]) {
            let Some(unit) = work.nodes.iter().find_map(|node| unit_of[*node]) else { continue };
            for home in work.outputs.iter().map(|output| lir.values[*output].home).filter(|home| matches!(home, Home::Given { .. })) {
                let first = *writers.entry(home).or_insert(unit);
                unite(Some(first), Some(unit), &mut roots, &mut of_unit);
            }
        }
        let mut runs = vec![false; units.len()];
        for work in order.all().map(|id| &lir.works[id]) {
            work.nodes.iter().filter_map(|node| unit_of[*node]).for_each(|unit| runs[root(&mut roots, unit) as usize] = true);
        }
        for (_, value) in lir.values.iter().filter(|(_, value)| matches!(value.home, Home::Variable(_))) {
            unit_of[value.node].into_iter().for_each(|unit| runs[root(&mut roots, unit) as usize] = true);
        }
        let (mut choices, mut part_of_root) = (Vec::new(), vec![None; units.len()]);
        let unit_part = (0..units.len() as u32).map(|unit| {
            let root = root(&mut roots, unit) as usize;
            if !runs[root] || of_unit[root].is_empty() {
                return None;
            }
            Some(*part_of_root[root].get_or_insert_with(|| {
                choices.push(of_unit[root].clone());
                choices.len() as u32 - 1
            }))
        });
        let unit_part: Vec<Option<u32>> = unit_part.collect();
        Groups { unit_of, unit_part, choices, of_device: HashMap::new() }
    }

    /// The unit of a node; none where its device is not free.
    pub fn unit(&self, node: NodeId) -> Option<u32> {
        self.unit_of[node]
    }

    pub fn part(&self, node: NodeId) -> Option<u32> {
        self.unit_of[node].and_then(|unit| self.unit_part[unit as usize])
    }

    /// The part of what is not free on a device.
    pub fn fixed(&mut self, device: DeviceId) -> u32 {
        *self.of_device.entry(device).or_insert_with(|| {
            self.choices.push(vec![device.index() as Device]);
            self.choices.len() as u32 - 1
        })
    }

    /// As [`Groups::fixed`], of a device that has such a part.
    pub fn known(&self, device: DeviceId) -> u32 {
        self.of_device.get(&device).copied().unwrap_or_default()
    }

    /// Takes devices from a part, but for the last.
    pub fn narrow(&mut self, part: u32, may: impl Fn(Device) -> bool) {
        let choices = &mut self.choices[part as usize];
        if choices.iter().any(|device| may(*device)) {
            choices.retain(|device| may(*device));
        }
    }
}

fn placed(placement: &crate::Placement, node: NodeId) -> DeviceId {
    placement.devices[node]
}
