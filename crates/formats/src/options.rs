//! What a ConfigProto asks for, as device options.

use plimsoll_base::{Bytes, Error, Result};
use plimsoll_device::{DeviceKind, MemoryLimit, Options};

use crate::config::{ConfigProto, GpuOptions};

/// The options that `config` stands for. What it does not say stays at the default, except soft placement, which a ConfigProto
/// always says (off, where nothing is written). Fields that have no counterpart (optimizers, clusters, timeouts) do not count.
///
/// Rules and error codes are TensorFlow's: limits of virtual devices are whole MiB (a fraction is dropped), one message for
/// each visible GPU, and exclude a fraction. What depends on the machine is checked when devices are opened.
///
/// # Errors
/// INVALID_ARGUMENT for fractions and limits that make no sense.
pub fn to_options(config: &ConfigProto) -> Result<Options> {
    let mut options = Options::new();
    options.soft_placement = config.allow_soft_placement;
    options.log_placement = config.log_device_placement;
    options.intra_op = config.intra_op_parallelism_threads;
    options.inter_op = config.inter_op_parallelism_threads;
    options.device_count = config.device_count.clone();
    if let Some(gpu) = &config.gpu_options {
        apply_gpu(gpu, &mut options).map_err(|error| error.context("gpu_options"))?;
    }
    Ok(options)
}

fn apply_gpu(gpu: &GpuOptions, options: &mut Options) -> Result<()> {
    let experimental = gpu.experimental.clone().unwrap_or_default();
    let fraction = gpu.per_process_gpu_memory_fraction;
    if fraction.is_nan() || fraction < 0.0 {
        return Err(Error::invalid_argument(format!("per_process_gpu_memory_fraction cannot be {fraction}")));
    }
    if fraction > 0.0 && !experimental.virtual_devices.is_empty() {
        return Err(Error::invalid_argument("per_process_gpu_memory_fraction must not be set together with virtual_devices"));
    }
    options.memory_fraction = (fraction > 0.0).then_some(fraction);
    options.allow_growth = gpu.allow_growth;
    options.visible_devices = (!gpu.visible_device_list.is_empty()).then(|| gpu.visible_device_list.clone());
    for (index, device) in experimental.virtual_devices.iter().enumerate() {
        let parts = device.memory_limit_mb.iter().map(|mib| whole_mib(*mib)).collect::<Result<Vec<_>>>()?;
        if !parts.is_empty() {
            options.memory_limits.push(MemoryLimit { device: Some((DeviceKind::Gpu, index as u32)), parts });
        }
    }
    Ok(())
}

fn whole_mib(mib: f32) -> Result<Bytes> {
    if !(0.0..=(1u64 << 43) as f32).contains(&mib) {
        return Err(Error::invalid_argument(format!("memory_limit_mb cannot be {mib}")));
    }
    Ok(Bytes((mib as u64) << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_config;

    fn options(text: &str) -> Result<Options> {
        to_options(&read_config(text.as_bytes())?)
    }

    #[test]
    fn every_field_finds_its_option() {
        let options = options(
            "device_count { key: 'CPU' value: 2 } intra_op_parallelism_threads: 1 inter_op_parallelism_threads: -1 log_device_placement: true
             gpu_options { allow_growth: true visible_device_list: '3,2'
                           experimental { virtual_devices { memory_limit_mb: [1024.9, 2048] } virtual_devices { } } }",
        )
        .unwrap();
        assert_eq!((options.intra_op, options.inter_op, options.device_count["CPU"]), (1, -1, 2));
        assert_eq!((options.soft_placement, options.log_placement, options.allow_growth), (false, true, true));
        assert_eq!(options.visible_devices.as_deref(), Some("3,2"));
        let limit = MemoryLimit { device: Some((DeviceKind::Gpu, 0)), parts: vec![Bytes(1 << 30), Bytes(2 << 30)] };
        assert_eq!(options.memory_limits, [limit]);
    }

    #[test]
    fn an_empty_config_is_the_default_but_for_soft_placement() {
        let mut expected = Options::new();
        expected.soft_placement = false;
        assert_eq!(options("").unwrap(), expected);
        assert_eq!(options("gpu_options { per_process_gpu_memory_fraction: 0.4 }").unwrap().memory_fraction, Some(0.4));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "gpu_options { per_process_gpu_memory_fraction: nan }",
            "gpu_options { per_process_gpu_memory_fraction: -0.1 }",
            "gpu_options { per_process_gpu_memory_fraction: 0.5 experimental { virtual_devices { } } }",
            "gpu_options { experimental { virtual_devices { memory_limit_mb: -1 } } }",
            "gpu_options { experimental { virtual_devices { memory_limit_mb: inf } } }",
        ] {
            assert_eq!(options(text).unwrap_err().code(), plimsoll_base::Code::InvalidArgument, "{text}");
        }
    }
}
