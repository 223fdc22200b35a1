//! Placement by predicted time and memory, as the white paper of TensorFlow describes it (section 3.2.1): the run is simulated with each
//! candidate.
//!
//! [`problem`] takes the numbers of the run from the planner's own works: what each takes on each kind of device, and what copies
//! take. [`parts`] says which nodes go together. [`queues`] runs the queues on paper for an assignment, with the bytes that are live.
//! [`search`] looks for assignments by it.
//! Plans of the best ones are made and packed: what they take decides, never the paper alone. The search begins without lines, so that
//! its choice is the same under every line that holds it. Where plans take more than the paper said, its lines become tighter and the
//! search goes on.

mod bounds;
mod moments;
mod parts;
mod problem;
mod queues;
mod reasons;
mod replicas;
mod search;
#[cfg(test)]
mod tests;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_placer::Device;

use self::problem::{Joins, Problem};
use self::search::Search;
use super::first_fit::first_fit_among;
use super::trial::{attempt, no_room, plan_request};
use super::wholes::Wholes;
use super::{Fitted, How, Least, Objective, Piece, PlaceRequest, Tried};
use crate::lir::Lir;
use crate::passes::{Pass, lirs_at};
use crate::place::{Placement, Why, place};
use crate::request::Request;

/// Of placements whose steps take no more than so many times the least, the one that moves the fewest bytes is taken.
const NEAR: f64 = 1.02;

/// How many placements are made to fit where others fit as they are.
const SQUEEZED: usize = 2;

/// How often lines are made tighter.
const ROUNDS: usize = 4;

/// Places a model so that its last run takes the least predicted time, or a stream of it the least time between steps, among the
/// placements that were found to fit. It is no slower on paper than TensorFlow's placement, where that fits, or than one device alone.
///
/// Where nothing fits as it is, plans are made to fit, if the request allows that.
///
/// # Errors
/// RESOURCE_EXHAUSTED where it fits in no way, with all attempts; the errors of [`crate::place()`] and [`crate::plan()`].
pub fn auto(request: &PlaceRequest<'_>, objective: Objective) -> Result<Fitted> {
    let wholes = Wholes::new(request)?;
    let mut tensorflow = place(request.graph, request.registry, request.devices, &request.options)?;
    request.beside.iter().for_each(|(node, beside)| tensorflow.devices[*node] = tensorflow.devices[*beside]);
    let mut trials = Trials { request, objective, wholes: &wholes, tensorflow: &tensorflow, fitted: Vec::new(), refused: None };
    trials.attempt(tensorflow.clone(), How::TensorFlow);
    let mut paper = None;
    if let Some(run) = request.runs.last().filter(|_| !wholes.units.free.is_empty()) {
        let lines = request.lines(Vec::new());
        let plan = plan_request(request, &wholes.of[0].1, run, &lines);
        paper = lirs_at(&plan, Pass::Transfer, Pass::Fuse).ok().and_then(|[apart, fused]| trials.papers(&plan, &apart, &fused));
        if paper.is_none() {
            trials.alone(|_| true);
            trials.first_fit();
        }
    }
    let mut chosen = trials.choose()?;
    if let Some((problem, least)) = paper {
        chosen.least = Some(least);
        explain(request, objective, &wholes, &problem, &mut chosen.placement);
    }
    Ok(chosen)
}

struct Trials<'r, 'a> {
    request: &'r PlaceRequest<'a>,
    objective: Objective,
    wholes: &'r Wholes,
    tensorflow: &'r Placement,
    fitted: Vec<Fitted>,
    /// Why the first placement that cannot be planned cannot.
    refused: Option<Error>,
}

impl Trials<'_, '_> {
    /// Tries each kind of device alone, first fit, and what searches find on paper; each search has one of its own. The last paper, and
    /// what every assignment takes there; none where there is no plan to take it from.
    fn papers(&mut self, plan: &Request<'_>, apart: &Lir, fused: &Lir) -> Option<(Problem, Least)> {
        let mut last = None;
        for joins in [Joins::Fused, Joins::Nothing] {
            let Ok(problem) = Problem::new(self.request, self.wholes, plan, apart, fused, joins) else { continue };
            let mut search = Search::new(&problem, self.request.devices, self.objective);
            let is_large = problem.works.len() > search::LARGE;
            let starts = std::iter::once(self.tensorflow).chain(self.wholes.of.iter().map(|(_, placement)| placement));
            let starts: Vec<Vec<Device>> = starts.map(|placement| assignment(&problem, self.wholes, placement)).collect();
            if last.is_none() {
                // Plans of runs that are not small take long: not on a device that is slower on paper.
                let is_small = problem.works.len() <= search::SMALL;
                self.alone(|device| is_small || !search.is_clearly_slower(&starts[1 + device], &starts[0]));
                self.first_fit();
            }
            self.search(&problem, &mut search, &starts);
            // A large run has one paper. Of replicas both are cheap: what they begin with is good.
            let is_enough = is_large && !search.has_replicas();
            let least = search.least();
            last = Some((problem, least));
            if is_enough {
                break;
            }
        }
        last
    }

    /// Plans with a placement, unless it is like one before. The attempt; none where it cannot be planned.
    fn attempt(&mut self, placement: Placement, how: How) -> Option<&Tried> {
        let before = self.fitted.iter().position(|before| before.placement.devices == placement.devices);
        let index = match before {
            Some(index) => index,
            None => match attempt(self.request, placement, how, Vec::new()) {
                Ok(fitted) => {
                    self.fitted.push(fitted);
                    self.fitted.len() - 1
                }
                Err(error) => {
                    self.refused.get_or_insert(error);
                    return None;
                }
            },
        };
        self.fitted[index].tried.last()
    }

    /// Tries the first device of each kind by itself, if it is to be tried.
    fn alone(&mut self, mut is_tried: impl FnMut(usize) -> bool) {
        let wholes = self.wholes;
        let mut kinds: Vec<DeviceSpec> = Vec::new();
        for (index, (device, placement)) in wholes.of.iter().enumerate() {
            let like = problem::of_speed(&self.request.devices[device.index()]);
            if kinds.contains(&like) {
                continue;
            }
            kinds.push(like);
            if placement.devices == self.tensorflow.devices || !is_tried(index) {
                continue;
            }
            let nodes = placement.devices.iter().filter(|(id, at)| wholes.runs[*id] && *at == device).count();
            let first = wholes.units.free.iter().flatten().find(|node| wholes.runs[**node]);
            let first = first.map(|node| self.request.graph.node(*node).name.clone()).unwrap_or_default();
            let piece = Piece { device: self.request.devices[device.index()].name.short(), nodes, first };
            self.attempt(placement.clone(), How::Pieces(vec![piece]));
        }
    }

    /// Tries the pieces of first fit, unless they are like a placement before.
    fn first_fit(&mut self) {
        if let Ok(mut pieces) = first_fit_among(self.request, self.wholes, &self.fitted)
            && self.fitted.iter().all(|before| before.placement.devices != pieces.placement.devices)
        {
            pieces.tried.drain(..pieces.tried.len() - 1);
            self.fitted.push(pieces);
        }
    }

    /// Looks for the best assignment, and plans with it; once more under tighter lines where that takes more than the paper said.
    fn search(&mut self, problem: &Problem, search: &mut Search<'_>, starts: &[Vec<Device>]) {
        // First as if there were no lines: what is found then is found again under lines that just hold it.
        let lines = search.take_lines();
        let mut found = search.best(starts);
        if self.attempt_found(problem, &found).is_some_and(|tried| tried.fits()) {
            return;
        }
        search.set_lines(lines);
        for round in 0..ROUNDS {
            let before = found.pop();
            found = match before {
                Some(before) if round > 0 => vec![search.again(&before)],
                before => search.best(&starts.iter().cloned().chain(before).collect::<Vec<_>>()),
            };
            let devices = self.request.devices;
            let Some(tried) = self.attempt_found(problem, &found).filter(|tried| !tried.fits()) else { break };
            let over = |device: usize| {
                let name = devices[device].name.short();
                let need = tried.needs.iter().find(|(short, ..)| *short == name);
                need.and_then(|(_, needed, left)| left.filter(|left| left < needed).map(|left| *needed - left)).unwrap_or_default()
            };
            let over: Vec<Bytes> = (0..devices.len()).map(over).collect();
            search.tighten(&over);
        }
    }

    /// Plans with assignments that a search found; the last attempt.
    fn attempt_found(&mut self, problem: &Problem, found: &[Vec<Device>]) -> Option<Tried> {
        let mut last = None;
        for devices in found {
            let placement = placement(self.request, self.wholes, problem, devices);
            last = self.attempt(placement, How::Auto).cloned();
        }
        last
    }

    /// The fastest that fits, of several that are nearly as fast and no slower than TensorFlow's the one that moves least; else the same of
    /// those that can be made to fit.
    fn choose(mut self) -> Result<Fitted> {
        if self.fitted.is_empty() {
            return Err(self.refused.take().unwrap_or_else(|| Error::internal("no placement was tried")));
        }
        let fits = |fitted: &Fitted| fitted.tried.last().is_some_and(Tried::fits);
        // Slow ones may fit.
        if !self.fitted.iter().any(fits) && !self.wholes.units.free.is_empty() {
            self.alone(|_| true);
        }
        if !self.fitted.iter().any(fits) {
            self.first_fit();
        }
        if self.request.fit {
            self.squeeze();
        }
        let time = |index: &usize| self.time(*index);
        let moved = |index: &usize| self.fitted[*index].tried.last().map_or(Bytes::ZERO, |tried| tried.moved);
        let fitting: Vec<usize> = (0..self.fitted.len()).filter(|index| fits(&self.fitted[*index])).collect();
        let least = fitting.iter().map(time).fold(f64::INFINITY, f64::min);
        let of_tensorflow = |index: &&usize| self.fitted[**index].placement.devices == self.tensorflow.devices;
        let most = fitting.iter().find(of_tensorflow).map_or(f64::INFINITY, time).min(least * NEAR);
        let near = fitting.into_iter().filter(|index| time(index) <= most);
        let best = near.min_by(|one, other| moved(one).cmp(&moved(other)).then(time(one).total_cmp(&time(other))));
        let mut tried: Vec<Tried> = self.fitted.iter().flat_map(|fitted| fitted.tried.clone()).collect();
        let Some(best) = best else { return Err(no_room(&tried, "on one device or on several")) };
        let chosen = self.fitted.swap_remove(best);
        tried.retain(|tried| chosen.tried.last() != Some(tried));
        tried.extend(chosen.tried.last().cloned());
        Ok(Fitted { tried, ..chosen })
    }

    /// What is to be small, of an attempt.
    fn time(&self, index: usize) -> f64 {
        self.fitted[index].tried.last().map_or(f64::INFINITY, |tried| tried.rate(self.objective))
    }

    /// Has plans made to fit that would be faster than those that fit as they are: the fastest of them. Where none fits, all of them: where
    /// that is not enough, their shortfall is the true one.
    fn squeeze(&mut self) {
        let fits = |index: &usize| self.fitted[*index].tried.last().is_some_and(Tried::fits);
        let (fitting, mut over): (Vec<usize>, Vec<usize>) = (0..self.fitted.len()).partition(fits);
        if !fitting.is_empty() {
            let least = fitting.iter().map(|index| self.time(*index)).fold(f64::INFINITY, f64::min);
            over.retain(|index| self.time(*index) < least);
            over.sort_by(|one, other| self.time(*one).total_cmp(&self.time(*other)));
            over.truncate(SQUEEZED);
        }
        let most: Vec<Option<Bytes>> = (0..self.request.devices.len()).map(|device| self.request.left(device)).collect();
        for index in over {
            let fitted = &self.fitted[index];
            let Some(how) = fitted.tried.last().map(|tried| tried.how.clone()) else { continue };
            if let Ok(lower) = attempt(self.request, fitted.placement.clone(), how, most.clone()) {
                self.fitted[index] = lower;
            }
        }
    }
}

/// Where a placement puts each part: the device of most of its nodes that it can be on.
fn assignment(problem: &Problem, wholes: &Wholes, placement: &Placement) -> Vec<Device> {
    let mut devices: Vec<Device> = (0..problem.choices.len()).map(|part| problem.choices.of(part)[0]).collect();
    for (unit, nodes) in wholes.units.free.iter().enumerate().rev() {
        let Some(part) = problem.part_of_unit[unit] else { continue };
        let there = nodes.iter().map(|node| placement.devices[*node].index() as Device);
        if let Some(device) = there.into_iter().find(|device| problem.choices.allows(part as usize, *device)) {
            devices[part as usize] = device;
        }
    }
    devices
}

/// The placement of an assignment. What does not run goes beside what it exchanges tensors with.
fn placement(request: &PlaceRequest<'_>, wholes: &Wholes, problem: &Problem, devices: &[Device]) -> Placement {
    let whole_of = |device: Device| wholes.of.iter().position(|(id, _)| id.index() == usize::from(device)).unwrap_or(0);
    let parts = || problem.part_of_unit.iter();
    let mut of_unit: Vec<Option<usize>> = parts().map(|part| part.map(|part| whole_of(devices[part as usize]))).collect();
    let mut unit_of: IdVec<NodeId, Option<usize>> = IdVec::filled(None, request.graph.nodes().len());
    wholes.units.free.iter().enumerate().for_each(|(unit, nodes)| nodes.iter().for_each(|node| unit_of[*node] = Some(unit)));
    // With what it reads; where it reads nothing that is placed, with what reads it.
    for forward in [true, false] {
        for unit in 0..of_unit.len() {
            for &node in &wholes.units.free[unit] {
                for input in &request.graph.node(node).inputs {
                    let (here, there) = if forward { (Some(unit), unit_of[input.node]) } else { (unit_of[input.node], Some(unit)) };
                    if let (Some(here), Some(there)) = (here, there)
                        && of_unit[here].is_none()
                    {
                        of_unit[here] = of_unit[there];
                    }
                }
            }
        }
    }
    wholes.mixed(request, |unit| of_unit[unit].unwrap_or(0), &Why::Auto(String::new()))
}

/// Says of nodes that were free why they are where they are.
fn explain(request: &PlaceRequest<'_>, objective: Objective, wholes: &Wholes, problem: &Problem, placement: &mut Placement) {
    let devices = assignment(problem, wholes, placement);
    let reasons = search::reasons(problem, request.devices, objective, &devices);
    for (unit, nodes) in wholes.units.free.iter().enumerate() {
        let Some(part) = problem.part_of_unit[unit] else { continue };
        for &node in nodes {
            if matches!(placement.why[node], Why::Default | Why::Follows(_) | Why::FirstFit | Why::Auto(_)) {
                placement.why[node] = Why::Auto(reasons[part as usize].clone());
            }
        }
    }
}
