//! Chains: expressions that change one value by one operand after the other, applied to results while they are in registers.
//!
//! ```text
//!  relu6(product * scale + bias)      product ─ * scale ─ + bias ─ at least 0 ─ at most 6
//! ```
//!
//! Each link is one operation that is rounded as the expression rounds it: results have the expression's bits. What is computed from the
//! value alone, as a sigmoid or GELU, is one link, too: a function of a whole tile of results.

use plimsoll_base::DataType;
use plimsoll_request::expr::{BinaryOp, Expr, Instr, Reg, Scalar};

use super::function::Function;
use crate::simd::Isa;

/// The most links of a chain.
const MOST: usize = 8;
/// The most elements of a vector.
const LANES: usize = 16;

/// What a link does with a value `x` and its operand `y`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Change {
    /// `x + y`.
    Add,
    /// `x - y`.
    Subtract,
    /// `y - x`.
    SubtractFrom,
    /// `x * y`.
    Multiply,
    /// `y` where `x` is less, else `x`. The operand is a number.
    AtLeast,
    /// `y` where `x` is more, else `x`. The operand is a number.
    AtMost,
    /// `x` where `y` is above 0, else 0.
    WherePositive,
    /// A function of `x`.
    Function,
}

/// Which functions of the value may be links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Functions {
    /// None: for kernels that change a few vectors at a time, to which a call would be much.
    Never,
    /// Those that the instruction set has code for.
    Of(Isa),
}

/// Where a link's operand comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
enum From {
    /// The number at this index.
    Number(usize),
    /// The expression's input: an element for each column.
    Columns(usize),
    /// The expression's input: an element for each element of the result.
    Elements(usize),
    /// The function at this index.
    Function(usize),
}

/// An expression as a chain.
#[derive(Debug)]
pub(crate) struct Chain {
    links: Vec<(Change, From)>,
    /// Numbers, each as a vector of itself.
    numbers: Vec<[f32; LANES]>,
    functions: Vec<Function>,
}

/// A link whose operand has been found.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub change: Change,
    /// The operand's first element.
    pub operand: *const f32,
    /// 1 where the operand has an element for each column, else 0.
    pub by_column: usize,
    /// 1 where it has one for each element, else 0.
    pub by_element: usize,
    /// What [`Change::Function`] calls; else null.
    pub function: *const Function,
}

/// The links of a chain for one call.
pub(crate) struct Links {
    links: [Link; MOST],
    count: usize,
}

impl Links {
    /// In their order.
    #[inline(always)]
    pub fn get(&self) -> &[Link] {
        &self.links[..self.count]
    }
}

/// How a tile of results is changed.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a> {
    pub links: &'a [Link],
    /// The tile's first element among all results, and its column.
    pub element: usize,
    pub column: usize,
}

impl Changes<'_> {
    /// No change.
    pub const NONE: Changes<'static> = Changes { links: &[], element: 0, column: 0 };
}

impl Chain {
    /// The chain that changes the first input; the results have that shape. `operands` are the shapes of the further inputs. None where
    /// the expression is none.
    pub fn of(expr: &Expr, shape: &[u64], operands: &[Vec<u64>], functions: Functions) -> Option<Chain> {
        let (instrs, [output]) = (expr.instrs(), expr.outputs()) else { return None };
        if expr.inputs().iter().any(|data_type| *data_type != DataType::Float) || expr.inputs().len() != operands.len() + 1 {
            return None;
        }
        let uses = expr.uses();
        let mut chain = Chain { links: Vec::new(), numbers: Vec::new(), functions: Vec::new() };
        let mut value: Option<Reg> = None;
        let mut next = 0;
        while next < instrs.len() {
            let (at, instr) = (next, &instrs[next]);
            next += 1;
            match instr {
                _ if !uses.needed[at] => continue,
                Instr::Input(0) if value.is_none() => {
                    value = Some(Reg(at as u32));
                    continue;
                }
                Instr::Input(0) => return None,
                Instr::Input(_) | Instr::Const(_) => continue,
                // Whether an operand is above 0: a select reads it.
                Instr::Binary(BinaryOp::Greater, x, zero) if Some(*x) != value && is_zero(instrs, *zero) => continue,
                _ => {}
            }
            let current = value?;
            if chain.links.len() == MOST {
                return None;
            }
            let link = if uses.last[current.0 as usize] == at { chain.link(instrs, instr, current, (shape, operands)) } else { None };
            match (link, functions) {
                (Some(link), _) => {
                    chain.links.push(link);
                    value = Some(Reg(at as u32));
                }
                (None, Functions::Never) => return None,
                (None, Functions::Of(isa)) => {
                    let (result, function) = Function::from(expr, &uses, current, isa)?;
                    chain.functions.push(function);
                    chain.links.push((Change::Function, From::Function(chain.functions.len() - 1)));
                    value = Some(result);
                    next = result.0 as usize + 1;
                }
            }
        }
        (value == Some(*output) && (1..=MOST).contains(&chain.links.len())).then_some(chain)
    }

    /// The link that a step is, which is the last reader of the value; none where it is no link of one operation.
    fn link(&mut self, instrs: &[Instr], instr: &Instr, current: Reg, shapes: (&[u64], &[Vec<u64>])) -> Option<(Change, From)> {
        let (shape, operands) = shapes;
        let (op, x, y) = match instr {
            Instr::Select(condition, x, zero) if is_zero(instrs, *zero) => {
                let Some(Instr::Binary(BinaryOp::Greater, operand, _)) = instrs.get(condition.0 as usize) else { return None };
                if *x != current {
                    return None;
                }
                let from = self.operand(instrs.get(operand.0 as usize)?, shape, operands)?;
                return Some((Change::WherePositive, from));
            }
            Instr::Binary(op, x, y) => (*op, *x, *y),
            _ => return None,
        };
        let (change, operand) = match op {
            BinaryOp::Add if x == current => (Change::Add, y),
            BinaryOp::Add => (Change::Add, x),
            BinaryOp::Mul if x == current => (Change::Multiply, y),
            BinaryOp::Mul => (Change::Multiply, x),
            BinaryOp::Sub if x == current => (Change::Subtract, y),
            BinaryOp::Sub => (Change::SubtractFrom, x),
            BinaryOp::Maximum => (Change::AtLeast, y),
            BinaryOp::Minimum => (Change::AtMost, y),
            _ => return None,
        };
        if operand == current || ![x, y].contains(&current) {
            return None;
        }
        let from = self.operand(instrs.get(operand.0 as usize)?, shape, operands)?;
        let has_bound = matches!(change, Change::AtLeast | Change::AtMost);
        if has_bound && !matches!(from, From::Number(number) if !self.numbers[number][0].is_nan()) {
            return None;
        }
        Some((change, from))
    }

    /// Where the operand of a link comes from.
    fn operand(&mut self, instr: &Instr, shape: &[u64], operands: &[Vec<u64>]) -> Option<From> {
        match *instr {
            Instr::Const(Scalar::F32(number)) => {
                self.numbers.push([number; LANES]);
                Some(From::Number(self.numbers.len() - 1))
            }
            Instr::Input(input) if input > 0 => {
                let (input, operand) = (input as usize, &operands[input as usize - 1]);
                let sizes = |shape: &[u64]| shape.iter().copied().skip_while(|size| *size == 1).collect::<Vec<u64>>();
                // Where there is one row, too: the result may lie where the operand does.
                if sizes(operand) == sizes(shape) {
                    return Some(From::Elements(input));
                }
                let outer = operand.len().saturating_sub(1);
                let is_row = operand.last() == shape.last() && operand[..outer].iter().all(|size| *size == 1);
                is_row.then_some(From::Columns(input))
            }
            _ => None,
        }
    }

    /// Whether an operand has an element for each element of the result.
    pub fn has_elements(&self) -> bool {
        self.links.iter().any(|(_, from)| matches!(from, From::Elements(_)))
    }

    /// The links, with operands among `arguments`, which begin with the expression's second input. The chain outlives them.
    pub fn bind(&self, arguments: &[*mut u8]) -> Links {
        let none = Link { change: Change::Add, operand: std::ptr::null(), by_column: 0, by_element: 0, function: std::ptr::null() };
        let mut bound = Links { links: [none; MOST], count: self.links.len() };
        for (link, (change, from)) in bound.links.iter_mut().zip(&self.links) {
            *link = Link { change: *change, ..none };
            (link.operand, link.by_column, link.by_element) = match *from {
                From::Function(function) => {
                    link.function = &raw const self.functions[function];
                    continue;
                }
                From::Number(number) => (self.numbers[number].as_ptr(), 0, 0),
                From::Columns(input) => (arguments[input - 1].cast::<f32>().cast_const(), 1, 0),
                From::Elements(input) => (arguments[input - 1].cast::<f32>().cast_const(), 0, 1),
            };
        }
        bound
    }
}

/// Whether a register is the number 0, with the sign of +0.
fn is_zero(instrs: &[Instr], reg: Reg) -> bool {
    matches!(instrs.get(reg.0 as usize), Some(Instr::Const(Scalar::F32(number))) if number.to_bits() == 0)
}

/// Changes the registers `$sums[row][vector]` by `$changes`: the first `$rows` rows, which are `$row` elements apart in the result. The
/// last vector has `$last` elements. There is at least one row.
macro_rules! change {
    ($vector:ident, $sums:ident, $changes:expr, $rows:expr, $row:expr, $last:expr) => {
        for link in $changes.links {
            if link.change == $crate::expr::Change::Function {
                // A copy: only that leaves the registers.
                let mut tile = $sums;
                // SAFETY: the chain has the function as long as its links are used; a tile is an array of vectors of floats.
                (*link.function).apply(tile.as_mut_ptr().cast::<f32>(), size_of_val(&tile) / size_of::<f32>());
                $sums = tile;
                continue;
            }
            let operand = link.operand.wrapping_add(link.by_column * $changes.column + link.by_element * $changes.element);
            macro_rules! links {
                ($each:ident) => {
                    match link.change {
                        $crate::expr::Change::Add => $each!(x, y, x.add(y)),
                        $crate::expr::Change::Subtract => $each!(x, y, x.sub(y)),
                        $crate::expr::Change::SubtractFrom => $each!(x, y, y.sub(x)),
                        $crate::expr::Change::Multiply => $each!(x, y, x.mul(y)),
                        $crate::expr::Change::AtLeast => $each!(x, y, y.max(x)),
                        $crate::expr::Change::AtMost => $each!(x, y, y.min(x)),
                        $crate::expr::Change::WherePositive => $each!(x, y, x.where_positive(y)),
                        $crate::expr::Change::Function => {}
                    }
                };
            }
            if link.by_element == 0 {
                // All rows have the same operands: these are read once.
                let mut operands = $sums[0];
                for v in 0..operands.len() {
                    let from = operand.wrapping_add(v * link.by_column * $vector::COUNT);
                    let is_part = v + 1 == operands.len() && $last < $vector::COUNT;
                    operands[v] = if is_part { $vector::load_first(from, $last) } else { $vector::load(from) };
                }
                macro_rules! each {
                    ($x:ident, $y:ident, $changed:expr) => {
                        for r in 0..$sums.len() {
                            for v in 0..if r < $rows { $sums[r].len() } else { 0 } {
                                let ($x, $y) = ($sums[r][v], operands[v]);
                                $sums[r][v] = $changed;
                            }
                        }
                    };
                }
                links!(each);
                continue;
            }
            macro_rules! each {
                ($x:ident, $y:ident, $changed:expr) => {
                    for r in 0..$sums.len() {
                        for v in 0..if r < $rows { $sums[r].len() } else { 0 } {
                            let from = operand.wrapping_add(r * $row + v * $vector::COUNT);
                            let is_part = v + 1 == $sums[r].len() && $last < $vector::COUNT;
                            let $y = if is_part { $vector::load_first(from, $last) } else { $vector::load(from) };
                            let $x = $sums[r][v];
                            $sums[r][v] = $changed;
                        }
                    }
                };
            }
            links!(each);
        }
    };
}
pub(crate) use change;

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_request::expr::{ExprBuilder, UnaryOp};

    /// The chain of an expression over a result of 3 by 4, with further operands of these shapes, without functions.
    fn chain_of(operands: &[&[u64]], build: impl Fn(&mut ExprBuilder, &[Reg]) -> Vec<Reg>) -> Option<Vec<(Change, From)>> {
        chain_with(Functions::Never, operands, build)
    }

    fn chain_with(
        functions: Functions,
        operands: &[&[u64]],
        build: impl Fn(&mut ExprBuilder, &[Reg]) -> Vec<Reg>,
    ) -> Option<Vec<(Change, From)>> {
        let mut builder = ExprBuilder::new();
        let inputs: Vec<Reg> = (0..=operands.len()).map(|_| builder.input(DataType::Float).unwrap()).collect();
        let outputs = build(&mut builder, &inputs);
        let operands: Vec<Vec<u64>> = operands.iter().map(|shape| shape.to_vec()).collect();
        Chain::of(&builder.finish(outputs), &[3, 4], &operands, functions).map(|chain| chain.links)
    }

    #[test]
    fn scale_bias_residual_and_bounds_are_a_chain() {
        let links = chain_of(&[&[4], &[1, 4], &[3, 4]], |builder, inputs| {
            let scaled = builder.binary(BinaryOp::Mul, inputs[1], inputs[0]).unwrap();
            let biased = builder.binary(BinaryOp::Add, scaled, inputs[2]).unwrap();
            let added = builder.binary(BinaryOp::Sub, biased, inputs[3]).unwrap();
            let zero = builder.number(DataType::Float, 0.0).unwrap();
            let floor = builder.binary(BinaryOp::Maximum, added, zero).unwrap();
            let six = builder.number(DataType::Float, 6.0).unwrap();
            vec![builder.binary(BinaryOp::Minimum, floor, six).unwrap()]
        });
        let expected = vec![
            (Change::Multiply, From::Columns(1)),
            (Change::Add, From::Columns(2)),
            (Change::Subtract, From::Elements(3)),
            (Change::AtLeast, From::Number(0)),
            (Change::AtMost, From::Number(1)),
        ];
        assert_eq!(links, Some(expected));
    }

    #[test]
    fn the_value_may_be_subtracted_or_subtracted_from() {
        let of = |x: usize, y: usize| {
            chain_of(&[&[4]], move |builder, inputs| vec![builder.binary(BinaryOp::Sub, inputs[x], inputs[y]).unwrap()])
        };
        assert_eq!(of(0, 1), Some(vec![(Change::Subtract, From::Columns(1))]));
        assert_eq!(of(1, 0), Some(vec![(Change::SubtractFrom, From::Columns(1))]));
    }

    /// The gradient of a Relu: the features choose.
    #[test]
    fn an_operand_above_0_lets_the_value_pass() {
        let passed = |compared: f64, otherwise: f64, swapped: bool| {
            chain_of(&[&[3, 4], &[3, 4]], move |builder, inputs| {
                let sum = builder.binary(BinaryOp::Add, inputs[0], inputs[1]).unwrap();
                let compared = builder.number(DataType::Float, compared).unwrap();
                let otherwise = builder.number(DataType::Float, otherwise).unwrap();
                let [x, y] = if swapped { [compared, inputs[2]] } else { [inputs[2], compared] };
                let passes = builder.binary(BinaryOp::Greater, x, y).unwrap();
                vec![builder.select(passes, sum, otherwise).unwrap()]
            })
        };
        let expected = vec![(Change::Add, From::Elements(1)), (Change::WherePositive, From::Elements(2))];
        assert_eq!(passed(0.0, 0.0, false), Some(expected));
        assert_eq!((passed(1.0, 0.0, false), passed(0.0, 1.0, false), passed(0.0, 0.0, true)), (None, None, None));
        assert_eq!((passed(-0.0, 0.0, false), passed(0.0, -0.0, false)), (None, None));
        // The value chooses.
        let of_value = |builder: &mut ExprBuilder, inputs: &[Reg]| {
            let zero = builder.number(DataType::Float, 0.0).unwrap();
            let passes = builder.binary(BinaryOp::Greater, inputs[0], zero).unwrap();
            vec![builder.select(passes, inputs[1], zero).unwrap()]
        };
        assert_eq!(chain_of(&[&[3, 4]], of_value), None);
        let of_itself = |builder: &mut ExprBuilder, inputs: &[Reg]| {
            let zero = builder.number(DataType::Float, 0.0).unwrap();
            let passes = builder.binary(BinaryOp::Greater, inputs[0], zero).unwrap();
            vec![builder.select(passes, inputs[0], zero).unwrap()]
        };
        assert_eq!(chain_of(&[], of_itself), None);
    }

    #[test]
    fn what_is_computed_from_the_value_alone_is_one_link() {
        let functions = Functions::Of(Isa::Avx2);
        // GELU of a sum, and a residual behind it.
        let gelu = |outputs: fn(Reg, Reg) -> Vec<Reg>| {
            chain_with(functions, &[&[4], &[3, 4]], move |builder, inputs| {
                let sum = builder.binary(BinaryOp::Add, inputs[0], inputs[1]).unwrap();
                let [root, half] = [0.5f64.sqrt(), 0.5].map(|number| builder.number(DataType::Float, number).unwrap());
                let less = builder.unary(UnaryOp::Neg, sum).unwrap();
                let less = builder.binary(BinaryOp::Mul, less, root).unwrap();
                let share = builder.unary(UnaryOp::Erfc, less).unwrap();
                let part = builder.binary(BinaryOp::Mul, half, sum).unwrap();
                let made = builder.binary(BinaryOp::Mul, part, share).unwrap();
                outputs(builder.binary(BinaryOp::Add, made, inputs[2]).unwrap(), share)
            })
        };
        let expected = vec![(Change::Add, From::Columns(1)), (Change::Function, From::Function(0)), (Change::Add, From::Elements(2))];
        assert_eq!(gelu(|result, _| vec![result]), Some(expected));
        assert_eq!(gelu(|result, share| vec![result, share]), None);
        // The value twice; a choice by it; a bound that is no number.
        let twice = chain_with(functions, &[], |builder, inputs| vec![builder.binary(BinaryOp::Mul, inputs[0], inputs[0]).unwrap()]);
        let chosen = chain_with(functions, &[], |builder, inputs| {
            let zero = builder.number(DataType::Float, 0.0).unwrap();
            let passes = builder.binary(BinaryOp::Greater, inputs[0], zero).unwrap();
            let less = builder.unary(UnaryOp::Expm1, inputs[0]).unwrap();
            vec![builder.select(passes, inputs[0], less).unwrap()]
        });
        let bound = chain_with(functions, &[], |builder, inputs| {
            let nan = builder.number(DataType::Float, f64::NAN).unwrap();
            vec![builder.binary(BinaryOp::Minimum, inputs[0], nan).unwrap()]
        });
        for links in [twice, chosen, bound] {
            assert_eq!(links, Some(vec![(Change::Function, From::Function(0))]));
        }
        // An operand within; tiles that are too small for a call.
        let with_operand = |builder: &mut ExprBuilder, inputs: &[Reg]| {
            let sigmoid = builder.unary(UnaryOp::Sigmoid, inputs[0]).unwrap();
            let share = builder.binary(BinaryOp::Mul, sigmoid, inputs[1]).unwrap();
            vec![builder.binary(BinaryOp::Mul, share, inputs[0]).unwrap()]
        };
        assert_eq!(chain_with(functions, &[&[4]], with_operand), None);
        let alone = |builder: &mut ExprBuilder, inputs: &[Reg]| vec![builder.unary(UnaryOp::Tanh, inputs[0]).unwrap()];
        assert_eq!(chain_with(Functions::Of(Isa::Portable), &[], alone), None);
        assert!(chain_with(functions, &[], alone).is_some());
    }

    #[test]
    fn a_row_over_a_result_of_one_row_is_one_of_elements() {
        let mut builder = ExprBuilder::new();
        let [x, y] = [0; 2].map(|_| builder.input(DataType::Float).unwrap());
        let sum = builder.binary(BinaryOp::Add, x, y).unwrap();
        let expr = builder.finish(vec![sum]);
        for (shape, has_elements) in [(&[1, 4][..], true), (&[1, 1], true), (&[2, 4], false)] {
            let operand = vec![vec![shape[1]]];
            assert_eq!(Chain::of(&expr, shape, &operand, Functions::Never).unwrap().has_elements(), has_elements, "{shape:?}");
        }
    }

    #[test]
    fn other_expressions_are_none() {
        let binary = |op: BinaryOp, x: usize, y: usize| {
            move |builder: &mut ExprBuilder, inputs: &[Reg]| vec![builder.binary(op, inputs[x], inputs[y]).unwrap()]
        };
        // The value twice, operands only, bounds that may be NaN, rows, one element, too few links.
        assert_eq!(chain_of(&[], binary(BinaryOp::Mul, 0, 0)), None);
        assert_eq!(chain_of(&[&[4], &[4]], binary(BinaryOp::Add, 1, 2)), None);
        assert_eq!(chain_of(&[&[4]], binary(BinaryOp::Maximum, 0, 1)), None);
        assert_eq!(chain_of(&[&[3, 1]], binary(BinaryOp::Add, 0, 1)), None);
        assert_eq!(chain_of(&[&[]], binary(BinaryOp::Add, 0, 1)), None);
        assert_eq!(chain_of(&[], |_, inputs| vec![inputs[0]]), None);
        // A result that is kept beside, and a value that two operations read.
        let kept =
            |builder: &mut ExprBuilder, inputs: &[Reg]| vec![builder.binary(BinaryOp::Add, inputs[0], inputs[1]).unwrap(), inputs[0]];
        assert_eq!(chain_of(&[&[4]], kept), None);
        let twice = |builder: &mut ExprBuilder, inputs: &[Reg]| {
            let sum = builder.binary(BinaryOp::Add, inputs[0], inputs[1]).unwrap();
            let more = builder.binary(BinaryOp::Add, sum, inputs[1]).unwrap();
            vec![builder.binary(BinaryOp::Mul, more, sum).unwrap()]
        };
        assert_eq!(chain_of(&[&[4]], twice), None);
        let nan = |builder: &mut ExprBuilder, inputs: &[Reg]| {
            let nan = builder.number(DataType::Float, f64::NAN).unwrap();
            vec![builder.binary(BinaryOp::Minimum, inputs[0], nan).unwrap()]
        };
        assert_eq!(chain_of(&[], nan), None);
    }
}
