//! Training: data, models on towers, checkpoints, and the loop that ties them together under the devices' limits.
#![forbid(unsafe_code)]

pub mod checkpoint;
pub mod data;
pub mod model;
mod promise;
mod trainer;

pub use promise::Promise;
pub use trainer::{Config, Evaluation, Step, Trainer};
