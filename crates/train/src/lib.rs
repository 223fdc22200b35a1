//! Training: data, models on towers, checkpoints, and the loop that ties them together under the devices' limits.
#![forbid(unsafe_code)]

mod apart;
pub mod checkpoint;
pub mod data;
pub mod defaults;
mod largest;
pub mod model;
mod promise;
mod replicas;
mod report;
mod saver;
mod together;
mod trainer;

pub use largest::largest_batch;
pub use promise::{Promise, Stage};
pub use replicas::{Replicas, fastest_first, on_gpus, replicas};
pub use report::{Report, Staleness, TowerReport};
pub use saver::{Every, Saver};
pub use trainer::{Config, Evaluation, Step, Trainer};
