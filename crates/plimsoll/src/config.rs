//! TensorFlow's ConfigProto as options.

use plimsoll_base::{Error, Result};
use plimsoll_device::Options;
use plimsoll_formats::{ConfigProto, GpuOptions};

/// Sets what the ConfigProto says in the options; what it leaves open stays as it is, but for soft placement, which it always
/// says (and which is off where it does not mention it). Gives notes about what has no effect here.
///
/// As in TensorFlow, what it says of GPUs is not looked at where there is none. Hints for optimisers are not followed, and
/// sessions always have threads of their own.
///
/// # Errors
/// UNIMPLEMENTED for fields that would change what runs and are not built yet.
pub fn apply(config: &ConfigProto, options: &mut Options) -> Result<Vec<String>> {
    let not_yet = |what: &str| Err(Error::unimplemented(format!("not yet: {what} in a ConfigProto")));
    if !config.device_filters.is_empty() {
        return not_yet("device_filters");
    }
    if !config.session_inter_op_thread_pool.is_empty() {
        return not_yet("session_inter_op_thread_pool");
    }
    if config.operation_timeout_in_ms != 0 {
        return not_yet("operation_timeout_in_ms");
    }
    if config.graph_options.as_ref().is_some_and(|graph| graph.place_pruned_graph) {
        return not_yet("graph_options.place_pruned_graph");
    }
    options.device_count.extend(config.device_count.iter().map(|(kind, count)| (kind.clone(), *count)));
    if config.intra_op_parallelism_threads != 0 {
        options.intra_op = config.intra_op_parallelism_threads;
    }
    if config.inter_op_parallelism_threads != 0 {
        options.inter_op = config.inter_op_parallelism_threads;
    }
    options.soft_placement = config.allow_soft_placement;
    options.log_placement |= config.log_device_placement;
    let mut notes = Vec::new();
    if config.gpu_options.as_ref().is_some_and(|gpu| *gpu != GpuOptions::default()) {
        notes.push("gpu_options has no effect: there is no GPU".to_string());
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_base::Code;
    use plimsoll_formats::read_config;

    #[test]
    fn what_is_said_is_set_and_the_rest_stays() {
        let text = "device_count { key: 'CPU' value: 2 } intra_op_parallelism_threads: 3 log_device_placement: true";
        let mut options = Options::new();
        options.inter_op = 5;
        let notes = apply(&read_config(text.as_bytes()).unwrap(), &mut options).unwrap();
        assert_eq!((options.device_count["CPU"], options.intra_op, options.inter_op), (2, 3, 5));
        assert_eq!((options.soft_placement, options.log_placement), (false, true));
        assert!(notes.is_empty());
    }

    #[test]
    fn nothing_is_ignored_in_silence() {
        let read = |text: &str| apply(&read_config(text.as_bytes()).unwrap(), &mut Options::new());
        assert_eq!(read("gpu_options { allow_growth: true }").unwrap().len(), 1);
        assert!(read("gpu_options { }").unwrap().is_empty());
        for text in [
            "device_filters: '/gpu:0'",
            "session_inter_op_thread_pool { num_threads: 1 }",
            "operation_timeout_in_ms: 5",
            "graph_options { place_pruned_graph: true }",
        ] {
            assert_eq!(read(text).unwrap_err().code(), Code::Unimplemented, "{text}");
        }
    }
}
