//! Runs plans: [`Devices`] (opened once, shared), [`Session`] (a graph with its variables and plans), [`Callable`] (one
//! signature, prepared: the hot path).
#![forbid(unsafe_code)]

mod arenas;
mod callable;
mod devices;
mod loaded;
mod profile;
mod session;
mod variables;

pub use callable::Callable;
pub use devices::{DeviceReport, Devices};
pub use profile::{CommandProfile, OperationProfile, Profile};
pub use session::{Session, VariableInfo};
