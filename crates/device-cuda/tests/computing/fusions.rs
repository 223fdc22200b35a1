//! Which fusions the real cuDNN plans for cards that are not here: a table, which `PLIMSOLL_BLESS=1` writes. Skipped, visibly, where cuDNN
//! is not installed. A run of the tests compares a few lines, with `PLIMSOLL_FUSIONS=all` all of them: cuDNN compiles for minutes then. Of
//! each fusion it says the first engine that a plan of this project might take: one that gives the same bits each time, computes the sums
//! as they are written, and keeps to the bound of workspace.
//!
//! Activations have their channels last, and filters the channels of the result first: kernels turn TensorFlow's filters (`form.rs`).

use std::cell::Cell;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use plimsoll_base::Code;
use plimsoll_cards::Environment;
use plimsoll_device_cuda::{ComputeLibrary, EngineLimits, Planner};

use super::descriptors::{Attribute, Backend, Handle, Made, integers, numbers, others};
use super::engines::{H100, is_recorded, recorded};
use super::machine::Machine;

/// From public figures: not read off cards.
const CARDS: [(&str, &str); 3] =
    [("A100", include_str!("../../data/cudnn/a100.json")), ("H100", H100), ("B200", include_str!("../../data/cudnn/b200.json"))];

const CHILD: &str = "PLIMSOLL_TEST_FUSIONS";

/// `cudnnDataType_t`.
const FLOAT: i32 = 0;
const HALF: i32 = 2;
const BFLOAT16: i32 = 9;
const BOOLEAN: i32 = 11;

/// Elements, whether these are rounded to TF32, and what that is called.
const TYPES: [(i32, bool, &str); 4] = [(FLOAT, false, "float"), (FLOAT, true, "TF32"), (BFLOAT16, true, "bfloat16"), (HALF, true, "half")];

/// `cudnnPointwiseMode_t`.
const ADD: i32 = 0;
const MULTIPLY: i32 = 1;
const SUBTRACT: i32 = 9;
const EXPONENTIAL: i32 = 13;
const IDENTITY: i32 = 21;
const RELU: i32 = 100;
const GELU: i32 = 104;
const GELU_BY_TANH: i32 = 107;
const RELU_GRADIENT: i32 = 200;
const GELU_GRADIENT: i32 = 204;
const GREATER: i32 = 302;
const SELECT: i32 = 601;

/// `cudnnBackendDescriptorType_t` of convolutions: in this order their attributes begin at 700, 706 and 712.
const FORWARD: i32 = 10;
const BY_FILTER: i32 = 11;
const BY_INPUT: i32 = 12;

/// Images, channels and pixels along each axis; taps along each, and channels of the result.
const IMAGES: i64 = 64;
const CHANNELS: i64 = 64;
const PIXELS: i64 = 56;

/// Attention: examples, heads, rows, columns.
const HEADS: [i64; 4] = [16, 12, 1024, 64];

/// What a fusion's name ends in whose engines are given a knob by which they add in order: `CUDNN_KNOB_TYPE_STAGES`, 4.
const IN_ORDER: (&str, i32, i64) = (", in order", 14, 4);

/// A graph's operations, as they are written.
struct Words<'a> {
    backend: &'a Backend,
    data_type: i32,
    named: Cell<i64>,
}

/// A tensor of a graph.
#[derive(Clone, Copy)]
enum Is {
    /// Of the graph's type.
    There,
    /// Of floats.
    Floats,
    /// Never in memory, of floats.
    Between,
    /// Never in memory, of the graph's type.
    Rounded,
    /// Never in memory, of truths.
    Truths,
    /// A float that is said with the addresses.
    Said,
}

impl Words<'_> {
    fn tensor(&self, sizes: &[i64], strides: &[i64], is: Is) -> Made<Handle> {
        self.named.set(self.named.get() + 1);
        let of = match is {
            Is::There | Is::Rounded => self.data_type,
            Is::Floats | Is::Between | Is::Said => FLOAT,
            Is::Truths => BOOLEAN,
        };
        let is_virtual = matches!(is, Is::Between | Is::Rounded | Is::Truths);
        let flag = |name, is_so| Attribute(name, 2, 1, vec![u8::from(is_so)]);
        let mut attributes = vec![numbers(901, 1, &[of]), integers(902, sizes), integers(903, strides), integers(900, &[16])];
        attributes.extend([integers(906, &[self.named.get()]), flag(907, is_virtual)]);
        attributes.extend(matches!(is, Is::Said).then(|| flag(908, true)));
        self.backend.make(17, &attributes)
    }

    /// Channels last.
    fn of(&self, [n, c, h, w]: [i64; 4], is: Is) -> Made<Handle> {
        self.tensor(&[n, c, h, w], &[c * h * w, 1, c * w, c], is)
    }

    fn images(&self, channels: i64, is: Is) -> Made<Handle> {
        self.of([IMAGES, channels, PIXELS, PIXELS], is)
    }

    /// A number for each channel.
    fn channels(&self, channels: i64, is: Is) -> Made<Handle> {
        self.of([1, channels, 1, 1], is)
    }

    fn mode(&self, mode: i32) -> Made<Handle> {
        self.backend.make(0, &[numbers(0, 14, &[mode]), numbers(1, 1, &[FLOAT])])
    }

    fn on_each(&self, mode: i32, from: Handle, second: Option<Handle>, to: Handle) -> Made<Handle> {
        let mut attributes = vec![others(750, &[self.mode(mode)?]), others(751, &[from]), others(753, &[to])];
        attributes.extend(second.map(|second| others(752, &[second])));
        self.backend.make(13, &attributes)
    }

    /// The gradient of an activation of `x`, by that of its result.
    fn gradient(&self, mode: i32, x: Handle, of: Handle, to: Handle) -> Made<Handle> {
        self.backend.make(13, &[others(750, &[self.mode(mode)?]), others(751, &[x]), others(757, &[of]), others(756, &[to])])
    }

    fn convolution(&self, kind: i32, taps: i64, [input, filter, result]: [Handle; 3]) -> Made<Handle> {
        let both = |name, value: i64| integers(name, &[value; 2]);
        let pad = taps / 2;
        let window = [integers(106, &[2]), numbers(100, 1, &[FLOAT]), numbers(101, 7, &[1]), both(105, pad), both(104, pad)];
        let window = self.backend.make(1, &[&window[..], &[both(102, 1), both(103, 1)]].concat())?;
        let first = match kind {
            FORWARD => 700,
            BY_INPUT => 706,
            _ => 712,
        };
        let float = |name, value: f32| Attribute(name, 4, 1, value.to_ne_bytes().to_vec());
        let tensors = [(2, window), (3, filter), (4, input), (5, result)].map(|(at, of)| others(first + at, &[of]));
        self.backend.make(kind, &[&[float(first, 1.0), float(first + 1, 0.0)], &tensors[..]].concat())
    }

    /// A convolution with a filter of its own.
    fn convolved(&self, kind: i32, taps: i64, out: i64, input: Handle, result: Handle) -> Made<Handle> {
        self.convolution(kind, taps, [input, self.of([out, CHANNELS, taps, taps], Is::There)?, result])
    }

    /// A convolution forward of 3x3, and operations behind it: of these the mode, and what the second operand is.
    fn behind(&self, steps: &[(i32, Option<Second>)]) -> Made<Vec<Handle>> {
        let mut value = self.images(CHANNELS, if steps.is_empty() { Is::There } else { Is::Between })?;
        let mut operations = vec![self.convolved(FORWARD, 3, CHANNELS, self.images(CHANNELS, Is::There)?, value)?];
        self.steps(steps, &mut value, &mut operations, |is| self.images(CHANNELS, is))?;
        Ok(operations)
    }

    fn steps(
        &self,
        steps: &[(i32, Option<Second>)],
        value: &mut Handle,
        operations: &mut Vec<Handle>,
        whole: impl Fn(Is) -> Made<Handle>,
    ) -> Made<()> {
        for (number, (mode, second)) in (1..).zip(steps) {
            let to = whole(if number == steps.len() { Is::There } else { Is::Between })?;
            let second = match second {
                Some(Second::Channels) => Some(self.channels(CHANNELS, Is::There)?),
                Some(Second::Whole) => Some(whole(Is::There)?),
                None => None,
            };
            operations.push(self.on_each(*mode, *value, second, to)?);
            *value = to;
        }
        Ok(())
    }

    /// `max(x scale + bias, 0)`, rounded; the operations, and the value.
    fn normalized(&self) -> Made<(Vec<Handle>, Handle)> {
        let [x, first, second] = [Is::There, Is::Between, Is::Between].map(|is| self.images(CHANNELS, is));
        let (x, first, second, to) = (x?, first?, second?, self.images(CHANNELS, Is::Rounded)?);
        let scaled = self.on_each(MULTIPLY, x, Some(self.channels(CHANNELS, Is::There)?), first)?;
        let moved = self.on_each(ADD, first, Some(self.channels(CHANNELS, Is::There)?), second)?;
        Ok((vec![scaled, moved, self.on_each(RELU, second, None, to)?], to))
    }

    /// Sums and sums of squares of each channel.
    fn statistics(&self, of: Handle, channels: i64) -> Made<Handle> {
        let (sums, squares) = (self.channels(channels, Is::Floats)?, self.channels(channels, Is::Floats)?);
        let tensors = [(772, of), (773, sums), (774, squares)].map(|(name, tensor)| others(name, &[tensor]));
        self.backend.make(14, &[&[numbers(770, 16, &[0]), numbers(771, 1, &[FLOAT])], &tensors[..]].concat())
    }

    /// The gradient of a convolution by its input, that is added to another one where it is said so, and a ReLU's gradient by that.
    fn by_input(&self, taps: i64, is_added: bool, last: Last) -> Made<Vec<Handle>> {
        let whole = |is| self.images(CHANNELS, is);
        let mut value = whole(Is::Between)?;
        let out = if taps == 1 { 4 * CHANNELS } else { CHANNELS };
        let mut operations = vec![self.convolved(BY_INPUT, taps, out, value, self.images(out, Is::There)?)?];
        if is_added {
            let to = whole(if matches!(last, Last::Nothing) { Is::There } else { Is::Between })?;
            operations.push(self.on_each(ADD, value, Some(whole(Is::There)?), to)?);
            value = to;
        }
        match last {
            Last::Nothing => {}
            Last::Gradient => operations.push(self.gradient(RELU_GRADIENT, whole(Is::There)?, value, whole(Is::There)?)?),
            Last::Select => {
                let zero = self.of([1, 1, 1, 1], Is::Said)?;
                let is_on = whole(Is::Truths)?;
                operations.push(self.on_each(GREATER, whole(Is::There)?, Some(zero), is_on)?);
                let select = [(751, value), (752, zero), (758, is_on), (753, whole(Is::There)?)].map(|(name, of)| others(name, &[of]));
                operations.push(self.backend.make(13, &[&[others(750, &[self.mode(SELECT)?])], &select[..]].concat())?);
            }
        }
        Ok(operations)
    }

    /// A matrix, or several.
    fn matrix(&self, [batch, rows, columns]: [i64; 3], is: Is) -> Made<Handle> {
        self.tensor(&[batch, rows, columns], &[rows * columns, columns, 1], is)
    }

    /// A product of 4096x768 and 768x3072, and operations behind it.
    fn product(&self, steps: &[(i32, Option<Second>)]) -> Made<Vec<Handle>> {
        let (rows, terms, columns) = (4096, 768, 3072);
        let whole = |is| self.matrix([1, rows, columns], is);
        let mut value = whole(if steps.is_empty() { Is::There } else { Is::Between })?;
        let product = self.backend.make(18, &[numbers(1500, 1, &[FLOAT])])?;
        let (a, b) = (self.matrix([1, rows, terms], Is::There)?, self.matrix([1, terms, columns], Is::There)?);
        let tensors = [(1520, a), (1521, b), (1522, value), (1523, product)].map(|(name, of)| others(name, &[of]));
        let mut operations = vec![self.backend.make(19, &tensors)?];
        for (number, (mode, second)) in (1..).zip(steps) {
            let to = whole(if number == steps.len() { Is::There } else { Is::Between })?;
            if *mode == GELU_GRADIENT || *mode == RELU_GRADIENT {
                operations.push(self.gradient(*mode, whole(Is::There)?, value, to)?);
            } else {
                let second = match second {
                    Some(Second::Channels) => Some(self.matrix([1, 1, columns], Is::There)?),
                    Some(Second::Whole) => Some(whole(Is::There)?),
                    None => None,
                };
                operations.push(self.on_each(*mode, value, second, to)?);
            }
            value = to;
        }
        Ok(operations)
    }

    /// Attention of 12 heads of 64 columns, 1024 rows: forward with the logarithms of sums that its gradient reads, or the gradient. To scores a
    /// tensor of floats may be added: by a graph of its own.
    fn attention(&self, is_gradient: bool, is_added: bool) -> Made<Vec<Handle>> {
        let [batch, heads, rows, columns] = HEADS;
        let strides = [rows * heads * columns, columns, heads * columns, 1];
        let one = || self.tensor(&[batch, heads, rows, columns], &strides, Is::There);
        let sums = self.tensor(&[batch, heads, rows, 1], &[heads * rows, rows, 1, 1], Is::Floats)?;
        let factor = self.tensor(&[1; 4], &[1; 4], Is::Floats)?;
        let (kind, names): (i32, &[i32]) =
            if is_gradient { (43, &[2851, 2852, 2853, 2854, 2862, 2859, 2860, 2861]) } else { (41, &[2800, 2801, 2802, 2803]) };
        let mut attributes: Vec<Attribute> = names.iter().map(|name| Ok(others(*name, &[one()?]))).collect::<Made<_>>()?;
        let first = if is_gradient { 2855 } else { 2804 };
        attributes.extend([others(first, &[sums]), others(first + 1, &[factor])]);
        if is_added {
            let scaled = self.scores(Is::Between)?;
            let from = self.named.get();
            let moved = self.scores(Is::Between)?;
            let to = self.named.get();
            let graph = self.backend.make(15, &[others(801, &[self.on_each(ADD, scaled, Some(self.mask()?), moved)?])])?;
            attributes.extend([others(2811, &[graph]), integers(2812, &[from]), integers(2813, &[to])]);
        }
        Ok(vec![self.backend.make(kind, &attributes)?])
    }

    fn heads(&self, sizes: [i64; 4], is: Is) -> Made<Handle> {
        let [_, b, c, d] = sizes;
        self.tensor(&sizes, &[b * c * d, c * d, d, 1], is)
    }

    fn scores(&self, is: Is) -> Made<Handle> {
        let [batch, heads, rows, _] = HEADS;
        self.heads([batch, heads, rows, rows], is)
    }

    fn mask(&self) -> Made<Handle> {
        self.heads([1, 1, HEADS[2], HEADS[2]], Is::Floats)
    }

    fn several(&self, [a, b, to]: [Handle; 3]) -> Made<Handle> {
        let product = self.backend.make(18, &[numbers(1500, 1, &[FLOAT])])?;
        self.backend.make(19, &[(1520, a), (1521, b), (1522, to), (1523, product)].map(|(name, of)| others(name, &[of])))
    }

    /// The gradient of attention as the operations that it is, with sums for the gradient by Q in memory: as `device-cuda/src/cudnn/attention.rs` has it.
    fn parts_of_gradient(&self, is_added: bool) -> Made<Vec<Handle>> {
        let [batch, heads, rows, columns] = HEADS;
        let dense = [heads * rows * columns, rows * columns, columns, 1];
        let there = || self.heads(HEADS, Is::There);
        let transposed = || self.tensor(&[batch, heads, columns, rows], &[dense[0], dense[1], 1, columns], Is::There);
        let of_rows = |is| self.heads([batch, heads, rows, 1], is);
        let between = || self.scores(Is::Between);
        let by_keys = || self.tensor(&[batch, heads, rows, rows], &[heads * rows * rows, rows * rows, 1, rows], Is::Rounded);
        let seen = |from, to| self.backend.make(31, &[others(2200, &[from]), others(2201, &[to])]);
        let said = || self.tensor(&[1; 4], &[1; 4], Is::Said);
        let [q, k, v, result, gradient] = [there()?, transposed()?, transposed()?, there()?, there()?];
        let (scale, one, sums) = (said()?, said()?, of_rows(Is::Floats)?);
        let (products, summed, of_row) = (self.heads(HEADS, Is::Between)?, of_rows(Is::Between)?, of_rows(Is::Floats)?);
        let sum = self.backend.make(21, &[numbers(1600, 18, &[0]), numbers(1601, 1, &[FLOAT])])?;
        let mut operations = vec![
            self.on_each(MULTIPLY, gradient, Some(result), products)?,
            self.backend.make(22, &[(1610, products), (1611, summed), (1612, sum)].map(|(name, of)| others(name, &[of])))?,
            self.on_each(MULTIPLY, summed, Some(one), of_row)?,
        ];
        let (bare, mut score) = (between()?, between()?);
        operations.extend([self.several([q, k, bare])?, self.on_each(MULTIPLY, bare, Some(scale), score)?]);
        if is_added {
            let moved = between()?;
            operations.push(self.on_each(ADD, score, Some(self.mask()?), moved)?);
            score = moved;
        }
        let (below, share, shares) = (between()?, between()?, by_keys()?);
        operations.extend([self.on_each(SUBTRACT, score, Some(sums), below)?, self.on_each(EXPONENTIAL, below, None, share)?]);
        operations.extend([seen(share, shares)?, self.several([shares, gradient, there()?])?]);
        let [of_share, moved, of_score, scaled] = [between()?, between()?, between()?, between()?];
        operations.extend([
            self.several([gradient, v, of_share])?,
            self.on_each(SUBTRACT, of_share, Some(of_row), moved)?,
            self.on_each(MULTIPLY, moved, Some(share), of_score)?,
            self.on_each(MULTIPLY, of_score, Some(scale), scaled)?,
        ]);
        let (turned, keys, of_q) = (by_keys()?, self.heads(HEADS, Is::Rounded)?, self.heads(HEADS, Is::Floats)?);
        operations.extend([seen(scaled, turned)?, self.several([turned, q, there()?])?]);
        operations.extend([seen(k, keys)?, self.several([scaled, keys, of_q])?, self.on_each(IDENTITY, of_q, None, there()?)?]);
        Ok(operations)
    }
}

/// The second operand of an operation on each element.
#[derive(Clone, Copy)]
enum Second {
    Channels,
    Whole,
}

/// What is done last.
enum Last {
    Nothing,
    /// One operation: the gradient.
    Gradient,
    /// The value where another one is above zero, and zero elsewhere.
    Select,
}

type Build = fn(&Words<'_>) -> Made<Vec<Handle>>;

/// All that is asked for.
const FUSIONS: [(&str, Build); 37] = {
    use Second::{Channels, Whole};
    [
        ("convolution", |words| words.behind(&[])),
        ("convolution, bias", |words| words.behind(&[(ADD, Some(Channels))])),
        ("convolution, bias, relu", |words| words.behind(&[(ADD, Some(Channels)), (RELU, None)])),
        ("convolution, relu", |words| words.behind(&[(RELU, None)])),
        ("convolution, residual, relu", |words| words.behind(&[(ADD, Some(Whole)), (RELU, None)])),
        ("convolution, residual, bias, relu", |words| words.behind(&[(ADD, Some(Whole)), (ADD, Some(Channels)), (RELU, None)])),
        ("convolution, scale, bias, relu", |words| words.behind(&[(MULTIPLY, Some(Channels)), (ADD, Some(Channels)), (RELU, None)])),
        ("convolution, scale, bias, residual, relu", |words| {
            words.behind(&[(MULTIPLY, Some(Channels)), (ADD, Some(Channels)), (ADD, Some(Whole)), (RELU, None)])
        }),
        ("convolution, gelu", |words| words.behind(&[(GELU, None)])),
        ("convolution 3x3, statistics", |words| {
            let y = words.images(CHANNELS, Is::There)?;
            let convolution = words.convolved(FORWARD, 3, CHANNELS, words.images(CHANNELS, Is::There)?, y)?;
            Ok(vec![convolution, words.statistics(y, CHANNELS)?])
        }),
        ("convolution 1x1, statistics", |words| {
            let y = words.images(4 * CHANNELS, Is::There)?;
            let convolution = words.convolved(FORWARD, 1, 4 * CHANNELS, words.images(CHANNELS, Is::There)?, y)?;
            Ok(vec![convolution, words.statistics(y, 4 * CHANNELS)?])
        }),
        ("scale, bias, relu, convolution 3x3", |words| {
            let (mut operations, x) = words.normalized()?;
            operations.push(words.convolved(FORWARD, 3, CHANNELS, x, words.images(CHANNELS, Is::There)?)?);
            Ok(operations)
        }),
        ("scale, bias, relu, convolution 1x1", |words| {
            let (mut operations, x) = words.normalized()?;
            operations.push(words.convolved(FORWARD, 1, 4 * CHANNELS, x, words.images(4 * CHANNELS, Is::There)?)?);
            Ok(operations)
        }),
        ("scale, bias, relu, convolution 3x3, statistics", |words| {
            let ((mut operations, x), y) = (words.normalized()?, words.images(CHANNELS, Is::There)?);
            operations.extend([words.convolved(FORWARD, 3, CHANNELS, x, y)?, words.statistics(y, CHANNELS)?]);
            Ok(operations)
        }),
        ("scale, bias, relu, convolution 1x1, statistics", |words| {
            let ((mut operations, x), y) = (words.normalized()?, words.images(4 * CHANNELS, Is::There)?);
            operations.extend([words.convolved(FORWARD, 1, 4 * CHANNELS, x, y)?, words.statistics(y, 4 * CHANNELS)?]);
            Ok(operations)
        }),
        ("scale, bias, relu, gradient by the filter", |words| {
            let (mut operations, x) = words.normalized()?;
            operations.push(words.convolved(BY_FILTER, 3, CHANNELS, x, words.images(CHANNELS, Is::There)?)?);
            Ok(operations)
        }),
        ("gradient by the input 3x3, relu's gradient", |words| words.by_input(3, false, Last::Gradient)),
        ("gradient by the input 3x3, sum, relu's gradient", |words| words.by_input(3, true, Last::Gradient)),
        ("gradient by the input 1x1, relu's gradient", |words| words.by_input(1, false, Last::Gradient)),
        ("gradient by the input 1x1, sum, relu's gradient", |words| words.by_input(1, true, Last::Gradient)),
        ("gradient by the input 3x3, select", |words| words.by_input(3, false, Last::Select)),
        ("gradient by the input 3x3, sum, select", |words| words.by_input(3, true, Last::Select)),
        ("gradient by the input 1x1, select", |words| words.by_input(1, false, Last::Select)),
        ("gradient by the input 1x1, sum, select", |words| words.by_input(1, true, Last::Select)),
        ("gradient by the input 3x3, sum", |words| words.by_input(3, true, Last::Nothing)),
        ("product", |words| words.product(&[])),
        ("product, bias", |words| words.product(&[(ADD, Some(Channels))])),
        ("product, bias, relu", |words| words.product(&[(ADD, Some(Channels)), (RELU, None)])),
        ("product, bias, gelu", |words| words.product(&[(ADD, Some(Channels)), (GELU, None)])),
        ("product, bias, gelu by tanh", |words| words.product(&[(ADD, Some(Channels)), (GELU_BY_TANH, None)])),
        ("product, bias, sum", |words| words.product(&[(ADD, Some(Channels)), (ADD, Some(Whole))])),
        ("product, gelu's gradient", |words| words.product(&[(GELU_GRADIENT, None)])),
        ("attention", |words| words.attention(false, false)),
        ("attention, sum", |words| words.attention(false, true)),
        ("gradient of attention", |words| words.attention(true, false)),
        ("gradient of attention by its parts", |words| words.parts_of_gradient(false)),
        ("gradient of attention by its parts, sum, in order", |words| words.parts_of_gradient(true)),
    ]
};

/// Engines whose plans are finished for one line: of a graph whose engines are all too large, these are enough.
const MOST: usize = 4;

/// An engine of a graph.
struct Engine {
    choice: Handle,
    index: i64,
    numerics: Vec<i32>,
    is_compiled: bool,
}

/// The engines of a graph for a card, best first; with one more knob, where it is said so.
fn engines(backend: &Backend, card: Handle, build: Build, (data_type, in_order): (i32, bool)) -> Made<Vec<Engine>> {
    let operations = build(&Words { backend, data_type, named: Cell::new(0) })?;
    let graph = backend.make(15, &[others(801, &operations)])?;
    let heuristics = backend.make(4, &[others(201, &[graph]), numbers(200, 8, &[3]), others(204, &[card])])?;
    let notes = |engine, name, of| -> Made<Vec<i32>> {
        let (count, words) = backend.get(engine, name, of, 64)?;
        // Notes have 4 bytes each.
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Ok(bytes.chunks(4).take(count as usize).map(|bytes| i32::from_ne_bytes(bytes.try_into().unwrap())).collect())
    };
    let engine = |choice: Handle| {
        let engine = backend.list(choice, 300, 2, 1)?[0];
        let index = backend.get(engine, 1301, 3, 1)?.1[0] as i64;
        let choice = if in_order { turned(backend, card, graph, (choice, index))? } else { choice };
        Ok(Engine { choice, index, numerics: notes(engine, 1303, 11)?, is_compiled: notes(engine, 1305, 19)?.contains(&0) })
    };
    let all: Vec<Made<Engine>> = backend.list(heuristics, 202, 3, 64)?.into_iter().map(engine).collect();
    // Engines that do not take the knob are none.
    let is_refused = |engine: &Made<Engine>| in_order && engine.is_err();
    all.into_iter().filter(|engine| !is_refused(engine)).collect()
}

/// The same engine with one more knob.
fn turned(backend: &Backend, card: Handle, graph: Handle, (choice, index): (Handle, i64)) -> Made<Handle> {
    let engine = backend.make(2, &[others(1300, &[graph]), integers(1301, &[index]), others(1307, &[card])])?;
    let (_, of, value) = IN_ORDER;
    let mut knobs = backend.list(choice, 302, 7, 64)?;
    knobs.push(backend.make(7, &[numbers(600, 9, &[of]), integers(601, &[value])])?);
    backend.make(3, &[others(300, &[engine]), others(302, &knobs)])
}

/// `CUDNN_NUMERICAL_NOTE_*`: tensor cores; those of other sums, and of other bits each time.
const TENSOR_CORES: i32 = 0;
const REFUSED: [i32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// What a plan might take.
fn first(backend: &Backend, card: Handle, engines: &Made<Vec<Engine>>, rounds: bool) -> String {
    let engines = match engines {
        Ok(engines) if engines.is_empty() => return "none".to_string(),
        Ok(engines) => engines,
        Err(why) => return format!("refused: {why}"),
    };
    let may = |engine: &&Engine| {
        (rounds || !engine.numerics.contains(&TENSOR_CORES)) && !engine.numerics.iter().any(|note| REFUSED.contains(note))
    };
    let mut said = format!("none of {} that is exact", engines.len());
    for engine in engines.iter().filter(may).take(MOST) {
        let made = backend.make(5, &[others(401, &[engine.choice]), others(407, &[card])]);
        let workspace = made.and_then(|plan| Ok(backend.get(plan, 402, 3, 1)?.1[0]));
        let mut line = match &workspace {
            Ok(bytes) => format!("engine {}, {bytes} bytes", engine.index),
            Err(why) => format!("engine {}: {why}", engine.index),
        };
        for (word, is_so) in [("tensor cores", engine.numerics.contains(&TENSOR_CORES)), ("compiled", engine.is_compiled)] {
            if is_so {
                write!(line, ", {word}").unwrap();
            }
        }
        if workspace.is_ok_and(|bytes| bytes <= EngineLimits::WORKSPACE.0) {
            return line;
        }
        said = format!("none within {}: {line}", EngineLimits::WORKSPACE);
    }
    said
}

/// Whether a fusion is asked about with every run of the tests: those that cuDNN compiles an engine for take a second each.
fn is_quick(card: &str, fusion: &str) -> bool {
    const QUICK: [&str; 7] = [
        "convolution, residual, bias, relu",
        "convolution 3x3, statistics",
        "gradient by the input 3x3, select",
        "gradient by the input 1x1, sum, select",
        "attention, sum",
        "gradient of attention",
        "gradient of attention by its parts, sum, in order",
    ];
    card == "H100" && QUICK.contains(&fusion)
}

/// What cuDNN says: a line for each card and fusion, in which types with one answer have it once.
fn table(is_asked: impl Fn(&str, &str) -> bool) -> String {
    let found = ComputeLibrary::Cudnn.find(&Environment::of(std::env::vars())).found.unwrap();
    let backend = Backend::load(&found.path);
    let mut text = String::new();
    for (name, json) in CARDS {
        let card = backend.make(38, &[Attribute(2702, 24, json.len() as i64, json.as_bytes().to_vec())]).unwrap();
        for (fusion, build) in FUSIONS.into_iter().filter(|(fusion, _)| is_asked(name, fusion)) {
            let mut answers: Vec<(String, String)> = Vec::new();
            for (data_type, rounds, word) in TYPES {
                let engines = engines(&backend, card, build, (data_type, fusion.ends_with(IN_ORDER.0)));
                let said = first(&backend, card, &engines, rounds);
                match answers.last_mut().filter(|(_, last)| *last == said) {
                    Some((words, _)) => *words = format!("{words}, {word}"),
                    None => answers.push((word.to_string(), said)),
                }
            }
            let answers: Vec<String> = answers.iter().map(|(words, said)| format!("{words}: {said}")).collect();
            writeln!(text, "{name}: {fusion}: {}", answers.join("; ")).unwrap();
        }
    }
    text
}

#[test]
fn fusions_are_planned_without_a_card() {
    const TEST: &str = "fusions::fusions_are_planned_without_a_card";
    if let Some(asked) = std::env::var_os(CHILD) {
        return print!("BEGIN\n{}END\n", table(|card, fusion| asked == "all" || is_quick(card, fusion)));
    }
    let planner = match Planner::find(&Environment::of(std::env::vars())) {
        Ok(planner) => planner,
        Err(why) if why.code() == Code::NotFound => return eprintln!("skipped: no cuDNN plans fusions here: {why}"),
        Err(error) => panic!("{error}"),
    };
    if planner.compiles_all() {
        return eprintln!("skipped: the small edition of cuDNN compiles all of its engines");
    }
    let Some(machine) = Machine::new("fusions", &[64]) else { return };
    let say = |asked: &str, folder: &Path| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([TEST, "--exact", "--nocapture"]).env(CHILD, asked).env("LD_LIBRARY_PATH", folder);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text.split_once("BEGIN\n").and_then(|(_, rest)| rest.split_once("END\n")).expect("a table").0.to_string()
    };
    let is_all = ["PLIMSOLL_BLESS", "PLIMSOLL_FUSIONS"].iter().any(|name| std::env::var_os(name).is_some());
    // Engines that are compiled ask the loader for the driver by its name; where there is none, they are not named.
    let without = say("all", Path::new(""));
    assert!(!without.contains("compiled") && without.lines().count() == CARDS.len() * FUSIONS.len(), "{without}");
    if is_all {
        return is_recorded(&planner, "_fusions", &say("all", machine.folder()));
    }
    let place = recorded(&planner, "_fusions");
    let Ok(all) = std::fs::read_to_string(&place) else {
        return eprintln!("skipped: there is no table of cuDNN {} (PLIMSOLL_BLESS=1 writes it)", planner.version());
    };
    let said = say("quick", machine.folder());
    let others: Vec<&str> = said.lines().filter(|line| !all.lines().any(|recorded| recorded == *line)).collect();
    assert!(others.is_empty() && said.lines().count() == 7, "{} says otherwise:\n{}", place.display(), others.join("\n"));
}
