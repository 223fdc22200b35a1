//! Examples to learn from, and sources of batches.

pub mod digits;
mod shuffle;

use plimsoll::{DataType, Error, Result};
use plimsoll::{HostTensor, Shape};

pub use shuffle::{InOrder, Shuffled};

/// What every example consists of: an image, a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its element type.
    pub data_type: DataType,
    /// The shape of one example's part.
    pub shape: Shape,
}

/// Batches, one after the other, without end.
///
/// Batches follow each other in one sequence of examples, so that two calls for 64 examples give what one call for 128
/// gives: this is how towers share a batch.
pub trait BatchSource: Send {
    /// What an example consists of.
    fn components(&self) -> &[Component];

    /// How many examples there are before they repeat.
    fn examples(&self) -> u64;

    /// Writes the next examples into `batch`, a tensor of shape `[n, ...]` for each component. Allocates nothing.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where the tensors are not those of the components; the position stays then.
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
    /// In order.
    pub held_out: Box<dyn BatchSource>,
}

/// Examples in memory: tensors whose first axis counts examples.
#[derive(Clone, Debug, PartialEq)]
pub struct Examples {
    components: Vec<Component>,
    tensors: Vec<HostTensor>,
    count: u64,
}

impl Examples {
    /// Examples of named tensors.
    ///
    /// # Errors
    /// INVALID_ARGUMENT where there is no tensor, or no example, or tensors differ in the number of examples; UNIMPLEMENTED
    /// for elements without a fixed size.
    pub fn new(tensors: Vec<(&str, HostTensor)>) -> Result<Examples> {
        let mut count = None;
        let mut components = Vec::with_capacity(tensors.len());
        let mut dense = Vec::with_capacity(tensors.len());
        for (name, tensor) in tensors {
            let [examples, shape @ ..] = tensor.shape().dims() else {
                return Err(Error::invalid_argument(format!("'{name}' is a scalar: its first axis should count examples")));
            };
            if *count.get_or_insert(*examples) != *examples {
                return Err(Error::invalid_argument(format!("'{name}' has {examples} examples, others {}", count.unwrap_or(0))));
            }
            components.push(Component { name: name.to_string(), data_type: tensor.data_type(), shape: Shape::new(shape) });
            dense.push(tensor.dense()?);
        }
        match count {
            Some(1..) => Ok(Examples { components, tensors: dense, count: count.unwrap_or(0) }),
            _ => Err(Error::invalid_argument("there are no examples")),
        }
    }

    /// What an example consists of.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The tensors, one for each component.
    pub fn tensors(&self) -> &[HostTensor] {
        &self.tensors
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

    /// Copies example `from` to row `to` of the batch.
    fn copy(&self, from: u64, batch: &mut [HostTensor], to: u64) -> Result<()> {
        let count = self.count;
        for (source, target) in self.tensors.iter().zip(batch) {
            let source = source.bytes().unwrap_or_default();
            let row = source.len() / count as usize;
            let (from, to) = (from as usize * row, to as usize * row);
            let target = target.bytes_mut().ok_or_else(|| Error::invalid_argument("a batch tensor is compressed"))?;
            target[to..to + row].copy_from_slice(&source[from..from + row]);
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_agree_in_number() {
        let (x, y) = (HostTensor::zeros(DataType::Float, Shape::from([3, 2])).unwrap(), HostTensor::scalar(1i32));
        let error = |tensors| Examples::new(tensors).unwrap_err().to_string();
        assert!(error(vec![("x", x.clone()), ("y", y.clone())]).contains("'y' is a scalar"));
        let y = y.reshaped(Shape::from([1])).unwrap();
        assert!(error(vec![("x", x.clone()), ("y", y)]).contains("'y' has 1 examples, others 3"));
        assert!(error(vec![]).contains("no examples"));
        let none = HostTensor::zeros(DataType::Float, Shape::from([0, 2])).unwrap();
        assert!(error(vec![("x", none)]).contains("no examples"));
        let examples = Examples::new(vec![("x", x)]).unwrap();
        assert_eq!((examples.count(), examples.components()[0].shape.dims()), (3, &[2][..]));
        assert_eq!(examples.batch(5).unwrap()[0].shape().dims(), [5, 2]);
    }
}
