//! TensorFlow's ConfigProto as options.

use plimsoll_base::{Error, Result};
use plimsoll_cards::Options;
use plimsoll_formats::{ConfigProto, apply_config};

/// Sets the ConfigProto's options, as [`plimsoll_formats::apply_config`] does.
///
/// As in TensorFlow, options of GPUs are not looked at where there is none; the notes of [`crate::machine::Division`] say so. Hints for
/// optimisers are not followed, and sessions always have threads of their own.
///
/// # Errors
/// UNIMPLEMENTED for fields that would change the run and are not built yet. INVALID_ARGUMENT for a precision of products that there is not.
pub fn apply(config: &ConfigProto, options: &mut Options) -> Result<()> {
    let not_yet = |what: &str| Err(Error::unimplemented(format!("not yet: {what} in a ConfigProto")));
    if !config.session_inter_op_thread_pool.is_empty() {
        return not_yet("session_inter_op_thread_pool");
    }
    if config.operation_timeout_in_ms != 0 {
        return not_yet("operation_timeout_in_ms");
    }
    apply_config(config, options);
    if let Some(experimental) = config.experimental.as_ref().filter(|experimental| !experimental.matmul_precision.is_empty()) {
        options.matmul_precision = experimental.matmul_precision.parse()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::Code;
    use plimsoll_cards::MatmulPrecision;
    use plimsoll_formats::read_config;

    #[test]
    fn what_is_said_is_set_and_the_rest_stays() {
        let text = "device_count { key: 'CPU' value: 2 } intra_op_parallelism_threads: 3 log_device_placement: true \
                    graph_options { place_pruned_graph: true }";
        let mut options = Options::new();
        options.inter_op = 5;
        apply(&read_config(text.as_bytes()).unwrap(), &mut options).unwrap();
        assert_eq!((options.device_count["CPU"], options.intra_op, options.inter_op), (2, 3, 5));
        assert_eq!((options.soft_placement, options.log_placement, options.place_pruned_graph), (false, true, true));
    }

    #[test]
    fn nothing_is_ignored_in_silence() {
        let read = |text: &str| apply(&read_config(text.as_bytes()).unwrap(), &mut Options::new());
        let notes = |text: &str| {
            let mut options = Options::new();
            apply(&read_config(text.as_bytes()).unwrap(), &mut options).unwrap();
            crate::Devices::open(&options).unwrap().division().unwrap().notes.clone()
        };
        assert_eq!(notes("gpu_options { allow_growth: true }"), ["gpu_options has no effect: no GPU is seen"]);
        assert!(notes("gpu_options { }").is_empty());
        let mut options = Options::new();
        apply(&read_config(b"experimental { matmul_precision: 'bf16' }").unwrap(), &mut options).unwrap();
        assert_eq!(options.matmul_precision, MatmulPrecision::Bf16);
        assert_eq!(read("experimental { matmul_precision: 'bf8' }").unwrap_err().code(), Code::InvalidArgument);
        for text in ["session_inter_op_thread_pool { num_threads: 1 }", "operation_timeout_in_ms: 5"] {
            assert_eq!(read(text).unwrap_err().code(), Code::Unimplemented, "{text}");
        }
    }
}
