//! Examples to learn from, and sources of batches.
//!
//! Examples may be in memory, in files of a data set, or in `.npy` files. A training sees [`Examples`]: their number, the
//! components of each, and a way to write any one of them into a row of a batch. [`Shuffled`] and [`InOrder`] make batches of them.

pub mod arrays;
pub mod cifar10;
pub mod digits;
pub mod image;
mod memory;
pub mod mnist;
pub mod random;
mod record_file;
mod shuffle;
#[cfg(test)]
mod testing;

use std::fmt;
use std::sync::Arc;

use plimsoll::{DataType, Element, Error, Result};
use plimsoll::{HostTensor, Shape};

use random::SplitMix64;
pub use record_file::RecordFile;
pub use shuffle::{InOrder, Shuffled};

/// The components of every example: an image, a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// The shape of one example's part.
    pub shape: Shape,
}

impl Component {
    /// A component of that name, type and shape.
    pub fn new(name: impl Into<String>, data_type: DataType, shape: &[u64]) -> Component {
        Component { name: name.into(), data_type, shape: Shape::new(shape) }
    }
}

/// Batches, one after the other, without end.
///
/// Batches follow each other in one sequence of examples, so that two calls for 64 examples give the same as one call for 128. So
/// towers share a batch.
pub trait BatchSource: Send {
    /// The components of an example.
    fn components(&self) -> &[Component];

    /// How many examples there are before they repeat.
    fn examples(&self) -> u64;

    /// Writes the next examples into `batch`, a tensor of shape `[n, ...]` for each component. Allocates nothing.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the tensors are not those of the components; the error of reading a file. The position stays then.
    fn next_into(&mut self, batch: &mut [HostTensor]) -> Result<()>;

    /// How many examples were given since the beginning.
    fn position(&self) -> u64;

    /// Goes on as if so many examples had been given.
    fn seek(&mut self, position: u64);

    /// Goes on with the order of another seed. Changes nothing where the order is fixed.
    fn reseed(&mut self, _seed: i64) {}
}

/// Examples to learn from, and others to test with; of the same components.
pub struct DataSet {
    /// Shuffled.
    pub training: Box<dyn BatchSource>,
    /// In order; none where there are none to test with.
    pub held_out: Option<Box<dyn BatchSource>>,
}

impl DataSet {
    /// Examples to learn from, in an order that the seed decides, and others to test with.
    ///
    /// # Errors
    /// As [`Shuffled::new`].
    pub fn new(training: Examples, held_out: Option<Examples>, seed: i64) -> Result<DataSet> {
        let held_out = held_out.map(|examples| Box::new(InOrder::new(examples)) as Box<dyn BatchSource>);
        Ok(DataSet { training: Box::new(Shuffled::new(training, seed)?), held_out })
    }
}

/// Where examples are, to be read one by one in any order.
pub trait Records: fmt::Debug + Send + Sync {
    /// Writes example `number`, which is below the number of examples, into row `row` of the batch: tensors of shape `[n, ...]`,
    /// one for each component. Every choice by chance is drawn from `random`, so that the same generator gives the same row.
    /// Allocates nothing.
    ///
    /// # Errors
    /// DATA_LOSS where a file is damaged, with the file and the byte; the file system's error.
    fn read(&self, number: u64, random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()>;
}

/// Records from a number on.
#[derive(Debug)]
struct Range {
    of: Arc<dyn Records>,
    first: u64,
}

impl Records for Range {
    fn read(&self, number: u64, random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()> {
        self.of.read(self.first + number, random, batch, row)
    }
}

/// Examples, wherever they are. Cloning shares them.
#[derive(Clone, Debug)]
pub struct Examples {
    components: Vec<Component>,
    records: Arc<dyn Records>,
    count: u64,
}

impl Examples {
    /// Examples in memory: named tensors whose first axis counts examples.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there is no tensor, or no example, or tensors differ in the number of examples; UNIMPLEMENTED
    /// for elements without a fixed size.
    pub fn new(tensors: Vec<(&str, HostTensor)>) -> Result<Examples> {
        memory::examples(tensors)
    }

    /// So many examples of these components, read from `records`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there is no component or no example.
    pub fn from_records(components: Vec<Component>, count: u64, records: impl Records + 'static) -> Result<Examples> {
        if components.is_empty() || count == 0 {
            return Err(Error::invalid_argument("there are no examples"));
        }
        Ok(Examples { components, records: Arc::new(records), count })
    }

    /// The components of an example.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// All but the last `share` of them, and those.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where one of the two would have none.
    pub fn divided(self, share: f64) -> Result<(Examples, Examples)> {
        let first = (self.count as f64 * (1.0 - share)).floor() as u64;
        if first == 0 || first >= self.count {
            return Err(Error::invalid_argument(format!("a share of {share} of {} examples leaves nothing on one side", self.count)));
        }
        let rest = Range { of: self.records.clone(), first };
        let held_out = Examples { components: self.components.clone(), records: Arc::new(rest), count: self.count - first };
        Ok((Examples { count: first, ..self }, held_out))
    }

    /// New tensors for batches of `size` examples.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where they do not fit the address space.
    pub fn batch(&self, size: u64) -> Result<Vec<HostTensor>> {
        batch(&self.components, size)
    }

    /// Checks that `batch` has a tensor for each component and gives the number of its examples.
    fn check(&self, batch: &[HostTensor]) -> Result<u64> {
        let size = batch.first().and_then(|tensor| tensor.shape().dims().first().copied()).unwrap_or(0);
        let fits = |(component, tensor): (&Component, &HostTensor)| match tensor.shape().dims() {
            [count, shape @ ..] => *count == size && shape == component.shape.dims() && tensor.data_type() == component.data_type,
            [] => false,
        };
        if batch.len() != self.components.len() || !self.components.iter().zip(batch).all(fits) {
            return Err(Error::invalid_argument(format!("the batch {batch:?} has not the components {:?}", self.components)));
        }
        Ok(size)
    }

    /// As [`Records::read`].
    fn read(&self, number: u64, random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()> {
        self.records.read(number, random, batch, row)
    }
}

/// New tensors for batches of `size` examples of these components.
///
/// # Errors
/// INVALID_ARGUMENT where they do not fit the address space.
pub fn batch(components: &[Component], size: u64) -> Result<Vec<HostTensor>> {
    let tensor = |component: &Component| {
        let dims: Vec<u64> = std::iter::once(size).chain(component.shape.iter().copied()).collect();
        HostTensor::zeros(component.data_type, Shape::new(dims))
    };
    components.iter().map(tensor).collect()
}

/// The elements of a row of a batch tensor.
///
/// # Errors
/// INVALID_ARGUMENT where the tensor is of another type or has no such row.
pub fn row_mut<T: Element>(tensor: &mut HostTensor, row: usize) -> Result<&mut [T]> {
    let rows = tensor.shape().dims().first().copied().unwrap_or(0) as usize;
    let values = tensor.as_slice_mut::<T>()?;
    let length = values.len().checked_div(rows).unwrap_or(0);
    values.get_mut(row * length..(row + 1) * length).ok_or_else(|| no_row(row, rows))
}

/// The bytes of a row of a batch tensor.
///
/// # Errors
/// INVALID_ARGUMENT where the tensor has no such row, or its elements no fixed size.
pub fn row_bytes_mut(tensor: &mut HostTensor, row: usize) -> Result<&mut [u8]> {
    let rows = tensor.shape().dims().first().copied().unwrap_or(0) as usize;
    let bytes = tensor.bytes_mut().ok_or_else(|| Error::invalid_argument("a batch tensor is compressed"))?;
    let length = bytes.len().checked_div(rows).unwrap_or(0);
    bytes.get_mut(row * length..(row + 1) * length).ok_or_else(|| no_row(row, rows))
}

fn no_row(row: usize, rows: usize) -> Error {
    Error::invalid_argument(format!("a batch of {rows} examples has no row {row}"))
}

/// The tensors of images and labels.
///
/// # Errors
/// INVALID_ARGUMENT where there are not two.
fn images_and_labels(batch: &mut [HostTensor]) -> Result<(&mut HostTensor, &mut HostTensor)> {
    match batch {
        [images, labels] => Ok((images, labels)),
        other => Err(Error::invalid_argument(format!("images and labels take two tensors, not {}", other.len()))),
    }
}
