//! First fit: where a model goes beside others, by its size and nothing else.
//!
//! Devices are tried in order, cards before processors. The first on which the whole model fits gets it. A model that fits on no
//! device is cut along its nodes in topological order. The first device gets as many of them as fit there, the second as many of
//! the rest, and so on. A node that the placer puts on the same device in every attempt stays there: it asks for that device, or only
//! one kind of device has a kernel for it. Nodes that must be together stay together.
//!
//! The comparison is exact: the peak of every run's plan, to the byte, with the line less the bytes of others.

mod units;

use std::fmt;

use plimsoll_base::{Bytes, Error, Result, Shortage};
use plimsoll_device::{Costs, DeviceKind, DeviceSpec, Library};
use plimsoll_graph::id::Id;
use plimsoll_graph::{Graph, IdVec, NodeId};
use plimsoll_ops::Registry;

use crate::fit::Lines;
use crate::footprint::Footprint;
use crate::place::{PlaceOptions, Placement, Why, place};
use crate::plan::{DeviceId, Plan};
use crate::request::{Request, Signature};
use units::Units;

/// The facts that first fit looks at.
#[derive(Clone)]
pub struct FitRequest<'a> {
    /// The graph, calls inlined.
    pub graph: &'a Graph,
    /// The operations' rules.
    pub registry: &'a Registry,
    /// The devices.
    pub devices: &'a [DeviceSpec],
    /// For each device, the kernels that it has.
    pub libraries: &'a [&'a dyn Library],
    /// What kernels take.
    pub costs: &'a Costs,
    /// How the placer deals with requests.
    pub options: PlaceOptions,
    /// The runs, one after the other. The last of them decides the topological order.
    pub runs: &'a [Signature],
    /// The bytes of each device that others take at the same time, beside the device's own overhead.
    pub taken: &'a [Bytes],
    /// The graph that a plan of a run is made of: this one, or one with the same nodes ([`crate::Freeze::rewired`]).
    pub graph_for: &'a dyn Fn(&Signature) -> &'a Graph,
    /// Nodes that are on the device of another, whatever the placer says of them.
    pub beside: &'a [(NodeId, NodeId)],
    /// Says of a plan that was made with a placement what only its session knows: which values are in files, and what runs before.
    pub complete: &'a dyn Fn(Plan, &Placement) -> Result<Plan>,
}

/// A model that was placed.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// Where its nodes are.
    pub placement: Placement,
    /// The bytes that it takes of each device.
    pub footprint: Footprint,
    /// The attempts, in order; the last is the choice.
    pub tried: Vec<Tried>,
}

/// A way to place a model, and its footprint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// The pieces, in order: the device that comes first for their nodes, how many nodes run, and the first of these.
    pub pieces: Vec<Piece>,
    /// For each device that would hold something: its name, the bytes needed, and the bytes left for it if it has a line. Both are
    /// without the device's own overhead.
    pub needs: Vec<(String, Bytes, Option<Bytes>)>,
}

/// A part of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The device's short name.
    pub device: String,
    /// How many nodes that run are in it.
    pub nodes: usize,
    /// The first of them.
    pub first: String,
}

impl Tried {
    /// Whether every device has the room.
    pub fn fits(&self) -> bool {
        self.needs.iter().all(|(_, needed, left)| left.is_none_or(|left| *needed <= left))
    }
}

/// `whole on GPU:0: fits: 5 MiB of 8 MiB left on GPU:0`; `in pieces, 12 nodes from x on GPU:0, 30 nodes from w3 on CPU:0: …`.
impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pieces[..] {
            [piece] => write!(f, "whole on {}", piece.device)?,
            pieces => {
                let piece = |piece: &Piece| format!("{} nodes from {} on {}", piece.nodes, piece.first, piece.device);
                write!(f, "in pieces, {}", pieces.iter().map(piece).collect::<Vec<_>>().join(", "))?;
            }
        }
        f.write_str(if self.fits() { ": fits: " } else { ": does not fit: " })?;
        let need = |(device, needed, left): &(String, Bytes, Option<Bytes>)| match left {
            Some(left) if needed > left => format!("{device} needs {needed} and has {left} left, {} bytes short", (*needed - *left).0),
            Some(left) => format!("{device} needs {needed} of {left} left"),
            None => format!("{device} needs {needed}, without a limit"),
        };
        f.write_str(&self.needs.iter().map(need).collect::<Vec<_>>().join("; "))
    }
}

/// Places a model on the first device that has room for it, or in pieces.
///
/// # Errors
/// RESOURCE_EXHAUSTED where it fits in no way, with all attempts; the errors of [`place`] and [`crate::plan()`].
pub fn first_fit(request: &FitRequest<'_>) -> Result<Fitted> {
    let mut search = Search::new(request)?;
    for candidate in 0..search.wholes.len() {
        let fitted = search.attempt(&[(candidate, 0)])?;
        if let Some(fitted) = search.note(fitted) {
            return Ok(fitted);
        }
        if search.units.free.is_empty() {
            break;
        }
    }
    if search.wholes.len() > 1 && !search.units.free.is_empty() {
        let pieces = search.cut()?;
        if pieces.len() > 1 {
            let fitted = search.attempt(&pieces)?;
            if let Some(fitted) = search.note(fitted) {
                return Ok(fitted);
            }
        }
    }
    let tried = search.tried.iter().map(|tried| format!("\n  {tried}")).collect::<String>();
    let last = search.tried.last().and_then(|tried| tried.needs.iter().find(|(_, needed, left)| left.is_some_and(|left| *needed > left)));
    let (requested, limit) = last.map_or_else(Default::default, |(_, needed, left)| (*needed, *left));
    let shortage = Shortage { requested, limit, ..Shortage::default() };
    Err(Error::no_room(format!("the model fits nowhere, whole or in pieces:{tried}"), shortage)
        .with_remedy("raise a limit, or feed a smaller batch"))
}

/// The pieces of a model: for each, which whole placement its units take their devices from, and the first of its units.
type Cut = [(usize, usize)];

struct Search<'r, 'a> {
    request: &'r FitRequest<'a>,
    /// The devices in the order in which they are tried, each with the placement in which it comes first.
    wholes: Vec<(DeviceId, Placement)>,
    units: Units,
    /// Whether a node runs at all.
    runs: IdVec<NodeId, bool>,
    tried: Vec<Tried>,
}

impl<'r, 'a> Search<'r, 'a> {
    fn new(request: &'r FitRequest<'a>) -> Result<Search<'r, 'a>> {
        let ids = || request.devices.iter().enumerate().map(|(index, spec)| (DeviceId::from_index(index), spec.kind == DeviceKind::Cpu));
        let cards = ids().filter(|(_, is_cpu)| !is_cpu);
        let candidates: Vec<DeviceId> = cards.chain(ids().filter(|(_, is_cpu)| *is_cpu)).map(|(id, _)| id).collect();
        let whole = |device: DeviceId| {
            let options = PlaceOptions { default_device: Some(device), ..request.options.clone() };
            Ok((device, place(request.graph, request.registry, request.devices, &options)?))
        };
        let wholes = candidates.into_iter().map(whole).collect::<Result<Vec<_>>>()?;
        let placements: Vec<&Placement> = wholes.iter().map(|(_, placement)| placement).collect();
        let (units, runs) = Units::new(request, &placements);
        Ok(Search { request, wholes, units, runs, tried: Vec::new() })
    }

    /// Keeps the attempt; gives it back where it fits.
    fn note(&mut self, mut fitted: Fitted) -> Option<Fitted> {
        self.tried.append(&mut fitted.tried);
        if !self.tried.last().is_some_and(Tried::fits) {
            return None;
        }
        fitted.tried = std::mem::take(&mut self.tried);
        Some(fitted)
    }

    /// The placement that takes the devices of each piece's units from the piece's whole placement.
    fn placement(&self, cut: &Cut) -> Placement {
        let mut placement = self.wholes[cut.first().map_or(0, |piece| piece.0)].1.clone();
        for (piece, &(whole, first)) in cut.iter().enumerate() {
            let end = cut.get(piece + 1).map_or(self.units.free.len(), |next| next.1);
            let source = &self.wholes[whole].1;
            for &node in self.units.free[first..end].iter().flatten() {
                placement.devices[node] = source.devices[node];
                let follows = matches!(source.why[node], Why::Default | Why::Follows(_));
                placement.why[node] = if follows { Why::FirstFit } else { source.why[node].clone() };
            }
        }
        self.request.beside.iter().for_each(|(node, beside)| placement.devices[*node] = placement.devices[*beside]);
        placement
    }

    /// The attempt to place it so.
    fn attempt(&self, cut: &Cut) -> Result<Fitted> {
        let placement = self.placement(cut);
        let mut footprint = Footprint::new(self.request.devices);
        for run in self.request.runs {
            footprint.add(&self.plan(&placement, run)?);
        }
        let needs = footprint.needs().iter().zip(self.request.devices).enumerate().filter(|(_, (need, spec))| need.peak > spec.overhead);
        let needs = needs
            .map(|(index, (need, spec))| (spec.name.short(), need.peak - spec.overhead, self.left(index).map(|left| left - spec.overhead)));
        let needs = needs.collect();
        let piece = |(piece, &(whole, first)): (usize, &(usize, usize))| {
            let end = cut.get(piece + 1).map_or(self.units.free.len(), |next| next.1);
            let mut nodes = self.units.free[first..end].iter().flatten().copied().filter(|node| self.runs[*node]);
            let named = nodes.clone().next().map(|node| self.request.graph.node(node).name.clone()).unwrap_or_default();
            Piece { device: self.request.devices[self.wholes[whole].0.index()].name.short(), nodes: nodes.by_ref().count(), first: named }
        };
        let tried = Tried { pieces: cut.iter().enumerate().map(piece).collect(), needs };
        Ok(Fitted { placement, footprint, tried: vec![tried] })
    }

    fn plan(&self, placement: &Placement, run: &Signature) -> Result<Plan> {
        let FitRequest { registry, devices, libraries, costs, graph_for, .. } = *self.request;
        let plan = crate::plan(&Request {
            graph: graph_for(run),
            registry,
            devices,
            libraries,
            costs,
            placement,
            signature: run,
            lines: &Lines::NONE,
        })?;
        (self.request.complete)(plan, placement)
    }

    /// The bytes of a device that others leave.
    fn left(&self, device: usize) -> Option<Bytes> {
        let taken = self.request.taken.get(device).copied().unwrap_or_default();
        self.request.devices[device].memory_limit.map(|limit| limit - taken)
    }

    /// Where to cut: as many units on each device, in order, as fit there with the rest on the next one.
    fn cut(&self) -> Result<Vec<(usize, usize)>> {
        let mut cut: Vec<(usize, usize)> = Vec::new();
        let mut first = 0;
        for candidate in 0..self.wholes.len() - 1 {
            // The most units with which this device has room; found by halving, so that cost grows with the logarithm.
            let (mut fewest, mut most) = (first, self.units.free.len());
            while fewest < most {
                let middle = fewest + (most - fewest).div_ceil(2);
                if self.has_room(&cut, candidate, first, middle)? { fewest = middle } else { most = middle - 1 }
            }
            if fewest > first {
                cut.push((candidate, first));
                first = fewest;
            }
        }
        if first < self.units.free.len() {
            cut.push((self.wholes.len() - 1, first));
        }
        Ok(cut)
    }

    /// Whether the devices before this candidate and it itself have room if it gets the units from `first` to `end`.
    fn has_room(&self, before: &Cut, candidate: usize, first: usize, end: usize) -> Result<bool> {
        let mut cut = [before, &[(candidate, first)]].concat();
        if end < self.units.free.len() {
            cut.push((candidate + 1, end));
        }
        let fitted = self.attempt(&cut)?;
        let has_room = |(device, _): &(DeviceId, Placement)| {
            let peak = fitted.footprint.needs()[device.index()].peak;
            self.left(device.index()).is_none_or(|left| peak <= left)
        };
        Ok(self.wholes[..=candidate].iter().all(has_room))
    }
}
