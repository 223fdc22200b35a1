//! What cards a machine has, and how options divide the machine into logical devices.
//!
//! [`PhysicalDevice`] is a card as it is found or simulated. [`Options`] are TensorFlow's ConfigProto in this project's types, and
//! [`resolve`] makes a [`Division`] of both. [`config`] has the functions of `tf.config`. Devices are opened with the logical devices
//! of a division. What programs hold on the cards is in `plimsoll_machine`.
#![forbid(unsafe_code)]

pub mod config;
mod description;
mod divide;
mod options;
mod physical;
mod spec;

pub use description::{DescribedCard, DescribedCudnn, MachineDescription, Processor};
pub use divide::{
    AllocatorKind, AllocatorOptions, Card, Division, LeftOut, Link, LogicalDevice, PinnedHost, Reserve, leaves_cards_out, resolve, seen,
    system_memory, visible_device_list,
};
pub use options::{CudnnMode, Environment, GpuConfig, MatmulPrecision, MemoryLimit, Options, PlacementMode, Spill, VirtualDevices};
pub use physical::{ComputeCapability, PhysicalDevice, Simulation, stream_priorities};
