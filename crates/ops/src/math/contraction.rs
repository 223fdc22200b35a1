//! The sum of products of two tensors along dimensions with labels: one product of matrices that reads its operands where they lie,
//! and copies of those that no such product can read.

use plimsoll_base::{Error, Result};
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{BinaryOp, ExprBuilder, Scalar};
use plimsoll_request::product::{Place, Places, ProductSpec};

use crate::Recipe;
use crate::recipe::Ingredient;

/// A tensor, and the label of each of its dimensions; no label twice.
#[derive(Clone)]
pub(crate) struct Labelled {
    pub tensor: Ingredient,
    pub labels: Vec<usize>,
}

/// Columns and rows of a product that need not be larger: then the rows or columns beside them may be products of their own.
const ROWS: u64 = 8;
const COLUMNS: u64 = 16;

/// The sum over all labels that both operands have and `out` lacks, with dimensions as `out` says. `sizes` has the size of each
/// label. A dimension of 1 repeats along its label. Every label of an operand is in `out` or in the other operand.
pub(crate) fn contract(recipe: &mut Recipe, operands: [Labelled; 2], out: &[usize], sizes: &[u64]) -> Result<Ingredient> {
    let shape: Vec<u64> = out.iter().map(|label| sizes[*label]).collect();
    let kept: Vec<usize> = out.iter().copied().filter(|label| sizes[*label] != 1).collect();
    let [mut a, mut b] = operands.map(|operand| Side::new(operand, sizes));
    let is_summed = |label: &usize| a.has(*label) && b.has(*label) && !out.contains(label);
    if !(0..sizes.len()).any(|label| is_summed(&label)) {
        return multiplied(recipe, [a, b], out, shape);
    }
    // The columns of the result are the right operand's.
    if kept.last().is_some_and(|label| a.has(*label) && !b.has(*label)) {
        std::mem::swap(&mut a, &mut b);
    }
    let mut result = strides_of(&kept, sizes, sizes.len());
    let mut turned: Option<Vec<usize>> = None;
    // Each turn copies an operand, or leaves the result to be copied.
    for _ in 0..4 {
        let groups = Groups::new(&a, &b, &kept, sizes);
        match groups.fit(&a.strides, &b.strides, &result, sizes) {
            Ok(spec) => {
                let anchor = Anchor::Product(a.tensor.data_type(), spec);
                let inputs = [a.tensor.clone(), b.tensor.clone()];
                let Some(order) = turned else { return Ok(recipe.anchor(anchor, inputs, shape)) };
                let made: Vec<u64> = order_sizes(&order, sizes);
                let made = recipe.anchor(anchor, inputs, made);
                let place = |label: &usize| order.iter().position(|other| other == label);
                let perm: Option<Vec<usize>> = kept.iter().map(place).collect();
                let perm = perm.ok_or_else(|| Error::internal("a result without one of its labels"))?;
                return recipe.transposed(&made, &perm)?.reshaped(shape);
            }
            Err(Misfit::A) => a.turn(recipe, &[&groups.batch[..], &groups.rows, &groups.terms].concat(), sizes)?,
            Err(Misfit::B) => b.turn(recipe, &[&groups.batch[..], &groups.terms, &groups.columns].concat(), sizes)?,
            Err(Misfit::C) => {
                let order = [&groups.batch[..], &groups.rows, &groups.columns].concat();
                result = strides_of(&order, sizes, sizes.len());
                turned = Some(order);
            }
        }
    }
    Err(Error::internal("a product whose operands fit in no order"))
}

fn order_sizes(order: &[usize], sizes: &[u64]) -> Vec<u64> {
    order.iter().map(|label| sizes[*label]).collect()
}

/// The distances between elements along each label, for a dense tensor of these labels; 0 for other labels.
fn strides_of(labels: &[usize], sizes: &[u64], count: usize) -> Vec<u64> {
    let mut strides = vec![0; count];
    let mut distance = 1u64;
    for label in labels.iter().rev() {
        strides[*label] = distance;
        distance = distance.saturating_mul(sizes[*label].max(1));
    }
    strides
}

/// An operand.
struct Side {
    tensor: Ingredient,
    /// The labels of its dimensions other than 1, and their sizes.
    labels: Vec<usize>,
    /// By label; 0 where it repeats.
    strides: Vec<u64>,
}

impl Side {
    fn new(operand: Labelled, sizes: &[u64]) -> Side {
        let dims = operand.tensor.dims().to_vec();
        let labels: Vec<usize> = operand.labels.iter().zip(dims).filter(|(_, dim)| *dim != 1).map(|(label, _)| *label).collect();
        let strides = strides_of(&labels, sizes, sizes.len());
        Side { tensor: operand.tensor, labels, strides }
    }

    fn has(&self, label: usize) -> bool {
        self.strides[label] > 0
    }

    /// Copies it with its dimensions in that order.
    fn turn(&mut self, recipe: &mut Recipe, order: &[usize], sizes: &[u64]) -> Result<()> {
        let place = |label: &usize| self.labels.iter().position(|other| other == label);
        let perm: Vec<usize> = order.iter().filter_map(place).collect();
        if perm.len() != self.labels.len() {
            return Err(Error::internal("an operand with labels of no use"));
        }
        let dense = self.tensor.reshaped(order_sizes(&self.labels, sizes))?;
        self.tensor = recipe.transposed(&dense, &perm)?;
        self.labels = perm.iter().map(|dim| self.labels[*dim]).collect();
        self.strides = strides_of(&self.labels, sizes, sizes.len());
        Ok(())
    }
}

/// The products where nothing is summed.
fn multiplied(recipe: &mut Recipe, operands: [Side; 2], out: &[usize], shape: Vec<u64>) -> Result<Ingredient> {
    let mut aligned = Vec::with_capacity(2);
    for side in operands {
        let place = |label: &usize| side.labels.iter().position(|other| other == label);
        let dense = side.tensor.dims().iter().copied().filter(|dim| *dim != 1).collect::<Vec<u64>>();
        let perm: Vec<usize> = out.iter().filter_map(place).collect();
        let spread: Vec<u64> = out.iter().map(|label| place(label).map_or(1, |dim| dense[dim])).collect();
        let dense = side.tensor.reshaped(dense)?;
        aligned.push(recipe.transposed(&dense, &perm)?.reshaped(spread)?);
    }
    let mut builder = ExprBuilder::new();
    let (x, y) = (builder.input(aligned[0].data_type())?, builder.input(aligned[1].data_type())?);
    let mut product = builder.binary(BinaryOp::Mul, x, y)?;
    // A sum of one product begins at 0: it is never a negative zero.
    if aligned[0].data_type().is_floating() {
        let zero = Scalar::from_f64(aligned[0].data_type(), 0.0).ok_or_else(|| Error::internal("a float without a zero"))?;
        let zero = builder.constant(zero);
        product = builder.binary(BinaryOp::Add, product, zero)?;
    }
    Ok(recipe.expression(builder.finish(vec![product]), aligned, shape).swap_remove(0))
}

/// The tensor that has to be in another order.
#[derive(Debug)]
enum Misfit {
    A,
    B,
    C,
}

/// What the labels, outermost first, are to a product of matrices.
struct Groups {
    batch: Vec<usize>,
    rows: Vec<usize>,
    columns: Vec<usize>,
    terms: Vec<usize>,
    /// Whether the operands have the terms in this order, one behind the other.
    terms_fit: [bool; 2],
}

/// The product of matrices whose batch, rows, columns and terms are these labels, outermost first. Matrices are read and written where
/// they lie: `strides` are the distances along each label in A, B and C. None where no product can do that.
pub(crate) fn product_of([batch, rows, columns, terms]: [Vec<usize>; 4], strides: [&[u64]; 3], sizes: &[u64]) -> Option<ProductSpec> {
    let [a, b, c] = strides;
    let terms_fit = [a, b].map(|strides| is_chain(&terms, strides, sizes));
    Groups { batch, rows, columns, terms, terms_fit }.fit(a, b, c, sizes).ok()
}

/// Whether the labels, outermost first, are one dimension.
fn is_chain(labels: &[usize], strides: &[u64], sizes: &[u64]) -> bool {
    labels.windows(2).all(|pair| joins(pair[0], pair[1], strides, sizes))
}

fn joins(outer: usize, inner: usize, strides: &[u64], sizes: &[u64]) -> bool {
    strides[outer] == strides[inner].saturating_mul(sizes[inner].max(1))
}

impl Groups {
    fn new(a: &Side, b: &Side, kept: &[usize], sizes: &[u64]) -> Groups {
        let pick = |in_a: bool, in_b: bool| {
            let picked = kept.iter().copied().filter(|label| a.has(*label) == in_a && b.has(*label) == in_b);
            picked.collect::<Vec<usize>>()
        };
        let of = |side: &Side, other: &Side| -> Vec<usize> {
            side.labels.iter().copied().filter(|label| other.has(*label) && !kept.contains(label)).collect()
        };
        let orders = [of(a, b), of(b, a)];
        let fits = |order: &Vec<usize>| [is_chain(order, &a.strides, sizes), is_chain(order, &b.strides, sizes)];
        let best = orders.iter().max_by_key(|order| fits(order).iter().filter(|fits| **fits).count());
        let terms = best.cloned().unwrap_or_default();
        let terms_fit = fits(&terms);
        Groups { batch: pick(true, true), rows: pick(true, false), columns: pick(false, true), terms, terms_fit }
    }

    /// The product, if the matrices can be read and written where they lie: `a`, `b` and `c` are the distances along each label.
    fn fit(&self, a: &[u64], b: &[u64], c: &[u64], sizes: &[u64]) -> std::result::Result<ProductSpec, Misfit> {
        for (fits, misfit) in self.terms_fit.into_iter().zip([Misfit::A, Misfit::B]) {
            if !fits {
                return Err(misfit);
            }
        }
        // Rows and columns that follow each other in operand and result; those outside of them are products of their own.
        let inner = |labels: &[usize], operand: &[u64]| {
            let breaks = |at: &usize| {
                let (outer, inner) = (labels[at - 1], labels[*at]);
                !(joins(outer, inner, operand, sizes) && joins(outer, inner, c, sizes))
            };
            (1..labels.len()).rev().find(breaks).unwrap_or(0)
        };
        let (row, column) = (inner(&self.rows, a), inner(&self.columns, b));
        let size = |labels: &[usize]| labels.iter().fold(1u64, |size, label| size.saturating_mul(sizes[*label]));
        let (m, n, k) = (size(&self.rows[row..]), size(&self.columns[column..]), size(&self.terms));
        for (labels, first, least, made, operand, misfit) in
            [(&self.rows, row, ROWS, m, a, Misfit::A), (&self.columns, column, COLUMNS, n, b, Misfit::B)]
        {
            if first > 0 && made < least {
                return Err(if is_chain(labels, operand, sizes) { Misfit::C } else { misfit });
            }
        }
        let distance = |labels: &[usize], strides: &[u64]| labels.last().map_or(0, |label| strides[*label]);
        let (a_row, a_term) = (distance(&self.rows[row..], a), distance(&self.terms, a));
        let (b_term, b_column) = (distance(&self.terms, b), distance(&self.columns[column..], b));
        let (c_row, c_column) = (distance(&self.rows[row..], c), distance(&self.columns[column..], c));
        if n > 1 && c_column != 1 {
            return Err(Misfit::C);
        }
        let (transpose_a, transpose_b) = (k > 1 && a_term != 1, n > 1 && b_column != 1);
        if transpose_a && m > 1 && a_row != 1 {
            return Err(Misfit::A);
        }
        if transpose_b && k > 1 && b_term != 1 {
            return Err(Misfit::B);
        }
        let outside = [&self.batch[..], &self.rows[..row], &self.columns[..column]].concat();
        let Some((sizes, [a_matrix, b_matrix, c_matrix])) = merged(outside, [a, b, c], sizes) else {
            return Err(self.scattered(a, c, sizes));
        };
        let places = Places {
            sizes,
            a: Place { row: if transpose_a { a_term } else { a_row }, matrix: a_matrix },
            b: Place { row: if transpose_b { b_column } else { b_term }, matrix: b_matrix },
            c: Place { row: c_row, matrix: c_matrix },
        };
        let batch = sizes.iter().fold(1u64, |all, size| all.saturating_mul(*size));
        Ok(plain(ProductSpec { m, n, k, transpose_a, transpose_b, batch, places: None }, places))
    }

    /// The tensor that has to be in another order where products are numbered by too many dimensions.
    fn scattered(&self, a: &[u64], c: &[u64], sizes: &[u64]) -> Misfit {
        let is_scattered = |groups: &[&[usize]], strides: &[u64]| groups.iter().any(|labels| !is_chain(labels, strides, sizes));
        if is_scattered(&[&self.batch, &self.rows, &self.columns], c) {
            Misfit::C
        } else if is_scattered(&[&self.batch, &self.rows], a) {
            Misfit::A
        } else {
            Misfit::B
        }
    }
}

/// Dimensions that number products, and the distances along them in A, B and C.
type Numbered = ([u64; Places::DIMS], [[u64; Places::DIMS]; 3]);

/// The dimensions that number products, joined where all tensors have one behind the other; none where they are too many.
fn merged(mut labels: Vec<usize>, strides: [&[u64]; 3], label_sizes: &[u64]) -> Option<Numbered> {
    labels.sort_by_key(|label| std::cmp::Reverse(strides[2][*label]));
    let (mut sizes, mut distances) = ([1u64; Places::DIMS], [[0u64; Places::DIMS]; 3]);
    let mut at = Places::DIMS;
    let mut inner: Option<usize> = None;
    for label in labels.into_iter().rev() {
        let joined = inner.is_some_and(|inner| strides.iter().all(|strides| joins(label, inner, strides, label_sizes)));
        if joined {
            sizes[at] = sizes[at].saturating_mul(label_sizes[label]);
        } else {
            at = at.checked_sub(1)?;
            sizes[at] = label_sizes[label];
            (0..3).for_each(|side| distances[side][at] = strides[side][label]);
        }
        inner = Some(label);
    }
    Some((sizes, distances))
}

/// The specification, without places where all matrices are dense and follow each other.
fn plain(spec: ProductSpec, mut places: Places) -> ProductSpec {
    let dense = spec.places();
    let (a_rows, b_rows) = (if spec.transpose_a { spec.k } else { spec.m }, if spec.transpose_b { spec.n } else { spec.k });
    let sides = [(&mut places.a, dense.a, a_rows), (&mut places.b, dense.b, b_rows), (&mut places.c, dense.c, spec.m)];
    for (place, dense, rows) in sides {
        // Distances that nothing is apart by.
        place.row = if rows <= 1 { dense.row } else { place.row };
        place.matrix = if spec.batch == 1 { dense.matrix } else { place.matrix };
    }
    ProductSpec { places: (places != dense).then_some(places), ..spec }
}

#[cfg(test)]
mod tests {
    use plimsoll_base::DataType;
    use plimsoll_graph::Shape;
    use plimsoll_request::KernelRequest;

    use super::*;
    use crate::Meta;
    use crate::recipe::Source;

    /// The requests for an equation with labels `a` to `z`, whose sizes are given.
    fn requests(equation: &str, sizes: &[u64]) -> Vec<KernelRequest> {
        let labels = |text: &str| text.bytes().map(|letter| usize::from(letter - b'a')).collect::<Vec<usize>>();
        let (inputs, out) = equation.split_once("->").unwrap();
        let (x, y) = inputs.split_once(',').unwrap();
        let operand = |input: usize, text: &str| {
            let shape = Shape::from(labels(text).iter().map(|label| sizes[*label]).collect::<Vec<u64>>());
            let tensor = Ingredient { source: Source::Input(input), meta: Meta { data_type: DataType::Float, shape } };
            Labelled { tensor, labels: labels(text) }
        };
        let mut recipe = Recipe::new();
        contract(&mut recipe, [operand(0, x), operand(1, y)], &labels(out), sizes).unwrap();
        recipe.steps().iter().map(|step| step.request()).collect()
    }

    fn products(requests: &[KernelRequest]) -> Vec<ProductSpec> {
        let spec = |request: &KernelRequest| match request {
            KernelRequest::Anchor { anchor: Anchor::Product(_, spec), .. } => Some(*spec),
            _ => None,
        };
        requests.iter().filter_map(spec).collect()
    }

    #[test]
    fn projections_are_one_dense_product() {
        let one = requests("abc,cde->abde", &[2, 3, 4, 5, 6]);
        let spec = ProductSpec { m: 6, n: 30, k: 4, transpose_a: false, transpose_b: false, batch: 1, places: None };
        assert_eq!((one.len(), products(&one)), (1, vec![spec]));
        let back = requests("abde,cde->abc", &[2, 3, 4, 5, 6]);
        let spec = ProductSpec { m: 6, n: 4, k: 30, transpose_b: true, ..spec };
        assert_eq!((back.len(), products(&back)), (1, vec![spec]));
    }

    #[test]
    fn heads_of_attention_are_read_and_written_where_they_lie() {
        let sizes = [2, 128, 12, 64, 100];
        for equation in ["aecd,abcd->acbe", "acbe,aecd->abcd", "abcd,aecd->acbe", "acbe,abcd->aecd"] {
            let requests = requests(equation, &sizes);
            assert_eq!(requests.len(), 1, "{equation}");
            let spec = products(&requests)[0];
            assert_eq!((spec.batch, spec.m.min(spec.n).min(spec.k)), (24, 64), "{equation}");
            spec.extents().unwrap();
        }
        // The heads of a projection go where a product for each of them wants them.
        let requests = requests("abe,ecd->acbd", &sizes);
        assert_eq!((requests.len(), products(&requests)[0].batch), (1, 24));
    }

    #[test]
    fn operands_that_no_product_reads_are_copied_first() {
        // The rows lie between the terms.
        let requests = requests("abc,acd->bd", &[2, 3, 4, 5]);
        assert_eq!((requests.len(), products(&requests).len()), (2, 1));
    }
}
