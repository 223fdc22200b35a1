//! Why parts are where they are: what each group of them costs there, what it would cost on the next best device, and what binds it.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_device::DeviceSpec;
use plimsoll_placer::{Device, Model, Rating};

use super::super::{Objective, seconds_text};
use super::problem::{Place, Problem};
use super::queues::Queues;
use crate::side_by_side::both;

/// No more groups than this, if scopes of names can be wider.
const GROUPS: usize = 40;

/// Scopes in each other that are looked at.
const DEPTH: usize = 16;

/// On how many other devices a group is tried.
const TRIED: usize = 3;

/// Runs of more works are rated on two threads.
const MANY: usize = 1_000;

/// For each part a text: that of its group. The step is rated once more for each group and other device, at most `ratings` times.
/// `another` makes the paper once more. `names` are those of nodes of the parts, empty for parts without one.
pub(super) fn reasons<'q>(
    mut queues: Queues<'q>,
    another: impl Fn() -> Queues<'q> + Sync,
    devices: &[Device],
    specs: &[DeviceSpec],
    names: &[String],
    ratings: u64,
) -> Vec<String> {
    let groups = Groups::new(queues.problem, devices, names, ratings);
    let texts = |queues: &mut Queues<'_>, turn: usize, turns: usize| -> Vec<String> {
        let before = queues.rate(devices);
        queues.keep();
        let mut trial = Trial { queues, devices, specs, groups: &groups, before, now: devices.to_vec() };
        (turn..groups.members.len()).step_by(turns).map(|group| trial.reason(group)).collect()
    };
    // Groups that begin early take longer: they go to both in turn.
    let of_groups = if queues.problem.works.len() > MANY {
        let (even, odd) = both(|| texts(&mut another(), 0, 2), || texts(&mut queues, 1, 2));
        let (mut even, mut odd) = (even.into_iter(), odd.into_iter());
        let next = |group: usize| if group.is_multiple_of(2) { even.next() } else { odd.next() };
        (0..groups.members.len()).map_while(next).collect()
    } else {
        texts(&mut queues, 0, 1)
    };
    groups.of.iter().map(|group| of_groups[*group].clone()).collect()
}

/// Parts in groups: see [`groups`].
struct Groups {
    /// For each part its group.
    of: Vec<usize>,
    /// For each group its parts and its works, and on how many other devices it is tried.
    members: Vec<Vec<usize>>,
    works: Vec<Vec<usize>>,
    tries: Vec<usize>,
    /// For each value the parts that read it.
    readers: Vec<Vec<u32>>,
}

impl Groups {
    fn new(problem: &Problem, devices: &[Device], names: &[String], ratings: u64) -> Groups {
        let of = groups(problem, devices, names);
        let count = of.iter().map(|group| group + 1).max().unwrap_or(0);
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
        of.iter().enumerate().for_each(|(part, group)| members[*group].push(part));
        let mut works: Vec<Vec<usize>> = vec![Vec::new(); count];
        problem.works.iter().enumerate().for_each(|(index, work)| works[of[work.part as usize]].push(index));
        let mut left = ratings as usize;
        let tries = members.iter().map(|parts| {
            let tries = others(problem, devices, parts).take(TRIED.min(left)).count();
            left -= tries;
            tries
        });
        let tries = tries.collect();
        Groups { of, members, works, tries, readers: readers_of(problem) }
    }
}

/// The devices that all of some parts may be on, but for the one that they are on.
fn others<'p>(problem: &'p Problem, devices: &[Device], parts: &'p [usize]) -> impl Iterator<Item = Device> + 'p {
    let here = devices[parts[0]];
    let may = move |device: &Device| *device != here && parts.iter().all(|part| problem.choices.allows(*part, *device));
    problem.choices.of(parts[0]).iter().copied().filter(may)
}

/// Groups, tried elsewhere.
struct Trial<'t, 'q> {
    queues: &'t mut Queues<'q>,
    devices: &'t [Device],
    specs: &'t [DeviceSpec],
    groups: &'t Groups,
    before: Rating,
    now: Vec<Device>,
}

impl Trial<'_, '_> {
    fn reason(&mut self, group: usize) -> String {
        let Trial { devices, specs, groups, before, .. } = *self;
        let (problem, parts) = (self.queues.problem, &groups.members[group]);
        let here = devices[parts[0]];
        let cost = |device: Device| Cost { problem, devices, groups }.of(&groups.works[group], device);
        let own = seconds_text(cost(here));
        let mut others: Vec<(f64, Device)> = others(problem, devices, parts).map(|device| (cost(device), device)).collect();
        others.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let Some(&(there, device)) = others.first() else {
            return format!("{own} here; a constraint binds it: no other device may have it");
        };
        let mut tried: Vec<(Device, Rating, Vec<u64>)> = Vec::new();
        for &(_, device) in &others[..groups.tries[group]] {
            parts.iter().for_each(|part| self.now[*part] = device);
            tried.push((device, self.queues.rate(&self.now), self.queues.held(&self.now)));
            parts.iter().for_each(|part| self.now[*part] = here);
        }
        let queues = &self.queues;
        let name = |device: Device| specs[usize::from(device)].name.short();
        let stream = if queues.objective == Objective::Throughput { " of a stream" } else { "" };
        let change = |rating: &Rating| {
            let (seconds, word) = match rating.seconds < before.seconds {
                true => (before.seconds - rating.seconds, "shorter"),
                false => (rating.seconds - before.seconds, "longer"),
            };
            if seconds < LEAST { format!("a step{stream} as long") } else { format!("a step{stream} {} {word}", seconds_text(seconds)) }
        };
        let text = format!("{own} here, {} on {}", seconds_text(there), name(device));
        // Memory binds what would be faster elsewhere, had that the room.
        let is_full = |(_, rating, _): &&(Device, Rating, Vec<u64>)| rating.over > before.over && rating.seconds + LEAST < before.seconds;
        let full = tried.iter().filter(is_full).min_by(|one, other| one.1.seconds.total_cmp(&other.1.seconds));
        if let Some((device, rating, held)) = full {
            let over = queues.lines[usize::from(*device)].map_or(0, |line| held[usize::from(*device)].saturating_sub(line));
            return format!("{text}; memory binds it: {} on {}, which lacks {}", change(rating), name(*device), Bytes(over));
        }
        match tried.iter().find(|(_, rating, _)| rating.over <= before.over) {
            Some((device, rating, _)) => format!("{text}; time binds it: {} on {}", change(rating), name(*device)),
            None if tried.is_empty() => text,
            None => format!("{text}; memory binds it: no other device has room"),
        }
    }
}

/// Seconds that no text shows.
const LEAST: f64 = 5e-8;

/// For each part its group: parts of a device whose nodes are in one scope of names, with the variables that they alone read, or that
/// they spend most on.
fn groups(problem: &Problem, devices: &[Device], names: &[String]) -> Vec<usize> {
    let mut scope_of: Vec<usize> = (0..devices.len()).collect();
    for depth in 1..=DEPTH {
        let mut numbers: BTreeMap<(Device, &str), usize> = BTreeMap::new();
        let scopes = devices.iter().zip(names).enumerate().map(|(part, (device, name))| {
            let number = numbers.len();
            // A part without a name is no group with others.
            if name.is_empty() { devices.len() + part } else { *numbers.entry((*device, scope(name, depth))).or_insert(number) }
        });
        let scopes: Vec<usize> = scopes.collect();
        let is_wider = depth == 1 || numbers.len() <= GROUPS;
        if !is_wider {
            break;
        }
        scope_of = scopes;
    }
    // Variables go with the work that reads them and takes longest.
    let mut reader: Vec<Option<(f64, u32)>> = vec![None; devices.len()];
    for (index, work) in problem.works.iter().enumerate() {
        let seconds = problem.seconds(index, usize::from(devices[work.part as usize]));
        for &value in &problem.reads[work.reads.clone()] {
            if let Place::Kept(part) = problem.values[value as usize].place
                && part != work.part
                && devices[part as usize] == devices[work.part as usize]
                && reader[part as usize].is_none_or(|(most, _)| most < seconds)
            {
                reader[part as usize] = Some((seconds, work.part));
            }
        }
    }
    let own = scope_of.clone();
    for (part, reader) in reader.iter().enumerate() {
        if let Some((_, reader)) = reader {
            scope_of[part] = own[*reader as usize];
        }
    }
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    scope_of
        .into_iter()
        .map(|scope| {
            let number = numbers.len();
            *numbers.entry(scope).or_insert(number)
        })
        .collect()
}

/// The scopes of a name, at most so many; all of it where it is in none.
fn scope(name: &str, depth: usize) -> &str {
    let ends = name.match_indices('/').map(|(at, _)| at);
    ends.take(depth).last().map_or(name, |end| &name[..end])
}

/// For each value the parts that read it.
fn readers_of(problem: &Problem) -> Vec<Vec<u32>> {
    let mut readers = vec![Vec::new(); problem.values.len()];
    for work in &problem.works {
        for &value in &problem.reads[work.reads.clone()] {
            if readers[value as usize].last() != Some(&work.part) {
                readers[value as usize].push(work.part);
            }
        }
    }
    readers
}

struct Cost<'a> {
    problem: &'a Problem,
    devices: &'a [Device],
    groups: &'a Groups,
}

impl Cost<'_> {
    /// The seconds of a group's works on a device, and of the copies that they need there.
    fn of(&self, works: &[usize], device: Device) -> f64 {
        let Cost { problem, groups, .. } = *self;
        let at = usize::from(device);
        let mut seconds = 0.0;
        let mut seen: Vec<u32> = Vec::new();
        for &index in works {
            let work = &problem.works[index];
            let own = groups.of[work.part as usize];
            let is_elsewhere = |part: u32| groups.of[part as usize] != own;
            seconds += problem.seconds(index, at);
            for &value in &problem.reads[work.reads.clone()] {
                let from = match problem.values[value as usize].place {
                    Place::Made | Place::Kept(_) => match problem.source(value as usize).filter(|part| is_elsewhere(*part)) {
                        Some(part) => usize::from(self.devices[part as usize]),
                        None => continue,
                    },
                    Place::Host => problem.host,
                    Place::Everywhere => continue,
                };
                if from != at && !seen.contains(&value) {
                    seen.push(value);
                    seconds += problem.copy(value as usize, from, at);
                }
            }
            for &value in &problem.writes[work.writes.clone()] {
                let readers = groups.readers[value as usize].iter().filter(|part| is_elsewhere(**part));
                let mut there: Vec<Device> = readers.map(|part| self.devices[*part as usize]).collect();
                there.sort_unstable();
                there.dedup();
                seconds +=
                    there.iter().filter(|to| **to != device).map(|to| problem.copy(value as usize, at, usize::from(*to))).sum::<f64>();
            }
        }
        seconds
    }
}
