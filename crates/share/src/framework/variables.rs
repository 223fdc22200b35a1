//! The variables by which frameworks take a share without a line of their program's being changed.

use std::ffi::OsString;

use super::{Card, Overheads, Told, fraction, limit};

/// A variable with which a framework allocates beside the allocator that has the limit.
struct Defeating {
    name: &'static str,
    /// Whether it does so with this value.
    is_so: fn(&str) -> bool,
    why: &'static str,
}

/// The hook looks for them, too, since a program can set them itself.
const DEFEATING: [Defeating; 5] = [
    Defeating { name: "TF_GPU_ALLOCATOR", is_so: |value| value.starts_with("cuda_malloc"), why: "TensorFlow keeps to no limit with it" },
    Defeating { name: "TF_FORCE_UNIFIED_MEMORY", is_so: is_true, why: "TensorFlow and JAX keep to no limit with it" },
    Defeating {
        name: "TF_DEVICE_MIN_SYS_MEMORY_IN_MB",
        is_so: |value| value.parse::<u64>().is_ok(),
        why: "TensorFlow's limit is replaced by it",
    },
    Defeating { name: "PYTORCH_NO_CUDA_MEMORY_CACHING", is_so: |_| true, why: "PyTorch keeps to no limit with it" },
    Defeating {
        name: "XLA_PYTHON_CLIENT_ALLOCATOR",
        is_so: |value| !["", "default", "bfc"].contains(&value.to_lowercase().as_str()),
        why: "JAX keeps to no limit with it",
    },
];

/// JAX's share of a card. It ends where both are set; older versions know the first alone, and newer ones read it too.
const JAX: [&str; 2] = ["XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"];

/// PyTorch's options of its allocator. A version ends where it does not know an option, so none is added here: the hook adds the
/// share where the version knows it.
const PYTORCH: [&str; 3] = ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"];

/// PyTorch's option for a share.
const PYTORCH_SHARE: &str = "per_process_memory_fraction";

/// Sets and lowers variables. A variable's share counts for every card, so the smallest is told.
pub(super) fn hold(cards: &[Card], overheads: &Overheads, variable: &dyn Fn(&str) -> Option<OsString>, out: &mut Told) {
    let smallest = |overhead| cards.iter().map(|card| fraction(limit(card, overhead), card.total)).fold(1.0, f64::min);
    let text = |name: &str| variable(name).map(|value| value.to_string_lossy().into_owned());
    for Defeating { name, is_so, why } in DEFEATING {
        if let Some(value) = text(name).filter(|value| is_so(value)) {
            out.removed.push(name.into());
            out.warnings.push(format!("{name}={value} is not passed on: {why}"));
        }
    }
    if variable("TF_FORCE_GPU_ALLOW_GROWTH").is_none() {
        out.set.push(("TF_FORCE_GPU_ALLOW_GROWTH".into(), "true".into()));
    }
    jax(smallest(overheads.jax), &text, out);
    pytorch(smallest(overheads.pytorch), &text, out);
}

fn jax(share: f64, text: &dyn Fn(&str) -> Option<String>, out: &mut Told) {
    if text("XLA_PYTHON_CLIENT_PREALLOCATE").is_none() {
        out.set.push(("XLA_PYTHON_CLIENT_PREALLOCATE".into(), "false".into()));
    }
    // An empty one is none for JAX.
    let given: Vec<(&str, String)> =
        JAX.into_iter().filter_map(|name| Some((name, text(name).filter(|value| !value.is_empty())?))).collect();
    for (name, value) in &given {
        if value.trim().parse::<f64>().is_ok_and(|value| value > 0.0 && value <= share) {
            continue;
        }
        out.set.push(((*name).into(), format!("{share:.4}").into()));
        out.warnings.push(format!("{name}={value} is more than the lease: the program gets {share:.4}"));
    }
    if given.is_empty() {
        out.set.push((JAX[0].into(), format!("{share:.4}").into()));
    }
}

fn pytorch(share: f64, text: &dyn Fn(&str) -> Option<String>, out: &mut Told) {
    for name in PYTORCH {
        let Some(value) = text(name) else { continue };
        let mut is_held = true;
        let mut item_held = |item: &str| match item.split_once(':') {
            Some((key, given)) if key.trim() == PYTORCH_SHARE => {
                if given.trim().parse::<f64>().is_ok_and(|given| given >= 0.0 && given <= share) {
                    return item.to_string();
                }
                is_held = false;
                format!("{PYTORCH_SHARE}:{share:.4}")
            }
            _ => item.to_string(),
        };
        let items: Vec<String> = options(&value).map(&mut item_held).collect();
        if !is_held {
            out.set.push((name.into(), items.join(",").into()));
            out.warnings.push(format!("{name}={value} is more than the lease: the program gets {PYTORCH_SHARE}:{share:.4}"));
        }
    }
}

/// The options in a variable of PyTorch's: between commas, but for those in brackets.
fn options(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |letter| {
        depth += i32::from(letter == '[') - i32::from(letter == ']');
        letter == ',' && depth <= 0
    })
}

/// As TensorFlow reads a variable that is true or false.
fn is_true(value: &str) -> bool {
    ["1", "true"].contains(&value.to_lowercase().as_str())
}
