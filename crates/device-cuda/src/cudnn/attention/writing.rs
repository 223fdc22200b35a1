//! The tensors and operations of a graph of attention.

use std::cell::Cell;
use std::sync::Arc;

use plimsoll_base::Result;

use super::super::convolution::{ALIGNMENT, numbers, pointwise};
use super::super::descriptor::Descriptor;
use super::super::raw::{Functions, attribute, element, kind};

/// The distances of elements of a dense tensor.
pub(super) fn dense([_, b, c, d]: [i64; 4]) -> [i64; 4] {
    [b * c * d, c * d, d, 1]
}

/// Sizes or distances of matrices that are seen transposed.
pub(super) fn turned([a, b, c, d]: [i64; 4]) -> [i64; 4] {
    [a, b, d, c]
}

pub(super) fn sizes(sizes: [u64; 4]) -> Result<[i64; 4]> {
    let all = numbers(sizes)?;
    Ok([all[0], all[1], all[2], all[3]])
}

/// The sizes of a tensor in memory, and the distances along them.
pub(super) type Shape = ([i64; 4], [i64; 4]);

/// A graph that is written.
pub(super) struct Writing<'a> {
    pub cudnn: &'a Arc<Functions>,
    /// `cudnnDataType_t` of the elements in memory; sums are floats.
    pub of: i32,
    /// The number of the next value that is never in memory.
    pub next: Cell<i64>,
}

/// `cudnnDataType_t` of floats.
pub(super) const FLOAT: i32 = 0;

impl Writing<'_> {
    pub fn tensor(&self, (name, is_virtual): (i64, bool), sizes: [i64; 4], strides: [i64; 4], of: i32) -> Result<Descriptor> {
        let tensor = Descriptor::new(self.cudnn, kind::TENSOR, "a tensor")?;
        tensor.number(attribute::TENSOR_TYPE, element::DATA_TYPE, of)?;
        tensor.integers(attribute::TENSOR_SIZES, &sizes)?;
        tensor.integers(attribute::TENSOR_STRIDES, &strides)?;
        tensor.integers(attribute::TENSOR_NAME, &[name])?;
        tensor.integers(attribute::TENSOR_ALIGNMENT, &[ALIGNMENT])?;
        tensor.bool(attribute::TENSOR_IS_VIRTUAL, is_virtual)?;
        tensor.finish("a tensor")
    }

    /// A tensor in memory.
    pub fn there(&self, name: i64, (sizes, strides): Shape) -> Result<Descriptor> {
        self.tensor((name, false), sizes, strides, self.of)
    }

    /// Floats in memory.
    pub fn floats(&self, name: i64, sizes: [i64; 4]) -> Result<Descriptor> {
        self.tensor((name, false), sizes, dense(sizes), FLOAT)
    }

    /// A value between: its number, and it.
    pub fn named(&self, sizes: [i64; 4], strides: [i64; 4], of: i32) -> Result<(i64, Descriptor)> {
        let name = self.next.replace(self.next.get() + 1);
        Ok((name, self.tensor((name, true), sizes, strides, of)?))
    }

    /// Floats between.
    pub fn between(&self, sizes: [i64; 4]) -> Result<Descriptor> {
        self.named(sizes, dense(sizes), FLOAT).map(|(_, tensor)| tensor)
    }

    pub fn on_each(&self, mode: i32, from: &Descriptor, second: Option<&Descriptor>, to: &Descriptor) -> Result<Descriptor> {
        pointwise(self.cudnn, mode, [Some(from), second, None], to)
    }

    pub fn product(&self, a: &Descriptor, b: &Descriptor, to: &Descriptor) -> Result<Descriptor> {
        let what = "a product";
        let product = Descriptor::new(self.cudnn, kind::PRODUCT, what)?;
        product.number(attribute::PRODUCT_TYPE, element::DATA_TYPE, FLOAT)?;
        let product = product.finish(what)?;
        let operation = Descriptor::new(self.cudnn, kind::MULTIPLIED, what)?;
        for (at, tensor) in [(attribute::PRODUCT_A, a), (attribute::PRODUCT_B, b), (attribute::PRODUCT_TO, to)] {
            operation.descriptors(at, &[tensor])?;
        }
        operation.descriptors(attribute::PRODUCT_OF, &[&product])?;
        operation.finish(what)
    }

    /// What a reduction makes of each row: its sum, or its maximum.
    pub fn reduced(&self, operator: i32, from: &Descriptor, to: &Descriptor) -> Result<Descriptor> {
        let what = "a reduction of rows";
        let sum = Descriptor::new(self.cudnn, kind::REDUCTION, what)?;
        sum.number(attribute::REDUCTION_OPERATOR, element::REDUCTION_OPERATOR, operator)?;
        sum.number(attribute::REDUCTION_TYPE, element::DATA_TYPE, FLOAT)?;
        let sum = sum.finish(what)?;
        let operation = Descriptor::new(self.cudnn, kind::REDUCED, what)?;
        operation.descriptors(attribute::REDUCED_FROM, &[from])?;
        operation.descriptors(attribute::REDUCED_TO, &[to])?;
        operation.descriptors(attribute::REDUCED_BY, &[&sum])?;
        operation.finish(what)
    }

    /// The same elements, seen as another tensor.
    pub fn seen(&self, from: &Descriptor, to: &Descriptor) -> Result<Descriptor> {
        let operation = Descriptor::new(self.cudnn, kind::SEEN, "a tensor seen otherwise")?;
        operation.descriptors(attribute::SEEN_FROM, &[from])?;
        operation.descriptors(attribute::SEEN_TO, &[to])?;
        operation.finish("a tensor seen otherwise")
    }

    pub fn graph(&self, operations: &[Descriptor], handle: Option<u64>) -> Result<Descriptor> {
        let graph = Descriptor::new(self.cudnn, kind::GRAPH, "a graph")?;
        graph.descriptors(attribute::GRAPH_OPERATIONS, &operations.iter().collect::<Vec<_>>())?;
        if let Some(handle) = handle {
            graph.addresses(attribute::GRAPH_HANDLE, element::HANDLE, &[handle])?;
        }
        graph.finish("a graph of attention")
    }
}
