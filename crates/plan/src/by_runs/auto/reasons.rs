//! Why parts are where they are: what each group of them costs there, what it would cost on the next best device, and what binds it.

use std::collections::BTreeMap;

use plimsoll_base::Bytes;
use plimsoll_device::DeviceSpec;
use plimsoll_placer::{Device, Model, Rating};

use super::super::{Objective, seconds_text};
use super::problem::{Place, Problem};
use super::queues::Queues;

/// No more groups than this, if scopes of names can be wider.
const GROUPS: usize = 40;

/// Scopes in each other that are looked at.
const DEPTH: usize = 16;

/// On how many other devices a group is tried.
const TRIED: usize = 3;

/// For each part a text: that of its group. The step is rated once more for each group and other device, at most `ratings` times.
/// `names` are those of nodes of the parts, empty for parts without one.
pub(super) fn reasons(queues: &mut Queues<'_>, devices: &[Device], specs: &[DeviceSpec], names: &[String], ratings: u64) -> Vec<String> {
    let group_of = groups(queues.problem, devices, names);
    let count = group_of.iter().map(|group| group + 1).max().unwrap_or(0);
    let before = queues.rate(devices);
    queues.keep();
    let (mut now, mut left) = (devices.to_vec(), ratings);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
    group_of.iter().enumerate().for_each(|(part, group)| members[*group].push(part));
    let mut works: Vec<Vec<usize>> = vec![Vec::new(); count];
    queues.problem.works.iter().enumerate().for_each(|(index, work)| works[group_of[work.part as usize]].push(index));
    let readers = readers_of(queues);
    let choices = queues.choices().clone();
    let mut reason = |group: usize| {
        let parts = &members[group];
        let here = devices[parts[0]];
        let cost = |queues: &Queues<'_>, device: Device| {
            Cost { queues, devices, group_of: &group_of, readers: &readers }.of(&works[group], device)
        };
        let own = seconds_text(cost(queues, here));
        let may = |device: &Device| *device != here && parts.iter().all(|part| choices.allows(*part, *device));
        let mut others: Vec<(f64, Device)> =
            choices.of(parts[0]).iter().copied().filter(may).map(|device| (cost(queues, device), device)).collect();
        others.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let Some(&(there, device)) = others.first() else {
            return format!("{own} here; a constraint binds it: no other device may have it");
        };
        let mut tried: Vec<(Device, Rating, Vec<u64>)> = Vec::new();
        for &(_, device) in others.iter().take(TRIED.min(left as usize)) {
            left -= 1;
            parts.iter().for_each(|part| now[*part] = device);
            tried.push((device, queues.rate(&now), queues.held(&now)));
            parts.iter().for_each(|part| now[*part] = here);
        }
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
    };
    let of_groups: Vec<String> = (0..count).map(&mut reason).collect();
    group_of.into_iter().map(|group| of_groups[group].clone()).collect()
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
fn readers_of(queues: &Queues<'_>) -> Vec<Vec<u32>> {
    let mut readers = vec![Vec::new(); queues.problem.values.len()];
    for work in &queues.problem.works {
        for &value in &queues.problem.reads[work.reads.clone()] {
            if readers[value as usize].last() != Some(&work.part) {
                readers[value as usize].push(work.part);
            }
        }
    }
    readers
}

struct Cost<'a, 'q> {
    queues: &'a Queues<'q>,
    devices: &'a [Device],
    group_of: &'a [usize],
    readers: &'a [Vec<u32>],
}

impl Cost<'_, '_> {
    /// The seconds of a group's works on a device, and of the copies that they need there.
    fn of(&self, works: &[usize], device: Device) -> f64 {
        let (problem, at) = (self.queues.problem, usize::from(device));
        let mut seconds = 0.0;
        let mut seen: Vec<u32> = Vec::new();
        for &index in works {
            let work = &problem.works[index];
            let own = self.group_of[work.part as usize];
            let is_elsewhere = |part: u32| self.group_of[part as usize] != own;
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
                let readers = self.readers[value as usize].iter().filter(|part| is_elsewhere(**part));
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
