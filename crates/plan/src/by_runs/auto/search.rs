//! Looks for the assignment of a problem that ends first under the lines.

use plimsoll_device::{DeviceKind, DeviceSpec};
use plimsoll_placer::{Clusters, Device, Effort, Model, Rating, clusters, improve, improve_joined};

use super::super::{Least, Objective};
use super::problem::{Place, Problem};
use super::queues::{Price, Queues};
use super::reasons;
use super::replicas::{Replicas, replicas};

/// How many works all ratings together run on paper: the most, of runs of no more works than [`SMALL`], and the least, of [`LARGE`] ones.
const WORKS: u64 = 30_000_000;
const WORKS_OF_LARGE: u64 = 8_000_000;
pub(super) const SMALL: usize = 1_500;

/// A run of more works than this is large: it has one paper, and fewer plans.
pub(super) const LARGE: usize = 4_000;

/// No more ratings than this.
const RATINGS: u64 = 60_000;

/// A device that takes more than so many times the seconds on paper is not planned for in a large run. The plan is not the paper, but not
/// that far from it.
const CLEARLY: f64 = 2.0;

/// Parts of the load of one device that clusters have at most, from coarse to fine.
const CLUSTERS: [f64; 3] = [1.05, 0.5, 0.1];

/// The search, which remembers how tight lines have to be.
pub(super) struct Search<'a> {
    queues: Queues<'a>,
    levels: Vec<Clusters>,
    replicas: Option<Replicas>,
    loads: Vec<f64>,
    ratings: u64,
}

impl<'a> Search<'a> {
    pub fn new(problem: &'a Problem, devices: &[DeviceSpec], objective: Objective) -> Search<'a> {
        let queues = Queues::new(problem, devices, objective);
        let loads = queues.loads();
        let exchanges: Vec<(u32, u32, f64)> = problem.exchanges().map(|(_, one, other, dear)| (one, other, dear)).collect();
        let replicas = replicas(problem, &loads);
        // Clusters are for the devices that compute: cards, where there are any.
        let cards = devices.iter().filter(|spec| spec.kind == DeviceKind::Gpu).count();
        let each = loads.iter().sum::<f64>() / if cards > 0 { cards } else { devices.len() } as f64;
        let levels = CLUSTERS.iter().map(|part| clusters(&problem.choices, &exchanges, &loads, part * each)).collect();
        let ratings = ratings(problem);
        Search { queues, levels, replicas, loads, ratings }
    }

    /// The best assignment found from these and from some of its own, the last. Where that began with replicas, also what it began with:
    /// plans decide how much of what the search gained on paper is true.
    pub fn best(&mut self, starts: &[Vec<Device>]) -> Vec<Vec<Device>> {
        let mut best = self.first(starts);
        let mut levels: Vec<(&Clusters, u64)> = self.levels.iter().map(|level| (level, self.ratings / 6)).collect();
        let mut found = Vec::new();
        if let Some(replicas) = &self.replicas {
            let mut first: Option<(Vec<Device>, Rating)> = None;
            for start in replicas.starts(self.queues.problem, &self.loads, &self.queues.is_card) {
                let rating = self.queues.rate(&start);
                if first.as_ref().is_none_or(|(_, best)| rating.is_better_than(best)) {
                    first = Some((start, rating));
                }
            }
            if let Some(first) = first.filter(|first| first.1.is_better_than(&best.1)) {
                found.push(first.0.clone());
                best = first;
                levels = vec![(&replicas.clusters, self.ratings / 2)];
            }
        }
        for (number, (level, ratings)) in levels.into_iter().enumerate() {
            let improved = improve_joined(&mut self.queues, level, &best.0, Effort { ratings, seed: number as u64 });
            if improved.1.is_better_than(&best.1) {
                best = improved;
            }
        }
        if !found.is_empty() {
            found.push(best.0.clone());
        }
        let last = improve(&mut self.queues, &best.0, Effort { ratings: self.ratings / 2, seed: CLUSTERS.len() as u64 });
        found.push(last.0);
        found
    }

    /// The best assignment found from one that was the best under lines that were others. Where it is over these, the search also begins with
    /// what it becomes when parts leave devices that are full.
    pub fn again(&mut self, before: &[Device]) -> Vec<Device> {
        let start = self.repaired(before);
        improve(&mut self.queues, &start, Effort { ratings: self.ratings / 2, seed: CLUSTERS.len() as u64 + 1 }).0
    }

    /// An assignment from which clusters went elsewhere, one after the other, until no device is over its line, or nothing helps: those first
    /// that make the step longer by the least for what they take.
    pub fn repaired(&mut self, start: &[Device]) -> Vec<Device> {
        let (mut now, mut left) = (start.to_vec(), self.ratings / 4);
        let mut rating = self.queues.rate(&now);
        let choices = self.queues.choices().clone();
        let alone = Clusters { of: (0..now.len() as u32).collect(), choices: choices.clone() };
        // What reads a variable leaves with it.
        let problem = self.queues.problem;
        let kept = problem.exchanges().filter(|(value, ..)| matches!(problem.values[*value].place, Place::Kept(_)));
        let kept: Vec<(u32, u32, f64)> = kept.map(|(_, one, other, dear)| (one, other, dear)).collect();
        let with_variables = clusters(&choices, &kept, &self.loads, f64::INFINITY);
        let levels: Vec<Clusters> = self.levels.iter().chain([&with_variables, &alone]).cloned().collect();
        // For each cluster its parts.
        let members = levels.iter().flat_map(|level| {
            let mut members = vec![Vec::new(); level.choices.len()];
            level.of.iter().enumerate().for_each(|(part, cluster)| members[*cluster as usize].push(part));
            members
        });
        let mut members: Vec<Vec<usize>> = members.collect();
        members.sort();
        members.dedup();
        while rating.over > 0.0 {
            self.queues.keep();
            let is_full = self.queues.full(&now);
            let mut best: Option<(f64, Vec<Device>, Rating)> = None;
            for parts in &members {
                let from = now[parts[0]];
                if !is_full[usize::from(from)] || parts.iter().any(|part| now[*part] != from) {
                    continue;
                }
                for &to in choices.of(parts[0]).iter().filter(|to| **to != from && !is_full[usize::from(**to)]) {
                    if left == 0 {
                        return best.map_or(now, |(_, devices, _)| devices);
                    }
                    if !parts.iter().all(|part| choices.allows(*part, to)) {
                        continue;
                    }
                    left -= 1;
                    let mut tried = now.clone();
                    parts.iter().for_each(|part| tried[*part] = to);
                    let other = self.queues.rate(&tried);
                    let gain = rating.over - other.over;
                    let price = (other.seconds - rating.seconds).max(0.0) / gain;
                    if gain > 0.0 && best.as_ref().is_none_or(|(least, ..)| price < *least) {
                        best = Some((price, tried, other));
                    }
                }
            }
            let Some((_, devices, other)) = best else { break };
            (now, rating) = (devices, other);
            // What is kept next is what was rated last.
            self.queues.rate(&now);
        }
        now
    }

    /// The best of these and of those where each cluster goes where it ends first.
    fn first(&mut self, starts: &[Vec<Device>]) -> (Vec<Device>, Rating) {
        let mut best: Option<(Vec<Device>, Rating)> = None;
        let mut keep = |found: (Vec<Device>, Rating)| {
            if best.as_ref().is_none_or(|(_, rating)| found.1.is_better_than(rating)) {
                best = Some(found);
            }
        };
        for start in starts {
            keep((start.clone(), self.queues.rate(start)));
        }
        let alone = Clusters { of: (0..self.loads.len() as u32).collect(), choices: self.queues.choices().clone() };
        for level in self.levels.iter().chain([&alone]) {
            let mut loads = vec![0.0; level.choices.len()];
            level.of.iter().zip(&self.loads).for_each(|(cluster, load)| loads[*cluster as usize] += load);
            let devices = level.spread(&self.queues.earliest(&level.of, &level.choices, &loads));
            let rating = self.queues.rate(&devices);
            keep((devices, rating));
        }
        best.unwrap_or_default()
    }

    /// Whether an assignment is slower on paper than one that fits there, so clearly that its plan will be as well.
    pub fn is_clearly_slower(&mut self, one: &[Device], other: &[Device]) -> bool {
        let [one, other] = [one, other].map(|devices| self.queues.rate(devices));
        other.over == 0.0 && one.seconds > CLEARLY * other.seconds
    }

    /// Whether the run has replicas.
    pub fn has_replicas(&self) -> bool {
        self.replicas.is_some()
    }

    /// What every assignment takes at least.
    pub fn least(&self) -> Least {
        self.queues.least()
    }

    /// The lines that hold.
    pub fn lines(&self) -> &[Option<u64>] {
        &self.queues.lines
    }

    /// From now on these lines hold.
    pub fn set_lines(&mut self, lines: Vec<Option<u64>>) {
        self.queues.lines = lines;
    }

    /// From now on devices may be above these lines at this price.
    pub fn set_price(&mut self, price: Option<Price>) {
        self.queues.price = price;
    }

    /// For each device the bytes of variables and of its largest work, with an assignment.
    pub fn peaks_of_works(&mut self, devices: &[Device]) -> Vec<u64> {
        self.queues.rate(devices);
        self.queues.held_by_works(devices)
    }

    /// For each device the bytes that it holds with an assignment.
    pub fn peaks(&mut self, devices: &[Device]) -> Vec<u64> {
        self.queues.peaks(devices)
    }
}

/// How many ratings a search has.
fn ratings(problem: &Problem) -> u64 {
    let works = problem.works.len() as u64 + 1;
    ((WORKS * SMALL as u64 / works).clamp(WORKS_OF_LARGE, WORKS) / works).min(RATINGS)
}

/// For each part, why it is where it is, under lines. `names` are those of nodes of the parts.
pub(super) fn reasons(
    problem: &Problem,
    specs: &[DeviceSpec],
    objective: Objective,
    devices: &[Device],
    lines: impl FnOnce(&[u64]) -> Vec<Option<u64>>,
    names: &[String],
) -> Vec<String> {
    let mut queues = Queues::new(problem, specs, objective);
    let lines = lines(&queues.peaks(devices));
    queues.lines.clone_from(&lines);
    let another = || {
        let mut queues = Queues::new(problem, specs, objective);
        queues.lines.clone_from(&lines);
        queues
    };
    reasons::reasons(queues, another, devices, specs, names, ratings(problem) / 4)
}
