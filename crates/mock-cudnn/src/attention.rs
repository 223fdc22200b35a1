//! Attention, and graphs of products, sums and operations on each element, as its gradient is one: what they compute.
//!
//! A graph is computed operation by operation, as its descriptors say. Sums are floats, and a value is rounded to the type of its tensor.

use std::collections::HashMap;
use std::ffi::c_int;

use plimsoll_base::{Bf16, F16};

use crate::behind::{ADD, OnEach};
use crate::convolution::Tensor;
use crate::engines::{COMPILES, Engine, TENSOR_CORE};

/// `cudnnPointwiseMode_t`.
pub const MULTIPLY: c_int = 1;
pub const DIVIDE: c_int = 6;
pub const SUBTRACT: c_int = 9;
const EXPONENTIAL: c_int = 13;
const LOGARITHM: c_int = 15;
const IDENTITY: c_int = 21;

/// `cudnnReduceTensorOp_t`.
const SUM: c_int = 0;
const MAXIMUM: c_int = 3;

/// The knob of engines that add in order.
const IN_ORDER: (c_int, i64) = (14, 4);

/// `softmax(scale Q K^T + more) V`.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    pub q: Tensor,
    pub k: Tensor,
    pub v: Tensor,
    pub result: Tensor,
    pub scale: Option<Tensor>,
    /// Logarithms of sums.
    pub sums: Option<Tensor>,
    /// What is done to scores.
    pub more: Option<OnEach>,
}

/// An operation of a graph.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation {
    Forward(Box<Forward>),
    OnEach(OnEach),
    Product {
        a: Tensor,
        b: Tensor,
        to: Tensor,
    },
    /// What a reduction makes of rows.
    Reduced {
        operator: c_int,
        from: Tensor,
        to: Tensor,
    },
    Seen {
        from: Tensor,
        to: Tensor,
    },
}

impl Operation {
    /// What it reads, and what it writes.
    fn tensors(&self) -> (Vec<&Tensor>, Vec<&Tensor>) {
        match self {
            Operation::Forward(forward) => {
                let Forward { q, k, v, result, scale, sums, more } = &**forward;
                let added = more.iter().filter_map(|more| more.second.as_ref());
                ([q, k, v].into_iter().chain(scale).chain(added).collect(), [result].into_iter().chain(sums).collect())
            }
            Operation::OnEach(each) => ([&each.from].into_iter().chain(&each.second).collect(), vec![&each.to]),
            Operation::Product { a, b, to } => (vec![a, b], vec![to]),
            Operation::Reduced { from, to, .. } | Operation::Seen { from, to } => (vec![from], vec![to]),
        }
    }
}

/// A graph of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention(pub Vec<Operation>);

/// Elements as they lie in memory, from the first to the last.
type Values = Vec<f32>;

fn rounded(value: f32, data_type: c_int) -> f32 {
    match data_type {
        2 => F16::from_f32(value).to_f32(),
        9 => Bf16::from_f32(value).to_f32(),
        _ => value,
    }
}

impl Tensor {
    fn length(&self) -> usize {
        (self.extent() / self.element().unwrap_or(1) as u64) as usize
    }

    /// Where an element lies; along axes of one element every place is the first.
    fn place(&self, at: [i64; 4]) -> usize {
        let along = |axis: usize| if self.sizes[axis] == 1 { 0 } else { at[axis] * self.strides[axis] };
        (0..4).map(along).sum::<i64>() as usize
    }
}

/// The places of a tensor of four axes.
fn places(sizes: &[i64]) -> impl Iterator<Item = [i64; 4]> + use<> {
    let [a, b, c, d] = [sizes[0], sizes[1], sizes[2], sizes[3]];
    (0..a * b * c * d).map(move |at| [at / (b * c * d), at / (c * d) % b, at / d % c, at % d])
}

impl Attention {
    /// Whether each tensor is made once, and each of several operations reads what another one makes, or makes what another one reads.
    pub fn is_connected(&self) -> bool {
        let names = |tensors: Vec<&Tensor>| tensors.into_iter().map(|tensor| tensor.name).collect::<Vec<i64>>();
        let all: Vec<(Vec<i64>, Vec<i64>)> = self.0.iter().map(Operation::tensors).map(|(read, made)| (names(read), names(made))).collect();
        let meet = |one: &[i64], other: &[i64]| one.iter().any(|name| other.contains(name));
        all.iter().enumerate().all(|(at, (read, made))| {
            let mut others = all.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
            let is_once = others.clone().all(|(_, other)| !meet(made, other));
            is_once && (all.len() == 1 || others.any(|(other_read, other_made)| meet(read, other_made) || meet(made, other_read)))
        })
    }

    /// Those that are in memory: read, then written.
    pub fn in_memory(&self) -> Vec<&Tensor> {
        let mut all: Vec<&Tensor> = Vec::new();
        for operation in &self.0 {
            let (read, written) = operation.tensors();
            let there = read.into_iter().chain(written).filter(|tensor| !tensor.is_virtual && !tensor.is_said);
            for tensor in there {
                if all.iter().all(|other| other.name != tensor.name) {
                    all.push(tensor);
                }
            }
        }
        all
    }

    /// The numbers that are said.
    pub fn said(&self) -> Vec<&Tensor> {
        let mut said: Vec<&Tensor> = self.0.iter().flat_map(|operation| operation.tensors().0).filter(|tensor| tensor.is_said).collect();
        said.dedup_by_key(|tensor| tensor.name);
        said
    }

    /// The engines of a graph: attention, or its gradient, of narrow floats with columns by eight.
    pub fn engines(&self) -> Vec<Engine> {
        let engine = |index, knobs: &[(c_int, i64)], workspace| Engine {
            index,
            knobs: knobs.to_vec(),
            numerics: vec![TENSOR_CORE],
            behaviour: vec![COMPILES],
            workspace,
            units: 2,
        };
        let is_narrow = |tensor: &Tensor| matches!(tensor.data_type, 2 | 9);
        let is_wide = |tensor: &Tensor| is_narrow(tensor) && tensor.sizes[3] % 8 == 0 && tensor.strides[3] == 1;
        // The real one ends the program where such a tensor is of another type.
        let are_floats = self.in_memory().iter().all(|tensor| matches!(tensor.data_type, 0 | 2 | 9));
        match (&self.0[..], word(&self.0).as_str()) {
            ([Operation::Forward(forward)], _) => {
                let Forward { q, k, v, result, .. } = &**forward;
                let is_there = [q, k, v, result].into_iter().all(is_wide);
                if is_there { vec![engine(9, &[(40, 3), (41, 2), (24, 1), (38, 0), (27, 0)], 256)] } else { Vec::new() }
            }
            ([Operation::Product { a: q, .. }, .., Operation::Product { a: weights, b: v, to }], FORWARD | FORWARD_WITH_BIAS) => {
                // Weights are rounded, and logarithms of sums are a result.
                let are_in_memory =
                    self.in_memory().iter().any(|tensor| tensor.data_type == 0 && tensor.sizes == [&to.sizes[..3], &[1]].concat());
                let is_there = [q, v, to].into_iter().all(is_wide) && is_narrow(weights) && are_floats && are_in_memory;
                if is_there { vec![engine(2, &KNOBS_OF_PARTS, 256)] } else { Vec::new() }
            }
            ([Operation::OnEach(first), ..], word) if GRADIENTS.contains(&word) => {
                if !is_wide(&first.from) || !are_floats {
                    return Vec::new();
                }
                vec![engine(6, &[(40, 2), (41, 1), (24, 2), (38, 0), (27, 0)], 256)]
            }
            _ => Vec::new(),
        }
    }

    /// The same engine, which adds in order: it wants a word for each block of rows, and has no note that the other one does not.
    pub fn ordered(&self, engine: &Engine) -> Option<Engine> {
        let Some(Operation::OnEach(first)) = self.0.first().filter(|_| GRADIENTS.contains(&&*word(&self.0))) else { return None };
        let blocks: u64 = first.from.sizes[..2].iter().chain([&((first.from.sizes[2] + 31) / 32)]).map(|size| *size as u64).product();
        let knobs = engine.knobs.iter().copied().chain([IN_ORDER]).collect();
        Some(Engine { knobs, workspace: engine.workspace + 4 * blocks, ..engine.clone() })
    }

    /// Computes it, with the numbers that are said, from and to where the tensors in memory are.
    ///
    /// # Safety
    /// Their bytes are there, and nothing else uses them.
    pub unsafe fn compute(&self, there: &HashMap<i64, *mut u8>, said: &HashMap<i64, f32>) {
        let mut values: HashMap<i64, Values> = said.iter().map(|(name, value)| (*name, vec![*value])).collect();
        for operation in &self.0 {
            let (read, _) = operation.tensors();
            for tensor in read {
                if let Some(place) = there.get(&tensor.name).filter(|_| !values.contains_key(&tensor.name)) {
                    // SAFETY: the caller's promise.
                    values.insert(tensor.name, unsafe { tensor.read_all(*place) });
                }
            }
            for (tensor, made) in operation.compute(&values) {
                if let Some(place) = there.get(&tensor.name) {
                    // SAFETY: the caller's promise.
                    unsafe { tensor.write_all(*place, &made) };
                }
                values.insert(tensor.name, made);
            }
        }
    }
}

/// Graphs of attention whose shares drop out: with and without what is added to scores.
const FORWARD: &str = "p*m-esl+/**p";
const FORWARD_WITH_BIAS: &str = "p*+m-esl+/**p";

/// Gradients of attention: with and without what is added to scores, and with and without shares that drop out.
const GRADIENTS: [&str; 4] = ["*s*p*-evpp-**vpvpi", "*s*p*+-evpp-**vpvpi", "*s*p*-e**vpp**-**vpvpi", "*s*p*+-e**vpp**-**vpvpi"];

/// The knobs of the engine for attention by its parts.
const KNOBS_OF_PARTS: [(c_int, i64); 5] = [(40, 3), (41, 2), (24, 1), (38, 0), (27, 0)];

/// The operations of a graph in their order, a letter for each.
fn word(operations: &[Operation]) -> String {
    let letter = |operation: &Operation| match operation {
        Operation::OnEach(each) => match each.mode {
            ADD => '+',
            MULTIPLY => '*',
            DIVIDE => '/',
            SUBTRACT => '-',
            EXPONENTIAL => 'e',
            LOGARITHM => 'l',
            IDENTITY => 'i',
            _ => '?',
        },
        Operation::Product { .. } => 'p',
        Operation::Reduced { operator: SUM, .. } => 's',
        Operation::Reduced { operator: MAXIMUM, .. } => 'm',
        Operation::Reduced { .. } => '?',
        Operation::Seen { .. } => 'v',
        Operation::Forward(_) => '?',
    };
    operations.iter().map(letter).collect()
}

impl Operation {
    /// What it writes, of what there is.
    fn compute(&self, values: &HashMap<i64, Values>) -> Vec<(&Tensor, Values)> {
        let at = |tensor: &Tensor, place: [i64; 4]| values[&tensor.name][tensor.place(place)];
        let filled = |to: &Tensor, of: &dyn Fn([i64; 4]) -> f32| {
            let mut made = vec![0.0; to.length()];
            for place in places(&to.sizes) {
                made[to.place(place)] = rounded(of(place), to.data_type);
            }
            made
        };
        match self {
            Operation::OnEach(OnEach { mode, from, second, to, .. }) => {
                let made = filled(to, &|place| {
                    let (one, other) = (at(from, place), second.as_ref().map_or(0.0, |second| at(second, place)));
                    match *mode {
                        ADD => one + other,
                        MULTIPLY => one * other,
                        DIVIDE => one / other,
                        SUBTRACT => one - other,
                        EXPONENTIAL => one.exp(),
                        LOGARITHM => one.ln(),
                        _ => one,
                    }
                });
                vec![(to, made)]
            }
            Operation::Product { a, b, to } => {
                let made = filled(to, &|[x, y, row, column]| {
                    let terms = (0..a.sizes[3]).map(|term| f64::from(at(a, [x, y, row, term])) * f64::from(at(b, [x, y, term, column])));
                    terms.sum::<f64>() as f32
                });
                vec![(to, made)]
            }
            Operation::Reduced { operator, from, to } => {
                let made = filled(to, &|[x, y, row, _]| {
                    let values = (0..from.sizes[3]).map(|column| at(from, [x, y, row, column]));
                    if *operator == MAXIMUM { values.fold(f32::NEG_INFINITY, f32::max) } else { values.sum() }
                });
                vec![(to, made)]
            }
            Operation::Seen { from, to } => {
                vec![(to, values[&from.name].iter().map(|value| rounded(*value, to.data_type)).collect())]
            }
            Operation::Forward(forward) => forward.compute(&at),
        }
    }
}

impl Forward {
    fn compute(&self, at: &dyn Fn(&Tensor, [i64; 4]) -> f32) -> Vec<(&Tensor, Values)> {
        let Forward { q, k, v, result, scale, sums, more } = self;
        let scale = scale.as_ref().map_or(1.0, |scale| at(scale, [0; 4]));
        let (mut made, mut logarithms) = (vec![0.0; result.length()], sums.as_ref().map(|sums| vec![0.0; sums.length()]));
        for [x, y, row, _] in places(&[q.sizes[0], q.sizes[1], q.sizes[2], 1]) {
            let score = |key: i64| {
                let terms = (0..q.sizes[3]).map(|term| f64::from(at(q, [x, y, row, term])) * f64::from(at(k, [x, y, key, term])));
                let score = terms.sum::<f64>() as f32 * scale;
                score + more.as_ref().and_then(|more| more.second.as_ref()).map_or(0.0, |added| at(added, [x, y, row, key]))
            };
            let scores: Vec<f32> = (0..k.sizes[2]).map(score).collect();
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = scores.iter().map(|score| (score - most).exp()).sum();
            for column in 0..v.sizes[3] {
                let share = |score: f32| f64::from(rounded((score - most).exp() / sum, v.data_type));
                let terms = (0..).zip(&scores).map(|(key, score)| share(*score) * f64::from(at(v, [x, y, key, column])));
                made[result.place([x, y, row, column])] = rounded(terms.sum::<f64>() as f32, result.data_type);
            }
            if let (Some(sums), Some(logarithms)) = (sums, &mut logarithms) {
                logarithms[sums.place([x, y, row, 0])] = most + sum.ln();
            }
        }
        [(result, made)].into_iter().chain(sums.iter().zip(logarithms)).collect()
    }
}

impl Tensor {
    /// # Safety
    /// Its bytes are there, and nothing writes them.
    unsafe fn read_all(&self, from: *const u8) -> Values {
        // SAFETY: the caller's promise.
        let read = |at: usize| unsafe {
            match self.data_type {
                0 => from.cast::<f32>().add(at).read(),
                2 => F16::from_bits(from.cast::<u16>().add(at).read()).to_f32(),
                _ => Bf16::from_bits(from.cast::<u16>().add(at).read()).to_f32(),
            }
        };
        (0..self.length()).map(read).collect()
    }

    /// # Safety
    /// Its bytes are there, and nothing else uses them.
    unsafe fn write_all(&self, to: *mut u8, values: &[f32]) {
        for (at, value) in values.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                match self.data_type {
                    0 => to.cast::<f32>().add(at).write(*value),
                    2 => to.cast::<u16>().add(at).write(F16::from_f32(*value).to_bits()),
                    _ => to.cast::<u16>().add(at).write(Bf16::from_f32(*value).to_bits()),
                }
            }
        }
    }
}
