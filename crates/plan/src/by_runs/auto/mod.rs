//! Placement by predicted time and memory, as the white paper of TensorFlow describes it (section 3.2.1): the run is simulated with each
//! candidate.
//!
//! [`problem`] takes the numbers of the run from the planner's own works: what each takes on each kind of device, and what copies
//! take. A loop is one work there, and in a further problem the works of its body are ([`bodies`]). [`parts`] says which nodes go together. [`queues`] runs the queues on paper for an assignment, with the bytes that are live.
//! [`search`] looks for assignments by it.
//! Plans of the best ones are made and packed: what they take decides, never the paper alone. The search begins without lines, so that
//! its choice is the same under every line that holds it. Where plans take more than the paper said, its lines become tighter and the
//! search goes on.

mod before;
mod begun;
mod bodies;
mod bounds;
mod joint;
mod moments;
mod parts;
mod problem;
mod queues;
mod reasons;
mod replicas;
mod search;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::sync::Arc;
use std::thread::Scope;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::DeviceSpec;
use plimsoll_graph::id::Id;
use plimsoll_graph::{IdVec, NodeId};
use plimsoll_placer::Device;

use self::begun::Begun;
use self::problem::{Joins, Problem, Runs};
use self::search::Search;
use super::first_fit::first_fit_among;
use super::trial::{Needed, no_room, plan_request};
use super::wholes::Wholes;
use super::{Compared, Fitted, How, Least, Objective, Piece, PlaceRequest, Rule, Tried};
use crate::lir::Lir;
use crate::passes::{Pass, lir_from, lirs_at};
use crate::place::{Placement, Why, place};
use crate::plan::DeviceId;
use crate::request::Request;
use crate::side_by_side::both;

/// Of placements whose steps take no more than so many times the least, the one that moves the fewest bytes is taken.
const NEAR: f64 = 1.02;

/// Those that move no more than this part of the fewest bytes beside them move as few: the fastest of these is taken.
const AS_FEW: u64 = 64;

/// How many placements of a run are made to fit where others fit as they are, and of a run that is not small.
const SQUEEZED: usize = 4;
const SQUEEZED_OF_LARGE: usize = 2;

/// How often lines are corrected, and those of a run that is not small.
const ROUNDS: usize = 8;
const ROUNDS_OF_LARGE: usize = 4;

/// Of graphs of more nodes, placements and the works of the paper are found at once.
const MANY: usize = 2000;

/// The papers, in the order of their searches.
const PAPERS: [Joins; 3] = [Joins::Fused, Joins::Nothing, Joins::InBodies];

/// A line is made wider where that is more than this part of it.
const LOOSE: u64 = 64;

/// Places a model so that its last run takes the least predicted time, or a stream of it the least time between steps, among the
/// placements that were found to fit. It is no slower on paper than TensorFlow's placement, where that fits, or than one device alone.
///
/// Where nothing fits as it is, plans are made to fit, if the request allows that.
///
/// # Errors
/// RESOURCE_EXHAUSTED where it fits in no way, with all attempts; the errors of [`crate::place()`] and [`crate::plan()`].
pub fn auto(request: &PlaceRequest<'_>, objective: Objective) -> Result<Fitted> {
    std::thread::scope(|scope| auto_beside(request, objective, scope))
}

/// As [`auto`], with attempts beside it.
fn auto_beside<'s, 'r: 's, 'a: 's>(request: &'r PlaceRequest<'a>, objective: Objective, scope: &'s Scope<'s, '_>) -> Result<Fitted> {
    let needed = Arc::new(Needed::new(request));
    let first = Wholes::first(request)?;
    // The works of the last run, before they are fused and when they are, where the first device comes first: the paper is made of them.
    let last = |first: &Placement| {
        let (run, lines) = (request.runs.len().checked_sub(1)?, request.lines(Vec::new()));
        let asked = plan_request(request, first, &request.runs[run], &lines);
        lirs_at(&asked, &*needed.of(run, &asked).ok()?, Pass::Transfer, Pass::Fuse).ok()
    };
    let last = || first.as_ref().and_then(|(_, first)| last(first));
    let placed = || -> Result<(Wholes, Placement)> {
        let tensorflow = place(request.graph, request.registry, request.devices, &request.options)?;
        Ok((Wholes::with(request, first.clone())?, tensorflow))
    };
    let is_small = request.graph.nodes().len() < MANY;
    let (last, placed) = if is_small { (last(), placed()) } else { both(last, placed) };
    let (wholes, mut tensorflow) = placed?;
    request.beside.iter().for_each(|(node, beside)| tensorflow.devices[*node] = tensorflow.devices[*beside]);
    let mut trials = Trials {
        request,
        objective,
        wholes: &wholes,
        tensorflow: &tensorflow,
        fitted: Vec::new(),
        refused: None,
        of_first_fit: None,
        made: Vec::new(),
        is_small: true,
        begun: Begun::new(scope, request, Arc::clone(&needed)),
        ordered: None,
    };
    // Its works are those of the paper in most runs: then they are known.
    let is_first = wholes
        .of
        .first()
        .is_some_and(|(_, first)| (&first.devices, first.host, first.soft) == (&tensorflow.devices, tensorflow.host, tensorflow.soft));
    let fused = last.as_ref().filter(|_| is_first).map(|[_, fused]| fused.clone());
    trials.begin(tensorflow.clone(), Some(How::TensorFlow), fused);
    let mut paper = None;
    if let Some(run) = request.runs.last().filter(|_| !wholes.units.free.is_empty()) {
        let lines = request.lines(Vec::new());
        let plan = |run| plan_request(request, &wholes.of[0].1, run, &lines);
        let of_before = |(number, run)| {
            let asked = plan(run);
            lir_from(&asked, &*needed.of(number, &asked).ok()?, Pass::Fuse).ok()
        };
        let before = || request.runs[..request.runs.len() - 1].iter().enumerate().filter_map(of_before).collect();
        let runs = last.map(|[apart, fused]| Runs { apart, fused, before: before() });
        paper = runs.and_then(|runs| trials.papers(&plan(run), &runs));
        if paper.is_none() {
            trials.alone(|_| true);
            trials.first_fit();
        }
    }
    let (mut chosen, ordered) = trials.choose()?;
    if let Some((problem, least)) = paper {
        chosen.least = Some(least);
        explain(request, objective, &wholes, &problem, &mut chosen);
    }
    // What is placed so is planned next.
    if let (Some(run), Some(ordered)) = (request.runs.last(), ordered) {
        request.searches.keep_ordered(&plan_request(request, &chosen.placement, run, &request.lines(Vec::new())), ordered);
    }
    Ok(chosen)
}

struct Trials<'s, 'e, 'r, 'a> {
    request: &'r PlaceRequest<'a>,
    objective: Objective,
    wholes: &'r Wholes,
    tensorflow: &'r Placement,
    fitted: Vec<Fitted>,
    /// Why the first placement that cannot be planned cannot.
    refused: Option<Error>,
    /// Where in `fitted` the placement of first fit is, if that fits.
    of_first_fit: Option<usize>,
    /// Placements whose plans were made to fit: see [`joint`].
    made: Vec<Fitted>,
    /// Whether the last run is small: its plans take little time.
    is_small: bool,
    /// Attempts that come behind those in `fitted`.
    begun: Begun<'s, 'e, 'a>,
    /// Where in `fitted` the best is so far, and the last run's works in order with that placement.
    ordered: Option<(usize, Arc<Lir>)>,
}

/// A search on paper, and what it found as if there were no lines. Attempts with that have begun.
struct Searched<'p> {
    problem: &'p Problem,
    search: Search<'p>,
    starts: Vec<Vec<Device>>,
    found: Vec<Vec<Device>>,
    /// The last of these attempts.
    last: Option<IdVec<NodeId, DeviceId>>,
}

impl Trials<'_, '_, '_, '_> {
    /// Tries each kind of device alone, first fit, and what searches find on paper; each search has one of its own. The last paper, and
    /// what every assignment takes there; none where there is no plan to take it from.
    fn papers(&mut self, plan: &Request<'_>, runs: &Runs) -> Option<(Problem, Least)> {
        let papers = PAPERS.map(|_| OnceCell::new());
        let least = self.papers_in(&papers, plan, runs)?;
        let problem = papers.into_iter().rev().find_map(OnceCell::into_inner)?;
        Some((problem, least))
    }

    /// As [`Trials::papers`]; the papers are put there. Plans of what a search found are made beside the next search.
    fn papers_in(&mut self, papers: &[OnceCell<Problem>], plan: &Request<'_>, runs: &Runs) -> Option<Least> {
        let mut least = None;
        let mut before: Option<Searched<'_>> = None;
        let (mut is_enough, mut of_whole_loops) = (false, Vec::new());
        for (joins, paper) in PAPERS.into_iter().zip(papers) {
            let is_worth_it = match joins {
                Joins::Fused => true,
                Joins::Nothing => !is_enough,
                Joins::InBodies => runs.fused.all().any(|(_, work)| !work.regions().is_empty()),
            };
            if !is_worth_it {
                continue;
            }
            let Ok(problem) = Problem::new(self.request, self.wholes, plan, runs, joins) else { continue };
            match joins {
                Joins::Fused => of_whole_loops.clone_from(&problem.part_of_unit),
                // No body has works that may be apart.
                Joins::InBodies if problem.part_of_unit == of_whole_loops => continue,
                _ => {}
            }
            let problem = paper.get_or_init(|| problem);
            let mut search = Search::new(problem, self.request.devices, self.objective);
            let is_large = problem.works.len() > search::LARGE;
            // In bodies the search goes on from the best of loops as one work.
            let best = if joins == Joins::InBodies {
                self.finish(before.take());
                self.best(f64::INFINITY).map(|best| &self.fitted[best].placement)
            } else {
                None
            };
            let starts = std::iter::once(self.tensorflow).chain(self.wholes.of.iter().map(|(_, placement)| placement)).chain(best);
            let starts: Vec<Vec<Device>> = starts.map(|placement| assignment(problem, self.wholes, placement)).collect();
            let is_first = least.is_none();
            if is_first {
                // Plans of runs that are not small take long: not on a device that is slower on paper.
                self.is_small = problem.works.len() <= search::SMALL;
                let is_small = self.is_small;
                self.alone(|device| is_small || !search.is_clearly_slower(&starts[1 + device], &starts[0]));
            }
            // First as if there were no lines: what is found then is found again under lines that just hold it.
            search.set_lines(vec![None; problem.lines.len()]);
            let found = search.best(&starts);
            if is_first {
                self.first_fit();
            }
            self.finish(before.take());
            // A large run has one paper of loops as one work. Of replicas both are cheap: what they begin with is good.
            is_enough = is_large && !search.has_replicas();
            least = Some(search.least());
            let last = self.begin_found(problem, &found);
            before = Some(Searched { problem, search, starts, found, last });
        }
        self.finish(before);
        least
    }

    /// Begins to plan with a placement, unless it is like one before. It gets a number where there is no other name.
    fn begin(&mut self, placement: Placement, how: Option<How>, fused: Option<Lir>) {
        let is_known = self.fitted.iter().any(|before| before.placement.devices == placement.devices);
        if !is_known && !self.begun.has(&placement.devices) {
            self.begun.begin(placement, how, fused);
        }
    }

    /// Ends the attempts that have begun.
    fn settle(&mut self) {
        while let Some((made, is_numbered)) = self.begun.end() {
            match made {
                Ok((mut fitted, ordered)) => {
                    if is_numbered {
                        let how = self.named(&fitted.placement);
                        fitted.tried.iter_mut().for_each(|tried| tried.how = how.clone());
                    }
                    self.fitted.push(fitted);
                    let index = self.fitted.len() - 1;
                    if self.best(f64::INFINITY) == Some(index) {
                        self.ordered = ordered.map(|ordered| (index, ordered));
                    }
                }
                Err(error) => {
                    self.refused.get_or_insert(error);
                }
            }
        }
    }

    /// The attempt with such devices, if they can be planned for. All attempts have ended.
    fn tried(&self, devices: &IdVec<NodeId, DeviceId>) -> Option<&Tried> {
        self.fitted.iter().find(|fitted| fitted.placement.devices == *devices)?.tried.last()
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
            self.begin(placement.clone(), Some(How::Pieces(vec![piece])), None);
        }
    }

    /// Tries the pieces of first fit, unless they are like a placement before.
    fn first_fit(&mut self) {
        self.settle();
        let Ok(mut pieces) = first_fit_among(self.request, self.wholes, &self.fitted) else { return };
        let before = self.fitted.iter().position(|before| before.placement.devices == pieces.placement.devices);
        self.of_first_fit = Some(before.unwrap_or(self.fitted.len()));
        if before.is_none() {
            pieces.tried.drain(..pieces.tried.len() - 1);
            self.fitted.push(pieces);
        }
    }

    /// Looks for others under lines, where the plan of what a search found does not fit.
    fn finish(&mut self, searched: Option<Searched<'_>>) {
        let Some(Searched { problem, mut search, starts, found, last }) = searched else { return };
        self.settle();
        let tried = last.and_then(|devices| self.tried(&devices)).cloned();
        let Some(free) = found.last().filter(|_| !tried.as_ref().is_some_and(Tried::fits)) else { return };
        let search = &mut search;
        // Where the paper says more than that plan takes, its lines are wider.
        let peaks = search.peaks(free);
        let wider = |device: usize| {
            let need = tried.as_ref().map_or(peaks[device], |tried| needed(self.request, tried, device));
            problem.lines[device].map(|line| corrected(problem, need, peaks[device], device).max(line))
        };
        search.set_lines((0..peaks.len()).map(wider).collect());
        let repaired = search.repaired(free);
        let starts: Vec<Vec<Device>> = starts.iter().chain([free, &repaired]).cloned().collect();
        let mut found = search.best(&starts);
        let (mut is_wider, mut is_settled) = (false, false);
        for _ in 0..if self.is_small { ROUNDS } else { ROUNDS_OF_LARGE } {
            let Some(tried) = self.attempt_found(problem, &found) else { break };
            let Some(devices) = found.pop() else { break };
            let peaks = search.peaks(&devices);
            let before = search.lines().to_vec();
            let lines =
                if tried.fits() { self.loosened(problem, &tried, &peaks) } else { self.tightened(problem, &tried, &peaks, &before) };
            let is_worth_it = |(new, old): (&Option<u64>, &Option<u64>)| new.zip(*old).is_some_and(|(new, old)| new > old + old / LOOSE);
            // Lines that are too tight for what was found are made wider, until that was too much.
            match lines {
                Some(lines) if !tried.fits() => {
                    is_settled |= is_wider;
                    search.set_lines(lines);
                }
                Some(lines) if !is_settled && lines.iter().zip(&before).any(is_worth_it) => {
                    is_wider = true;
                    search.set_lines(lines);
                }
                _ => break,
            }
            found = vec![search.again(&devices)];
        }
        if self.request.fit && self.is_small {
            self.between(problem, search, free);
            self.jointly(problem, search, free);
        }
    }

    /// Lines that are lower by what a plan takes more than the paper said, where it does not fit; none where the paper knows nothing that
    /// is lower.
    fn tightened(&self, problem: &Problem, tried: &Tried, peaks: &[u64], lines: &[Option<u64>]) -> Option<Vec<Option<u64>>> {
        // Over lines on paper, too: there is nothing under them.
        if peaks.iter().zip(lines).any(|(peak, line)| line.is_some_and(|line| *peak > line)) {
            return None;
        }
        let lower = |device: usize| {
            let line = lines[device]?;
            let need = needed(self.request, tried, device);
            // With a plan over its line that is less than the paper's peak of it: it is not found again.
            let is_over = problem.lines[device].is_some_and(|most| need > most);
            Some(if is_over { corrected(problem, need, peaks[device], device).min(line) } else { line })
        };
        Some((0..peaks.len()).map(|device| problem.lines[device].and_then(|_| lower(device))).collect())
    }

    /// Lines that are as wide as the difference of a plan that fits from its paper allows.
    fn loosened(&self, problem: &Problem, tried: &Tried, peaks: &[u64]) -> Option<Vec<Option<u64>>> {
        let of =
            |device: usize| problem.lines[device].map(|_| corrected(problem, needed(self.request, tried, device), peaks[device], device));
        Some((0..peaks.len()).map(of).collect())
    }

    /// Tries what is fastest where devices hold more than their lines, but less than what is fastest without lines takes: making its plan to
    /// fit may cost less than another device.
    fn between(&mut self, problem: &Problem, search: &mut Search<'_>, free: &[Device]) {
        let peaks = search.peaks(free);
        let middle = |device: usize| problem.lines[device].map(|line| line.max(line / 2 + peaks[device] / 2));
        search.set_lines((0..peaks.len()).map(middle).collect());
        let found = search.again(free);
        self.attempt_found(problem, &[found]);
    }

    /// Begins to plan with assignments that a search found; the devices of the last one.
    fn begin_found(&mut self, problem: &Problem, found: &[Vec<Device>]) -> Option<IdVec<NodeId, DeviceId>> {
        let mut last = None;
        for devices in found {
            let placement = placement(self.request, self.wholes, problem, devices);
            last = Some(placement.devices.clone());
            self.begin(placement, None, None);
        }
        last
    }

    /// Plans with assignments that a search found; the last attempt.
    fn attempt_found(&mut self, problem: &Problem, found: &[Vec<Device>]) -> Option<Tried> {
        let last = self.begin_found(problem, found)?;
        self.settle();
        self.tried(&last).cloned()
    }

    /// The name of a placement that a search found: how many were before it, and what it has where.
    fn named(&self, placement: &Placement) -> How {
        let number = |tried: &Tried| if let How::Auto { number, .. } = tried.how { number } else { 0 };
        let last = self.fitted.iter().chain(&self.made).flat_map(|fitted| &fitted.tried).map(number).max().unwrap_or_default();
        let on = |device: usize| {
            let runs = placement.devices.iter().filter(|(node, at)| at.index() == device && self.wholes.runs[*node]).count();
            Some((self.request.devices[device].name.short(), runs)).filter(|(_, runs)| *runs > 0)
        };
        let nodes = (0..self.request.devices.len()).filter_map(on).collect();
        How::Auto { number: 1 + last, nodes }
    }

    /// What a rule comes to with a placement that was tried.
    fn compared(&self, rule: Rule, index: usize) -> Option<Compared> {
        let Fitted { tried, footprint, .. } = &self.fitted[index];
        Some(Compared { rule, tried: tried.last()?.clone(), footprint: footprint.clone() })
    }

    /// The best of those that fit, or can be made to fit: see [`Trials::best`]. Also its last run's works in order, where they are known.
    fn choose(mut self) -> Result<(Fitted, Option<Arc<Lir>>)> {
        self.settle();
        if self.fitted.is_empty() {
            return Err(self.refused.take().unwrap_or_else(|| Error::internal("no placement was tried")));
        }
        let fits = |fitted: &Fitted| fitted.tried.last().is_some_and(Tried::fits);
        // Slow ones may fit.
        if !self.fitted.iter().any(fits) && !self.wholes.units.free.is_empty() {
            self.alone(|_| true);
            self.settle();
        }
        if !self.fitted.iter().any(fits) {
            self.first_fit();
        }
        if self.request.fit {
            self.squeeze();
        }
        let best = self.best(f64::INFINITY);
        let least = best.map_or(f64::INFINITY, |best| self.time(best));
        // What was found jointly is taken where it is no slower.
        self.take_made();
        let best = self.best(least);
        let mut tried: Vec<Tried> = self.fitted.iter().flat_map(|fitted| fitted.tried.clone()).collect();
        let Some(best) = best else { return Err(no_room(&tried, "on one device or on several")) };
        let of_tensorflow = self.fitted.iter().position(|fitted| fitted.placement.devices == self.tensorflow.devices);
        let rules = [(Rule::TensorFlow, of_tensorflow), (Rule::FirstFit, self.of_first_fit), (Rule::Auto, Some(best))];
        let compared = rules.into_iter().filter_map(|(rule, index)| self.compared(rule, index?)).collect();
        let chosen = self.fitted.swap_remove(best);
        tried.retain(|tried| chosen.tried.last() != Some(tried));
        tried.extend(chosen.tried.last().cloned());
        let ordered = self.ordered.filter(|(index, _)| *index == best).map(|(_, ordered)| ordered);
        Ok((Fitted { tried, compared, ..chosen }, ordered))
    }

    /// Of those that fit, the fastest; of several that are nearly as fast, and that take no more than `most` and no more than
    /// TensorFlow's, the one that moves least; of several that move about as little, the fastest.
    fn best(&self, most: f64) -> Option<usize> {
        let fitting = || (0..self.fitted.len()).filter(|index| self.fitted[*index].tried.last().is_some_and(Tried::fits));
        let moved = |index: usize| self.fitted[index].tried.last().map_or(Bytes::ZERO, |tried| tried.moved);
        let least = fitting().map(|index| self.time(index)).fold(f64::INFINITY, f64::min);
        let of_tensorflow = |index: &usize| self.fitted[*index].placement.devices == self.tensorflow.devices;
        let of_tensorflow = fitting().find(of_tensorflow).map_or(f64::INFINITY, |index| self.time(index));
        let most = most.min(of_tensorflow).min(least * NEAR);
        let near = || fitting().filter(|index| self.time(*index) <= most);
        let fewest = near().map(moved).min()?;
        let few = near().filter(|index| moved(*index) <= fewest + Bytes(fewest.0 / AS_FEW));
        few.min_by(|one, other| self.time(*one).total_cmp(&self.time(*other)).then(moved(*one).cmp(&moved(*other))))
    }

    /// Takes the placements that were made to fit among the others, where they are new or did not fit as they are.
    fn take_made(&mut self) {
        let fits = |fitted: &Fitted| fitted.tried.last().is_some_and(Tried::fits);
        for made in std::mem::take(&mut self.made) {
            match self.fitted.iter_mut().find(|fitted| fitted.placement.devices == made.placement.devices) {
                None => self.fitted.push(made),
                Some(before) if fits(&made) && !fits(before) => *before = made,
                Some(_) => {}
            }
        }
    }

    /// What is to be small, of an attempt.
    fn time(&self, index: usize) -> f64 {
        self.fitted[index].tried.last().map_or(f64::INFINITY, |tried| tried.rate(self.objective))
    }

    /// Has plans made to fit that would be faster than those that fit as they are, the fastest first. Where none fits, all of them: where that
    /// is not enough, their shortfall is the true one.
    fn squeeze(&mut self) {
        let fits = |index: &usize| self.fitted[*index].tried.last().is_some_and(Tried::fits);
        let (fitting, mut over): (Vec<usize>, Vec<usize>) = (0..self.fitted.len()).partition(fits);
        let mut least = fitting.iter().map(|index| self.time(*index)).fold(f64::INFINITY, f64::min);
        if !fitting.is_empty() {
            over.sort_by(|one, other| self.time(*one).total_cmp(&self.time(*other)));
            over.truncate(if self.is_small { SQUEEZED } else { SQUEEZED_OF_LARGE });
        }
        for index in over {
            let fitted = &self.fitted[index];
            let Some(how) = fitted.tried.last().map(|tried| tried.how.clone()) else { continue };
            if self.time(index) >= least && !fitting.is_empty() {
                continue;
            }
            let placement = fitted.placement.clone();
            if let Some(lower) = self.made_to_fit(placement, how) {
                self.fitted[index] = lower.clone();
                if self.fitted[index].tried.last().is_some_and(Tried::fits) {
                    least = least.min(self.time(index));
                }
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
    let of_unit = |unit: usize| problem.followed[unit].map_or(0, |part| whole_of(devices[part as usize]));
    wholes.mixed(request, of_unit, &Why::Auto(String::new()))
}

/// Says of nodes that were free why they are where they are.
fn explain(request: &PlaceRequest<'_>, objective: Objective, wholes: &Wholes, problem: &Problem, chosen: &mut Fitted) {
    let Some(tried) = chosen.tried.last() else { return };
    let devices = assignment(problem, wholes, &chosen.placement);
    let mut names = vec![String::new(); problem.choices.len()];
    for (part, nodes) in problem.part_of_unit.iter().zip(&wholes.units.free) {
        let name = part.map(|part| &mut names[part as usize]).filter(|name| name.is_empty());
        let node = nodes.iter().find(|node| wholes.runs[**node]);
        if let (Some(name), Some(node)) = (name, node) {
            name.clone_from(&request.graph.node(*node).name);
        }
    }
    let lines = |peaks: &[u64]| {
        let of = |device: usize| problem.lines[device].map(|_| corrected(problem, needed(request, tried, device), peaks[device], device));
        (0..peaks.len()).map(of).collect()
    };
    let reasons = search::reasons(problem, request.devices, objective, &devices, lines, &names);
    for (unit, nodes) in wholes.units.free.iter().enumerate() {
        let Some(part) = problem.part_of_unit[unit] else { continue };
        for &node in nodes {
            if matches!(chosen.placement.why[node], Why::Default | Why::Follows(_) | Why::FirstFit | Why::Auto(_)) {
                chosen.placement.why[node] = Why::Auto(reasons[part as usize].clone());
            }
        }
    }
}

/// The line on paper of a device, by what a plan takes and the paper says.
fn corrected(problem: &Problem, need: u64, peak: u64, device: usize) -> u64 {
    problem.lines[device].unwrap_or(u64::MAX).saturating_add(peak).saturating_sub(need)
}

/// The bytes of a device that an attempt needs.
fn needed(request: &PlaceRequest<'_>, tried: &Tried, device: usize) -> u64 {
    let name = request.devices[device].name.short();
    tried.needs.iter().find(|(short, ..)| *short == name).map_or(0, |(_, needed, _)| needed.0)
}
