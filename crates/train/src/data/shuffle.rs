//! Batches of examples, shuffled or as they are.

use plimsoll::HostTensor;
use plimsoll::{Error, Result};

use super::random::SplitMix64;
use super::{BatchSource, Component, Examples};

/// Examples in an order that is new in every epoch and depends on nothing but the seed and the epoch's number. A batch may reach
/// into the next epoch. The random choices for an example depend on the seed and its position alone. The order takes four bytes for
/// each example, whatever the examples take.
#[derive(Clone, Debug)]
pub struct Shuffled {
    examples: Examples,
    seed: i64,
    position: u64,
    /// The order of epoch `epoch`.
    order: Vec<u32>,
    epoch: u64,
}

impl Shuffled {
    /// The first batch of the first epoch comes next.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for more than 2^32 examples.
    pub fn new(examples: Examples, seed: i64) -> Result<Shuffled> {
        let count = u32::try_from(examples.count()).map_err(|_| Error::invalid_argument("more examples than can be shuffled"))?;
        let mut shuffled = Shuffled { examples, seed, position: 0, order: (0..count).collect(), epoch: 0 };
        shuffled.shuffle();
        Ok(shuffled)
    }

    /// Fisher and Yates, from the order 0, 1, 2, ...
    fn shuffle(&mut self) {
        let mut random = SplitMix64::new(self.seed as u64, self.epoch);
        self.order.iter_mut().zip(0..).for_each(|(slot, number)| *slot = number);
        for last in (1..self.order.len()).rev() {
            self.order.swap(last, random.below(last as u64 + 1) as usize);
        }
    }
}

impl BatchSource for Shuffled {
    fn components(&self) -> &[Component] {
        self.examples.components()
    }

    fn examples(&self) -> u64 {
        self.examples.count()
    }

    fn next_into(&mut self, batch: &mut [HostTensor]) -> Result<()> {
        let size = self.examples.check(batch)?;
        for row in 0..size {
            let position = self.position + row;
            let (epoch, at) = (position / self.examples.count(), position % self.examples.count());
            if epoch != self.epoch {
                self.epoch = epoch;
                self.shuffle();
            }
            let random = SplitMix64::for_example(self.seed as u64, position);
            self.examples.read(u64::from(self.order[at as usize]), random, batch, row as usize)?;
        }
        self.position += size;
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, position: u64) {
        self.position = position;
        self.epoch = position / self.examples.count();
        self.shuffle();
    }

    fn reseed(&mut self, seed: i64) {
        self.seed = seed;
        self.shuffle();
    }
}

/// Examples in the order in which they lie, again and again: for tests.
#[derive(Clone, Debug)]
pub struct InOrder {
    examples: Examples,
    position: u64,
}

impl InOrder {
    /// The first example comes next.
    pub fn new(examples: Examples) -> InOrder {
        InOrder { examples, position: 0 }
    }
}

impl BatchSource for InOrder {
    fn components(&self) -> &[Component] {
        self.examples.components()
    }

    fn examples(&self) -> u64 {
        self.examples.count()
    }

    fn next_into(&mut self, batch: &mut [HostTensor]) -> Result<()> {
        let size = self.examples.check(batch)?;
        for row in 0..size {
            let position = self.position + row;
            self.examples.read(position % self.examples.count(), SplitMix64::for_example(0, position), batch, row as usize)?;
        }
        self.position += size;
        Ok(())
    }

    fn position(&self) -> u64 {
        self.position
    }

    fn seek(&mut self, position: u64) {
        self.position = position;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: i32) -> Examples {
        let values: Vec<i32> = (0..count).collect();
        let twice: Vec<f32> = values.iter().flat_map(|value| [*value as f32, -*value as f32]).collect();
        let y = HostTensor::from_slice([count as u64, 2], &twice).unwrap();
        Examples::new(vec![("x", HostTensor::from_slice([count as u64], &values).unwrap()), ("y", y)]).unwrap()
    }

    fn take(source: &mut impl BatchSource, sizes: &[u64]) -> Vec<i32> {
        let mut taken = Vec::new();
        for size in sizes {
            let mut batch = super::super::batch(source.components(), *size).unwrap();
            source.next_into(&mut batch).unwrap();
            let x = batch[0].as_slice::<i32>().unwrap();
            let y: Vec<f32> = x.iter().flat_map(|value| [*value as f32, -*value as f32]).collect();
            assert_eq!(batch[1].as_slice::<f32>().unwrap(), y);
            taken.extend(x);
        }
        taken
    }

    #[test]
    fn every_epoch_has_every_example_once_and_its_own_order() {
        let mut source = Shuffled::new(numbers(10), 7).unwrap();
        let taken = take(&mut source, &[4, 4, 4, 4, 4]);
        let (mut first, mut second) = (taken[..10].to_vec(), taken[10..].to_vec());
        assert_ne!(first, second);
        first.sort_unstable();
        second.sort_unstable();
        assert_eq!((first, second), ((0..10).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>()));
        assert_eq!(source.position(), 20);
    }

    #[test]
    fn batches_are_cut_from_one_sequence() {
        let whole = take(&mut Shuffled::new(numbers(10), 7).unwrap(), &[24]);
        assert_eq!(take(&mut Shuffled::new(numbers(10), 7).unwrap(), &[7, 1, 9, 7]), whole);
        assert_ne!(take(&mut Shuffled::new(numbers(10), 8).unwrap(), &[24]), whole);
        let mut later = Shuffled::new(numbers(10), 7).unwrap();
        for position in [13, 3, 20] {
            later.seek(position);
            assert_eq!(take(&mut later, &[4]), whole[position as usize..position as usize + 4]);
        }
        later.reseed(8);
        later.seek(0);
        assert_eq!(take(&mut later, &[24]), take(&mut Shuffled::new(numbers(10), 8).unwrap(), &[24]));
    }

    #[test]
    fn in_order_is_in_order() {
        let mut source = InOrder::new(numbers(3));
        assert_eq!(take(&mut source, &[2, 2]), [0, 1, 2, 0]);
        source.seek(5);
        assert_eq!(take(&mut source, &[2]), [2, 0]);
    }

    #[test]
    fn a_wrong_batch_is_refused_and_nothing_is_skipped() {
        let mut source = Shuffled::new(numbers(3), 7).unwrap();
        let other = numbers(3).batch(2).unwrap();
        assert!(source.next_into(&mut other.clone()[..1]).is_err());
        assert!(source.next_into(&mut [other[1].clone(), other[0].clone()]).is_err());
        let uneven = [other[0].clone(), numbers(3).batch(3).unwrap()[1].clone()];
        assert!(source.next_into(&mut uneven.clone()).is_err());
        assert_eq!(source.position(), 0);
    }

    #[test]
    fn permutations_are_evenly_distributed() {
        let mut source = Shuffled::new(numbers(3), 1).unwrap();
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..6000 {
            *counts.entry(take(&mut source, &[3])).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
    }
}
