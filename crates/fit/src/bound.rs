//! A time that no schedule within a peak is below, where nothing but computing again lowers a peak.
//!
//! While a work p runs for the first time, the values that are held beside those of p have to fit. A value that is needed between
//! that run and the first run of a later work q, and not held, is made by a work that runs again in this window, and so are operands
//! of that work that are not held. Under a price for each byte held, what costs least is a minimum cut: each value is held or its
//! work runs again, and works that run again need their operands. The cut less the price of the bytes there are is a lower bound of
//! the time that works run again in the window (Lagrange); the best price is searched. Windows that follow each other add up.

use crate::graph::Graph;
use crate::state::State;

/// So many works are looked at, at most, where a window can begin.
const PLACES: usize = 10;

/// Prices that are tried for a window.
const PRICES: usize = 22;

/// In parts of time: what works run again at least. None if no schedule has so low a peak.
pub(crate) fn again(graph: &Graph, budget: i64, effort: u64) -> Option<i64> {
    let results: i64 = graph.values.iter().filter(|value| value.is_result && value.work != usize::MAX).map(|value| value.bytes).sum();
    let room = |work: usize| {
        let info = &graph.works[work];
        let bytes = |values: &[usize]| values.iter().map(|value| graph.values[*value].bytes).sum::<i64>();
        let over: i64 = info.in_place.iter().map(|(read, _)| graph.values[*read].bytes).sum();
        budget - graph.base - bytes(&info.reads) - bytes(&info.writes) - info.least_scratch() + over
    };
    if budget - graph.base < results || (0..graph.works.len()).any(|work| room(work) < 0) {
        return None;
    }
    let state = State::new(graph, budget);
    let over: Vec<usize> = state.profile.positions().enumerate().filter(|(_, (_, bytes))| *bytes > budget).map(|(work, _)| work).collect();
    let highest = state.profile.positions().enumerate().max_by_key(|(work, (_, bytes))| (*bytes, std::cmp::Reverse(*work)))?.0;
    let mut places: Vec<usize> = (0..PLACES.min(over.len())).map(|at| over[at * (over.len() - 1) / (PLACES - 1).max(1)]).collect();
    places.push(highest);
    places.sort_unstable();
    places.dedup();
    if over.is_empty() {
        return Some(0);
    }
    // The most from each place on; the last window ends with the last work.
    let mut steps = 0;
    let mut best = vec![0; places.len() + 1];
    for from in (0..places.len()).rev() {
        for to in (from + 1..=places.len()).rev() {
            let end = places.get(to).copied().unwrap_or(graph.works.len());
            let window = if steps < effort { window(graph, places[from], end, room(places[from]), &mut steps) } else { 0 };
            best[from] = best[from].max(window + best[to]);
        }
        best[from] = best[from].max(best[from + 1]);
    }
    Some(best[0])
}

/// What works run again at least, from one first run to another.
fn window(graph: &Graph, from: usize, to: usize, room: i64, steps: &mut u64) -> i64 {
    let net = Window::new(graph, from, to);
    let Some(most) = net.wanted.iter().map(|value| graph.works[graph.values[*value].work].cost).max() else { return 0 };
    // A price is 2^exponent parts of time for a byte; it is refined between two that are too low and too high.
    let (mut low, mut high) = (-40.0f64, (most.max(2) as f64).log2() + 1.0);
    let mut best = 0;
    for _ in 0..PRICES {
        let price = ((low + high) / 2.0).exp2();
        let (cut, held) = net.cut(graph, price, steps);
        let paid = (price * room as f64).ceil();
        if paid < (1i64 << 60) as f64 {
            best = best.max(cut.saturating_sub(paid as i64));
        }
        if held > room { low = (low + high) / 2.0 } else { high = (low + high) / 2.0 }
    }
    best
}

/// The values and works that matter to a window.
struct Window {
    /// Values that its works need, made before, and not used by the work that it begins with.
    wanted: Vec<usize>,
    /// Works that may run again for them, and for each value its work's number among these.
    works: Vec<usize>,
    /// Values that are held or made again, by their works' numbers.
    values: Vec<usize>,
    from: usize,
}

/// No time is so long.
const NEVER: i64 = i64::MAX / 8;

impl Window {
    fn new(graph: &Graph, from: usize, to: usize) -> Window {
        let first = &graph.works[from];
        let mut is_known = vec![false; graph.values.len()];
        for value in first.reads.iter().chain(&first.writes) {
            is_known[*value] = true;
        }
        let mut wanted = Vec::new();
        let want = |value: usize, is_known: &mut Vec<bool>| {
            let info = &graph.values[value];
            let is_new = info.bytes > 0 && info.work <= from && !std::mem::replace(&mut is_known[value], true);
            is_new.then_some(value)
        };
        // The window's last work is the one it ends with.
        for work in graph.works.iter().take(to + 1).skip(from + 1) {
            wanted.extend(work.reads.iter().filter_map(|value| want(*value, &mut is_known)));
        }
        if to == graph.works.len() {
            let results = (0..graph.values.len()).filter(|value| graph.values[*value].is_result && graph.values[*value].work != usize::MAX);
            wanted.extend(results.filter_map(|value| want(value, &mut is_known)));
        }
        let mut values = wanted.clone();
        let (mut works, mut is_seen, mut at) = (Vec::new(), vec![false; from + 1], 0);
        while at < values.len() {
            let work = graph.values[values[at]].work;
            at += 1;
            if !std::mem::replace(&mut is_seen[work], true) {
                works.push(work);
                values.extend(graph.works[work].reads.iter().filter_map(|value| want(*value, &mut is_known)));
            }
        }
        Window { wanted, works, values, from }
    }

    /// The least cost at a price, and the bytes that are held then.
    fn cut(&self, graph: &Graph, price: f64, steps: &mut u64) -> (i64, i64) {
        let count = 2 + self.values.len() + self.works.len();
        let mut number = vec![usize::MAX; graph.values.len()];
        self.values.iter().enumerate().for_each(|(at, value)| number[*value] = 2 + at);
        let mut of_work = vec![usize::MAX; self.from + 1];
        self.works.iter().enumerate().for_each(|(at, work)| of_work[*work] = 2 + self.values.len() + at);
        let mut net = Net::new(count);
        for &value in &self.wanted {
            net.edge(0, number[value], NEVER);
        }
        for &value in &self.values {
            let held = (price * graph.values[value].bytes as f64).min(NEVER as f64) as i64;
            net.edge(number[value], of_work[graph.values[value].work], held);
        }
        for &work in &self.works {
            let info = &graph.works[work];
            let may_run = info.again && info.until > self.from;
            net.edge(of_work[work], 1, if may_run { info.cost } else { NEVER });
            for &read in info.reads.iter().filter(|read| number[**read] != usize::MAX) {
                net.edge(of_work[work], number[read], NEVER);
            }
        }
        let flow = net.flow(steps);
        let reached = net.reached();
        let is_held = |value: &&usize| reached[number[**value]] && !reached[of_work[graph.values[**value].work]];
        (flow, self.values.iter().filter(is_held).map(|value| graph.values[*value].bytes).sum())
    }
}

/// A network with a source, 0, and a sink, 1. Flows by Dinic's algorithm (1970).
struct Net {
    /// Edges that leave each node; an edge and the one back are neighbours.
    leave: Vec<Vec<usize>>,
    edges: Vec<(usize, i64)>,
}

impl Net {
    fn new(nodes: usize) -> Net {
        Net { leave: vec![Vec::new(); nodes], edges: Vec::new() }
    }

    fn edge(&mut self, from: usize, to: usize, most: i64) {
        self.leave[from].push(self.edges.len());
        self.edges.push((to, most));
        self.leave[to].push(self.edges.len());
        self.edges.push((from, 0));
    }

    /// How far each node is from the source, along edges with room.
    fn levels(&self) -> Vec<usize> {
        let mut levels = vec![usize::MAX; self.leave.len()];
        let (mut queue, mut at) = (vec![0], 0);
        levels[0] = 0;
        while at < queue.len() {
            let node = queue[at];
            at += 1;
            for &edge in &self.leave[node] {
                let (to, room) = self.edges[edge];
                if room > 0 && levels[to] == usize::MAX {
                    levels[to] = levels[node] + 1;
                    queue.push(to);
                }
            }
        }
        levels
    }

    fn reached(&self) -> Vec<bool> {
        self.levels().into_iter().map(|level| level != usize::MAX).collect()
    }

    /// The most that flows from the source to the sink.
    fn flow(&mut self, steps: &mut u64) -> i64 {
        let mut flow = 0i64;
        loop {
            let levels = self.levels();
            *steps += self.edges.len() as u64;
            if levels[1] == usize::MAX || flow >= NEVER {
                return flow;
            }
            let mut next = vec![0; self.leave.len()];
            let mut path: Vec<usize> = Vec::new();
            loop {
                let node = path.last().map_or(0, |edge| self.edges[*edge].0);
                *steps += 1;
                if node == 1 {
                    let room = path.iter().map(|edge| self.edges[*edge].1).min().unwrap_or(0);
                    for edge in &path {
                        self.edges[*edge].1 -= room;
                        self.edges[edge ^ 1].1 += room;
                    }
                    flow = flow.saturating_add(room);
                    let full = path.iter().position(|edge| self.edges[*edge].1 == 0).unwrap_or(0);
                    path.truncate(full);
                    continue;
                }
                let edge = self.leave[node][next[node]..].iter().position(|edge| {
                    let (to, room) = self.edges[*edge];
                    room > 0 && levels[to] == levels[node] + 1
                });
                match edge {
                    Some(skipped) => {
                        next[node] += skipped;
                        path.push(self.leave[node][next[node]]);
                    }
                    None => {
                        next[node] = self.leave[node].len();
                        let Some(edge) = path.pop() else { break };
                        let from = self.edges[edge ^ 1].0;
                        next[from] += 1;
                    }
                }
            }
        }
    }
}
