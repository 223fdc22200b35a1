//! The arena of open regions: its policy against a model, TensorFlow's cases as data, and pages of this machine under a line.

mod arena;
mod model;
mod random;
mod script;
mod table;
