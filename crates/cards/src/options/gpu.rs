//! A ConfigProto's options for GPUs.

/// A ConfigProto's `gpu_options`, with TensorFlow's names and meanings; the default is that of an empty message. Flags of our own
/// stand in [`crate::Options`] and override it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuConfig {
    /// The share of all of each card's memory; 0 is TensorFlow's default. Above 1 needs unified memory.
    pub per_process_gpu_memory_fraction: f64,
    /// Empty or `BFC`.
    pub allocator_type: String,
    /// Whether memory is taken as it is needed.
    pub allow_growth: bool,
    /// Which of the cards that the process sees, in which order; empty for all.
    pub visible_device_list: String,
    /// For each card that is used, the logical devices that it is divided into; empty for one each.
    pub virtual_devices: Vec<VirtualDevices>,
    /// Whether memory may spill to the host.
    pub use_unified_memory: bool,
    /// Into how many equal devices a card is divided that `virtual_devices` does not divide; 0 and 1 are one.
    pub num_virtual_devices_per_gpu: i32,
    /// MiB of each card left to the system, replacing the default and a fraction; 0 does not.
    pub gpu_system_memory_size_in_mb: i32,
    /// Whether the driver's pool allocates.
    pub use_cuda_malloc_async: bool,
    /// Whether an allocation that fails does so at once.
    pub disallow_retry_on_allocation_failure: bool,
    /// The share of a device's limit that may be handed out in excess of the request; 0 for TensorFlow's default.
    pub internal_fragmentation_fraction: f64,
    /// MiB of pinned host memory; 0 for the default.
    pub gpu_host_mem_limit_in_mb: f32,
    /// Whether pinned host memory is taken at once.
    pub gpu_host_mem_disallow_growth: bool,
}

/// How a card is divided: a number for each logical device in each list, or nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct VirtualDevices {
    /// Limits in MiB; fractions are dropped.
    pub memory_limit_mb: Vec<f32>,
    /// Stream priorities.
    pub priority: Vec<i32>,
    /// Where each comes in the order of all logical GPUs.
    pub device_ordinal: Vec<i32>,
}
