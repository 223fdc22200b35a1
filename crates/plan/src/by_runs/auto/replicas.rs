//! Replicas: works that depend on one part of what is fed, and on no other. A batch that is divided, or fed in pieces, gives each tower
//! of a training its own; averages and updates depend on all of them.

use std::collections::{BTreeMap, HashMap};

use plimsoll_placer::{Choices, Clusters, Device};

use super::problem::{Place, Problem};

/// Sources that are told apart at most. Where there are more, no replicas are looked for.
const SOURCES: usize = 256;

/// Different sets of sources at most.
const SETS: usize = 1024;

/// A source on which alone no more than this part depends of what depends on another one alone is slight.
const SLIGHT: f64 = 0.01;

/// A set of sources.
type Set = [u64; SOURCES / 64];

/// The replicas of a run as clusters, and the rest.
pub(super) struct Replicas {
    /// Replicas first, the one with the most to do first; then parts of the rest that exchange results.
    pub clusters: Clusters,
    /// How many of the clusters are replicas.
    pub count: usize,
}

/// Looks for replicas. None where fewer than two are found. `loads` are the seconds of each part.
pub(super) fn replicas(problem: &Problem, loads: &[f64]) -> Option<Replicas> {
    let sets = sets_of_works(problem)?;
    let mut loads_of: BTreeMap<Set, f64> = BTreeMap::new();
    for (index, set) in sets.iter().enumerate() {
        *loads_of.entry(*set).or_default() += problem.least_seconds(index);
    }
    if loads_of.len() > SETS {
        return None;
    }
    let (sets, loads_of) = without_slight(sets, loads_of);
    let group_of = groups(&loads_of);
    let group = |set: &Set| {
        let mut groups = members(set).map(|source| group_of[source]);
        let first = groups.next()?;
        groups.all(|group| group == first).then_some(first)
    };
    // A part is of a replica where all its works are.
    let mut of_part: Vec<Option<Option<usize>>> = vec![None; loads.len()];
    for (work, own) in problem.works.iter().zip(of_works(problem, &sets, group)) {
        let part = &mut of_part[work.part as usize];
        *part = match part {
            Some(other) if *other != own => Some(None),
            _ => Some(own),
        };
    }
    let of_part: Vec<Option<usize>> = of_part.into_iter().map(Option::flatten).collect();
    let replicas = joined(problem, &of_part, loads);
    (replicas.count > 1).then_some(replicas)
}

/// For each work the sources that it depends on: what is fed, and each result of a work that divides what it reads. None where there are
/// too many.
fn sets_of_works(problem: &Problem) -> Option<Vec<Set>> {
    let mut count = 0;
    let mut new = || {
        let source = count;
        count += 1;
        (source < SOURCES).then(|| {
            let mut set: Set = Default::default();
            set[source / 64] |= 1 << (source % 64);
            set
        })
    };
    let mut of_value: Vec<Option<Set>> = vec![None; problem.values.len()];
    let mut sets = Vec::with_capacity(problem.works.len());
    for work in &problem.works {
        let reads = &problem.reads[work.reads.clone()];
        let mut set: Set = Default::default();
        for &value in reads {
            let source = &problem.values[value as usize];
            let has_source = matches!(source.place, Place::Host | Place::Made);
            if has_source && source.place == Place::Host && of_value[value as usize].is_none() {
                of_value[value as usize] = Some(new()?);
            }
            if let Some(of_value) = of_value[value as usize].filter(|_| has_source) {
                set.iter_mut().zip(of_value).for_each(|(word, other)| *word |= other);
            }
        }
        for &value in &problem.writes[work.writes.clone()] {
            of_value[value as usize] = Some(if work.divides { new()? } else { set });
        }
        // What divides is of no replica: it has all of what it divides.
        sets.push(if work.divides { Default::default() } else { set });
    }
    Some(sets)
}

/// Sets without sources on which alone nearly nothing depends, such as labels: these do not tell replicas apart.
fn without_slight(mut sets: Vec<Set>, loads_of: BTreeMap<Set, f64>) -> (Vec<Set>, BTreeMap<Set, f64>) {
    let mut alone = vec![0.0f64; SOURCES];
    for (set, load) in &loads_of {
        let mut sources = members(set);
        if let (Some(source), None) = (sources.next(), sources.next()) {
            alone[source] += load;
        }
    }
    let most = alone.iter().copied().fold(0.0, f64::max);
    let mut kept: Set = Default::default();
    (0..SOURCES).filter(|source| alone[*source] > SLIGHT * most).for_each(|source| kept[source / 64] |= 1 << (source % 64));
    let lessen = |set: &mut Set| set.iter_mut().zip(kept).for_each(|(word, kept)| *word &= kept);
    sets.iter_mut().for_each(lessen);
    let mut lessened = BTreeMap::new();
    for (mut set, load) in loads_of {
        lessen(&mut set);
        *lessened.entry(set).or_default() += load;
    }
    lessened.remove(&Set::default());
    (sets, lessened)
}

fn members(set: &Set) -> impl Iterator<Item = usize> + '_ {
    (0..SOURCES).filter(|source| set[source / 64] >> (source % 64) & 1 == 1)
}

/// Joins sources that would wait for each other: where what depends on all of them takes longer than all but the largest of them.
/// For each source its group.
fn groups(loads_of: &BTreeMap<Set, f64>) -> Vec<usize> {
    let mut group_of: Vec<usize> = (0..SOURCES).collect();
    loop {
        let mut of_groups: BTreeMap<Vec<usize>, f64> = BTreeMap::new();
        for (set, load) in loads_of {
            let mut groups: Vec<usize> = members(set).map(|source| group_of[source]).collect();
            groups.sort_unstable();
            groups.dedup();
            *of_groups.entry(groups).or_default() += load;
        }
        let own = |group: usize| of_groups.get(&[group][..]).copied().unwrap_or(0.0);
        let gain = |(groups, load): (&Vec<usize>, &f64)| {
            let sum: f64 = groups.iter().map(|group| own(*group)).sum();
            let largest = groups.iter().map(|group| own(*group)).fold(0.0, f64::max);
            load - (sum - largest)
        };
        let several = of_groups.iter().filter(|(groups, _)| groups.len() > 1);
        let best = several.map(|set| (gain(set), set.0)).filter(|(gain, _)| *gain >= 0.0).max_by(|one, other| one.0.total_cmp(&other.0));
        let Some((_, joined)) = best else { return group_of };
        group_of.iter_mut().filter(|group| joined.contains(group)).for_each(|group| *group = joined[0]);
    }
}

/// For each work its replica. One that depends on nothing that is fed is with its readers, where these are of one.
fn of_works(problem: &Problem, sets: &[Set], group: impl Fn(&Set) -> Option<usize>) -> Vec<Option<usize>> {
    /// Who reads a value.
    #[derive(Clone, Copy, PartialEq)]
    enum Readers {
        None,
        One(usize),
        Several,
    }
    let mut readers = vec![Readers::None; problem.values.len()];
    let mut of_work = vec![None; sets.len()];
    for (index, work) in problem.works.iter().enumerate().rev() {
        let is_free = sets[index] == Set::default();
        let of_writes = problem.writes[work.writes.clone()].iter().map(|value| readers[*value as usize]);
        let together = |one, other| match (one, other) {
            (Readers::None, other) | (other, Readers::None) => other,
            (one, other) if one == other => one,
            _ => Readers::Several,
        };
        of_work[index] = match of_writes.fold(Readers::None, together) {
            Readers::One(group) if is_free => Some(group),
            _ => group(&sets[index]),
        };
        let own = of_work[index].map_or(Readers::Several, Readers::One);
        for &value in &problem.reads[work.reads.clone()] {
            readers[value as usize] = together(readers[value as usize], own);
        }
    }
    of_work
}

/// The clusters: replicas, and of the rest what exchanges results.
fn joined(problem: &Problem, of_part: &[Option<usize>], loads: &[f64]) -> Replicas {
    let choices = &problem.choices;
    // A replica's parts are where most of its load may be; those that may not be there are the rest.
    let mut sums: HashMap<usize, BTreeMap<&[Device], f64>> = HashMap::new();
    for (part, replica) in of_part.iter().enumerate() {
        if let Some(replica) = replica {
            *sums.entry(*replica).or_default().entry(choices.of(part)).or_default() += loads[part];
        }
    }
    let most = |of: &BTreeMap<&[Device], f64>| of.iter().max_by(|one, other| one.1.total_cmp(other.1)).map(|(devices, _)| devices.to_vec());
    let devices: BTreeMap<usize, Vec<Device>> = sums.iter().filter_map(|(replica, of)| Some((*replica, most(of)?))).collect();
    let of_part = |part: usize| of_part[part].filter(|replica| devices[replica].iter().all(|device| choices.allows(part, *device)));
    let mut of_replica: BTreeMap<usize, f64> = BTreeMap::new();
    for (part, load) in loads.iter().enumerate() {
        if let Some(replica) = of_part(part) {
            *of_replica.entry(replica).or_default() += load;
        }
    }
    let mut order: Vec<(usize, f64)> = of_replica.into_iter().filter(|(replica, _)| devices[replica].len() > 1).collect();
    order.sort_by(|one, other| other.1.total_cmp(&one.1).then(one.0.cmp(&other.0)));
    let number: HashMap<usize, u32> = order.iter().enumerate().map(|(number, (replica, _))| (*replica, number as u32)).collect();
    let replica = |part: usize| of_part(part).and_then(|replica| number.get(&replica).copied());
    // The rest: parts that exchange results, where they may be on the same devices.
    let rest: Vec<(u32, u32, f64)> = problem
        .exchanges_of_results()
        .filter(|(one, other, _)| replica(*one as usize).is_none() && replica(*other as usize).is_none())
        .collect();
    let components = plimsoll_placer::clusters(choices, &rest, loads, f64::INFINITY);
    let mut of = Vec::with_capacity(loads.len());
    let mut of_clusters: Vec<Vec<Device>> = order.iter().map(|(replica, _)| devices[replica].clone()).collect();
    let mut of_component: HashMap<u32, u32> = HashMap::new();
    for part in 0..loads.len() {
        of.push(replica(part).unwrap_or_else(|| {
            let component = components.of[part];
            *of_component.entry(component).or_insert_with(|| {
                of_clusters.push(components.choices.of(component as usize).to_vec());
                of_clusters.len() as u32 - 1
            })
        }));
    }
    Replicas { clusters: Clusters { of, choices: Choices::new(of_clusters) }, count: order.len() }
}

/// Where what is of no replica goes.
#[derive(Clone, Copy, Debug)]
enum Rest {
    /// To the host, as in TensorFlow's tutorials.
    Host,
    /// Over the devices of the replicas, by what it holds.
    Spread,
    /// To the device of the first replica.
    First,
}

impl Replicas {
    /// Assignments to begin with: replicas spread over the cards, or over all devices where there are none, those with the most to do
    /// first; the rest in each of the ways of [`Rest`].
    pub fn starts(&self, problem: &Problem, loads: &[f64], is_card: &[bool]) -> Vec<Vec<Device>> {
        let choices = &self.clusters.choices;
        let (mut seconds, mut bytes) = (vec![0.0f64; choices.len()], vec![0u64; choices.len()]);
        for (part, cluster) in self.clusters.of.iter().enumerate() {
            seconds[*cluster as usize] += loads[part];
            bytes[*cluster as usize] += problem.kept[part];
        }
        let has_cards = is_card.contains(&true);
        let mut busy = vec![0.0f64; is_card.len()];
        let of_replicas: Vec<Device> = (0..self.count)
            .map(|replica| {
                let devices = choices.of(replica);
                let may = devices.iter().filter(|device| !has_cards || is_card[usize::from(**device)]);
                let least = may.min_by(|one, other| busy[usize::from(**one)].total_cmp(&busy[usize::from(**other)]));
                let device = least.copied().unwrap_or(devices[0]);
                busy[usize::from(device)] += seconds[replica];
                device
            })
            .collect();
        let mut rest: Vec<usize> = (self.count..choices.len()).collect();
        rest.sort_by(|one, other| bytes[*other].cmp(&bytes[*one]).then(seconds[*other].total_cmp(&seconds[*one])));
        let start = |how: Rest| {
            let mut held = vec![0u64; is_card.len()];
            let mut devices = of_replicas.clone();
            devices.resize(choices.len(), 0);
            for &cluster in &rest {
                let own = choices.of(cluster);
                let wanted = match how {
                    Rest::Host => Some(problem.host as Device),
                    Rest::Spread => {
                        let used = own.iter().copied().filter(|device| of_replicas.contains(device));
                        used.min_by_key(|device| held[usize::from(*device)])
                    }
                    Rest::First => of_replicas.first().copied(),
                };
                let device = wanted.filter(|device| own.contains(device)).unwrap_or(own[0]);
                // One without variables counts, too.
                held[usize::from(device)] += bytes[cluster] + 1;
                devices[cluster] = device;
            }
            self.clusters.spread(&devices)
        };
        [Rest::Host, Rest::Spread, Rest::First].map(start).to_vec()
    }
}
