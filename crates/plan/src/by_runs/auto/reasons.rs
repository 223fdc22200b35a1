//! Why parts are where they are: what each costs there, what it would cost on the next best device, and what binds it.

use plimsoll_device::DeviceSpec;
use plimsoll_placer::{Device, Model};

use super::super::{Objective, seconds_text};
use super::problem::Place;
use super::queues::Queues;

/// For each part a text. The step is rated once more for each part with another device to be on, at most `ratings` times.
pub(super) fn reasons(queues: &mut Queues<'_>, devices: &[Device], specs: &[DeviceSpec], ratings: u64) -> Vec<String> {
    let choices = queues.problem.choices.clone();
    let before = queues.rate(devices);
    queues.keep();
    let mut now = devices.to_vec();
    let mut left = ratings;
    let name = |device: Device| specs[usize::from(device)].name.short();
    let works = works_of(queues, choices.len());
    let readers = readers_of(queues);
    let mut reasons = Vec::with_capacity(choices.len());
    for part in 0..choices.len() {
        let here = devices[part];
        let cost = |device: Device| cost(queues, devices, &works[part], &readers, device);
        let own = cost(here);
        let others = choices.of(part).iter().copied().filter(|device| *device != here).map(|device| (cost(device), device));
        let next = others.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let Some((there, device)) = next else {
            reasons.push(format!("{} here, no other device has its kernels", seconds_text(own)));
            continue;
        };
        let mut reason = format!("{} here, {} on {}", seconds_text(own), seconds_text(there), name(device));
        if left > 0 {
            left -= 1;
            now[part] = device;
            let rating = queues.rate(&now);
            now[part] = here;
            reason += &match rating.over > before.over {
                true => ", which has no room".to_string(),
                false => format!(
                    ", a step {}{} {}",
                    if queues.objective == Objective::Throughput { "of a stream " } else { "" },
                    seconds_text((rating.seconds - before.seconds).abs()),
                    if rating.seconds < before.seconds { "shorter" } else { "longer" }
                ),
            };
        }
        reasons.push(reason);
    }
    reasons
}

/// For each part its works.
fn works_of(queues: &Queues<'_>, parts: usize) -> Vec<Vec<usize>> {
    let mut works = vec![Vec::new(); parts];
    queues.problem.works.iter().enumerate().for_each(|(index, work)| works[work.part as usize].push(index));
    works
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

/// The seconds of works on a device, and of the copies that they need there.
fn cost(queues: &Queues<'_>, devices: &[Device], works: &[usize], readers: &[Vec<u32>], device: Device) -> f64 {
    let problem = queues.problem;
    let at = usize::from(device);
    let mut seconds = 0.0;
    let mut seen: Vec<u32> = Vec::new();
    for &index in works {
        let work = &problem.works[index];
        seconds += problem.seconds(index, at);
        for &value in &problem.reads[work.reads.clone()] {
            let from = match problem.values[value as usize].place {
                Place::Made if problem.makers[value as usize] != work.part => usize::from(devices[problem.makers[value as usize] as usize]),
                Place::Kept(part) if part != work.part => usize::from(devices[part as usize]),
                Place::Host => problem.host,
                _ => continue,
            };
            if from != at && !seen.contains(&value) {
                seen.push(value);
                seconds += problem.copy(value as usize, from, at);
            }
        }
        for &value in &problem.writes[work.writes.clone()] {
            let mut there: Vec<Device> =
                readers[value as usize].iter().filter(|part| **part != work.part).map(|part| devices[*part as usize]).collect();
            there.sort_unstable();
            there.dedup();
            seconds += there.iter().filter(|to| **to != device).map(|to| problem.copy(value as usize, at, usize::from(*to))).sum::<f64>();
        }
    }
    seconds
}
