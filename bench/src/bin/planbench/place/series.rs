//! Assignments of graphs that are blocks in series, as networks of layers are: best pieces by dynamic programming over the nodes between
//! the blocks, as if each piece had an accelerator to itself. Then pieces share accelerators where that costs nothing.

use super::blocks::{Block, Purpose, Table};
use super::instance::{Instance, Node};

/// Nodes of one accelerator that run as one.
pub type Piece = Vec<usize>;

/// A piece that a separator is in, or the host, when the separator's work is done.
#[derive(Clone, Copy)]
struct State {
    /// Bytes of the piece so far; 0 of the host.
    bytes: f64,
    /// When the piece would end if it gave nothing back; when the host has the separator's output.
    seconds: f64,
    from: From,
}

/// How the separator before leads to a state.
#[derive(Clone, Copy)]
enum From {
    /// The first separator.
    Nothing,
    /// The piece of this state has the whole block.
    Whole { state: usize },
    /// By the entry of a table, from a state.
    Entry { state: usize, table: usize, entry: usize },
}

/// The best pieces if each had an accelerator to itself; the host has the rest. None of a graph with blocks that are too large, or with
/// nodes that have to be together.
pub fn series(instance: &Instance) -> Option<Vec<Piece>> {
    let (nodes, depths) = with_ends(instance)?;
    let blocks = blocks(&nodes, &depths, instance.limit, Purpose::Pieces)?;
    let (states, tables) = forward(&blocks, instance.limit);
    // Back from the end, where the host is.
    let (mut pieces, mut at, mut open) = (Vec::new(), 0, Vec::new());
    for (index, block) in blocks.iter().enumerate().rev() {
        let state = states[index + 1][at];
        if at > 0 {
            open.push(block.end().0);
        }
        match state.from {
            From::Nothing => return None,
            From::Whole { state } => {
                open.extend(block.inner());
                at = state;
            }
            From::Entry { state, table, entry } => {
                let parts = block.parts(&tables[index][table], entry);
                open.extend(parts.after);
                pieces.push(std::mem::replace(&mut open, parts.before));
                pieces.extend(parts.between);
                at = state;
            }
        }
    }
    pieces.retain(|piece: &Piece| !piece.is_empty());
    Some(pieces)
}

/// A latency that no split is below. None as of [`series()`], and of a graph with more than one beginning or end.
///
/// Each piece has an accelerator to itself in the bound. Of a piece that does not hang together, its parts take no longer on accelerators of
/// their own. So a piece with a separator in it has a set of the nodes behind it, with all that these read; one without a separator is
/// in one block.
pub fn bound(instance: &Instance) -> Option<f64> {
    let ends = |is_end: fn(&Node) -> bool| instance.nodes.iter().filter(|node| is_end(node)).count();
    if ends(|node| node.reads.is_empty()) != 1 || ends(|node| node.readers.is_empty()) != 1 {
        return None;
    }
    let (nodes, depths) = with_ends(instance)?;
    let blocks = blocks(&nodes, &depths, instance.limit, Purpose::Bound)?;
    forward(&blocks, instance.limit).0.last().map(|states| states[0].seconds)
}

/// For each separator its states, the host first; for each block its tables.
fn forward(blocks: &[Block<'_>], limit: f64) -> (Vec<Vec<State>>, Vec<[Table; 4]>) {
    let mut states = vec![vec![State { bytes: 0.0, seconds: 0.0, from: From::Nothing }]];
    let mut tables = Vec::with_capacity(blocks.len());
    for (index, block) in blocks.iter().enumerate() {
        let of_block = [(false, false), (false, true), (true, false), (true, true)].map(|(from, to)| block.table(from, to));
        states.push(next(block, &of_block, &states[index], limit));
        tables.push(of_block);
    }
    (states, tables)
}

/// The nodes with one before all of them and one behind all of them, which the host has; and for each node how many come before it at
/// most, counted so that a node comes right before the first of its readers. None where nodes have to be together.
fn with_ends(instance: &Instance) -> Option<(Vec<Node>, Vec<usize>)> {
    if instance.parts != instance.nodes.len() {
        return None;
    }
    let mut nodes = instance.nodes.clone();
    let count = nodes.len();
    let mut early = vec![1usize; count];
    for index in 0..count {
        early[index] = nodes[index].reads.iter().map(|read| early[*read] + 1).max().unwrap_or(1);
    }
    let most = early.iter().copied().max().unwrap_or(1);
    let mut depths = early;
    for index in (0..count).rev() {
        // What nothing reads comes as early as it can.
        let before = nodes[index].readers.iter().map(|reader| depths[*reader] - 1).min();
        depths[index] = before.unwrap_or(depths[index]);
    }
    let (first, last) = (count, count + 1);
    let end =
        Node { id: 0, seconds: [0.0; 2], bytes: 0.0, moving: 0.0, can_accelerate: false, part: 0, readers: Vec::new(), reads: Vec::new() };
    nodes.extend([end.clone(), end]);
    for (index, depth) in depths.iter().enumerate() {
        if *depth == 1 {
            nodes[index].reads.push(first);
            nodes[first].readers.push(index);
        }
        if *depth == most {
            nodes[index].readers.push(last);
            nodes[last].reads.push(index);
        }
    }
    depths.extend([0, most + 1]);
    Some((nodes, depths))
}

/// The blocks between separators: nodes that no edge passes by.
fn blocks<'a>(nodes: &'a [Node], depths: &[usize], limit: f64, purpose: Purpose) -> Option<Vec<Block<'a>>> {
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_by_key(|node| (depths[*node], *node));
    let mut at = vec![0; nodes.len()];
    order.iter().enumerate().for_each(|(position, node)| at[*node] = position);
    let (mut reaches, mut begin) = (0, 0);
    let mut blocks = Vec::new();
    for (position, &node) in order.iter().enumerate() {
        if position > 0 && reaches <= position {
            blocks.push(Block::new(nodes, limit, purpose, order[begin], &order[begin + 1..position], node)?);
            begin = position;
        }
        reaches = nodes[node].readers.iter().map(|reader| at[*reader]).fold(reaches, usize::max);
    }
    Some(blocks)
}

/// The states behind a block, the host's first; of pieces those that are not both larger and later than another.
fn next(block: &Block<'_>, tables: &[Table; 4], before: &[State], limit: f64) -> Vec<State> {
    let (_, end) = block.end();
    let mut host = State { bytes: 0.0, seconds: f64::INFINITY, from: From::Nothing };
    let mut pieces: Vec<State> = Vec::new();
    for (index, state) in before.iter().enumerate() {
        let of_piece = if index > 0 { [2, 3] } else { [0, 1] };
        for (device, table) in of_piece.into_iter().enumerate() {
            for (entry, of) in tables[table].entries().iter().enumerate().filter(|(_, of)| state.bytes + of.before <= limit) {
                let seconds = state.seconds + of.seconds(block.begin()) + end.seconds[device];
                let next = State { bytes: of.after + end.bytes, seconds, from: From::Entry { state: index, table, entry } };
                if device == 0 && seconds < host.seconds {
                    host = next;
                } else if device == 1 && end.can_accelerate && next.bytes <= limit {
                    pieces.push(next);
                }
            }
        }
        let nodes = || block.inner().map(|node| block.node(node)).chain([end]);
        let bytes = state.bytes + nodes().map(|node| node.bytes).sum::<f64>();
        if index > 0 && bytes <= limit && nodes().all(|node| node.can_accelerate) {
            let seconds = state.seconds + nodes().map(|node| node.seconds[1]).sum::<f64>();
            pieces.push(State { bytes, seconds, from: From::Whole { state: index } });
        }
    }
    pieces.sort_by(|one, other| one.bytes.total_cmp(&other.bytes).then(one.seconds.total_cmp(&other.seconds)));
    let mut least = f64::INFINITY;
    pieces.retain(|piece| {
        let is_earlier = piece.seconds < least;
        least = least.min(piece.seconds);
        is_earlier
    });
    pieces.insert(0, host);
    pieces
}

/// Puts pieces on accelerators, those with the most bytes first. Of pieces of one accelerator each comes before or behind the other, with
/// nodes of other devices between them: so they stay apart. What finds no place goes to the host.
pub fn shared(instance: &Instance, pieces: &[Piece]) -> Vec<u16> {
    let count = instance.nodes.len();
    let mut piece_of = vec![None; count];
    pieces.iter().enumerate().for_each(|(index, piece)| piece.iter().for_each(|node| piece_of[*node] = Some(index)));
    // For each node the pieces that are before it.
    let mut before: Vec<Vec<bool>> = vec![Vec::new(); count];
    let mut follows = vec![vec![false; pieces.len()]; pieces.len()];
    let mut touches = follows.clone();
    for index in 0..count {
        let mut own = vec![false; pieces.len()];
        for &read in &instance.nodes[index].reads {
            own.iter_mut().zip(&before[read]).for_each(|(own, other)| *own |= *other);
            if let Some(other) = piece_of[read] {
                own[other] = true;
                piece_of[index].into_iter().for_each(|piece| touches[piece][other] = true);
            }
        }
        if let Some(piece) = piece_of[index] {
            follows[piece].iter_mut().zip(&own).for_each(|(follows, own)| *follows |= *own);
        }
        before[index] = own;
    }
    let bytes: Vec<f64> = pieces.iter().map(|piece| piece.iter().map(|node| instance.nodes[*node].bytes).sum()).collect();
    let mut order: Vec<usize> = (0..pieces.len()).collect();
    order.sort_by(|one, other| bytes[*other].total_cmp(&bytes[*one]).then(one.cmp(other)));
    let mut held = vec![(0.0, Vec::new()); instance.accelerators];
    let mut devices = vec![0; count];
    for piece in order {
        let one_way = |one: usize, other: usize| follows[one][other] && !touches[one][other];
        let is_apart = |other: &usize| one_way(piece, *other) || one_way(*other, piece);
        let room = held.iter().position(|(held, others)| held + bytes[piece] <= instance.limit && others.iter().all(is_apart));
        if let Some(accelerator) = room {
            held[accelerator].0 += bytes[piece];
            held[accelerator].1.push(piece);
            pieces[piece].iter().for_each(|node| devices[*node] = accelerator as u16 + 1);
        }
    }
    devices
}

#[cfg(test)]
pub mod tests {
    use plimsoll_base::Random;
    use plimsoll_placer::{Device, Model};
    use serde_json::json;

    use super::super::latency::Latency;
    use super::*;

    /// Blocks of one or two chains, some of them with an edge from separator to separator.
    fn instance(seed: u64) -> Instance {
        let mut random = Random::new(seed);
        let node = |id: usize, random: &mut Random| {
            let host = random.below(40) as f64;
            json!({ "id": id, "cpuLatency": host, "fpgaLatency": host / 10.0, "size": random.below(60), "supportedOnFpga": random.below(8) > 0 })
        };
        let (mut nodes, mut edges) = (vec![node(0, &mut random)], Vec::new());
        let mut begin = 0;
        while nodes.len() < 6 {
            let mut ends = Vec::new();
            for _ in 0..1 + random.below(2) {
                let mut last = begin;
                for _ in 0..random.below(3) {
                    nodes.push(node(nodes.len(), &mut random));
                    edges.push((last, nodes.len() - 1));
                    last = nodes.len() - 1;
                }
                ends.push(last);
            }
            nodes.push(node(nodes.len(), &mut random));
            edges.extend(ends.into_iter().map(|end| (end, nodes.len() - 1)));
            begin = nodes.len() - 1;
        }
        let costs: Vec<usize> = nodes.iter().map(|_| random.below(12)).collect();
        let edges: Vec<_> = edges.iter().map(|(from, to)| json!({ "sourceId": from, "destId": to, "cost": costs[*from] })).collect();
        let whole = json!({ "maxSizePerFPGA": 100, "maxFPGAs": 6, "maxCPUs": 1, "nodes": nodes, "edges": edges });
        Instance::parse(&whole.to_string()).unwrap()
    }

    /// The least latency of all assignments to the host and three accelerators.
    pub fn least(instance: &Instance) -> f64 {
        let mut model = Latency::new(instance);
        let devices = 4usize;
        let all = (0..devices.pow(instance.parts as u32)).map(|number| {
            let digit = |part: usize| (number / devices.pow(part as u32) % devices) as Device;
            let split: Vec<Device> = (0..instance.parts).map(digit).collect();
            let can_be = split.iter().enumerate().all(|(part, device)| instance.choices.allows(part, *device));
            let rating = model.rate(&split);
            if can_be && rating.over == 0.0 { rating.seconds } else { f64::INFINITY }
        });
        all.fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn no_split_is_below_the_bound_and_pieces_reach_it() {
        let mut reached = 0;
        for seed in 0..30 {
            let instance = instance(seed);
            let (least, bound) = (least(&instance), bound(&instance).unwrap());
            let rating = Latency::new(&instance).rate(&shared(&instance, &series(&instance).unwrap()));
            assert!(bound <= least + 1e-9, "{seed}: {bound} {least}");
            assert!(rating.over == 0.0 && rating.seconds >= bound - 1e-9, "{seed}: {rating:?} {bound}");
            reached += u32::from(rating.seconds <= bound + 1e-9);
        }
        assert!(reached >= 28, "{reached} of 30 reach the bound");
    }
}
