//! Fusions of products: operands and results that are transposed are read and written where they lie.

use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::movement::Movement;
use plimsoll_request::product::ProductSpec;

use crate::fusion::{Becomes, Computes, Fusion, Patch, Stage, ValueId, View, WorkId, Works};
use crate::math::contraction::product_of;

/// A product of what Transpose makes, or whose results Transpose takes, as the heads of attention: nothing is moved where the same
/// matrices can be read or written in their place.
pub const FUSIONS: &[Fusion] = &[Fusion { name: "product_of_transposed", stage: Stage::Lowered, find: of_transposed }];

/// A dimension of a tensor: its size, and the distance between its elements.
type Dim = (u64, u64);

/// An argument of a product as it lies: the dimensions of batch, rows and columns, outermost first.
type Lies = [Vec<Dim>; 3];

/// An operand before it was transposed.
struct Before {
    view: View,
    lies: Lies,
}

/// The result after it was transposed.
struct After {
    work: WorkId,
    value: ValueId,
    lies: Lies,
}

fn of_transposed(works: &dyn Works, work: WorkId) -> Option<Patch> {
    let (data_type, spec) = match works.computes(work) {
        Computes::Anchor(Anchor::Product(data_type, spec), None) => (*data_type, *spec),
        Computes::Request(KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None }) => {
            (*data_type, *spec)
        }
        _ => return None,
    };
    let [a, b] = works.inputs(work) else { return None };
    // Sums of a single row or column may be in another order where the other operand lies otherwise.
    let is_single = spec.m == 1 || spec.n == 1;
    if spec.places.is_some() || is_single || [spec.batch, spec.m, spec.n, spec.k].contains(&0) {
        return None;
    }
    let (a_matrix, b_matrix) = matrices(&spec);
    let request = works.request(work)?;
    let before = [before(works, a, work, spec.batch, a_matrix, &request), before(works, b, work, spec.batch, b_matrix, &request)];
    let after = after(works, work, &spec, &request);
    // As much as can be.
    for [take_a, take_b, take_c] in SIDES {
        let (a, b, c) = (before[0].as_ref().filter(|_| take_a), before[1].as_ref().filter(|_| take_b), after.as_ref().filter(|_| take_c));
        if [a.is_some(), b.is_some(), c.is_some()] != [take_a, take_b, take_c] {
            continue;
        }
        let dense = |matrix| dense(spec.batch, matrix);
        let lies = [
            a.map_or_else(|| dense(a_matrix), |side| side.lies.clone()),
            b.map_or_else(|| dense(b_matrix), |side| side.lies.clone()),
            c.map_or_else(|| dense([spec.m, spec.n]), |side| side.lies.clone()),
        ];
        let Some(anchor) = placed(&spec, lies).map(|placed| Anchor::Product(data_type, placed)) else { continue };
        let request = KernelRequest::Anchor { anchor, epilogue: None, pooling: None };
        if !works.answers(work, &request) {
            continue;
        }
        let mut inputs = works.inputs(work).to_vec();
        for (input, side) in inputs.iter_mut().zip([a, b]) {
            if let Some(side) = side {
                *input = side.view.clone();
            }
        }
        let becomes = Becomes::Anchor(anchor);
        return Some(match c {
            Some(after) => Patch::new(works).join(&[work], after.work, becomes, inputs, vec![after.value]),
            None => Patch::new(works).change(work, becomes, inputs, works.outputs(work).to_vec()),
        });
    }
    None
}

/// Which of A, B and C lie elsewhere.
const SIDES: [[bool; 3]; 7] = [
    [true, true, true],
    [true, true, false],
    [true, false, true],
    [false, true, true],
    [true, false, false],
    [false, true, false],
    [false, false, true],
];

/// Rows and columns of A and B, as they lie where they are dense.
fn matrices(spec: &ProductSpec) -> ([u64; 2], [u64; 2]) {
    let a = if spec.transpose_a { [spec.k, spec.m] } else { [spec.m, spec.k] };
    let b = if spec.transpose_b { [spec.n, spec.k] } else { [spec.k, spec.n] };
    (a, b)
}

fn dense(batch: u64, [rows, columns]: [u64; 2]) -> Lies {
    [vec![(batch, rows * columns)], vec![(rows, columns)], vec![(columns, 1)]]
}

/// The operand before it was transposed, which nothing else reads: several products read what is moved once faster.
fn before(works: &dyn Works, operand: &View, reader: WorkId, batch: u64, matrix: [u64; 2], request: &KernelRequest) -> Option<Before> {
    let work = works.maker(operand.value)?;
    let Computes::Request(transposing @ KernelRequest::Movement { movement: Movement::Transpose { shape, perm }, .. }) =
        works.computes(work)
    else {
        return None;
    };
    let is_alone = *works.readers(operand.value) == [reader] && !works.is_kept(operand.value);
    if !is_alone || !works.absorbs(reader, work) || !works.takes(reader, transposing, request) {
        return None;
    }
    let view = works.inputs(work).first()?.clone();
    let strides = strides(shape);
    let dims = perm.iter().map(|axis| (shape[*axis], strides[*axis])).collect();
    (view.data_type == operand.data_type).then_some(())?;
    Some(Before { view, lies: divided(dims, [batch, matrix[0], matrix[1]])? })
}

/// The result after it was transposed, which is all that reads it.
fn after(works: &dyn Works, work: WorkId, spec: &ProductSpec, request: &KernelRequest) -> Option<After> {
    let &[result] = works.outputs(work) else { return None };
    let [reader] = *works.readers(result) else { return None };
    let Computes::Request(transposing @ KernelRequest::Movement { movement: Movement::Transpose { shape, perm }, .. }) =
        works.computes(reader)
    else {
        return None;
    };
    if works.is_kept(result) || !works.absorbs(reader, work) || !works.takes(reader, request, transposing) {
        return None;
    }
    let turned: Vec<u64> = perm.iter().map(|axis| shape[*axis]).collect();
    let mut dims: Vec<Dim> = shape.iter().map(|size| (*size, 0)).collect();
    for (axis, stride) in perm.iter().zip(strides(&turned)) {
        dims[*axis].1 = stride;
    }
    let &[value] = works.outputs(reader) else { return None };
    Some(After { work: reader, value, lies: divided(dims, [spec.batch, spec.m, spec.n])? })
}

/// The distances between elements along the dimensions of a dense tensor.
fn strides(shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1u64; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis]);
    }
    strides
}

/// Dimensions as those of batch, rows and columns. One may be a part of two of them.
fn divided(mut dims: Vec<Dim>, sizes: [u64; 3]) -> Option<Lies> {
    let mut lies = [const { Vec::new() }; 3];
    for (lies, size) in lies.iter_mut().zip(sizes).rev() {
        let mut rest = size;
        while rest > 1 {
            let (size, stride) = dims.pop()?;
            let part = size.min(rest);
            if part == 0 || !size.is_multiple_of(part) || !rest.is_multiple_of(part) {
                return None;
            }
            if size > part {
                dims.push((size / part, stride.saturating_mul(part)));
            }
            if part > 1 {
                lies.insert(0, (part, stride));
            }
            rest /= part;
        }
    }
    dims.iter().all(|(size, _)| *size == 1).then_some(lies)
}

/// The same products of arguments that lie there. None where no product reads them so, or where products would be others. None where a
/// single product would have a place of its own: nothing is computed behind such a one in the same work.
fn placed(spec: &ProductSpec, [a, b, c]: [Lies; 3]) -> Option<ProductSpec> {
    let [a_batch, a_rows, a_columns] = a;
    let [b_batch, b_rows, b_columns] = b;
    let [c_batch, rows_of_c, columns_of_c] = c;
    let (rows_of_a, terms_of_a) = if spec.transpose_a { (a_columns, a_rows) } else { (a_rows, a_columns) };
    let (columns_of_b, terms_of_b) = if spec.transpose_b { (b_rows, b_columns) } else { (b_columns, b_rows) };
    let mut labels = Labels::default();
    let groups = [
        labels.add([Some(a_batch), Some(b_batch), Some(c_batch)])?,
        labels.add([Some(rows_of_a), None, Some(rows_of_c)])?,
        labels.add([None, Some(columns_of_b), Some(columns_of_c)])?,
        labels.add([Some(terms_of_a), Some(terms_of_b), None])?,
    ];
    let [a, b, c] = &labels.strides;
    let placed = product_of(groups, [a, b, c], &labels.sizes)?;
    let is_same = (placed.m, placed.n, placed.k, placed.batch) == (spec.m, spec.n, spec.k, spec.batch);
    (is_same && (spec.batch > 1 || placed.places.is_none())).then_some(placed)
}

/// Labels of dimensions, with the distances along each in A, B and C; 0 in one that lacks it.
#[derive(Default)]
struct Labels {
    sizes: Vec<u64>,
    strides: [Vec<u64>; 3],
}

impl Labels {
    /// The labels, outermost first, of dimensions that the arguments have in common, each in its own order; None where theirs have no
    /// common parts.
    fn add(&mut self, mut dims: [Option<Vec<Dim>>; 3]) -> Option<Vec<usize>> {
        let mut labels = Vec::new();
        for list in dims.iter_mut().flatten() {
            list.retain(|(size, _)| *size > 1);
        }
        while dims.iter().flatten().any(|list| !list.is_empty()) {
            let part = dims.iter().flatten().map(|list| list.last().map_or(1, |dim| dim.0)).min()?;
            if part == 1 {
                return None;
            }
            labels.insert(0, self.sizes.len());
            self.sizes.push(part);
            for (list, strides) in dims.iter_mut().zip(&mut self.strides) {
                let Some(list) = list else {
                    strides.push(0);
                    continue;
                };
                let (size, stride) = list.pop()?;
                if !size.is_multiple_of(part) {
                    return None;
                }
                strides.push(stride);
                if size > part {
                    list.push((size / part, stride.saturating_mul(part)));
                }
            }
        }
        Some(labels)
    }
}
