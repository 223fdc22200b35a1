#!/usr/bin/env python3
"""Records what tf.image makes of a small image: crates/train/tests/data/images.npy.

    python scripts/record_images.py     (needs tensorflow-cpu 2.21)

float32 [6, 10, 10, 3]; the image has planes R, G, B of 12 x 12 bytes, byte i being (i * i * 31 + i * 7) % 251.
  0  central crop (tf.image.resize_with_crop_or_pad)
  1  crop at row 1, column 2, flipped left to right
  2  1 with adjust_brightness(-37.5)
  3  2 with adjust_contrast(1.65)
  4  0 with per_image_standardization
  5  3 with per_image_standardization
"""

import os
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow as tf

i = np.arange(3 * 12 * 12)
planes = ((i * i * 31 + i * 7) % 251).astype(np.uint8).reshape(3, 12, 12)
image = tf.cast(tf.transpose(planes, [1, 2, 0]), tf.float32)
central = tf.image.resize_with_crop_or_pad(image, 10, 10)
flipped = tf.image.flip_left_right(tf.image.crop_to_bounding_box(image, 1, 2, 10, 10))
darker = tf.image.adjust_brightness(flipped, -37.5)
sharper = tf.image.adjust_contrast(darker, 1.65)
standard = [tf.image.per_image_standardization(each) for each in (central, sharper)]
out = Path(__file__).parent.parent / "crates/train/tests/data/images.npy"
out.parent.mkdir(exist_ok=True)
np.save(out, np.stack([central, flipped, darker, sharper, *standard]).astype(np.float32))
