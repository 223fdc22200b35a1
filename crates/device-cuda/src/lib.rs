//! NVIDIA cards: listed through the driver's management library ([`Nvml`]), and a device that computes on them ([`CudaDevice`]).
//!
//! Libraries are found and loaded at run time ([`ComputeLibrary`]) and never linked: a machine without a driver is an ordinary machine,
//! and a function that a library lacks is a sentence. A device computes what [`CudaLibrary`] has kernels for ([`emit`]); the compiler
//! ([`Compiler`]) makes cubins of their text. `runtime/src/cards` opens the device for programs.
//!
//! Without a card the driver and the compiler are mocks (`mock-driver`), opened by path as the real ones are: `tests/computing`.

mod attend;
mod compile;
mod compute;
mod convolve;
mod cudnn;
mod driver;
pub mod emit;
mod finishing;
mod form;
mod libraries;
mod library;
mod nvml;
mod overhead;
mod price;
mod rates;
mod source;
mod toolkit;

pub use compile::Compiler;
pub use compute::{CudaCard, CudaDevice, GraphUse, Measured};
pub use convolve::CudnnLibrary;
pub use cudnn::{
    AttentionPlan, ConvolutionKind, ConvolutionPlan, Engine, EngineLimits, EngineName, Finish, GraphPlan, Lying, PlanFor, Planner,
};
pub use driver::{CudaDriver, DriverCard};
pub use libraries::{ComputeLibrary, Found, Seen};
pub use library::can_load;
pub use nvml::{Activity, Driver, Look, Memory, NvidiaCard, Nvml, Process, ProcessKind, subtract};
pub use overhead::Taken;
pub use rates::{RateSample, priced_by, rates_text};
pub use source::{ALIGNMENT, CudaLibrary, CudaSource, any_card, variant_of};
pub use toolkit::{Toolkit, without_cudnn};
