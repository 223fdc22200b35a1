//! What an assignment takes at least, known before its queues have run to the end; and what all of them do.

use plimsoll_placer::Device;

use super::super::Least;
use super::moments::Readers;
use super::problem::Problem;

/// Bounds of works that are not run yet.
pub(super) struct Bounds {
    /// For each work, the least seconds of the longest path of works behind it, without copies.
    pub tails: Vec<f64>,
    /// For each engine, the seconds of all works there in the assignment that is tried. Works that may be fused do not count.
    pub loads: Vec<f64>,
    /// The same of the assignment that is kept.
    kept: Vec<f64>,
    /// For each part, for each kind of device: the seconds of its works.
    of_part: Vec<f64>,
}

impl Bounds {
    pub fn new(problem: &Problem, readers: &Readers, engines: usize) -> Bounds {
        let tails = tails(problem, readers, |work| problem.least_seconds(work));
        let mut of_part = vec![0.0; problem.choices.len() * problem.kinds];
        for (index, work) in problem.works.iter().enumerate() {
            if work.fused_into.is_none() {
                for kind in 0..problem.kinds {
                    of_part[work.part as usize * problem.kinds + kind] += problem.seconds[index * problem.kinds + kind];
                }
            }
        }
        Bounds { tails, loads: vec![0.0; engines], kept: vec![0.0; engines], of_part }
    }

    /// Tries what is kept.
    pub fn begin(&mut self) {
        self.loads.clone_from(&self.kept);
    }

    /// Tries a part on another device than it was on; each device has an engine for its works, and one for copies.
    pub fn shift(&mut self, problem: &Problem, part: usize, from: Option<Device>, to: Device, engines: &[(usize, usize)]) {
        let seconds = |device: usize| self.of_part[part * problem.kinds + usize::from(problem.kind_of[device])];
        if let Some(from) = from.map(usize::from) {
            self.loads[engines[from].0] -= seconds(from);
        }
        let to = usize::from(to);
        self.loads[engines[to].0] += seconds(to);
    }

    /// Keeps an assignment. It is added up anew: differences would be rounded again and again.
    pub fn keep(&mut self, problem: &Problem, devices: &[Device], engines: &[(usize, usize)]) {
        self.loads.fill(0.0);
        for (part, device) in devices.iter().enumerate() {
            self.shift(problem, part, None, *device, engines);
        }
        self.kept.clone_from(&self.loads);
    }
}

/// For each work, the longest path of works behind it.
fn tails(problem: &Problem, readers: &Readers, seconds: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut tails = vec![0.0f64; problem.works.len()];
    for (index, work) in problem.works.iter().enumerate().rev() {
        let readers = problem.writes[work.writes.clone()].iter().flat_map(|value| readers.of(*value as usize));
        let behind = readers.map(|reader| *reader as usize).filter(|reader| *reader > index);
        tails[index] = behind.map(|reader| seconds(reader) + tails[reader]).fold(0.0, f64::max);
    }
    tails
}

/// What every assignment takes at least. `engines` as in [`Bounds::shift`].
///
/// For the works each kind of device has a weight: weighed seconds of engines, of which none is above the longest, are no less than those
/// of works where these weigh least. That holds for all weights: here they are alike, or as fast as the kind is.
pub(super) fn least(problem: &Problem, readers: &Readers, engines: &[(usize, usize)]) -> Least {
    let works = 0..problem.works.len();
    let on = |work: usize| problem.choices.of(problem.works[work].part as usize).iter();
    let seconds = |work: usize| on(work).map(|device| problem.floor(work, usize::from(*device)).last).fold(f64::INFINITY, f64::min);
    let tails = tails(problem, readers, seconds);
    let path = works.clone().map(|work| seconds(work) + tails[work]).fold(0.0, f64::max);
    // Each engine once, with the kind of its devices.
    let mut kind_of: Vec<(usize, usize)> = engines.iter().zip(&problem.kind_of).map(|(own, kind)| (own.0, usize::from(*kind))).collect();
    kind_of.sort_unstable();
    kind_of.dedup_by_key(|(engine, _)| *engine);
    let alone: Vec<f64> =
        (0..problem.kinds).map(|kind| works.clone().map(|work| problem.floors[work * problem.kinds + kind].busy).sum()).collect();
    let weighed = |weight_of: &dyn Fn(usize) -> f64| {
        let all: f64 = kind_of.iter().map(|(_, kind)| weight_of(*kind)).sum();
        let seconds = |work: usize, device: usize| problem.floor(work, device).busy * weight_of(usize::from(problem.kind_of[device]));
        let least = |work: usize| on(work).map(|device| seconds(work, usize::from(*device))).fold(f64::INFINITY, f64::min);
        let sum: f64 = works.clone().map(least).sum();
        if all > 0.0 && sum.is_finite() { sum / all } else { 0.0 }
    };
    let as_fast = |kind: usize| if alone[kind] > 0.0 { 1.0 / alone[kind] } else { 0.0 };
    Least { path, works: weighed(&|_| 1.0).max(weighed(&as_fast)) }
}
