//! Where the tensors of products lie: by heads or by rows, transposed or not.

use plimsoll_base::DataType;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::product::{Place, Places, ProductSpec};
use plimsoll_request::scaled_attention::Lies;

use super::reading::{maker, transposition};
use crate::fusion::{Computes, View, WorkId, Works};

/// A tensor as it lies.
#[derive(Clone)]
pub(super) struct Lying {
    pub view: View,
    pub lies: Lies,
}

/// Products of narrow floats, each matrix of them anywhere.
#[derive(Clone, Copy)]
pub(super) struct Product {
    pub data_type: DataType,
    pub spec: ProductSpec,
}

/// An argument of products.
#[derive(Clone, Copy)]
pub(super) enum Side {
    A,
    B,
    C,
}

const ALL: [Lies; 2] = [Lies::ByHeads, Lies::ByRows];

impl Product {
    /// The products of a work.
    pub fn of(works: &dyn Works, work: WorkId) -> Option<Product> {
        let (data_type, spec) = match works.computes(work) {
            Computes::Anchor(Anchor::Product(data_type, spec), None) => (*data_type, *spec),
            Computes::Request(KernelRequest::Anchor { anchor: Anchor::Product(data_type, spec), epilogue: None, pooling: None }) => {
                (*data_type, *spec)
            }
            _ => return None,
        };
        matches!(data_type, DataType::Half | DataType::Bfloat16).then_some(Product { data_type, spec })
    }

    /// Rows, columns and terms.
    pub fn sizes(&self) -> [u64; 3] {
        [self.spec.m, self.spec.n, self.spec.k]
    }

    /// Whether A and B lie transposed.
    pub fn transposes(&self) -> [bool; 2] {
        [self.spec.transpose_a, self.spec.transpose_b]
    }

    /// How the matrices of an argument lie that is examples, heads, and rows and columns as they lie. None where they lie otherwise.
    pub fn lies(&self, side: Side, sizes: [u64; 4]) -> Option<Lies> {
        ALL.into_iter().find(|lies| self.lie_so(side, sizes, *lies))
    }

    /// Whether the matrices of an argument lie so.
    pub fn lie_so(&self, side: Side, sizes: [u64; 4], lies: Lies) -> bool {
        let places = self.spec.places();
        let place = match side {
            Side::A => places.a,
            Side::B => places.b,
            Side::C => places.c,
        };
        let [batch, heads, ..] = sizes;
        along(&places, &place, [batch, heads])
            .is_some_and(|[of_batch, of_heads]| is_same(lies.distances(sizes), [of_batch, of_heads, place.row, 1], sizes))
    }
}

/// Whether distances along these sizes lead to the same elements.
fn is_same(one: [u64; 4], other: [u64; 4], sizes: [u64; 4]) -> bool {
    (0..4).all(|axis| sizes[axis] == 1 || one[axis] == other[axis])
}

/// The distances from example to example and from head to head, where these number the matrices, heads faster.
fn along(places: &Places, place: &Place, [batch, heads]: [u64; 2]) -> Option<[u64; 2]> {
    let mut dims: Vec<(u64, u64)> = places.sizes.into_iter().zip(place.matrix).filter(|(size, _)| *size != 1).collect();
    let mut take = |size: u64| {
        if size == 1 {
            return Some(0);
        }
        let (found, distance) = dims.pop()?;
        if size == 0 || !found.is_multiple_of(size) {
            return None;
        }
        if found > size {
            dims.push((found / size, distance.saturating_mul(size)));
        }
        Some(distance)
    };
    let (of_heads, of_batch) = (take(heads)?, take(batch)?);
    dims.is_empty().then_some([of_batch, of_heads])
}

/// What a tensor of examples, heads, rows and columns was before it was transposed, where that lies by heads or by rows. With `is_turned` columns are
/// before rows now.
pub(super) fn before(works: &dyn Works, turned: &View, sizes: [u64; 4], is_turned: bool) -> Option<Lying> {
    let work = maker(works, turned)?;
    let (shape, mut axes) = transposition(works, work)?;
    let [before] = works.inputs(work) else { return None };
    if is_turned {
        axes.swap(2, 3);
    }
    let view = View { value: before.value, data_type: before.data_type, shape: shape.into() };
    lies(shape, axes, sizes).map(|lies| Lying { view, lies })
}

/// What a tensor of examples, heads, rows and columns is after it was transposed, where nothing else reads it, and that work. With `is_turned` columns
/// are before rows until then.
pub(super) fn after(works: &dyn Works, value: &View, sizes: [u64; 4], is_turned: bool) -> Option<(WorkId, Lies)> {
    let &[work] = works.readers(value.value) else { return None };
    let (shape, perm) = transposition(works, work)?;
    let [batch, heads, rows, columns] = sizes;
    if shape != (if is_turned { [batch, heads, columns, rows] } else { sizes }) || works.is_kept(value.value) {
        return None;
    }
    // The dimensions of the result that are examples, heads, rows and columns.
    let mut axes = [0; 4];
    perm.iter().enumerate().for_each(|(axis, of)| axes[*of] = axis);
    if is_turned {
        axes.swap(2, 3);
    }
    lies(perm.map(|axis| shape[axis]), axes, sizes).map(|lies| (work, lies))
}

/// How a dense tensor lies whose dimensions `axes` are these sizes.
fn lies(shape: [u64; 4], axes: [usize; 4], sizes: [u64; 4]) -> Option<Lies> {
    let mut distances = [1u64; 4];
    for axis in (0..3).rev() {
        distances[axis] = distances[axis + 1].saturating_mul(shape[axis + 1]);
    }
    let found = axes.map(|axis| distances[axis]);
    let is_all = axes.map(|axis| shape[axis]) == sizes;
    ALL.into_iter().find(|lies| is_all && is_same(lies.distances(sizes), found, sizes))
}
