//! Where each of several products finds its matrices.

use plimsoll_request::product::Places;

/// The first elements of the matrices A, B and C of each product.
#[derive(Clone, Debug)]
pub(crate) struct Matrices {
    /// The dimensions that number the products, without those of 1, and how far apart the matrices are along each.
    dims: Vec<(usize, [usize; 3])>,
}

impl Matrices {
    pub fn new(places: &Places) -> Matrices {
        let dim = |at: usize| (places.sizes[at] as usize, [places.a, places.b, places.c].map(|place| place.matrix[at] as usize));
        Matrices { dims: (0..Places::DIMS).map(dim).filter(|(size, _)| *size != 1).collect() }
    }

    /// Whether all products have one matrix B.
    pub fn share_b(&self) -> bool {
        self.dims.iter().all(|(_, strides)| strides[1] == 0)
    }

    /// The offsets of product `number`'s matrices in their arguments.
    pub fn of(&self, number: usize) -> [usize; 3] {
        let (mut rest, mut offsets) = (number, [0; 3]);
        for (at, (size, strides)) in self.dims.iter().enumerate().rev() {
            // The first dimension takes all that is left.
            let index = if at == 0 { rest } else { rest % size };
            if at > 0 {
                rest /= size;
            }
            offsets = std::array::from_fn(|side| offsets[side] + index * strides[side]);
        }
        offsets
    }
}
