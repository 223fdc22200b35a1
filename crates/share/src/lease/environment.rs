//! What a program is told of its lease.

use std::path::Path;

use super::{Lease, Part};

/// Where the driver shows itself.
const DRIVER: &str = "/proc/driver/nvidia";

/// The variables, without those of frameworks that are set.
pub(super) fn variables(lease: &Lease, is_set: &dyn Fn(&str) -> bool) -> Vec<(String, String)> {
    let mut out = vec![("CUDA_VISIBLE_DEVICES".to_string(), cards(lease))];
    let Some(member) = &lease.member else { return out };
    if let Some(spec) = lease.cards.simulated() {
        out.push(("PLIMSOLL_SIM_GPUS".into(), spec.into()));
    }
    let token = member.token();
    out.push(("PLIMSOLL_LEASE".into(), lease.cards.outer().map_or(token.clone(), |outer| format!("{outer}/{token}"))));
    // A share is said of one card, so the smallest counts.
    let share = |part: &Part| part.bytes.0 as f64 / (lease.cards.total(part.card).0 as f64).max(1.0);
    for (names, value) in frameworks(lease.parts.iter().map(share).fold(1.0, f64::min)) {
        if !names.iter().any(|name| is_set(name)) {
            out.push((names[0].into(), value));
        }
    }
    out
}

/// The cards, by UUID where there are real ones: a number means another card where CUDA counts otherwise, and a simulated card's
/// UUID is none of the driver's.
fn cards(lease: &Lease) -> String {
    let by_uuid = lease.cards.simulated().is_none() || Path::new(DRIVER).exists();
    let name = |part: &Part| if by_uuid { part.device.uuid.clone() } else { part.ordinal.to_string() };
    lease.parts.iter().map(name).collect::<Vec<_>>().join(",")
}

/// What frameworks take of a share of a card: a value, and the names of a setting, of which the first is set unless one is set.
///
/// TensorFlow has no variable for a share, only growth: its limit is in its program's options. PyTorch takes a share from its program
/// (`set_per_process_memory_fraction`); versions end where PYTORCH_CUDA_ALLOC_CONF has a key that they do not know, so what all
/// know is set: blocks that are not used are given back before the program's share is full. JAX takes a share of the whole card,
/// and ends where both names are set.
fn frameworks(share: f64) -> Vec<(&'static [&'static str], String)> {
    vec![
        (&["TF_FORCE_GPU_ALLOW_GROWTH"], "true".into()),
        (&["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"], "garbage_collection_threshold:0.80".into()),
        (&["XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"], "false".into()),
        (&["XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"], format!("{:.4}", (share * 1e4).floor().max(1.0) / 1e4)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_rounded_down_and_never_none() {
        for (share, told) in [(0.4, "0.4000"), (1.0, "1.0000"), (0.39999, "0.3999"), (1e-9, "0.0001")] {
            assert_eq!(frameworks(share).last().unwrap().1, told);
        }
    }
}
