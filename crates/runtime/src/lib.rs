//! Runs plans: [`Devices`] (opened once, shared), [`Session`] (a graph with its variables and plans), [`Callable`] (one
//! signature, prepared: the hot path).
#![forbid(unsafe_code)]

mod calibrate;
mod callable;
mod cancellation;
mod cards;
mod checkpoints;
mod devices;
mod files;
mod grants;
mod loaded;
pub mod open_regions;
mod plans;
mod profile;
mod run;
mod session;
mod signatures;
mod stats;
mod stored;
mod times;
mod tune;
mod variables;

pub use calibrate::calibrate;
pub use callable::Callable;
pub use cancellation::Cancellation;
pub use checkpoints::{CheckpointReader, CheckpointWriter, Checkpoints, Sink, Source};
pub use devices::{DeviceReport, Devices};
pub use grants::Lane;
pub use profile::{CommandProfile, OperationProfile, Profile};
pub use session::{CheckedPlan, Fill, FindStored, PlanObserver, Session, VariableInfo};
pub use stats::{DeviceStepStats, NodeExecStats, RunMetadata};
pub use stored::{Stored, StoredVariable};
pub use times::Times;
pub use tune::{HowToTune, TunedDevice, Tuning, tune};

/// TensorFlow's operations with the rules of this project. Values that are known beforehand are computed by portable kernels.
pub fn standard_registry() -> plimsoll_ops::Registry {
    plimsoll_ops::Registry::standard(std::sync::Arc::new(plimsoll_kernels::CpuKernels))
}

/// The types for which the processor's library has kernels for an operation, and those of them that another library computes, too:
/// [`plimsoll_ops::types`].
pub fn computed_types(
    registry: &plimsoll_ops::Registry,
    other: (&dyn plimsoll_device::Library, &plimsoll_device::DeviceSpec),
    op: &str,
) -> Option<(Vec<plimsoll_base::DataType>, Vec<plimsoll_base::DataType>)> {
    plimsoll_ops::types(registry, (&plimsoll_kernels::CpuKernels, &any_processor()), other, op)
}

/// The same kernels exist for every instruction set.
fn any_processor() -> plimsoll_device::DeviceSpec {
    plimsoll_device::DeviceSpec::cpu(0, None, 1, plimsoll_device::InstructionSet::Baseline)
}
