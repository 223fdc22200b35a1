//! Sizes that share memory: a run of N takes what a run of the next bucket takes.

use std::sync::Arc;

use plimsoll_base::{Error, Result};
use plimsoll_graph::{AttrValue, Shape};
use plimsoll_plan::{Check, Plan, Signature};

use super::Inner;
use crate::signatures::key;

impl Inner {
    /// The plan of a signature, in the memory of its bucket where there is one. The lock of planning is held.
    ///
    /// # Errors
    /// As [`plimsoll_plan::plan_until`].
    pub(super) fn plan_sized(&self, signature: &Signature, check: &Check<'_>) -> Result<Plan> {
        let plan = self.requested(signature, |request| plimsoll_plan::plan_until(request, check))?;
        let buckets = &self.devices.options().buckets;
        let Some((size, feeds)) = self.size_of(signature).filter(|_| !buckets.is_empty()) else { return Ok(plan) };
        // More than any bucket takes at least what the largest takes, so that no peak falls as sizes grow.
        let next = buckets.iter().copied().filter(|bucket| *bucket > size).min();
        let is_bucket = buckets.contains(&size);
        let Some(bucket) = next.or_else(|| buckets.iter().copied().max().filter(|_| !is_bucket)) else { return Ok(plan) };
        // The graph may take no such size: this one has a plan of its own then.
        let Ok(outer) = self.bucket(signature, &feeds, bucket, check) else { return check().map(|()| plan) };
        let mut plan = match next {
            Some(_) => self.requested(signature, |request| plimsoll_plan::within(request, plan, &outer))?,
            None => plan,
        };
        if !is_bucket {
            plan.take_as_much_as(&outer);
        }
        Ok(plan)
    }

    /// The plan of a signature with another size of these feeds.
    fn bucket(&self, signature: &Signature, feeds: &[usize], size: u64, check: &Check<'_>) -> Result<Arc<Plan>> {
        let mut signature = signature.clone();
        for &feed in feeds {
            let mut dims = signature.feeds[feed].shape.to_vec();
            *dims.first_mut().ok_or_else(|| Error::internal("a size without a dimension"))? = size;
            signature.feeds[feed].shape = Shape::new(dims);
        }
        let key = key(&signature);
        if let Some(found) = self.plans().find(&key, &[&signature]) {
            return Ok(found.plan);
        }
        let plan = Arc::new(self.completed(self.plan_sized(&signature, check)?, check)?);
        self.plans().keep(&key, &signature, &plan, None);
        Ok(plan)
    }

    /// The size of a signature, the first dimension of the feeds where the graph leaves that open, and the numbers of these feeds. None
    /// where they differ, and where elements of one of them are known.
    fn size_of(&self, signature: &Signature) -> Option<(u64, Vec<usize>)> {
        let is_open = |name: &String| {
            let node = self.graph.node(self.graph.tensor(name).ok()?.node);
            let Some(AttrValue::Shape(shape)) = node.attrs.get("shape") else { return None };
            Some(node.op.starts_with("Placeholder") && shape.0.as_ref()?.first()?.is_none())
        };
        let (mut size, mut feeds) = (None, Vec::new());
        for (index, feed) in signature.feeds.iter().enumerate().filter(|(_, feed)| is_open(&feed.tensor) == Some(true)) {
            let first = *feed.shape.first()?;
            if *size.get_or_insert(first) != first || feed.value.is_some() {
                return None;
            }
            feeds.push(index);
        }
        Some((size?, feeds))
    }
}
