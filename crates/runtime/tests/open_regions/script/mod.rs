//! The steps of `arena.txt`.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_memory::{Address, AddressSpace, Ledger, Region};
use plimsoll_runtime::open_regions::{Allocation, Arena, Exhausted, Options, Request, State, TimingCounter};

/// The text of a step.
pub enum Step {
    Quiet,
    Line(String),
    Text(String),
    Repeat(usize),
}

/// Addresses without memory, from a driver that has no more than a budget.
#[derive(Debug)]
struct Numbers {
    log: Arc<Mutex<Log>>,
}

#[derive(Debug, Default)]
struct Log {
    budget: u64,
    held: u64,
    granted: usize,
    asked: Vec<u64>,
}

#[derive(Debug)]
struct Piece {
    start: Address,
    bytes: u64,
    log: Arc<Mutex<Log>>,
}

impl AddressSpace for Numbers {
    fn granularity(&self) -> u64 {
        256
    }

    fn reserve(&self, bytes: Bytes) -> Result<Box<dyn Region>> {
        let mut log = self.log.lock().unwrap();
        log.asked.push(bytes.0);
        if log.held + bytes.0 > log.budget {
            return Err(Error::resource_exhausted("the driver has no more"));
        }
        log.held += bytes.0;
        log.granted += 1;
        let start = Address::from_number((log.granted as u64) << 40);
        Ok(Box::new(Piece { start, bytes: bytes.0, log: self.log.clone() }))
    }
}

impl Region for Piece {
    fn start(&self) -> Address {
        self.start
    }

    fn write(&self, _offset: u64, _bytes: &[u8]) -> Result<()> {
        Err(Error::internal("there is no memory"))
    }

    fn read(&self, _offset: u64, _bytes: &mut [u8]) -> Result<()> {
        Err(Error::internal("there is no memory"))
    }

    fn decommit(&mut self, _pages: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn commit(&mut self, _pages: Range<u64>) -> Result<()> {
        Ok(())
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.log.lock().unwrap().held -= self.bytes;
    }
}

/// An arena and its allocations, by name.
#[derive(Default)]
pub struct Machine {
    live: Vec<(String, Allocation)>,
    arena: Option<Arc<Arena>>,
    log: Arc<Mutex<Log>>,
    counter: Arc<TimingCounter>,
    failure: Option<Exhausted>,
}

impl Machine {
    pub fn step(&mut self, command: &str) -> Step {
        let words: Vec<&str> = command.split_whitespace().collect();
        let step = match words.as_slice() {
            ["arena", options @ ..] => {
                self.make(options);
                return Step::Quiet;
            }
            ["repeat", times] => return Step::Repeat(times.parse().unwrap()),
            [name, "=", rest @ ..] => self.allocate(name, rest),
            ["free", names @ ..] => {
                names.iter().for_each(|name| self.free(name));
                Step::Quiet
            }
            ["advance", frontier] => {
                self.arena().advance(frontier.parse().unwrap());
                Step::Quiet
            }
            ["clear"] => {
                self.arena().clear_stats();
                Step::Quiet
            }
            ["collect"] => Step::Line(self.arena().release_unused().0.to_string()),
            _ => self.look(command),
        };
        assert_eq!(self.arena().defect(), None, "after {command}");
        step
    }

    fn arena(&self) -> &Arc<Arena> {
        self.arena.as_ref().expect("a case begins with an arena")
    }

    fn make(&mut self, words: &[&str]) {
        let mut options = Options::new(Bytes::ZERO);
        let (mut line, mut budget, mut timing) = (1 << 60, 1 << 60, false);
        for word in words {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match name {
                "limit" => options.limit = value.parse().unwrap(),
                "growth" => options.growth = true,
                "fraction" => options.fragmentation_fraction = value.parse().unwrap(),
                "no-collection" => options.garbage_collection = false,
                "driver" => budget = value.parse::<Bytes>().unwrap().0,
                "line" => line = value.parse::<Bytes>().unwrap().0,
                "timing" => timing = true,
                _ => panic!("an arena has no {word}"),
            }
        }
        self.live.clear();
        self.log = Arc::new(Mutex::new(Log { budget, ..Log::default() }));
        self.counter = Arc::default();
        self.failure = None;
        let ledger = Ledger::new("/device:GPU:0", Some(Bytes(line)));
        let space = Box::new(Numbers { log: self.log.clone() });
        self.arena = Some(Arena::new("GPU_0_bfc", &ledger, space, options, timing.then(|| self.counter.clone())));
    }

    fn allocate(&mut self, name: &str, words: &[&str]) -> Step {
        let many = name.strip_suffix('*');
        let sizes: Vec<u64> = match words {
            [size, "times", count, ..] => vec![size.parse::<Bytes>().unwrap().0; count.parse().unwrap()],
            [size, ..] => match size.split_once("..") {
                Some((from, end)) => (from.parse().unwrap()..=end.parse().unwrap()).collect(),
                None => vec![size.parse::<Bytes>().unwrap().0],
            },
            [] => panic!("{name} has no size"),
        };
        let mut request = Request::new(Bytes::ZERO, name);
        let frontier = words.iter().find_map(|word| word.strip_prefix("frontier=")).map(|count| count.parse::<u64>().unwrap());
        let ask = || frontier.unwrap_or(0);
        request.frontier = frontier.is_some().then_some(&ask);
        if let Some(milliseconds) = words.iter().find_map(|word| word.strip_prefix("wait=")) {
            request.wait = Duration::from_millis(milliseconds.parse().unwrap());
        }
        let mut placed = Vec::new();
        for (index, &bytes) in sizes.iter().enumerate() {
            request.bytes = Bytes(bytes);
            match self.arena().allocate_with(request.clone()) {
                Ok(allocation) => {
                    placed.push((address(&allocation), allocation.allocated().0));
                    let name = many.map_or(name.to_string(), |name| format!("{name}{}", index + 1));
                    self.live.push((name, allocation));
                }
                Err(failure) => {
                    let waited = if failure.waited { ", after waiting" } else { "" };
                    self.failure = Some(failure);
                    if many.is_none() {
                        return Step::Line(format!("null{waited}"));
                    }
                }
            }
        }
        match (many, placed.as_slice()) {
            (None, [(address, bytes)]) => Step::Line(format!("{bytes} bytes at {address}")),
            _ => Step::Line(format!("{} of {}", placed.len(), sizes.len())),
        }
    }

    /// `a`, `a*` (all whose names begin so), or `a1..a127`. In the order in which they were allocated.
    fn free(&mut self, names: &str) {
        let number = |name: &str| name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse::<usize>().ok();
        let wanted: Box<dyn Fn(&str) -> bool> = if let Some(start) = names.strip_suffix('*') {
            Box::new(move |name| name.starts_with(start))
        } else if let Some((from, end)) = names.split_once("..") {
            let start = from.trim_end_matches(|c: char| c.is_ascii_digit());
            let range = number(from).unwrap()..=number(end).unwrap();
            Box::new(move |name| name.starts_with(start) && number(name).is_some_and(|number| range.contains(&number)))
        } else {
            Box::new(move |name| name == names)
        };
        let (ended, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.live).into_iter().partition(|(name, _)| wanted(name));
        assert!(!ended.is_empty(), "nothing is called {names}");
        self.live = rest;
        ended.into_iter().for_each(drop);
    }

    fn look(&self, command: &str) -> Step {
        let dump = self.arena().dump();
        let (stats, list) = (dump.stats, |sizes: Vec<String>| if sizes.is_empty() { "none".into() } else { sizes.join(", ") });
        Step::Line(match command {
            "stats" => format!(
                "num_allocs {}, bytes_in_use {}, peak {}, largest {}, limit {}",
                stats.num_allocs, stats.bytes_in_use.0, stats.peak_bytes_in_use.0, stats.largest_alloc_size.0, stats.bytes_limit.0
            ),
            "pool" => format!("{} bytes, at most {}", stats.pool_bytes.0, stats.peak_pool_bytes.0),
            "reserved" => self.arena().reserved().0.to_string(),
            "regions" => list(dump.regions.iter().map(|region| Bytes(region.bytes).to_string()).collect()),
            "next region" => dump.next_region.to_string(),
            "asked" => list(self.log.lock().unwrap().asked.iter().map(u64::to_string).collect()),
            "count" => self.counter.get().to_string(),
            "fragmentation" => format!("{:.4}", dump.fragmentation()),
            "picture" => dump.occupancy(),
            "histogram" => list(dump.histogram().iter().map(|(bytes, count)| format!("{count} of {}", bytes.0)).collect()),
            "bins" => {
                let bins = dump.bins();
                let used = bins.iter().enumerate().filter(|(_, bin)| bin.chunks > 0).map(|(number, bin)| {
                    format!(
                        "{number}: {} of {} chunks in use, {} of {} bytes",
                        bin.chunks_in_use, bin.chunks, bin.bytes_in_use.0, bin.bytes.0
                    )
                });
                return Step::Text(used.collect::<Vec<_>>().join("\n"));
            }
            "chunks" => {
                let mut text = String::new();
                for chunk in dump.chunks() {
                    write!(text, "{} {} bytes ", place(chunk.address), chunk.bytes).unwrap();
                    match &chunk.state {
                        State::Used { id, requested, owner } => writeln!(text, "number {id}: {owner} asked for {requested}"),
                        State::Free { freed_at: 0 } => writeln!(text, "free"),
                        State::Free { freed_at } => writeln!(text, "free from count {freed_at} on"),
                    }
                    .unwrap();
                }
                return Step::Text(text);
            }
            "chunk count" => format!("{}, {} of them free", dump.chunks().count(), dump.chunks().filter(|chunk| !chunk.in_use()).count()),
            "error" => return Step::Text(Error::from(self.failure.clone().expect("nothing failed")).to_string()),
            "dump" => return Step::Text(self.failure.as_ref().expect("nothing failed").dump.to_string()),
            _ => panic!("'{command}' is no step"),
        })
    }
}

fn address(allocation: &Allocation) -> String {
    match allocation.allocated() {
        Bytes::ZERO => "nowhere".into(),
        _ => place(allocation.address().number()),
    }
}

fn place(address: u64) -> String {
    format!("{}+{:#x}", (address >> 40) - 1, address & ((1 << 40) - 1))
}
