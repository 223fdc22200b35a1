//! The settings that tell frameworks a share: with them PyTorch, TensorFlow and JAX cannot use more.
//!
//! Settings with a variable go by variables, for programs in any language. For settings without a variable, and those that depend
//! on the version of a framework, a hook runs in Python programs ([`hook`]). It gets its numbers from here ([`LIMITS`]). Each limit
//! is for a process and each framework in it, not for a tree of processes.

pub mod hook;
mod overhead;
mod variables;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use plimsoll_base::Bytes;
use serde_json::json;

pub use overhead::Overheads;

/// The variable that the hook reads: the cards of the lease with the limits of each, in bytes, in the order in which the program sees
/// them. It is there under every lease that has cards.
pub const LIMITS: &str = "PLIMSOLL_FRAMEWORK_LIMITS";

/// The variable that switches the hook off where it is `0`.
pub const SWITCH: &str = "PLIMSOLL_HOOK";

/// A card of a share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// As CUDA_VISIBLE_DEVICES names it.
    pub name: String,
    /// The model: `Tesla T4`.
    pub model: String,
    /// Its UUID.
    pub uuid: String,
    /// The bytes of it that the program may use.
    pub bytes: Bytes,
    /// All of it, as the program sees it: where a program is shown its share as the whole card, this is the share too.
    pub total: Bytes,
}

/// The changes to a program's environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Variables that are set.
    pub set: Vec<(String, OsString)>,
    /// Variables that are removed: with them, a framework does not keep to a limit.
    pub removed: Vec<String>,
    /// The changes to the user's own settings, a sentence each.
    pub warnings: Vec<String>,
}

/// The environment of a program that has these cards, made of the environment that it would have. The user's own settings stay where
/// they ask for less. Frameworks are told nothing where the cards are the program's as a whole.
pub fn told(cards: &[Card], overheads: &Overheads, variable: &dyn Fn(&str) -> Option<OsString>) -> Told {
    let mut out = Told::default();
    if is_share(cards) {
        variables::hold(cards, overheads, variable, &mut out);
        // The variables of a lease around this one are not the user's.
        if variable(LIMITS).is_some() {
            out.warnings.clear();
        }
    }
    if !cards.is_empty() {
        out.set.push((LIMITS.into(), limits(cards, overheads).into()));
    }
    out
}

/// Whether the program has a part of a card only.
pub fn is_share(cards: &[Card]) -> bool {
    cards.iter().any(|card| card.bytes < card.total)
}

/// PYTHONPATH with a folder in front, once.
pub fn python_path(folder: &OsStr, before: Option<OsString>) -> OsString {
    let mut out = folder.to_os_string();
    // An empty one is none, and an empty part is the folder that a program runs in.
    let Some(before) = before.filter(|before| !before.is_empty()) else { return out };
    for part in std::env::split_paths(&before).map(PathBuf::into_os_string).filter(|part| part != folder) {
        out.push(":");
        out.push(part);
    }
    out
}

/// Whether a program's environment switches the hook off.
pub fn is_off(variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    variable(SWITCH).is_some_and(|value| value == "0")
}

/// The text that the hook reads. A framework's limit is `total` where the card is the program's as a whole.
fn limits(cards: &[Card], overheads: &Overheads) -> String {
    let cards: Vec<_> = cards
        .iter()
        .map(|card| {
            let limit = |overhead: Bytes| limit(card, overhead).0;
            json!({
                "name": card.name,
                "model": card.model,
                "uuid": card.uuid,
                "bytes": card.bytes.0,
                "total": card.total.0,
                "pytorch": limit(overheads.pytorch),
                "tensorflow": limit(overheads.tensorflow),
                "jax": limit(overheads.jax),
            })
        })
        .collect();
    json!({ "cards": cards }).to_string()
}

/// The bytes of a card that a framework's allocator may take.
fn limit(card: &Card, overhead: Bytes) -> Bytes {
    if card.bytes >= card.total { card.total } else { overhead::without(card.bytes, overhead) }
}

/// The share of a card that a limit is, rounded down to four digits, and never none.
fn fraction(limit: Bytes, total: Bytes) -> f64 {
    ((limit.0 as f64 / (total.0 as f64).max(1.0)).min(1.0) * 1e4).floor().max(1.0) / 1e4
}

#[cfg(test)]
mod tests;
