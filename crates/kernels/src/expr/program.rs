//! An expression prepared for a shape: walks the shape in tiles and runs the steps on each.

use std::fmt;
use std::ops::Range;

use plimsoll_base::{Error, Result};
use plimsoll_device::{Cost, Fault};

use super::compile::{Compiled, Step, TableIndex, compile, size_of_type};
use super::layout::{Access, Layout};
use super::ops;
use crate::simd::Isa;
use plimsoll_request::expr::{Expr, Scalar};

/// The least elements of a tile.
const LEAST: usize = 128;
/// Scratch places lie this many bytes apart more than they are long, so that they do not fall onto the same cache sets.
const SKEW: usize = 64;

/// Bytes as aligned as scratch is.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line {
    _bytes: [u8; 64],
}

/// A number of a program, as many times as a tile has elements.
pub(super) type Number = Vec<Line>;

/// Where the arguments of a program begin: the first, then the others. Operands come before outputs.
#[derive(Clone, Copy)]
pub struct Bases<'a> {
    /// The first argument.
    pub first: *mut u8,
    /// The second and so on.
    pub rest: &'a [*mut u8],
}

impl Bases<'_> {
    #[inline(always)]
    fn get(&self, index: usize) -> *mut u8 {
        if index == 0 { self.first } else { self.rest[index - 1] }
    }
}

struct Operand {
    access: Access,
    size: usize,
}

struct Output {
    size: usize,
    /// Operands that are as large and may lie where the output does, although they are read after it is written.
    hazards: Vec<u16>,
    /// Where the output's tile waits in such a case; 0 where there is no hazard.
    spill: usize,
}

/// An expression, prepared for a shape and an instruction set. Cheap to run, on pieces as small as a row.
pub struct TileProgram {
    layout: Layout,
    operands: Vec<Operand>,
    outputs: Vec<Output>,
    steps: Vec<Step>,
    /// Steps whose result is the same for all elements, each with the bytes of that.
    once: Vec<(Step, usize)>,
    /// The numbers, each with its slot.
    constants: Vec<(TableIndex, Scalar)>,
    /// Slots that always point to the same offset in scratch.
    fixed: Vec<(TableIndex, usize)>,
    /// For each operand its offset in scratch where it is spread out; 0 if it never is.
    spread: Vec<usize>,
    entries: usize,
    tile: usize,
    scratch: usize,
    cost: Cost,
}

impl fmt::Debug for TileProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TileProgram").field("layout", &self.layout).field("steps", &self.steps.len()).field("tile", &self.tile).finish()
    }
}

/// The state of a run, all of it in scratch. First the table of pointers. Then for each operand the values that are spread out
/// there now, and for each output whether it waits in its spill place.
struct State {
    table: *mut *mut u8,
    spread: *mut usize,
    spilled: *mut usize,
    scratch: *mut u8,
}

impl TileProgram {
    /// Prepares `expr` for the elements of `shape`; operand `i` has the shape `operands[i]`, which broadcasts to it.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where shapes or the number of operands do not fit, UNIMPLEMENTED for types and operations that
    /// expressions do not have.
    pub fn new(expr: &Expr, shape: &[u64], operands: &[Vec<u64>], isa: Isa) -> Result<TileProgram> {
        if operands.len() != expr.inputs().len() {
            return Err(Error::invalid_argument(format!("an expression of {} operands is given {}", expr.inputs().len(), operands.len())));
        }
        let layout = Layout::new(shape, operands)?;
        let are_single: Vec<bool> = layout.operands.iter().map(|access| layout.total > 0 && *access == Access::Scalar).collect();
        let Compiled { steps, once, constants, read_later, entries, width } = compile(expr, isa, &are_single)?;
        let mut sizes = Vec::new();
        for data_type in expr.inputs().iter().copied().chain(expr.output_types()) {
            sizes.push(size_of_type(data_type)?);
        }
        let inputs = operands.len();
        let output_sizes = &sizes[inputs..];

        let in_scratch = entries + layout.operands.iter().filter(|access| **access != Access::Full).count();
        let fitting = 40 * 1024 / (width * in_scratch.max(1));
        let tile = if fitting >= 1024 { 1024 } else { (fitting / 64 * 64).max(LEAST) };
        let tile = tile.min(layout.total.next_multiple_of(64).max(64));

        let place_bytes = (tile * width).next_multiple_of(64) + SKEW;
        let mut used = ((entries + inputs + output_sizes.len()) * size_of::<usize>()).next_multiple_of(64);
        let mut place = || {
            used += place_bytes;
            used - place_bytes
        };
        let first_inside = inputs + output_sizes.len();
        let fixed: Vec<(TableIndex, usize)> = (first_inside..entries).map(|entry| (entry as TableIndex, place())).collect();
        let spread = layout.operands.iter().map(|access| if *access == Access::Full { 0 } else { place() }).collect();
        let mut outputs = Vec::new();
        for (output, size) in output_sizes.iter().enumerate() {
            let may_alias = |input: &u16| layout.operands[*input as usize] == Access::Full && sizes[*input as usize] == *size;
            let hazards: Vec<u16> = read_later[output].iter().copied().filter(may_alias).collect();
            let spill = if hazards.is_empty() { 0 } else { place() };
            outputs.push(Output { size: *size, hazards, spill });
        }

        let mut bytes = 0.0;
        for (shape, size) in operands.iter().zip(&sizes) {
            bytes += (super::layout::elements(shape)? * size) as f64;
        }
        bytes += output_sizes.iter().map(|size| (layout.total * size) as f64).sum::<f64>();
        let cost = Cost { flops: expr.flops() * layout.total as f64, bytes };
        let operands = layout.operands.iter().zip(&sizes).map(|(access, size)| Operand { access: access.clone(), size: *size }).collect();
        Ok(TileProgram { layout, operands, outputs, steps, once, constants, fixed, spread, entries, tile, scratch: used, cost })
    }

    /// Bytes of scratch that a run needs, 64-byte aligned.
    pub fn scratch(&self) -> u64 {
        self.scratch as u64
    }

    /// The cost of the whole shape.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Elements of the shape.
    pub fn total(&self) -> usize {
        self.layout.total
    }

    /// Pieces that a walk is best cut into: multiples of this many elements.
    pub(super) fn grain(&self) -> usize {
        if self.short_rows() { self.layout.row } else { 64 }
    }

    /// Bytes of the widest argument's element.
    pub(super) fn widest(&self) -> usize {
        self.operands.iter().map(|operand| operand.size).chain(self.outputs.iter().map(|output| output.size)).max().unwrap_or(1)
    }

    /// How many arguments have an element for each element of the shape.
    pub(super) fn full(&self) -> usize {
        self.outputs.len() + self.operands.iter().filter(|operand| operand.access == Access::Full).count()
    }

    /// `(operand, output)`: the output may lie where the operand does.
    pub fn in_place(&self) -> Vec<(usize, usize)> {
        let mut pairs = Vec::new();
        for (input, operand) in self.operands.iter().enumerate() {
            for (number, output) in self.outputs.iter().enumerate() {
                if operand.access == Access::Full && operand.size == output.size {
                    pairs.push((input, number));
                }
            }
        }
        pairs
    }

    /// Whether rows are walked many at a time, with the operands that have rows spread out beforehand; longer ones are walked
    /// one by one.
    fn short_rows(&self) -> bool {
        self.layout.row * 2 <= self.tile && self.operands.iter().any(|operand| matches!(operand.access, Access::Rows { .. }))
    }

    /// Readies `scratch` for [`TileProgram::run`] with the same bases, except that the first may change.
    ///
    /// # Safety
    /// `bases` names an argument for each operand and output. Each has the elements that the shapes ask for, initialised for
    /// operands and aligned to the element. `scratch` has as many bytes as were asked for, 64-byte aligned, and no other user until
    /// the last run.
    pub unsafe fn begin(&self, bases: &Bases<'_>, scratch: *mut u8) {
        let state = self.state(scratch);
        let len = self.tile.min(self.layout.total);
        // SAFETY: every entry, offset and tile lies within the scratch that `new` laid out.
        unsafe {
            self.point(&state, bases, len);
            for (entry, value) in &self.constants {
                fill_scalar(state.table.add(*entry as usize).read(), *value, len);
            }
            self.compute_once(&state, len);
        }
    }

    /// As [`TileProgram::begin`], with the numbers where [`TileProgram::numbers`] has put them.
    ///
    /// # Safety
    /// As there. `numbers` are those, and stay until the last run.
    pub(super) unsafe fn begin_with(&self, numbers: &[Number], bases: &Bases<'_>, scratch: *mut u8) {
        let state = self.state(scratch);
        // SAFETY: as in `begin`; nothing writes where a number is.
        unsafe {
            self.point(&state, bases, self.tile.min(self.layout.total));
            for ((entry, _), number) in self.constants.iter().zip(numbers) {
                state.table.add(*entry as usize).write(number.as_ptr().cast::<u8>().cast_mut());
            }
            self.compute_once(&state, self.tile.min(self.layout.total));
        }
    }

    /// Computes what is the same for all elements, and writes it as often as a tile has elements.
    unsafe fn compute_once(&self, state: &State, len: usize) {
        for (step, size) in self.once.iter().filter(|_| len > 0) {
            // SAFETY: the table has the places of numbers, of operands with one element and of scratch by now. These steps do not fail.
            unsafe {
                let get = |entry: TableIndex| state.table.add(entry as usize).read();
                let out = get(step.out);
                (step.run)(1, get(step.a), get(step.b), get(step.c), out);
                splat(out, out, *size, len);
            }
        }
    }

    /// The numbers, filled out for a tile.
    pub(super) fn numbers(&self) -> Vec<Number> {
        let of = |(_, value): &(TableIndex, Scalar)| {
            let bytes = self.tile * value.data_type().size().unwrap_or(0);
            let mut number = vec![Line { _bytes: [0; 64] }; bytes.div_ceil(64)];
            // SAFETY: as many elements as that are there.
            unsafe { fill_scalar(number.as_mut_ptr().cast(), *value, self.tile) };
            number
        };
        self.constants.iter().map(of).collect()
    }

    /// Points the table to what all tiles of a run have.
    unsafe fn point(&self, state: &State, bases: &Bases<'_>, len: usize) {
        let scratch = state.scratch;
        // SAFETY: every entry, offset and tile lies within the scratch that `new` laid out; a scalar operand has one element.
        unsafe {
            for (entry, offset) in &self.fixed {
                state.table.add(*entry as usize).write(scratch.add(*offset));
            }
            for (number, operand) in self.operands.iter().enumerate() {
                state.spread.add(number).write(0);
                if operand.access == Access::Scalar {
                    let place = scratch.add(self.spread[number]);
                    splat(place, bases.get(number), operand.size, len);
                    state.table.add(number).write(place);
                }
            }
            let inputs = self.operands.len();
            for (number, output) in self.outputs.iter().enumerate() {
                let address = bases.get(inputs + number);
                let spilled = output.hazards.iter().any(|input| bases.get(*input as usize) == address);
                state.spilled.add(number).write(usize::from(spilled));
                if spilled {
                    state.table.add(inputs + number).write(scratch.add(output.spill));
                }
            }
        }
    }

    /// Computes the elements `range` of the shape, in row-major order. The first base may be any address such that the
    /// elements of `range` lie where they would if all were there.
    ///
    /// # Errors
    /// A fault where an integer is divided by zero, or raised to a negative power.
    ///
    /// # Safety
    /// As for [`TileProgram::begin`], which was called on this scratch. No other thread writes the operands or touches the outputs
    /// in `range`. An operand may lie where an output does as [`TileProgram::in_place`] says.
    pub unsafe fn run(&self, range: Range<usize>, bases: &Bases<'_>, scratch: *mut u8) -> Result<(), Fault> {
        let state = self.state(scratch);
        let row = self.layout.row;
        let by_rows = self.operands.iter().any(|operand| matches!(operand.access, Access::Rows { .. }));
        let mut at = range.start;
        // SAFETY: tiles are parts of `range` no longer than `tile`; everything else is the caller's promise.
        unsafe {
            if !by_rows {
                while at < range.end {
                    let len = self.tile.min(range.end - at);
                    self.tile(&state, bases, at, len)?;
                    at += len;
                }
            } else if self.short_rows() && range.start.is_multiple_of(row) && range.end.is_multiple_of(row) {
                let most = self.tile / row;
                while at < range.end {
                    let rows = most.min((range.end - at) / row);
                    self.spread_rows(&state, bases, at / row, rows, most);
                    self.tile(&state, bases, at, rows * row)?;
                    at += rows * row;
                }
            } else {
                while at < range.end {
                    let (number, column) = (at / row, at % row);
                    let len = (row - column).min(self.tile).min(range.end - at);
                    self.point_row(&state, bases, number, column, len);
                    self.tile(&state, bases, at, len)?;
                    at += len;
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn state(&self, scratch: *mut u8) -> State {
        let table = scratch.cast::<*mut u8>();
        let spread = table.wrapping_add(self.entries).cast::<usize>();
        State { table, spread, spilled: spread.wrapping_add(self.operands.len()), scratch }
    }

    /// Runs the steps on `len` elements from `at` on; operands that are walked by rows are in the table already.
    #[inline(always)]
    unsafe fn tile(&self, state: &State, bases: &Bases<'_>, at: usize, len: usize) -> Result<(), Fault> {
        let inputs = self.operands.len();
        let table = state.table;
        // SAFETY: entries are within the table, which holds valid addresses of `len` elements for every entry by now.
        unsafe {
            for (number, operand) in self.operands.iter().enumerate() {
                if operand.access == Access::Full {
                    table.add(number).write(bases.get(number).wrapping_add(at * operand.size));
                }
            }
            for (number, output) in self.outputs.iter().enumerate() {
                if state.spilled.add(number).read() == 0 {
                    table.add(inputs + number).write(bases.get(inputs + number).wrapping_add(at * output.size));
                }
            }
            let get = |entry: TableIndex| table.add(entry as usize).read();
            let mut status = ops::OK;
            for step in &self.steps {
                status |= (step.run)(len, get(step.a), get(step.b), get(step.c), get(step.out));
            }
            if status != ops::OK {
                return Err(ops::fault(status));
            }
            for (number, output) in self.outputs.iter().enumerate() {
                if state.spilled.add(number).read() != 0 {
                    let place = bases.get(inputs + number).wrapping_add(at * output.size);
                    std::ptr::copy_nonoverlapping(get((inputs + number) as TableIndex), place, len * output.size);
                }
            }
        }
        Ok(())
    }

    /// The element of the operand where row `row` begins.
    #[inline(always)]
    fn row_offset(&self, strides: &[usize], row: usize) -> usize {
        let (mut rest, mut offset) = (row, 0);
        for (size, stride) in self.layout.outer.iter().zip(strides).rev() {
            offset += rest % size * stride;
            rest /= size;
        }
        offset
    }

    /// Points the table to `len` elements from `column` on of row `row`.
    unsafe fn point_row(&self, state: &State, bases: &Bases<'_>, row: usize, column: usize, len: usize) {
        for (number, operand) in self.operands.iter().enumerate() {
            let Access::Rows { along, strides, .. } = &operand.access else { continue };
            let offset = self.row_offset(strides, row) + if *along { column } else { 0 };
            let source = bases.get(number).wrapping_add(offset * operand.size);
            // SAFETY: the operand has an element there; its spread place has room for a tile.
            unsafe {
                if *along {
                    state.table.add(number).write(source);
                } else {
                    let place = state.scratch.add(self.spread[number]);
                    splat(place, source, operand.size, len);
                    state.table.add(number).write(place);
                }
                state.spread.add(number).write(0);
            }
        }
    }

    /// Spreads the operands of `rows` rows from `first` on out in scratch; `most` rows where all are the same, so that the
    /// next tile finds them there.
    unsafe fn spread_rows(&self, state: &State, bases: &Bases<'_>, first: usize, rows: usize, most: usize) {
        let row = self.layout.row;
        for (number, operand) in self.operands.iter().enumerate() {
            let Access::Rows { along, strides, period } = &operand.access else { continue };
            let size = operand.size;
            let place = state.scratch.wrapping_add(self.spread[number]);
            // SAFETY: the operand has the elements that its strides lead to; the place has room for a tile, which is at
            // least `most` rows.
            unsafe {
                let same = first / period;
                if (first + rows - 1) / period == same {
                    if state.spread.add(number).read() == same + 1 {
                        continue;
                    }
                    let source = bases.get(number).wrapping_add(self.row_offset(strides, first) * size);
                    if *along {
                        repeat(place, source, row * size, most);
                    } else {
                        splat(place, source, size, row * most);
                    }
                    state.spread.add(number).write(same + 1);
                } else {
                    for index in 0..rows {
                        let source = bases.get(number).wrapping_add(self.row_offset(strides, first + index) * size);
                        let target = place.add(index * row * size);
                        if *along {
                            std::ptr::copy_nonoverlapping(source, target, row * size);
                        } else {
                            splat(target, source, size, row);
                        }
                    }
                    state.spread.add(number).write(0);
                }
                state.table.add(number).write(place);
            }
        }
    }
}

/// Writes the element at `source` `count` times.
unsafe fn splat(target: *mut u8, source: *const u8, size: usize, count: usize) {
    unsafe fn typed<T: Copy>(target: *mut u8, source: *const u8, count: usize) {
        // SAFETY: the caller's promise: one element at `source`, room for `count` at `target`, both aligned.
        unsafe {
            std::slice::from_raw_parts_mut(target.cast::<std::mem::MaybeUninit<T>>(), count)
                .fill(std::mem::MaybeUninit::new(source.cast::<T>().read()))
        };
    }
    // SAFETY: the caller's promise, for an element of that size.
    unsafe {
        match size {
            1 => typed::<u8>(target, source, count),
            2 => typed::<u16>(target, source, count),
            4 => typed::<u32>(target, source, count),
            8 => typed::<u64>(target, source, count),
            _ if count == 0 => {}
            _ => repeat(target, source, size, count),
        }
    }
}

unsafe fn fill_scalar(target: *mut u8, value: Scalar, count: usize) {
    let bits = value.bits().to_le();
    let Some(size) = value.data_type().size() else { return };
    // SAFETY: 8 aligned bytes hold any scalar, the lowest first; `target` has room for `count` of them by the caller's promise.
    unsafe { splat(target, std::ptr::from_ref(&bits).cast(), size, count) };
}

/// Writes the `len` bytes at `source` `count` times, one after the other.
unsafe fn repeat(target: *mut u8, source: *const u8, len: usize, count: usize) {
    // SAFETY: the caller's promise: `len` bytes at `source`, room for `len * count` at `target`. The source of a copy within the
    // target is written already and ends where the copy begins.
    unsafe {
        std::ptr::copy_nonoverlapping(source, target, len);
        let (mut done, all) = (len, len * count);
        while done < all {
            let more = done.min(all - done);
            std::ptr::copy_nonoverlapping(target, target.add(done), more);
            done += more;
        }
    }
}
