//! Examples in memory.

use plimsoll::{Error, HostTensor, Result};

use super::random::SplitMix64;
use super::{Component, Examples, Records, row_bytes_mut};

/// Dense tensors whose first axis counts examples.
#[derive(Debug)]
struct Tensors(Vec<HostTensor>);

/// See [`Examples::new`].
pub(super) fn examples(tensors: Vec<(&str, HostTensor)>) -> Result<Examples> {
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
        components.push(Component::new(name, tensor.data_type(), shape));
        dense.push(tensor.dense()?);
    }
    Examples::from_records(components, count.unwrap_or(0), Tensors(dense))
}

impl Records for Tensors {
    fn read(&self, number: u64, _random: SplitMix64, batch: &mut [HostTensor], row: usize) -> Result<()> {
        for (source, target) in self.0.iter().zip(batch) {
            let target = row_bytes_mut(target, row)?;
            let begin = number as usize * target.len();
            let source = source.bytes().and_then(|bytes| bytes.get(begin..begin + target.len()));
            target.copy_from_slice(source.ok_or_else(|| Error::out_of_range(format!("there is no example {number}")))?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll::{DataType, Shape};

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
