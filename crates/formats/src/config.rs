//! ConfigProto and RunOptions: TensorFlow's options for devices, threads and memory.
//!
//! The fields that mean something here are typed; all others are carried, so that a file that is read and written says the same.

use std::collections::BTreeMap;

use plimsoll_base::Result;

use crate::file;
use crate::message::{encode, message};

message! {
    /// `tensorflow.ConfigProto`.
    pub struct ConfigProto {
        /// The most logical devices of each type.
        1 device_count: BTreeMap<String, i32>,
        /// Threads of one operation; 0 lets the system choose.
        2 intra_op_parallelism_threads: i32,
        /// Device types or names that may be used; empty for all.
        4 device_filters: Vec<String>,
        /// Operations at the same time; 0 lets the system choose, below 0 is the caller's thread.
        5 inter_op_parallelism_threads: i32,
        /// Memory and visibility of GPUs.
        6 gpu_options: Option<GpuOptions>,
        /// Whether a node may go elsewhere than it asks.
        7 allow_soft_placement: bool,
        /// Whether every placement is logged.
        8 log_device_placement: bool,
        /// Whether a session has threads of its own.
        9 use_per_session_threads: bool,
        /// How graphs are rewritten.
        10 graph_options: Option<GraphOptions>,
        /// The deadline of a step in milliseconds; 0 for none.
        11 operation_timeout_in_ms: i64,
        /// Thread pools that runs choose from.
        12 session_inter_op_thread_pool: Vec<ThreadPoolOptionProto>,
        /// Options that may change.
        16 experimental: Option<ConfigExperimental>,
    }
    /// `tensorflow.ConfigProto.Experimental`.
    pub struct ConfigExperimental {
        /// Whether convolutions do all multiplications: a field of this project, of a number that TensorFlow does not have.
        1000 exact_convolutions: bool,
        /// Whether cards may round floats to TF32: of this project, too. TensorFlow says that by a function.
        1001 tensor_float_32_execution: bool,
        /// `float32` or `bf16`, how products of floats are computed on processors: of this project, too. Empty for `float32`.
        1002 matmul_precision: String,
    }
    /// `tensorflow.GPUOptions`.
    pub struct GpuOptions {
        /// The share of each visible GPU's memory, above 1 only with unified memory; 0 for TensorFlow's default.
        1 per_process_gpu_memory_fraction: f64,
        /// `BFC` or empty.
        2 allocator_type: String,
        /// Whether memory is taken as it is needed.
        4 allow_growth: bool,
        /// Which GPUs are seen, in which order.
        5 visible_device_list: String,
        /// Options that may change.
        9 experimental: Option<GpuExperimental>,
    }
    /// `tensorflow.GPUOptions.Experimental`.
    pub struct GpuExperimental {
        /// For each visible GPU, the logical devices that it is divided into.
        1 virtual_devices: Vec<VirtualDevices>,
        /// Whether a fraction above 1 may spill to the host.
        2 use_unified_memory: bool,
        /// The share of a device's limit that may be handed out in excess; 0 for TensorFlow's default.
        10 internal_fragmentation_fraction: f64,
        /// Whether the driver's pool allocates.
        11 use_cuda_malloc_async: bool,
        /// Whether an allocation that fails does so at once.
        12 disallow_retry_on_allocation_failure: bool,
        /// MiB of pinned host memory; 0 for the default.
        13 gpu_host_mem_limit_in_mb: f32,
        /// Whether pinned host memory is taken at once.
        14 gpu_host_mem_disallow_growth: bool,
        /// Into how many equal devices each GPU is divided where nothing else says it.
        15 num_virtual_devices_per_gpu: i32,
        /// MiB of each GPU left to the system; 0 for TensorFlow's default.
        16 gpu_system_memory_size_in_mb: i32,
    }
    /// `tensorflow.GPUOptions.Experimental.VirtualDevices`.
    pub struct VirtualDevices {
        /// A limit in MiB for each logical device; TensorFlow drops fractions.
        1 memory_limit_mb: Vec<f32>,
        /// A stream priority for each.
        2 priority: Vec<i32>,
        /// Where each comes in the order of devices.
        3 device_ordinal: Vec<i32>,
    }
    /// `tensorflow.GraphOptions`.
    pub struct GraphOptions {
        /// Options of the optimizers.
        3 optimizer_options: Option<OptimizerOptions>,
        /// Whether only the nodes that a run needs are placed.
        6 place_pruned_graph: bool,
    }
    /// `tensorflow.OptimizerOptions`.
    pub struct OptimizerOptions {
        /// 0 (L1) optimises, -1 (L0) does not.
        3 opt_level: i32,
        /// 0 default, -1 off, 1 and 2 on.
        5 global_jit_level: i32,
    }
    /// `tensorflow.ThreadPoolOptionProto`.
    pub struct ThreadPoolOptionProto {
        /// Threads; 0 for the default.
        1 num_threads: i32,
        /// A pool of that name is shared by sessions.
        2 global_name: String,
    }
    /// `tensorflow.RunOptions`.
    pub struct RunOptions {
        /// 0 none, 1 software, 2 hardware, 3 full.
        1 trace_level: i32,
        /// The deadline of the step in milliseconds; 0 for none.
        2 timeout_in_ms: i64,
        /// Which of the session's pools; -1 for the caller's thread.
        3 inter_op_thread_pool: i32,
        /// Whether partition graphs are given back.
        5 output_partition_graphs: bool,
        /// Whether an out-of-memory error lists the tensors.
        7 report_tensor_allocations_upon_oom: bool,
    }
}

/// Reads a ConfigProto, binary or text.
///
/// # Errors
/// As [`crate::read_graph_def`].
pub fn read_config(bytes: &[u8]) -> Result<ConfigProto> {
    file::read("ConfigProto", bytes)
}

/// A ConfigProto in protobuf's wire form.
pub fn write_config(config: &ConfigProto) -> Vec<u8> {
    encode(config)
}

/// A ConfigProto in protobuf's text form.
pub fn print_config(config: &ConfigProto) -> String {
    file::print("ConfigProto", config)
}

/// Reads RunOptions, binary or text.
///
/// # Errors
/// As [`crate::read_graph_def`].
pub fn read_run_options(bytes: &[u8]) -> Result<RunOptions> {
    file::read("RunOptions", bytes)
}

/// RunOptions in protobuf's wire form.
pub fn write_run_options(options: &RunOptions) -> Vec<u8> {
    encode(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"device_count {
  key: "CPU"
  value: 2
}
device_count {
  key: "GPU"
  value: 0
}
intra_op_parallelism_threads: 1
gpu_options {
  per_process_gpu_memory_fraction: 0.4
  allow_growth: true
  visible_device_list: "3,2"
  experimental {
    virtual_devices {
      memory_limit_mb: 1024.0
      memory_limit_mb: 2048.0
    }
    virtual_devices {
    }
  }
}
allow_soft_placement: true
graph_options {
  optimizer_options {
    opt_level: L0
  }
  rewrite_options {
    constant_folding: OFF
  }
}
experimental {
  executor_type: "SINGLE_THREADED_EXECUTOR"
}
cluster_def {
  job {
    name: "worker"
    tasks {
      key: 0
      value: "host:1"
    }
  }
}
"#;

    #[test]
    fn typed_and_carried_fields_survive_both_forms() {
        let config = read_config(TEXT.as_bytes()).unwrap();
        assert_eq!(config.device_count["GPU"], 0);
        let gpu = config.gpu_options.clone().unwrap();
        assert_eq!((gpu.per_process_gpu_memory_fraction, gpu.allow_growth, gpu.visible_device_list.as_str()), (0.4, true, "3,2"));
        assert_eq!(gpu.experimental.unwrap().virtual_devices[0].memory_limit_mb, [1024.0, 2048.0]);
        assert_eq!(config.graph_options.clone().unwrap().optimizer_options.unwrap().opt_level, -1);
        assert_eq!(print_config(&config), TEXT);
        assert_eq!(read_config(&write_config(&config)).unwrap(), config);
    }

    #[test]
    fn mistakes_are_named() {
        let error = read_config(b"gpu_options { per_process_gpu_memory_fracton: 0.4 }").unwrap_err();
        assert!(error.message().contains("line 1, column 15: GPUOptions has no field 'per_process_gpu_memory_fracton'"), "{error}");
    }

    #[test]
    fn run_options_are_read() {
        let options =
            read_run_options(b"trace_level: FULL_TRACE inter_op_thread_pool: -1 experimental { use_run_handler_pool: true }").unwrap();
        assert_eq!((options.trace_level, options.inter_op_thread_pool), (3, -1));
        assert_eq!(read_run_options(&write_run_options(&options)).unwrap(), options);
    }
}
