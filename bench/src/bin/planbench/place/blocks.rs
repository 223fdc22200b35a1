//! A block: the nodes between two separators, and the ways to divide them among the piece that the first separator is in, the piece that
//! the second is in, and what is between.

use std::collections::HashMap;

use super::instance::Node;
use super::series::Piece;

/// Sets of nodes of a component at most; where there are more, those that an order has first are taken.
const SETS: usize = 100;

/// Nodes of a component at most.
const NODES: usize = 100;

/// Of more entries one is kept for each so many parts of the limit.
const ENTRIES: usize = 1000;
const GRAINS: f64 = 64.0;

/// What entries are for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Pieces: every entry is one that can be, and some are left out where there are many.
    Pieces,
    /// A bound: no division of a block takes less than all of the entries.
    Bound,
}

/// Nodes between two separators.
pub struct Block<'a> {
    nodes: &'a [Node],
    limit: f64,
    purpose: Purpose,
    begin: usize,
    end: usize,
    /// What hangs together without the separators. An edge from one separator to the other is a component without nodes.
    components: Vec<Component>,
}

struct Component {
    nodes: Vec<usize>,
    choices: Vec<Choice>,
}

/// For each node of a component, whether it is in a set.
type Set = Vec<bool>;

/// How a component is divided.
struct Choice {
    before: Set,
    after: Set,
    /// Bytes that go to the piece before and to the piece behind.
    bytes: [f64; 2],
    /// Of both pieces together.
    seconds: f64,
    /// What the piece before gives back of the component, and what the piece behind takes of it.
    given: f64,
    taken: f64,
    /// Of what is between.
    middle: f64,
    /// Whether what is not in the piece before reads the first separator, and whether what is in the piece behind does.
    gives: bool,
    takes: bool,
}

/// Choices of components together.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Bytes that go to the piece before and to the piece behind.
    pub before: f64,
    pub after: f64,
    /// Seconds of the two pieces, and of what is between.
    cost: f64,
    middle: f64,
    gives: bool,
    takes: bool,
    /// The entry without the last component, and that component's choice.
    from: usize,
    choice: usize,
}

/// For each number of components, beginning with none, the entries of which no other is better in every way.
pub struct Table(Vec<Vec<Entry>>);

/// A block divided.
pub struct Parts {
    pub before: Piece,
    pub after: Piece,
    pub between: Vec<Piece>,
}

impl Table {
    /// Entries of all components.
    pub fn entries(&self) -> &[Entry] {
        self.0.last().map_or(&[], Vec::as_slice)
    }
}

impl Entry {
    /// What the block takes, from the end of the first separator's work to the beginning of the second's.
    pub fn seconds(&self, begin: &Node) -> f64 {
        self.cost + self.middle + f64::from(u8::from(self.gives) + u8::from(self.takes)) * begin.moving
    }
}

impl<'a> Block<'a> {
    /// The nodes between two others. None where too many hang together.
    pub fn new(nodes: &'a [Node], limit: f64, purpose: Purpose, begin: usize, between: &[usize], end: usize) -> Option<Block<'a>> {
        let mut block = Block { nodes, limit, purpose, begin, end, components: Vec::new() };
        let mut left = between.to_vec();
        while let Some(first) = left.pop() {
            let mut found = vec![first];
            let mut next = 0;
            while let Some(&node) = found.get(next) {
                next += 1;
                for other in nodes[node].reads.iter().chain(&nodes[node].readers) {
                    if let Some(at) = left.iter().position(|left| left == other) {
                        found.push(left.swap_remove(at));
                    }
                }
            }
            if found.len() > NODES {
                return None;
            }
            found.sort_unstable();
            block.components.push(block.component(found)?);
        }
        if nodes[begin].readers.contains(&end) {
            block.components.push(block.component(Vec::new())?);
        }
        block.components.sort_by_key(|component| component.choices.len());
        Some(block)
    }

    pub fn begin(&self) -> &Node {
        &self.nodes[self.begin]
    }

    pub fn end(&self) -> (usize, &Node) {
        (self.end, &self.nodes[self.end])
    }

    pub fn node(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// The nodes between the separators.
    pub fn inner(&self) -> impl Iterator<Item = usize> {
        self.components.iter().flat_map(|component| component.nodes.iter().copied())
    }

    fn component(&self, nodes: Vec<usize>) -> Option<Component> {
        let reads = |node: &usize| self.nodes[*node].reads.as_slice();
        let readers = |node: &usize| self.nodes[*node].readers.as_slice();
        let befores = self.sets(&nodes, |position| (position, reads(&nodes[position])));
        let afters = self.sets(&nodes, |position| {
            let position = nodes.len() - 1 - position;
            (position, readers(&nodes[position]))
        });
        let mut choices = Vec::new();
        let (befores, afters) = (befores?, afters?);
        for before in &befores {
            for after in afters.iter().filter(|after| before.iter().zip(*after).all(|(before, after)| !(before & after))) {
                choices.push(self.choice(&nodes, before, after));
            }
        }
        Some(Component { nodes, choices })
    }

    /// Sets of nodes that have all that their nodes need. `nth` are the positions of nodes, and what each needs, in an order in which
    /// needed ones come first. None where a bound would need too many.
    fn sets<'b>(&self, nodes: &[usize], nth: impl Fn(usize) -> (usize, &'b [usize])) -> Option<Vec<Set>> {
        let count = nodes.len();
        let position: HashMap<usize, usize> = nodes.iter().enumerate().map(|(position, node)| (*node, position)).collect();
        let bytes = |set: &Set| set.iter().zip(nodes).filter(|(is_in, _)| **is_in).map(|(_, node)| self.nodes[*node].bytes).sum::<f64>();
        let may_join = |set: &Set, at: usize, needs: &[usize]| {
            self.nodes[nodes[at]].can_accelerate
                && needs.iter().filter_map(|need| position.get(need)).all(|need| set[*need])
                && bytes(set) + self.nodes[nodes[at]].bytes <= self.limit
        };
        let mut sets = vec![vec![false; count]];
        for number in 0..count {
            let (at, needs) = nth(number);
            for index in 0..sets.len() {
                if may_join(&sets[index], at, needs) {
                    let mut with = sets[index].clone();
                    with[at] = true;
                    sets.push(with);
                }
            }
            if sets.len() > SETS {
                break;
            }
        }
        if sets.len() > SETS {
            if self.purpose == Purpose::Bound {
                return None;
            }
            sets.truncate(1);
            for number in 0..count {
                let (at, needs) = nth(number);
                let mut with = sets[sets.len() - 1].clone();
                if !may_join(&with, at, needs) {
                    break;
                }
                with[at] = true;
                sets.push(with);
            }
        }
        Some(sets)
    }

    fn choice(&self, nodes: &[usize], before: &Set, after: &Set) -> Choice {
        let mut choice = Choice {
            before: before.clone(),
            after: after.clone(),
            bytes: [0.0; 2],
            seconds: 0.0,
            given: 0.0,
            taken: 0.0,
            middle: match self.purpose {
                Purpose::Pieces => self.middle(nodes, before, after).0,
                Purpose::Bound => self.longest_path(nodes, before, after),
            },
            gives: nodes.is_empty(),
            takes: nodes.is_empty(),
        };
        let is_in = |set: &Set, node: usize| nodes.binary_search(&node).is_ok_and(|position| set[position]);
        for (position, &index) in nodes.iter().enumerate() {
            let node = &self.nodes[index];
            let reads_begin = node.reads.contains(&self.begin);
            if before[position] {
                choice.bytes[0] += node.bytes;
                choice.seconds += node.seconds[1];
                if node.readers.iter().any(|reader| !is_in(before, *reader)) {
                    choice.given += node.moving;
                }
            } else {
                choice.gives |= reads_begin;
            }
            if after[position] {
                choice.bytes[1] += node.bytes;
                choice.seconds += node.seconds[1];
                choice.takes |= reads_begin;
            } else if node.readers.iter().any(|reader| *reader == self.end || is_in(after, *reader)) {
                choice.taken += node.moving;
            }
        }
        choice
    }

    /// When the last node that is in neither set ends, after the piece before; and the pieces of these nodes. The host has the rest of
    /// them. Each node ends as early as it can where nothing but the last node of a piece is read from outside of it.
    fn middle(&self, nodes: &[usize], before: &Set, after: &Set) -> (f64, Vec<Piece>) {
        let is_between = |node: usize| nodes.binary_search(&node).is_ok_and(|position| !before[position] && !after[position]);
        // For each node when it ends, and how many nodes the piece has that ends with it.
        let mut ends: HashMap<usize, (f64, usize)> = HashMap::new();
        let mut latest = 0.0f64;
        for &index in nodes.iter().filter(|node| is_between(**node)) {
            let node = &self.nodes[index];
            let start = node.reads.iter().filter_map(|read| ends.get(read)).fold(0.0, |start, end| end.0.max(start));
            let mut best = (start + node.seconds[0], 0);
            let given = if node.readers.is_empty() { 0.0 } else { node.moving };
            self.grow(index, &ends, |size, end| {
                if end + given < best.0 {
                    best = (end + given, size);
                }
            });
            ends.insert(index, best);
            if node.readers.is_empty() || node.readers.iter().any(|reader| !is_between(*reader)) {
                latest = latest.max(best.0);
            }
        }
        let mut pieces: Vec<Piece> = Vec::new();
        for &index in nodes.iter().rev() {
            let size = ends.get(&index).map_or(0, |end| end.1);
            // A node of a later piece ends with that.
            if size > 0 && !pieces.iter().any(|piece| piece.contains(&index)) {
                let mut piece = self.grow(index, &ends, |_, _| {});
                piece.truncate(size);
                pieces.push(piece);
            }
        }
        (latest, pieces)
    }

    /// A time before which the last node that is in neither set cannot end: of each path by itself, cut into pieces as is best for it.
    fn longest_path(&self, nodes: &[usize], before: &Set, after: &Set) -> f64 {
        let is_between = |node: usize| nodes.binary_search(&node).is_ok_and(|position| !before[position] && !after[position]);
        let is_first = |node: &usize| is_between(*node) && !self.nodes[*node].reads.iter().any(|read| is_between(*read));
        let mut paths: Vec<Piece> = nodes.iter().copied().filter(is_first).map(|node| vec![node]).collect();
        let mut longest = 0.0f64;
        while let Some(path) = paths.pop() {
            let readers = &self.nodes[path[path.len() - 1]].readers;
            if readers.is_empty() || readers.iter().any(|reader| !is_between(*reader)) {
                longest = longest.max(self.path(&path));
            }
            for &reader in readers.iter().filter(|reader| is_between(**reader)) {
                paths.push(path.iter().copied().chain([reader]).collect());
            }
        }
        longest
    }

    /// When the last of nodes ends that wait for each other alone.
    fn path(&self, path: &[usize]) -> f64 {
        let mut ends = vec![0.0f64];
        for end in 1..=path.len() {
            let last = &self.nodes[path[end - 1]];
            let mut least = ends[end - 1] + last.seconds[0];
            let given = if last.readers.is_empty() { 0.0 } else { last.moving };
            let (mut seconds, mut bytes) = (0.0, 0.0);
            for begin in (0..end).rev() {
                let first = &self.nodes[path[begin]];
                seconds += first.seconds[1];
                bytes += first.bytes;
                if bytes > self.limit || !first.can_accelerate {
                    break;
                }
                let taken: f64 = match begin {
                    0 => first.reads.iter().map(|read| self.nodes[*read].moving).sum(),
                    _ => self.nodes[path[begin - 1]].moving,
                };
                least = least.min(ends[begin] + taken + seconds + given);
            }
            ends.push(least);
        }
        ends[path.len()]
    }

    /// The nodes of pieces that end with a node, one longer than the other by a node that ends late and that only the piece reads.
    /// `see` is told how many nodes each has, and when it ends if it gives nothing back.
    fn grow(&self, last: usize, ends: &HashMap<usize, (f64, usize)>, mut see: impl FnMut(usize, f64)) -> Piece {
        let end_of = |node: &usize| ends.get(node).map_or(0.0, |end| end.0);
        let mut piece = vec![last];
        let mut reads = Vec::new();
        let (mut seconds, mut bytes) = (0.0, 0.0);
        let mut next = Some(last);
        while let Some(index) = next {
            let node = &self.nodes[index];
            seconds += node.seconds[1];
            bytes += node.bytes;
            if bytes > self.limit || !node.can_accelerate {
                piece.truncate(piece.len() - 1);
                break;
            }
            reads.retain(|read| *read != index);
            reads.extend(node.reads.iter().copied());
            reads.sort_unstable();
            reads.dedup();
            let start = reads.iter().map(end_of).fold(0.0, f64::max);
            let taken: f64 = reads.iter().map(|read| self.nodes[*read].moving).sum();
            see(piece.len(), start + taken + seconds);
            let may_join =
                |read: &&usize| ends.contains_key(read) && self.nodes[**read].readers.iter().all(|reader| piece.contains(reader));
            let latest = reads.iter().filter(may_join).max_by(|one, other| end_of(one).total_cmp(&end_of(other)).then(one.cmp(other)));
            next = latest.copied();
            piece.extend(next);
        }
        piece
    }

    /// The entries where the first separator is in a piece or on the host, and the second is.
    pub fn table(&self, from_piece: bool, to_piece: bool) -> Table {
        let nothing = Entry { before: 0.0, after: 0.0, cost: 0.0, middle: 0.0, gives: false, takes: false, from: 0, choice: 0 };
        let mut levels = vec![vec![nothing]];
        for component in &self.components {
            let may = |choice: &&(usize, &Choice)| {
                (from_piece || !choice.1.before.contains(&true)) && (to_piece || !choice.1.after.contains(&true))
            };
            let choices: Vec<(usize, &Choice)> = component.choices.iter().enumerate().filter(|choice| may(&choice)).collect();
            let mut entries = Vec::new();
            for (from, entry) in levels[levels.len() - 1].iter().enumerate() {
                for (index, choice) in &choices {
                    let taken = if to_piece { choice.taken } else { 0.0 };
                    entries.push(Entry {
                        before: entry.before + choice.bytes[0],
                        after: entry.after + choice.bytes[1],
                        cost: entry.cost + choice.seconds + choice.given + taken,
                        middle: entry.middle.max(choice.middle),
                        gives: entry.gives || from_piece && choice.gives,
                        takes: entry.takes || to_piece && choice.takes,
                        from,
                        choice: *index,
                    });
                }
            }
            entries.retain(|entry| entry.before <= self.limit && entry.after <= self.limit);
            levels.push(best(entries, self.limit, self.purpose));
        }
        Table(levels)
    }

    /// Which nodes go where by an entry of a table.
    pub fn parts(&self, table: &Table, mut entry: usize) -> Parts {
        let mut parts = Parts { before: Vec::new(), after: Vec::new(), between: Vec::new() };
        for (level, component) in self.components.iter().enumerate().rev() {
            let Entry { from, choice, .. } = table.0[level + 1][entry];
            let Choice { before, after, .. } = &component.choices[choice];
            for (position, &node) in component.nodes.iter().enumerate() {
                if before[position] {
                    parts.before.push(node);
                } else if after[position] {
                    parts.after.push(node);
                }
            }
            parts.between.extend(self.middle(&component.nodes, before, after).1);
            entry = from;
        }
        parts
    }
}

/// The entries of which no other is better in every way.
fn best(mut entries: Vec<Entry>, limit: f64, purpose: Purpose) -> Vec<Entry> {
    entries.sort_by(|one, other| {
        let bytes = |entry: &Entry| entry.before + entry.after;
        one.cost.total_cmp(&other.cost).then(one.middle.total_cmp(&other.middle)).then(bytes(one).total_cmp(&bytes(other)))
    });
    if purpose == Purpose::Pieces && entries.len() > ENTRIES {
        let grain = limit / GRAINS;
        let mut least: HashMap<(u32, u32, bool, bool), f64> = HashMap::new();
        entries.retain(|entry| {
            let key = ((entry.before / grain) as u32, (entry.after / grain) as u32, entry.gives, entry.takes);
            let least = least.entry(key).or_insert(f64::INFINITY);
            let is_earlier = entry.middle < *least;
            *least = least.min(entry.middle);
            is_earlier
        });
    }
    let mut kept: Vec<Entry> = Vec::new();
    for entry in entries {
        let is_better = |other: &Entry| {
            other.middle <= entry.middle
                && other.before <= entry.before
                && other.after <= entry.after
                && other.gives <= entry.gives
                && other.takes <= entry.takes
        };
        if !kept.iter().any(is_better) {
            kept.push(entry);
        }
    }
    kept
}
