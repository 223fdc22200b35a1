//! Computations of rows, one behind the other.

use plimsoll_base::{DataType, Error, Result};
use serde::{Deserialize, Serialize};

use crate::KernelRequest;
use crate::expr::Expr;
use crate::nn::Nn;
use crate::reduce::{ReduceOp, Reduction};

/// Expressions and reductions of rows, one behind the other, as of a layer normalization. What is between is in no argument. Floats.
///
/// Values are numbered: the inputs, then what each step makes. Arguments: the inputs, the results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowWise {
    /// How many rows.
    pub rows: u64,
    /// Elements of a row.
    pub row: u64,
    /// What each input has.
    pub inputs: Vec<Span>,
    /// The steps. Each reads values before it.
    pub steps: Vec<RowStep>,
    /// The values that are results, each made by a step.
    pub results: Vec<usize>,
}

/// What a value has of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Span {
    /// All elements.
    Rows,
    /// One element of each row.
    Column,
    /// A row, the same for all.
    Row,
    /// One element, the same for all.
    One,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum RowStep {
    /// An expression for every element, or for one element of each row. It makes a value for each of its results.
    Expr {
        /// The computation on one element of each operand.
        expr: Expr,
        /// The values that are its operands.
        operands: Vec<usize>,
        /// [`Span::Rows`] or [`Span::Column`].
        span: Span,
    },
    /// A reduction of each row to one element.
    Reduce {
        /// The reduction of numbers.
        op: ReduceOp,
        /// The value that is reduced: it has all elements.
        of: usize,
    },
    /// `Softmax` of each row, or `LogSoftmax`.
    Softmax {
        /// Whether the logarithm is made.
        log: bool,
        /// The value that it is of: it has all elements.
        of: usize,
    },
}

impl RowStep {
    /// The values that it reads.
    pub fn reads(&self) -> &[usize] {
        match self {
            RowStep::Expr { operands, .. } => operands,
            RowStep::Reduce { of, .. } | RowStep::Softmax { of, .. } => std::slice::from_ref(of),
        }
    }

    /// How many values it makes, and what they have.
    pub fn makes(&self) -> (usize, Span) {
        match self {
            RowStep::Expr { expr, span, .. } => (expr.outputs().len(), *span),
            RowStep::Reduce { .. } => (1, Span::Column),
            RowStep::Softmax { .. } => (1, Span::Rows),
        }
    }

    /// The step by itself, for so many rows, where values have those spans.
    pub fn alone(&self, rows: u64, row: u64, spans: &[Span]) -> KernelRequest {
        let data_type = DataType::Float;
        match self {
            RowStep::Expr { expr, operands, span } => {
                let operands = operands.iter().map(|value| spans[*value].shape(rows, row)).collect();
                KernelRequest::Expr { expr: expr.clone(), shape: span.shape(rows, row), operands }
            }
            RowStep::Reduce { op, .. } => {
                KernelRequest::Reduction(Reduction::Reduce { op: *op, data_type, shape: vec![rows, row], axes: vec![1], divided: false })
            }
            RowStep::Softmax { log, .. } => KernelRequest::Nn(Nn::Softmax { log: *log, data_type, rows, classes: row }),
        }
    }
}

impl Span {
    /// The shape of a value, where there are so many rows.
    pub fn shape(self, rows: u64, row: u64) -> Vec<u64> {
        match self {
            Span::Rows => vec![rows, row],
            Span::Column => vec![rows, 1],
            Span::Row => vec![1, row],
            Span::One => vec![1, 1],
        }
    }

    /// Whether it grows with the number of rows.
    pub fn is_by_rows(self) -> bool {
        matches!(self, Span::Rows | Span::Column)
    }
}

impl RowWise {
    /// The most values.
    pub const MOST_VALUES: usize = 256;

    /// What each value has.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where steps do not fit each other, or there are more than [`RowWise::MOST_VALUES`].
    pub fn check(&self) -> Result<Vec<Span>> {
        let wrong = || Error::invalid_argument("steps of rows that do not fit each other");
        let mut spans = self.inputs.clone();
        for step in &self.steps {
            let read: Option<Vec<Span>> = step.reads().iter().map(|value| spans.get(*value).copied()).collect();
            let read = read.ok_or_else(wrong)?;
            let fits = match step {
                RowStep::Expr { expr, span, .. } => {
                    let floats = |data_type: &DataType| *data_type == DataType::Float;
                    let of_floats = expr.inputs().iter().all(floats) && expr.output_types().iter().all(floats);
                    let spread = |read: &Span| match span {
                        Span::Rows => true,
                        Span::Column => matches!(read, Span::Column | Span::One),
                        Span::Row | Span::One => false,
                    };
                    of_floats && !expr.can_fail() && expr.inputs().len() == read.len() && read.iter().all(spread)
                }
                RowStep::Reduce { op, .. } => !matches!(op, ReduceOp::All | ReduceOp::Any) && read == [Span::Rows],
                RowStep::Softmax { .. } => read == [Span::Rows],
            };
            if !fits {
                return Err(wrong());
            }
            let (count, span) = step.makes();
            if spans.len().saturating_add(count) > RowWise::MOST_VALUES {
                return Err(Error::invalid_argument(format!("rows with more than {} values", RowWise::MOST_VALUES)));
            }
            spans.extend(std::iter::repeat_n(span, count));
        }
        let made = self.inputs.len()..spans.len();
        if self.results.len() > made.len() {
            return Err(wrong());
        }
        let differ = self.results.iter().enumerate().all(|(at, result)| !self.results[..at].contains(result));
        if !differ || !self.results.iter().all(|result| made.contains(result)) {
            return Err(wrong());
        }
        Ok(spans)
    }
}
