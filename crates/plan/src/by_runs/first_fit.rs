//! First fit: where a model goes beside others, by its size and nothing else.
//!
//! Devices are tried in order, cards before processors. The first on which the whole model fits gets it. A model that fits on no
//! device is cut along its nodes in topological order. The first device gets as many of them as fit there, the second as many of
//! the rest, and so on. A node that the placer puts on the same device in every attempt stays there: it asks for that device, or only
//! one kind of device has a kernel for it. Nodes that must be together stay together.
//!
//! The comparison is exact: the peak of every run's plan, to the byte, with the line less the bytes of others.

use plimsoll_base::Result;
use plimsoll_graph::id::Id;

use super::trial::{attempt, no_room};
use super::wholes::Wholes;
use super::{Fitted, How, Piece, PlaceRequest, Tried};
use crate::place::{Placement, Why};
use crate::plan::DeviceId;

/// Places a model on the first device that has room for it, or in pieces.
///
/// # Errors
/// RESOURCE_EXHAUSTED where it fits in no way, with all attempts; the errors of [`crate::place()`] and [`crate::plan()`].
pub fn first_fit(request: &PlaceRequest<'_>) -> Result<Fitted> {
    first_fit_among(request, &Wholes::new(request)?, &[])
}

/// As [`first_fit`], where plans with some placements are known.
pub(super) fn first_fit_among(request: &PlaceRequest<'_>, wholes: &Wholes, known: &[Fitted]) -> Result<Fitted> {
    let mut search = Search { request, wholes, known, tried: Vec::new() };
    for candidate in 0..search.wholes.of.len() {
        let fitted = search.attempt(&[(candidate, 0)])?;
        if let Some(fitted) = search.note(fitted) {
            return Ok(fitted);
        }
        if search.wholes.units.free.is_empty() {
            break;
        }
    }
    if search.wholes.of.len() > 1 && !search.wholes.units.free.is_empty() {
        let pieces = search.cut()?;
        if pieces.len() > 1 {
            let fitted = search.attempt(&pieces)?;
            if let Some(fitted) = search.note(fitted) {
                return Ok(fitted);
            }
        }
    }
    Err(no_room(&search.tried, "whole or in pieces"))
}

/// The pieces of a model: for each, which whole placement its units take their devices from, and the first of its units.
type Cut = [(usize, usize)];

struct Search<'r, 'a> {
    request: &'r PlaceRequest<'a>,
    wholes: &'r Wholes,
    known: &'r [Fitted],
    tried: Vec<Tried>,
}

impl Search<'_, '_> {
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
        let piece = |unit: usize| cut[cut.partition_point(|(_, first)| *first <= unit).saturating_sub(1)].0;
        self.wholes.mixed(self.request, piece, &Why::FirstFit)
    }

    /// The attempt to place it so.
    fn attempt(&self, cut: &Cut) -> Result<Fitted> {
        let free = &self.wholes.units.free;
        let piece = |(piece, &(whole, first)): (usize, &(usize, usize))| {
            let end = cut.get(piece + 1).map_or(free.len(), |next| next.1);
            let mut nodes = free[first..end].iter().flatten().copied().filter(|node| self.wholes.runs[*node]);
            let named = nodes.clone().next().map(|node| self.request.graph.node(node).name.clone()).unwrap_or_default();
            Piece {
                device: self.request.devices[self.wholes.of[whole].0.index()].name.short(),
                nodes: nodes.by_ref().count(),
                first: named,
            }
        };
        let how = How::Pieces(cut.iter().enumerate().map(piece).collect());
        let placement = self.placement(cut);
        let known = self.known.iter().find(|known| known.placement.devices == placement.devices);
        if let Some((known, tried)) = known.and_then(|known| Some((known, known.tried.last()?)))
            && !tried.is_fitted
        {
            let tried = vec![Tried { how, ..tried.clone() }];
            return Ok(Fitted { placement, footprint: known.footprint.clone(), tried, least: None, compared: Vec::new() });
        }
        attempt(self.request, placement, how, Vec::new())
    }

    /// Where to cut: as many units on each device, in order, as fit there with the rest on the next one.
    fn cut(&self) -> Result<Vec<(usize, usize)>> {
        let mut cut: Vec<(usize, usize)> = Vec::new();
        let mut first = 0;
        for candidate in 0..self.wholes.of.len() - 1 {
            // The most units with which this device has room; found by halving, so that cost grows with the logarithm.
            let (mut fewest, mut most) = (first, self.wholes.units.free.len());
            while fewest < most {
                let middle = fewest + (most - fewest).div_ceil(2);
                if self.has_room(&cut, candidate, first, middle)? { fewest = middle } else { most = middle - 1 }
            }
            if fewest > first {
                cut.push((candidate, first));
                first = fewest;
            }
        }
        if first < self.wholes.units.free.len() {
            cut.push((self.wholes.of.len() - 1, first));
        }
        Ok(cut)
    }

    /// Whether the devices before this candidate and it itself have room if it gets the units from `first` to `end`.
    fn has_room(&self, before: &Cut, candidate: usize, first: usize, end: usize) -> Result<bool> {
        let mut cut = [before, &[(candidate, first)]].concat();
        if end < self.wholes.units.free.len() {
            cut.push((candidate + 1, end));
        }
        let fitted = self.attempt(&cut)?;
        let has_room = |(device, _): &(DeviceId, Placement)| {
            let peak = fitted.footprint.needs()[device.index()].peak;
            self.request.left(device.index()).is_none_or(|left| peak <= left)
        };
        Ok(self.wholes.of[..=candidate].iter().all(has_room))
    }
}
