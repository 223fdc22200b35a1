//! Signatures of runs, and the keys that tell their plans apart.

use plimsoll_base::DataType;
use plimsoll_graph::HostTensor;
use plimsoll_plan::{Feed, Signature};

/// Feeds with at most this many elements may decide shapes.
const MAX_SHAPE_ELEMENTS: u64 = 64;

/// The signature of a run.
pub(crate) fn signature(feeds: &[(&str, &HostTensor)], fetches: &[&str], targets: &[&str]) -> Signature {
    let feed = |(name, tensor): &(&str, &HostTensor)| Feed {
        tensor: name.to_string(),
        data_type: tensor.data_type(),
        shape: tensor.shape().clone(),
        value: None,
    };
    let texts = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
    Signature { feeds: feeds.iter().map(feed).collect(), fetches: texts(fetches), targets: texts(targets), ..Signature::default() }
}

/// The feeds with the elements of those that may decide shapes, or name files.
pub(crate) fn with_values(signature: &Signature, feeds: &[(&str, &HostTensor)]) -> Vec<Feed> {
    let may_decide = |tensor: &HostTensor| {
        tensor.elements() <= MAX_SHAPE_ELEMENTS
            && matches!(tensor.data_type(), DataType::Int32 | DataType::Int64 | DataType::Bool | DataType::String)
    };
    let with =
        |(feed, (_, tensor)): (&Feed, &(&str, &HostTensor))| Feed { value: may_decide(tensor).then(|| (*tensor).clone()), ..feed.clone() };
    signature.feeds.iter().zip(feeds).map(with).collect()
}

/// The key of plans, the elements of feeds aside.
pub(crate) fn key(signature: &Signature) -> String {
    use std::fmt::Write;
    let mut key = String::new();
    for feed in &signature.feeds {
        let _ = write!(key, "{}={}{};", feed.tensor, feed.data_type, feed.shape);
    }
    let _ = write!(key, "|{}|{}|{}", signature.fetches.join(";"), signature.targets.join(";"), signature.done.join(";"));
    if !signature.lengths.is_empty() {
        let _ = write!(key, "|{:?}", signature.lengths);
    }
    key
}
