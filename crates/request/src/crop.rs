//! Parts of images that boxes name, resized to one size.

use serde::{Deserialize, Serialize};

/// `CropAndResize` of floats, and its gradients. A box is four floats, in parts of an image less one row and column: first row and
/// column, last row and column. Names are int32: the image of each box; one outside of the batch is a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crop {
    /// Images.
    pub batch: u64,
    /// Rows and columns; not 0.
    pub size: [u64; 2],
    /// Channels.
    pub channels: u64,
    /// Boxes.
    pub boxes: u64,
    /// Rows and columns of a crop.
    pub crop: [u64; 2],
    /// Whether four neighbours are weighted; else it is the nearest one.
    pub bilinear: bool,
    /// What is computed.
    pub makes: Makes,
}

/// One of the three tensors that are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Makes {
    /// The crops. Arguments: images, boxes, names, output.
    Crops {
        /// What lies outside of an image: the bits of a float.
        outside: u32,
    },
    /// The gradient by the images. Arguments: gradient by the crops, boxes, names, output.
    Images,
    /// The gradient by the boxes, of bilinear crops. Arguments: gradient by the crops, images, boxes, names, output.
    Boxes,
}

impl Crop {
    /// The images' shape.
    pub fn images(&self) -> [u64; 4] {
        [self.batch, self.size[0], self.size[1], self.channels]
    }

    /// The shape of all crops.
    pub fn crops(&self) -> [u64; 4] {
        [self.boxes, self.crop[0], self.crop[1], self.channels]
    }
}
