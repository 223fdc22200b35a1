//! One search, with its frames on a stack of its own.

use std::cmp::Reverse;

use super::mix;
use super::state::{Mark, State};
use crate::layout::problem::Item;
use crate::layout::steps::Steps;

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All pieces are placed.
    Found,
    /// There is no layout of that capacity.
    Impossible,
    /// It was too long.
    Stopped,
}

/// Of sections with as many possibilities, which one is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Section {
    /// The one with the fewest bytes to waste.
    Fullest,
    /// The one of the lowest valley.
    Lowest,
    /// The first one of the lowest valley.
    First,
}

/// Which pieces are tried first, before their order counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum Match {
    None,
    /// Those that reach to the edges of the valley.
    Edges,
    /// Those that reach to an edge and are as high as what is beyond.
    Corners,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Preference {
    pub section: Section,
    pub piece: Match,
}

/// What is open: sections, and what is left to try there.
struct Frame {
    sections: (u32, u32),
    /// The state before the frame.
    before: Mark,
    /// The state from which each possibility starts.
    start: Mark,
    /// Its part of the stack of possibilities, and the next one to try.
    choices: (u32, u32),
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Choices are pieces; behind them comes leaving the section empty up to a height, if there is one.
    Branch { section: u32, empty_to: Option<u64>, key: u64 },
    /// Choices are pairs of ends of separate parts: each has to be found.
    Parts,
}

/// What is found when sections are entered.
enum Entered {
    Ended(bool),
    Frame(Frame),
}

pub(super) struct Descent {
    state: State,
    /// The bytes that a layout may take.
    bytes: u64,
    preference: Preference,
    /// For each piece how early it is tried.
    priority: Vec<u128>,
    /// For each piece a number for keys, and a piece that is equal.
    token: Vec<u64>,
    twin: Vec<u32>,
    /// Keys of what leads nowhere: a table in which a later key takes the place of an earlier one.
    nowhere: Vec<u64>,
    frames: Vec<Frame>,
    choices: Vec<u32>,
    /// For each section its valley or run, how many pieces could lie on its ground, and how many are live there and before.
    run: Vec<u32>,
    possible: Vec<i32>,
    crossed: Vec<i32>,
}

/// The valleys of some sections.
struct Survey {
    is_empty: bool,
    is_apart: bool,
    /// A section of a valley on whose ground no piece can lie.
    bare: Option<usize>,
    /// The section to branch on, and whether its ground may stay empty.
    section: usize,
    may_be_empty: bool,
}

impl Descent {
    /// `items` in the order of their first sections.
    pub fn new(items: &[Item], unit: u64, sections: usize) -> Descent {
        let state = State::new(items, unit, sections);
        let mut twin: Vec<u32> = (0..items.len() as u32).collect();
        for number in 1..items.len() {
            let (one, other) = (state.pieces[number - 1], state.pieces[number]);
            if (one.from, one.to, one.bytes) == (other.from, other.to, other.bytes) {
                twin[number] = twin[number - 1];
            }
        }
        Descent {
            bytes: 0,
            preference: Preference { section: Section::Fullest, piece: Match::None },
            priority: vec![0; items.len()],
            token: (1..=items.len() as u64).map(|number| mix(number << 32)).collect(),
            twin,
            nowhere: vec![0; (items.len() * 256).next_power_of_two().min(1 << 18)],
            frames: Vec::new(),
            choices: Vec::new(),
            run: vec![0; sections],
            possible: vec![0; sections + 1],
            crossed: vec![0; sections + 1],
            state,
        }
    }

    /// What the next search does first.
    pub fn prefer(&mut self, preference: Preference, priority: impl Fn(usize) -> u128) {
        self.preference = preference;
        for (piece, slot) in self.priority.iter_mut().enumerate() {
            *slot = priority(piece);
        }
    }

    /// The heights of the pieces, after a search that found them.
    pub fn places(&self) -> &[u64] {
        &self.state.lowest
    }

    /// Searches anew for a layout of so many bytes, entering sections `most` times.
    pub fn run(&mut self, bytes: u64, most: u64, steps: &mut Steps) -> End {
        self.frames.clear();
        self.choices.clear();
        if !self.state.reset(bytes) {
            return End::Impossible;
        }
        self.bytes = bytes;
        let mut next = Some((0, self.run.len()));
        let mut entered = 0;
        let mut ended = false;
        loop {
            if let Some((from, to)) = next.take() {
                entered += 1;
                if entered > most || steps.left() == 0 {
                    return End::Stopped;
                }
                match self.enter(from, to, steps) {
                    Entered::Ended(found) => ended = found,
                    Entered::Frame(frame) => {
                        // A frame that has tried nothing yet goes on as if something had failed, or as if a part had been found.
                        ended = matches!(frame.kind, Kind::Parts);
                        self.frames.push(frame);
                    }
                }
            }
            let Some(frame) = self.frames.last_mut() else {
                return if ended { End::Found } else { End::Impossible };
            };
            match frame.kind {
                Kind::Parts if ended => {
                    if frame.choices.1 as usize == self.choices.len() {
                        self.close(true);
                    } else {
                        let part = frame.choices.1 as usize;
                        frame.choices.1 += 2;
                        next = Some((self.choices[part] as usize, self.choices[part + 1] as usize));
                    }
                }
                Kind::Parts => self.close(false),
                Kind::Branch { .. } if ended => self.close(true),
                Kind::Branch { section, empty_to, key } => {
                    self.state.back_to(frame.start);
                    let sections = (frame.sections.0 as usize, frame.sections.1 as usize);
                    let choice = frame.choices.1 as usize;
                    frame.choices.1 += 1;
                    let goes_on = if let Some(&piece) = self.choices.get(choice) {
                        steps.spend(self.state.beside[piece as usize].len() as u64);
                        self.state.place(piece)
                    } else if choice == self.choices.len()
                        && let Some(height) = empty_to
                    {
                        self.state.raise(section as usize, height)
                    } else if choice <= self.choices.len() {
                        false
                    } else {
                        let slot = key as usize & (self.nowhere.len() - 1);
                        self.nowhere[slot] = key;
                        self.close(false);
                        continue;
                    };
                    next = goes_on.then_some(sections);
                }
            }
        }
    }

    /// Ends the last frame. What failed is taken back.
    fn close(&mut self, found: bool) {
        if let Some(frame) = self.frames.pop() {
            self.choices.truncate(frame.choices.0 as usize);
            if !found {
                self.state.back_to(frame.before);
            }
        }
    }

    /// Looks at some sections that share no piece with others.
    fn enter(&mut self, from: usize, to: usize, steps: &mut Steps) -> Entered {
        let before = self.state.mark();
        let survey = loop {
            let survey = self.survey(from, to, steps);
            if survey.is_empty {
                return Entered::Ended(true);
            }
            let Some(section) = survey.bare.filter(|_| !survey.is_apart) else { break survey };
            // Nothing lies on the ground there, so that the ground is higher.
            if !self.next_height(section, steps).is_some_and(|height| self.state.raise(section, height)) {
                self.state.back_to(before);
                return Entered::Ended(false);
            }
        };
        let sections = (from as u32, to as u32);
        let first = self.choices.len() as u32;
        if survey.is_apart {
            self.parts(from, to);
            let start = self.state.mark();
            return Entered::Frame(Frame { sections, before, start, choices: (first, first), kind: Kind::Parts });
        }
        let key = self.key(from, to);
        if self.nowhere[key as usize & (self.nowhere.len() - 1)] == key {
            self.state.back_to(before);
            return Entered::Ended(false);
        }
        let section = survey.section;
        self.candidates(section, from, to);
        let empty_to = if survey.may_be_empty { self.next_height(section, steps) } else { None };
        let kind = Kind::Branch { section: section as u32, empty_to, key };
        Entered::Frame(Frame { sections, before, start: self.state.mark(), choices: (first, first), kind })
    }

    /// Finds valleys, and what is possible in them.
    fn survey(&mut self, from: usize, to: usize, steps: &mut Steps) -> Survey {
        let State { pieces, placed, height, remaining, begins, capacity, .. } = &self.state;
        let mut run = from as u32;
        for section in from..to {
            let joins = section > from && height[section] == height[section - 1] && remaining[section - 1] > 0;
            if !joins || remaining[section] == 0 {
                run = section as u32;
            }
            self.run[section] = run;
        }
        self.possible[from..=to].fill(0);
        self.crossed[from..=to].fill(0);
        let mut smallest = u64::MAX;
        let numbers = begins[from] as usize..begins[to] as usize;
        steps.spend((to - from + numbers.len()) as u64);
        for (piece, _) in pieces[numbers.clone()].iter().zip(&placed[numbers]).filter(|(_, placed)| !**placed) {
            let (first, end) = (piece.from as usize, piece.to as usize);
            self.crossed[first + 1] += 1;
            self.crossed[end] -= 1;
            smallest = smallest.min(piece.size);
            if self.run[first] == self.run[end - 1] {
                self.possible[first] += 1;
                self.possible[end] -= 1;
            }
        }
        let mut survey = Survey { is_empty: smallest == u64::MAX, is_apart: false, bare: None, section: from, may_be_empty: false };
        let (mut possible, mut crossed, mut parts) = (0, 0, 0);
        for section in from..to {
            possible += self.possible[section];
            self.possible[section] = possible;
            crossed += self.crossed[section];
            self.crossed[section] = crossed;
            parts += u32::from(self.state.remaining[section] > 0 && crossed == 0);
        }
        survey.is_apart = parts > 1;
        if survey.is_empty || survey.is_apart {
            return survey;
        }
        let mut best = (u64::MAX, 0, 0);
        let mut first = from;
        while first < to {
            let mut end = first + 1;
            while end < to && self.run[end] == self.run[first] {
                end += 1;
            }
            let (left, right) = (self.wall(first.checked_sub(1).filter(|left| *left >= from)), self.wall((end < to).then_some(end)));
            let ground = height[first];
            if remaining[first] > 0 && left > ground && right > ground {
                // If nothing lies on the ground, then what lies lowest lies on a wall or on another piece.
                let step = left.min(right).min(ground + smallest) - ground;
                for section in first..end {
                    if self.possible[section] == 0 {
                        survey.bare = Some(section);
                        return survey;
                    }
                    let slack = capacity - ground - self.state.remaining[section];
                    let choices = self.possible[section] as u64 + u64::from(step <= slack);
                    let value = match self.preference.section {
                        Section::Fullest => (choices, slack, ground),
                        Section::Lowest => (choices, ground, slack),
                        Section::First => (choices, ground, section as u64),
                    };
                    if value < best {
                        (best, survey.section, survey.may_be_empty) = (value, section, step <= slack);
                    }
                }
            }
            first = end;
        }
        survey
    }

    /// The height of a section beside a valley.
    fn wall(&self, section: Option<usize>) -> u64 {
        section.filter(|&section| self.state.remaining[section] > 0).map_or(u64::MAX, |section| self.state.height[section])
    }

    /// The lowest height at which a piece can begin in a section of a valley if none lies on the ground there.
    fn next_height(&self, section: usize, steps: &mut Steps) -> Option<u64> {
        let State { pieces, placed, lowest, live, beside, .. } = &self.state;
        let run = self.run[section];
        let open = |number: &&u32| !placed[**number as usize];
        let mut looked_at = 0;
        let height = |number: &u32| {
            let piece = &pieces[*number as usize];
            if self.run[piece.from as usize] != run || self.run[piece.to as usize - 1] != run {
                return Some(lowest[*number as usize]);
            }
            looked_at += beside[*number as usize].len();
            // It lies on another piece, which is not live in the section: else that one would be lower there.
            let others = beside[*number as usize].iter().filter(open).filter(|other| !pieces[**other as usize].covers(section));
            others.map(|&other| lowest[other as usize] + pieces[other as usize].size).min()
        };
        let height = live[section].iter().filter(open).filter_map(height).min();
        steps.spend(looked_at as u64 / 4);
        height
    }

    /// Pushes the parts of sections that share no piece, the smallest last.
    fn parts(&mut self, from: usize, to: usize) {
        let mut parts: Vec<(u32, u32)> = Vec::new();
        for section in from..to {
            if self.state.remaining[section] == 0 {
                continue;
            }
            match parts.last_mut().filter(|part| part.1 == section as u32 && self.crossed[section] > 0) {
                Some(part) => part.1 += 1,
                None => parts.push((section as u32, section as u32 + 1)),
            }
        }
        parts.sort_by_key(|part| (part.1 - part.0, part.0));
        self.choices.extend(parts.into_iter().flat_map(|part| [part.0, part.1]));
    }

    /// Pushes the pieces that can lie on the ground of a section, in the order in which they are tried.
    fn candidates(&mut self, section: usize, from: usize, to: usize) {
        let run = self.run[section];
        let mut ends = (section, section + 1);
        while ends.0 > from && self.run[ends.0 - 1] == run {
            ends.0 -= 1;
        }
        while ends.1 < to && self.run[ends.1] == run {
            ends.1 += 1;
        }
        let ground = self.state.height[section];
        let capacity = self.state.capacity;
        let left = self.wall(ends.0.checked_sub(1).filter(|left| *left >= from)).min(capacity);
        let right = self.wall((ends.1 < to).then_some(ends.1)).min(capacity);
        let State { pieces, placed, live, .. } = &self.state;
        let first = self.choices.len();
        for &number in &live[section] {
            let piece = &pieces[number as usize];
            let lies_there = self.run[piece.from as usize] == run && self.run[piece.to as usize - 1] == run;
            let is_new = || self.choices[first..].iter().all(|&other| self.twin[other as usize] != self.twin[number as usize]);
            if !placed[number as usize] && lies_there && is_new() {
                self.choices.push(number);
            }
        }
        self.choices[first..].sort_by_key(|&number| {
            let piece = &pieces[number as usize];
            let top = ground + piece.size;
            let (begins, ends) = (piece.from as usize == ends.0, piece.to as usize == ends.1);
            let matches = match self.preference.piece {
                Match::None => 0,
                Match::Edges => u32::from(begins) + u32::from(ends),
                Match::Corners => u32::from(begins && top == left) + u32::from(ends && top == right),
            };
            Reverse((matches, self.priority[number as usize]))
        });
    }

    /// A number for what is open in these sections: heights and pieces.
    fn key(&self, from: usize, to: usize) -> u64 {
        let State { height, remaining, placed, begins, .. } = &self.state;
        let heights = (from..to).filter(|&section| remaining[section] > 0).map(|section| {
            let place = (section as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            mix(place ^ height[section])
        });
        let pieces = (begins[from] as usize..begins[to] as usize).filter(|&number| !placed[number]).map(|number| self.token[number]);
        heights.chain(pieces).fold(mix(self.bytes), |key, part| key ^ part).max(1)
    }
}
