//! An arena that scans lists, written from the description of TensorFlow's allocator alone. A run of random steps holds the policy
//! against it. The fuzz target `arena` uses the same run.

use plimsoll_base::Bytes;
use plimsoll_runtime::open_regions::{Ask, BINS, Options, Policy, Refused, Source, State};

const MIB: u64 = 1 << 20;

/// A driver with a budget. Regions lie where there is room, so that they touch and addresses come again.
#[derive(Clone, Debug, Default, PartialEq)]
struct Driver {
    budget: u64,
    tells_what_is_left: bool,
    keeps_some: bool,
    held: Vec<(u64, u64)>,
    asked: Vec<u64>,
}

impl Source for Driver {
    fn reserve(&mut self, bytes: u64, _least: u64) -> Result<u64, Refused> {
        self.asked.push(bytes);
        let left = self.budget - self.held.iter().map(|(_, bytes)| bytes).sum::<u64>();
        if bytes > left {
            return Err(Refused { left: self.tells_what_is_left.then_some(left) });
        }
        let mut start = MIB;
        for &(other, length) in &self.held {
            if start + bytes <= other {
                break;
            }
            start = other + length;
        }
        self.held.push((start, bytes));
        self.held.sort_unstable();
        Ok(start)
    }

    fn release(&mut self, start: u64) {
        let before = self.held.len();
        self.held.retain(|&(other, _)| other != start);
        assert_eq!(self.held.len() + 1, before, "{start} was released and not held");
    }

    fn claim(&mut self, address: u64, bytes: u64) -> bool {
        !self.keeps_some || !((address + bytes) / 256).is_multiple_of(5)
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Piece {
    region: u64,
    address: u64,
    bytes: u64,
    /// 0 where it is free.
    requested: u64,
    age: u64,
}

impl Piece {
    fn free(&self) -> bool {
        self.requested == 0
    }
}

/// The arena that scans. `pieces` are in order of address.
struct Naive {
    options: Options,
    grain: u64,
    current: u64,
    pieces: Vec<Piece>,
    waiting: Vec<(u64, u64)>,
    frontier: u64,
    allocs: u64,
    peak: u64,
    largest: u64,
    peak_pool: u64,
}

impl Naive {
    fn new(options: Options, grain: u64) -> Naive {
        let current = if options.growth { options.limit.0.min(2 * MIB) } else { options.limit.0 };
        let current = current.div_ceil(256) * 256;
        let (pieces, waiting) = (Vec::new(), Vec::new());
        Naive { options, grain, current, pieces, waiting, frontier: 0, allocs: 0, peak: 0, largest: 0, peak_pool: 0 }
    }

    fn pool(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes).sum()
    }

    fn in_use(&self) -> u64 {
        self.pieces.iter().filter(|piece| !piece.free()).map(|piece| piece.bytes).sum()
    }

    fn find(&self, needed: u64, frontier: u64, source: &mut Driver) -> Option<usize> {
        let bin = |bytes: u64| (0..BINS).rev().find(|b| bytes >= 256 << b).unwrap_or(0);
        for number in bin(needed)..BINS {
            let mut inside: Vec<usize> =
                (0..self.pieces.len()).filter(|&i| self.pieces[i].free() && bin(self.pieces[i].bytes) == number).collect();
            inside.sort_by_key(|&i| (self.pieces[i].bytes, self.pieces[i].address));
            for i in inside {
                let piece = &self.pieces[i];
                let old = frontier == 0 || piece.age <= frontier;
                if old && piece.bytes >= needed && source.claim(piece.address, self.part(piece.bytes, needed)) {
                    return Some(i);
                }
            }
        }
        None
    }

    fn part(&self, bytes: u64, needed: u64) -> u64 {
        let fraction = self.options.fragmentation_fraction;
        let too_much = if fraction > 0.0 { (fraction * self.options.limit.0 as f64) as u64 } else { 128 * MIB };
        if bytes >= 2 * needed || bytes - needed >= too_much { needed } else { bytes }
    }

    fn hand_out(&mut self, i: usize, asked: u64, needed: u64) -> (u64, u64) {
        let whole = self.pieces[i].clone();
        let bytes = self.part(whole.bytes, needed);
        if bytes < whole.bytes {
            let rest = Piece { address: whole.address + bytes, bytes: whole.bytes - bytes, ..whole.clone() };
            if rest.age > 0 {
                self.waiting.push((rest.address, rest.age));
            }
            self.pieces.insert(i + 1, rest);
        }
        self.pieces[i] = Piece { bytes, requested: asked, age: 0, ..whole };
        self.allocs += 1;
        self.peak = self.peak.max(self.in_use());
        self.largest = self.largest.max(bytes);
        (whole.address, bytes)
    }

    fn extend(&mut self, needed: u64, source: &mut Driver) -> bool {
        let available = (self.options.limit.0 - self.pool()) / self.grain * self.grain;
        if needed > available {
            return false;
        }
        let before = self.current;
        while needed > self.current {
            self.current = self.current.saturating_mul(2);
        }
        let mut size = self.current.div_ceil(self.grain).saturating_mul(self.grain).min(available);
        let start = loop {
            match source.reserve(size, needed) {
                Ok(start) => break start,
                Err(Refused { left }) => {
                    let next = match left {
                        Some(left) => left / self.grain * self.grain,
                        None => (size * 9 / 10).div_ceil(self.grain) * self.grain,
                    };
                    size = next.min(size - self.grain);
                    if size < needed {
                        return false;
                    }
                }
            }
        };
        if self.current == before {
            self.current = self.current.saturating_mul(2);
        }
        self.pieces.push(Piece { region: start, address: start, bytes: size, requested: 0, age: 0 });
        self.pieces.sort_by_key(|piece| piece.address);
        self.peak_pool = self.peak_pool.max(self.pool());
        true
    }

    /// Merges the piece at `i` with the next, then with the one before.
    fn merge(&mut self, mut i: usize, any_age: bool) -> usize {
        let ready = |a: &Piece, b: &Piece| b.free() && a.region == b.region && (any_age || b.age == 0);
        if i + 1 < self.pieces.len() && ready(&self.pieces[i], &self.pieces[i + 1]) {
            let next = self.pieces.remove(i + 1);
            self.pieces[i].bytes += next.bytes;
            self.pieces[i].age = self.pieces[i].age.max(next.age);
        }
        if i > 0 && ready(&self.pieces[i], &self.pieces[i - 1]) {
            let this = self.pieces.remove(i);
            i -= 1;
            self.pieces[i].bytes += this.bytes;
            self.pieces[i].age = self.pieces[i].age.max(this.age);
        }
        i
    }

    fn waits_at(&self, entry: (u64, u64)) -> Option<usize> {
        self.pieces.iter().position(|piece| piece.free() && (piece.address, piece.age) == entry)
    }

    fn fold(&mut self) {
        let waiting = std::mem::take(&mut self.waiting);
        let (safe, rest): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|entry| entry.1 < self.frontier);
        self.waiting = rest.into_iter().filter(|&entry| self.waits_at(entry).is_some()).collect();
        let safe: Vec<u64> = safe.into_iter().filter_map(|entry| self.waits_at(entry)).map(|i| self.pieces[i].address).collect();
        for address in &safe {
            self.pieces.iter_mut().filter(|piece| piece.address == *address).for_each(|piece| piece.age = 0);
        }
        for address in safe {
            // TensorFlow merges once; here until nothing is left to merge with.
            if let Some(mut i) = self.pieces.iter().position(|piece| piece.address == address) {
                for _ in 0..self.pieces.len() {
                    i = self.merge(i, false);
                }
            }
        }
    }

    fn force(&mut self, needed: u64) -> bool {
        let mut enough = false;
        for entry in std::mem::take(&mut self.waiting) {
            let Some(mut i) = self.waits_at(entry) else { continue };
            if !enough {
                i = self.merge(i, true);
                enough = self.pieces[i].bytes >= needed;
            }
            let entry = (self.pieces[i].address, self.pieces[i].age);
            if !self.waiting.contains(&entry) {
                self.waiting.push(entry);
            }
        }
        enough
    }

    fn unused(&self) -> Vec<u64> {
        let mut regions: Vec<u64> = self.pieces.iter().map(|piece| piece.region).collect();
        regions.dedup();
        regions.retain(|&region| self.pieces.iter().all(|piece| piece.region != region || piece.free()));
        regions
    }

    fn collect(&mut self, source: &mut Driver) {
        for region in self.unused() {
            self.pieces.retain(|piece| piece.region != region);
            source.release(region);
        }
    }

    fn allocate(&mut self, asked: u64, frontier: u64, source: &mut Driver) -> Option<(u64, u64)> {
        if asked == 0 || asked > u64::MAX - 255 {
            return None;
        }
        let needed = asked.div_ceil(256) * 256;
        self.fold();
        if let Some(i) = self.find(needed, frontier, source) {
            return Some(self.hand_out(i, asked, needed));
        }
        if self.extend(needed, source)
            && let Some(i) = self.find(needed, frontier, source)
        {
            return Some(self.hand_out(i, asked, needed));
        }
        if frontier == 0
            && self.force(needed)
            && let Some(i) = self.find(needed, frontier, source)
        {
            return Some(self.hand_out(i, asked, needed));
        }
        let unused = self.unused();
        let freed: u64 = self.pieces.iter().filter(|piece| unused.contains(&piece.region)).map(|piece| piece.bytes).sum();
        if self.options.garbage_collection && freed > 0 && self.options.limit.0 - self.pool() + freed >= needed {
            self.collect(source);
            if self.extend(needed, source) {
                return self.find(needed, frontier, source).map(|i| self.hand_out(i, asked, needed));
            }
        }
        None
    }

    fn free(&mut self, address: u64, age: u64) {
        let i = self.pieces.iter().position(|piece| piece.address == address && !piece.free()).unwrap();
        self.pieces[i].requested = 0;
        self.pieces[i].age = age;
        if age == 0 {
            self.merge(i, false);
        } else {
            self.waiting.push((address, age));
        }
    }
}

/// The contents of the policy and of the scan, in the same form.
fn pieces(policy: &Policy) -> Vec<Piece> {
    let dump = policy.dump("");
    let piece = |chunk: &plimsoll_runtime::open_regions::Chunk| {
        let (requested, age) = match chunk.state {
            State::Free { freed_at } => (0, freed_at),
            State::Used { requested, .. } => (requested, 0),
        };
        Piece { region: chunk.region, address: chunk.address, bytes: chunk.bytes, requested, age }
    };
    dump.chunks().map(piece).collect()
}

/// Reads options and steps out of `bytes`, takes them in both arenas, and compares everything after each.
pub fn drive(bytes: &[u8]) {
    let [flags, limit, budget, grain, steps @ ..] = bytes else { return };
    let on = |bit: u8| flags >> bit & 1 == 1;
    let limit = (u64::from(*limit) + 1) * (MIB / 4) + u64::from(*budget);
    let options =
        Options { limit: Bytes(limit), growth: on(0), garbage_collection: !on(1), fragmentation_fraction: if on(2) { 0.02 } else { 0.0 } };
    let grain = if grain % 4 == 0 { 4096 } else { 256 };
    let timing = on(3);
    // A budget of 0 to 2 limits.
    let budget = limit / 128 * u64::from(*budget);
    let driver = Driver { budget, tells_what_is_left: on(4), keeps_some: on(5), ..Driver::default() };
    let (mut policy, mut naive) = (Policy::new(options.clone(), grain), Naive::new(options, grain));
    let (mut for_policy, mut for_naive) = (driver.clone(), driver);
    let mut live: Vec<u64> = Vec::new();
    let mut count = 0;
    for step in steps.chunks_exact(3) {
        let (first, second) = (u64::from(step[1]), u64::from(step[2]));
        match step[0] % 16 {
            0..=7 => {
                let asked = match first {
                    0 => second,
                    255 => u64::MAX - second,
                    _ => (first * 40 + second) << (step[0] / 16),
                };
                let frontier = if timing && step[0] % 16 > 4 { second * count / 200 } else { 0 };
                let ask = Ask { bytes: asked, frontier, owner: "".into() };
                let placed = policy.allocate(&ask, &mut for_policy);
                let expected = naive.allocate(asked, frontier, &mut for_naive);
                assert_eq!(placed.map(|placed| (placed.address, placed.bytes)), expected, "{asked} bytes at frontier {frontier}");
                live.extend(placed.map(|placed| placed.address));
            }
            8..=12 if !live.is_empty() => {
                let address = live.swap_remove(first as usize % live.len());
                count += u64::from(timing);
                assert!(policy.free(address, count).is_some() && policy.free(address, count).is_none());
                naive.free(address, count);
            }
            13 => {
                let frontier = count * first / 200;
                assert_eq!(policy.advance(frontier), frontier > naive.frontier);
                naive.frontier = naive.frontier.max(frontier);
            }
            14 => {
                let before = naive.pool();
                naive.fold();
                naive.collect(&mut for_naive);
                if before > 0 && naive.pool() == 0 {
                    naive.current = Naive::new(naive.options.clone(), grain).current;
                }
                assert_eq!(policy.release_unused(&mut for_policy), Bytes(before - naive.pool()));
            }
            15 if first < 40 => {
                policy.clear_stats();
                (naive.allocs, naive.peak, naive.largest) = (0, naive.in_use(), 0);
            }
            _ => {}
        }
        assert_eq!(policy.defect(), None);
        assert_eq!(pieces(&policy), naive.pieces);
        assert_eq!(for_policy, for_naive);
        let stats = policy.stats();
        assert_eq!((stats.num_allocs, stats.bytes_in_use.0, stats.peak_bytes_in_use.0), (naive.allocs, naive.in_use(), naive.peak));
        assert_eq!(stats.largest_alloc_size.0, naive.largest);
        assert_eq!((stats.pool_bytes.0, stats.peak_pool_bytes.0, stats.bytes_limit.0), (naive.pool(), naive.peak_pool, limit));
        assert_eq!(for_policy.held.iter().map(|(_, bytes)| bytes).sum::<u64>(), naive.pool());
    }
}
