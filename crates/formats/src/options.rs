//! The device options that a ConfigProto asks for.

use plimsoll_cards::{GpuConfig, Options, VirtualDevices};

use crate::config::{ConfigProto, GpuOptions};

/// The options that `config` stands for: [`apply_config`] on none.
pub fn to_options(config: &ConfigProto) -> Options {
    let mut options = Options::new();
    apply_config(config, &mut options);
    options
}

/// Sets the options that `config` names in `options`. Options that it leaves open stay as they are, with two exceptions. A
/// ConfigProto always says soft placement (off, where nothing is written), and `gpu_options` count as a whole.
///
/// Values are taken as they are. They are checked when a machine is divided, as in TensorFlow: without GPUs, options of GPUs are
/// not looked at. Fields that say nothing about devices and threads do not count here.
pub fn apply_config(config: &ConfigProto, options: &mut Options) {
    options.soft_placement = config.allow_soft_placement;
    options.log_placement |= config.log_device_placement;
    options.place_pruned_graph |= config.graph_options.as_ref().is_some_and(|graph| graph.place_pruned_graph);
    if config.intra_op_parallelism_threads != 0 {
        options.intra_op = config.intra_op_parallelism_threads;
    }
    if config.inter_op_parallelism_threads != 0 {
        options.inter_op = config.inter_op_parallelism_threads;
    }
    options.device_count.extend(config.device_count.iter().map(|(kind, count)| (kind.clone(), *count)));
    let experimental = config.experimental.clone().unwrap_or_default();
    options.exact_convolutions |= experimental.exact_convolutions;
    options.tensor_float_32 |= experimental.tensor_float_32_execution;
    if !config.device_filters.is_empty() {
        options.device_filters.clone_from(&config.device_filters);
    }
    if let Some(gpu) = &config.gpu_options {
        options.gpu = gpu_config(gpu);
    }
}

fn gpu_config(gpu: &GpuOptions) -> GpuConfig {
    let experimental = gpu.experimental.clone().unwrap_or_default();
    let divided = experimental.virtual_devices.into_iter().map(|devices| VirtualDevices {
        memory_limit_mb: devices.memory_limit_mb,
        priority: devices.priority,
        device_ordinal: devices.device_ordinal,
    });
    GpuConfig {
        per_process_gpu_memory_fraction: gpu.per_process_gpu_memory_fraction,
        allocator_type: gpu.allocator_type.clone(),
        allow_growth: gpu.allow_growth,
        visible_device_list: gpu.visible_device_list.clone(),
        virtual_devices: divided.collect(),
        use_unified_memory: experimental.use_unified_memory,
        num_virtual_devices_per_gpu: experimental.num_virtual_devices_per_gpu,
        gpu_system_memory_size_in_mb: experimental.gpu_system_memory_size_in_mb,
        use_cuda_malloc_async: experimental.use_cuda_malloc_async,
        disallow_retry_on_allocation_failure: experimental.disallow_retry_on_allocation_failure,
        internal_fragmentation_fraction: experimental.internal_fragmentation_fraction,
        gpu_host_mem_limit_in_mb: experimental.gpu_host_mem_limit_in_mb,
        gpu_host_mem_disallow_growth: experimental.gpu_host_mem_disallow_growth,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_config;

    fn options(text: &str) -> Options {
        to_options(&read_config(text.as_bytes()).unwrap())
    }

    #[test]
    fn every_field_finds_its_option() {
        let options = options(
            "device_count { key: 'CPU' value: 2 } intra_op_parallelism_threads: 1 inter_op_parallelism_threads: -1
             log_device_placement: true device_filters: '/gpu:0'
             gpu_options {
                 per_process_gpu_memory_fraction: 0.4 allocator_type: 'BFC' allow_growth: true visible_device_list: '3,2'
                 experimental {
                     virtual_devices { memory_limit_mb: [1024.9, 2048] priority: [0, -1] device_ordinal: [7, 8] } virtual_devices { }
                     use_unified_memory: true num_virtual_devices_per_gpu: 2 gpu_system_memory_size_in_mb: 100
                     use_cuda_malloc_async: true disallow_retry_on_allocation_failure: true internal_fragmentation_fraction: 0.5
                     gpu_host_mem_limit_in_mb: 64 gpu_host_mem_disallow_growth: true
                 }
             }",
        );
        assert_eq!((options.intra_op, options.inter_op, options.device_count["CPU"]), (1, -1, 2));
        assert_eq!((options.soft_placement, options.log_placement, options.device_filters), (false, true, vec!["/gpu:0".to_string()]));
        let divided = VirtualDevices { memory_limit_mb: vec![1024.9, 2048.0], priority: vec![0, -1], device_ordinal: vec![7, 8] };
        let expected = GpuConfig {
            per_process_gpu_memory_fraction: 0.4,
            allocator_type: "BFC".into(),
            allow_growth: true,
            visible_device_list: "3,2".into(),
            virtual_devices: vec![divided, VirtualDevices::default()],
            use_unified_memory: true,
            num_virtual_devices_per_gpu: 2,
            gpu_system_memory_size_in_mb: 100,
            use_cuda_malloc_async: true,
            disallow_retry_on_allocation_failure: true,
            internal_fragmentation_fraction: 0.5,
            gpu_host_mem_limit_in_mb: 64.0,
            gpu_host_mem_disallow_growth: true,
        };
        assert_eq!(options.gpu, expected);
        assert_eq!((options.visible_devices, options.memory_fraction, options.allow_growth), (None, None, None));
    }

    #[test]
    fn experimental_fields_become_options() {
        assert!(options("experimental { tensor_float_32_execution: true }").tensor_float_32);
        assert!(!options("experimental { exact_convolutions: true }").tensor_float_32);
        assert!(options("experimental { exact_convolutions: true }").exact_convolutions);
        assert!(!options("experimental { executor_type: 'x' }").exact_convolutions);
        let binary = crate::write_config(&read_config(b"experimental { exact_convolutions: true executor_type: 'x' }").unwrap());
        assert!(to_options(&read_config(&binary).unwrap()).exact_convolutions);
    }

    #[test]
    fn an_empty_config_is_the_default_but_for_soft_placement() {
        let mut expected = Options::new();
        expected.soft_placement = false;
        assert_eq!(options(""), expected);
        let mut before = Options::new().intra_op(3).device_count(plimsoll_device::DeviceKind::Gpu, 1);
        before.gpu.allow_growth = true;
        let mut after = before.clone();
        apply_config(&read_config(b"allow_soft_placement: true device_count { key: 'CPU' value: 2 }").unwrap(), &mut after);
        assert_eq!(after, before.device_count(plimsoll_device::DeviceKind::Cpu, 2));
    }
}
