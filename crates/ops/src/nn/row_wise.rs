//! Works on the same rows as one: a reduction or a softmax of rows, what it is of, and what is made of it.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::expr::Expr;
use plimsoll_request::nn::Nn;
use plimsoll_request::reduce::Reduction;
use plimsoll_request::row_wise::{RowStep, RowWise, Span};

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, ValueId, View, WorkId, Works};

/// Works on the same rows, as of a layer normalization or of the gradient of a softmax: one work. Attention is found before.
pub const FUSIONS: &[Fusion] = &[Fusion { name: "row_wise", stage: Stage::Joined, find: row_wise }];

/// The fewest rows: they are what threads share.
const LEAST_ROWS: u64 = 64;
/// The least and the most elements of a row: a short one has too little to do, a long one does not stay in the cache.
const ROW: std::ops::RangeInclusive<u64> = 8..=8192;
/// The most steps of one work.
const MOST_STEPS: usize = 12;
/// The most arguments of one work.
const MOST_ARGUMENTS: usize = 24;

/// A work and those that make its operands, as one. They are of the same rows, and no other work has to come between them.
fn row_wise(works: &dyn Works, work: WorkId) -> Option<Patch> {
    // A variable's new value lies where the old one does.
    if works.outputs(work).iter().any(|output| works.is_variable(*output)) {
        return None;
    }
    let makers = makers(works, work);
    let (rows, row) = makers.iter().chain([&work]).find_map(|member| sizes(works, *member))?;
    let last = Member::of(works, work, rows, row)?;
    let mut joined = Vec::new();
    let mut members = Vec::new();
    for maker in makers {
        let Some(member) = Member::of(works, maker, rows, row) else { continue };
        if works.absorbs(work, maker) && works.is_next(maker, work) && is_near(works, &member, work, &last) {
            joined.push(maker);
            members.push(member);
        }
    }
    if joined.is_empty() {
        return None;
    }
    members.push(last);
    let has = |value: &View| {
        works.is_kept(value.value) || works.readers(value.value).iter().any(|reader| *reader != work && !joined.contains(reader))
    };
    let Joined { request, inputs, outputs } = Joined::of(rows, row, &members, &has)?;
    let fits = request.steps.len() <= MOST_STEPS && inputs.len() + outputs.len() <= MOST_ARGUMENTS;
    let becomes = KernelRequest::RowWise(request);
    if !fits || becomes.arguments().is_err() || !works.answers(work, &becomes) {
        return None;
    }
    Some(Patch::new(works).join(&joined, work, Becomes::Request(becomes), inputs, outputs))
}

/// The works that make what a work reads, each once.
fn makers(works: &dyn Works, work: WorkId) -> Vec<WorkId> {
    let mut makers: Vec<WorkId> = Vec::new();
    for input in works.inputs(work) {
        makers.extend(works.maker(input.value).filter(|maker| !makers.contains(maker)));
    }
    makers
}

/// The rows that a reduction, a softmax or steps of rows are of, and the elements of each.
fn sizes(works: &dyn Works, work: WorkId) -> Option<(u64, u64)> {
    let (rows, row) = match works.computes(work) {
        Computes::Request(KernelRequest::RowWise(request)) => (request.rows, request.row),
        Computes::Request(KernelRequest::Nn(Nn::Softmax { data_type: DataType::Float, rows, classes, .. })) => (*rows, *classes),
        Computes::Request(KernelRequest::Reduction(Reduction::Reduce { data_type: DataType::Float, shape, axes, .. })) => {
            // The last axes, and no other of more than one element.
            let first = (0..shape.len()).rev().take_while(|axis| axes.contains(axis) || shape[*axis] == 1).last()?;
            let of = |sizes: &[u64]| sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
            if axes.iter().any(|axis| *axis < first && shape[*axis] != 1) {
                return None;
            }
            (of(&shape[..first])?, of(&shape[first..])?)
        }
        _ => return None,
    };
    (rows >= LEAST_ROWS && ROW.contains(&row)).then_some((rows, row))
}

/// Whether a maker may be as late as the work that reads it: that keeps nothing large for longer than before.
fn is_near(works: &dyn Works, maker: &Member, work: WorkId, last: &Member) -> bool {
    let wide = |member: &Member| -> Vec<View> {
        let spans = member.request.inputs.iter().zip(&member.inputs);
        spans.filter(|(span, _)| **span == Span::Rows).map(|(_, view)| view.clone()).collect()
    };
    let is_wide = |member: &Member, result: usize| member.spans[member.request.results[result]] == Span::Rows;
    let of_last = wide(last);
    let reads = |view: &View| of_last.iter().any(|other| other.value == view.value);
    let longer = wide(maker).iter().filter(|view| !reads(view)).count();
    // A result that nobody else reads need not be kept.
    let gone =
        |(result, view): (usize, &View)| is_wide(maker, result) && *works.readers(view.value) == [work] && !works.is_kept(view.value);
    let gone = maker.outputs.iter().enumerate().filter(|(result, view)| gone((*result, view))).count();
    // What is made of the maker's rows alone can be where they are made.
    let made_there = |view: &View| maker.outputs.iter().any(|output| output.value == view.value);
    let follows = last.request.inputs.iter().zip(&last.inputs).all(|(span, view)| !span.is_by_rows() || made_there(view));
    longer <= gone || follows
}

/// A work on rows: its steps by themselves.
struct Member {
    request: RowWise,
    spans: Vec<Span>,
    inputs: Vec<View>,
    outputs: Vec<View>,
}

impl Member {
    fn of(works: &dyn Works, work: WorkId, rows: u64, row: u64) -> Option<Member> {
        let inputs = works.inputs(work).to_vec();
        let single = |step: RowStep| RowWise { rows, row, inputs: vec![Span::Rows], steps: vec![step], results: vec![1] };
        let request = match works.computes(work) {
            Computes::Expr(expr, shape) => of_expr(expr, shape, &inputs, rows, row)?,
            Computes::Request(request) => match request {
                KernelRequest::RowWise(request) => request.clone(),
                KernelRequest::Nn(Nn::Softmax { log, .. }) => single(RowStep::Softmax { log: *log, of: 0 }),
                KernelRequest::Reduction(Reduction::Reduce { op, .. }) => single(RowStep::Reduce { op: *op, of: 0 }),
                _ => return None,
            },
            _ => return None,
        };
        let is_expr = matches!(works.computes(work), Computes::Expr(..));
        if !is_expr && sizes(works, work) != Some((rows, row)) {
            return None;
        }
        let spans = request.check().ok()?;
        let outputs = works.outputs(work);
        let view = |(value, result): (&ValueId, &usize)| View {
            value: *value,
            data_type: DataType::Float,
            shape: spans[*result].shape(rows, row).into(),
        };
        let outputs = outputs.iter().zip(&request.results).map(view).collect::<Vec<View>>();
        let floats = inputs.iter().all(|input| input.data_type == DataType::Float);
        (floats && outputs.len() == works.outputs(work).len()).then_some(Member { request, spans, inputs, outputs })
    }
}

/// An expression as a step of those rows: for every element, or for one element of each row.
fn of_expr(expr: &Expr, shape: &[u64], operands: &[View], rows: u64, row: u64) -> Option<RowWise> {
    let of = |sizes: &[u64]| sizes.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
    let elements = of(shape)?;
    let (span, first) = if elements == rows {
        (Span::Column, shape.len())
    } else {
        // The last dimensions that make a row.
        let first = (0..=shape.len()).rev().find(|first| of(&shape[*first..]) == Some(row))?;
        (elements == rows.checked_mul(row)?).then_some((Span::Rows, first))?
    };
    let span_of = |operand: &View| {
        let before = shape.len().checked_sub(operand.shape.len())?;
        let own = |axes: std::ops::Range<usize>| {
            axes.map(|axis| if axis < before { 1 } else { operand.shape[axis - before] }).collect::<Vec<u64>>()
        };
        let (outer, inner) = (own(0..first), own(first..shape.len()));
        let is_one = |sizes: &[u64]| sizes.iter().all(|size| *size == 1);
        match (outer == shape[..first], inner == shape[first..]) {
            _ if is_one(&outer) && is_one(&inner) => Some(Span::One),
            (true, true) if span == Span::Rows => Some(Span::Rows),
            (true, _) if is_one(&inner) => Some(Span::Column),
            (_, true) if is_one(&outer) => Some(Span::Row),
            _ => None,
        }
    };
    let inputs = operands.iter().map(span_of).collect::<Option<Vec<Span>>>()?;
    let step = RowStep::Expr { expr: expr.clone(), operands: (0..inputs.len()).collect(), span };
    let results = (inputs.len()..inputs.len() + expr.outputs().len()).collect();
    Some(RowWise { rows, row, inputs, steps: vec![step], results })
}

/// Members as one.
struct Joined {
    request: RowWise,
    inputs: Vec<View>,
    outputs: Vec<ValueId>,
}

impl Joined {
    /// The members one behind the other. Results are those of the last, and those before it that `has` another reader.
    fn of(rows: u64, row: u64, members: &[Member], has: &dyn Fn(&View) -> bool) -> Option<Joined> {
        // Every value that a member reads or makes: what it is of the rows, and what it is in the plan, if it is that.
        let mut inputs: Vec<(Span, View)> = Vec::new();
        for member in members {
            for (span, view) in member.request.inputs.iter().zip(&member.inputs) {
                let is_made = members.iter().any(|other| other.outputs.iter().any(|output| output.value == view.value));
                match inputs.iter().find(|(_, known)| known.value == view.value) {
                    _ if is_made => {}
                    None => inputs.push((*span, view.clone())),
                    Some((other, _)) if other == span => {}
                    // A result may lie where an input does: it has one meaning.
                    Some(_) => return None,
                }
            }
        }
        let mut known: Vec<(Span, Option<&View>)> = inputs.iter().map(|(span, view)| (*span, Some(view))).collect();
        let mut steps = Vec::new();
        for member in members {
            let of = |(span, view): (&Span, &View)| {
                known.iter().position(|(other, known)| other == span && known.is_some_and(|known| known.value == view.value))
            };
            let mut numbers = member.request.inputs.iter().zip(&member.inputs).map(of).collect::<Option<Vec<usize>>>()?;
            for step in &member.request.steps {
                let of = |value: &usize| numbers[*value];
                steps.push(match step {
                    RowStep::Expr { expr, operands, span } => {
                        RowStep::Expr { expr: expr.clone(), operands: operands.iter().map(of).collect(), span: *span }
                    }
                    RowStep::Reduce { op, of: value } => RowStep::Reduce { op: *op, of: of(value) },
                    RowStep::Softmax { log, of: value } => RowStep::Softmax { log: *log, of: of(value) },
                });
                let (count, span) = step.makes();
                for _ in 0..count {
                    let result = member.request.results.iter().position(|result| *result == numbers.len());
                    numbers.push(known.len());
                    known.push((span, result.map(|result| &member.outputs[result])));
                }
            }
        }
        let last = members.last()?;
        let is_result = |view: &View| has(view) || last.outputs.iter().any(|output| output.value == view.value);
        let kept = known.iter().enumerate().skip(inputs.len()).filter_map(|(number, (_, view))| Some((number, (*view)?)));
        let (results, outputs) = kept.filter(|(_, view)| is_result(view)).map(|(number, view)| (number, view.value)).unzip();
        let request = RowWise { rows, row, inputs: inputs.iter().map(|(span, _)| *span).collect(), steps, results };
        Some(Joined { request, inputs: inputs.into_iter().map(|(_, view)| view).collect(), outputs })
    }
}
