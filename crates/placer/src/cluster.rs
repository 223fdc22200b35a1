//! Parts that exchange much, joined, so that they move together.

use crate::{Choices, Device, Effort, Model, Rating, improve};

/// Parts in clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clusters {
    /// For each part its cluster. Clusters are numbered in the order of their first parts.
    pub of: Vec<u32>,
    /// For each cluster the devices that all of its parts can be on.
    pub choices: Choices,
}

/// Joins parts along what they exchange, the most first. `exchanges` are pairs of parts, each with what moving it costs. A cluster has
/// `most` of the parts' `loads` together at most, or is a single part. Parts without a device in common are not joined.
pub fn clusters(choices: &Choices, exchanges: &[(u32, u32, f64)], loads: &[f64], most: f64) -> Clusters {
    let parts = choices.len();
    let mut sums: Vec<(u32, u32, f64)> = exchanges.iter().map(|(one, other, cost)| (*one.min(other), *one.max(other), *cost)).collect();
    sums.sort_by_key(|(one, other, _)| (*one, *other));
    sums.dedup_by(|next, first| {
        let is_same = (next.0, next.1) == (first.0, first.1);
        if is_same {
            first.2 += next.2;
        }
        is_same
    });
    // Of equal ones the first parts go first.
    sums.sort_by(|one, other| other.2.total_cmp(&one.2).then((one.0, one.1).cmp(&(other.0, other.1))));
    let mut roots: Vec<u32> = (0..parts as u32).collect();
    let mut loads = loads.to_vec();
    let mut devices: Vec<Vec<Device>> = (0..parts).map(|part| choices.of(part).to_vec()).collect();
    for (one, other, _) in sums {
        let (one, other) = (root(&mut roots, one) as usize, root(&mut roots, other) as usize);
        if one == other || loads[one] + loads[other] > most {
            continue;
        }
        let both: Vec<Device> = devices[one].iter().copied().filter(|device| devices[other].contains(device)).collect();
        // One that stays where it is draws nothing to it.
        if both.is_empty() || both.len() < devices[one].len().max(devices[other].len()) {
            continue;
        }
        let (first, second) = (one.min(other), one.max(other));
        roots[second] = first as u32;
        loads[first] += loads[second];
        devices[first] = both;
    }
    let (mut numbers, mut of, mut of_cluster) = (vec![u32::MAX; parts], Vec::with_capacity(parts), Vec::new());
    for part in 0..parts as u32 {
        let root = root(&mut roots, part) as usize;
        if numbers[root] == u32::MAX {
            numbers[root] = of_cluster.len() as u32;
            of_cluster.push(devices[root].clone());
        }
        of.push(numbers[root]);
    }
    Clusters { of, choices: Choices::new(of_cluster) }
}

fn root(roots: &mut [u32], mut part: u32) -> u32 {
    while roots[part as usize] != part {
        roots[part as usize] = roots[roots[part as usize] as usize];
        part = roots[part as usize];
    }
    part
}

impl Clusters {
    /// The devices of the parts, where each is with its cluster.
    pub fn spread(&self, of_clusters: &[Device]) -> Vec<Device> {
        self.of.iter().map(|cluster| of_clusters[*cluster as usize]).collect()
    }

    /// For each cluster the device that most of its parts are on; of several the first.
    pub fn gather(&self, of_parts: &[Device]) -> Vec<Device> {
        let width = of_parts.iter().map(|device| usize::from(*device) + 1).max().unwrap_or(0);
        let mut counts = vec![0u32; self.choices.len() * width];
        self.of.iter().zip(of_parts).for_each(|(cluster, device)| counts[*cluster as usize * width + usize::from(*device)] += 1);
        let most = |cluster: usize| {
            let count = |device: &Device| if usize::from(*device) < width { counts[cluster * width + usize::from(*device)] } else { 0 };
            let devices = self.choices.of(cluster);
            devices.iter().copied().max_by_key(|device| (count(device), std::cmp::Reverse(*device))).unwrap_or_default()
        };
        (0..self.choices.len()).map(most).collect()
    }
}

/// A model of clusters.
struct Joined<'a> {
    model: &'a mut dyn Model,
    clusters: &'a Clusters,
    beside: Vec<Vec<u32>>,
    devices: Vec<Device>,
}

impl Joined<'_> {
    /// Takes the devices of clusters as those of their parts.
    fn spread(&mut self, devices: &[Device]) {
        self.devices.iter_mut().zip(&self.clusters.of).for_each(|(device, cluster)| *device = devices[*cluster as usize]);
    }
}

impl Model for Joined<'_> {
    fn choices(&self) -> &Choices {
        &self.clusters.choices
    }

    fn beside(&self, cluster: usize) -> &[u32] {
        &self.beside[cluster]
    }

    fn rate(&mut self, devices: &[Device]) -> Rating {
        self.spread(devices);
        self.model.rate(&self.devices)
    }

    fn rate_within(&mut self, devices: &[Device], most: f64) -> Option<Rating> {
        self.spread(devices);
        self.model.rate_within(&self.devices, most)
    }

    fn keep(&mut self) {
        self.model.keep();
    }
}

/// As [`improve`], where parts of a cluster go together: they do from the beginning on, so the result may be worse than `start`.
pub fn improve_joined(model: &mut dyn Model, clusters: &Clusters, start: &[Device], effort: Effort) -> (Vec<Device>, Rating) {
    let mut beside = vec![Vec::new(); clusters.choices.len()];
    for (part, &cluster) in clusters.of.iter().enumerate() {
        beside[cluster as usize]
            .extend(model.beside(part).iter().map(|other| clusters.of[*other as usize]).filter(|other| *other != cluster));
    }
    for beside in &mut beside {
        beside.sort_unstable();
        beside.dedup();
    }
    let devices = vec![0; clusters.of.len()];
    let mut joined = Joined { model, clusters, beside, devices };
    let (best, rating) = improve(&mut joined, &clusters.gather(start), effort);
    (clusters.spread(&best), rating)
}
