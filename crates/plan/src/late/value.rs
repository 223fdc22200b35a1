use std::sync::Arc;

use plimsoll_graph::{HostTensor, Shape};

use crate::plan::PlanFetch;
use crate::request::ListTraits;

/// A tensor that goes from stage to stage.
#[derive(Clone, Debug)]
pub struct Value {
    /// Its elements; of a list, the rows.
    pub tensor: HostTensor,
    /// What a list of lists is beside its rows, as the stage that made it has seen it.
    pub traits: Option<Arc<ListTraits>>,
}

/// What a plan that is fed with a value depends on, but for elements.
#[derive(Clone, Debug)]
pub struct Form(Shape, Option<Arc<ListTraits>>);

impl Value {
    /// What a plan has fetched.
    pub fn fetched(tensor: HostTensor, fetch: &PlanFetch) -> Value {
        Value { tensor, traits: fetch.traits.clone() }
    }

    /// Its form.
    pub fn form(&self) -> Form {
        Form(self.tensor.shape().clone(), self.traits.clone())
    }

    /// Whether it has this form.
    pub fn has(&self, form: &Form) -> bool {
        *self.tensor.shape() == form.0 && self.traits == form.1
    }
}

impl From<HostTensor> for Value {
    fn from(tensor: HostTensor) -> Value {
        Value { tensor, traits: None }
    }
}
