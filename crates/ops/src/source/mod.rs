//! The sources of values: constants, placeholders; and ops without values: NoOp, Assert.

use plimsoll_base::{DataType, Result};
use plimsoll_graph::{AttrsExt, PartialShape};
use plimsoll_request::KernelRequest;
use plimsoll_request::check::Requirement;

use crate::infer::unknown;
use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The rules of this family.
pub const RULES: &[&[OpRules]] = &[&[
    OpRules { name: "Const", infer: constant, lower: Lower::Const, gradient: Gradient::Stops },
    OpRules { name: "NoOp", infer: unknown, lower: Lower::Nothing, gradient: Gradient::Stops },
    OpRules { name: "Assert", infer: unknown, lower: Lower::Kernel(assert), gradient: Gradient::Stops },
    OpRules { name: "Placeholder", infer: placeholder, lower: Lower::Placeholder, gradient: Gradient::Stops },
    OpRules {
        name: "PlaceholderWithDefault",
        infer: placeholder,
        lower: Lower::PlaceholderWithDefault,
        gradient: Gradient::Rule(crate::array::pass_gradient),
    },
]];

/// The condition is one bool; the other inputs are only to be printed.
fn assert(cx: &KernelCx<'_>) -> Result<Call> {
    cx.require_one(0, "the condition of Assert")?;
    Ok(Call::new(KernelRequest::Require(Requirement::Assertion), [0]))
}

fn constant(cx: &mut InferCx<'_>) -> Result<()> {
    let value = cx.attrs().tensor("value")?.clone();
    let declared = cx.outputs[0].data_type;
    if value.data_type() != declared {
        return Err(plimsoll_base::Error::invalid_argument(format!("the constant is {}, but its type says {declared}", value.data_type())));
    }
    cx.set_value(0, value);
    Ok(())
}

fn placeholder(cx: &mut InferCx<'_>) -> Result<()> {
    let shape = cx.attrs().shape("shape")?.clone();
    cx.set(0, shape);
    // As TensorFlow marks arguments that are handles.
    if let (DataType::Resource, Ok(list)) = (cx.outputs[0].data_type, cx.attrs().list("_handle_dtypes"))
        && let Some(data_type) = list.types.first().and_then(|number| DataType::from_number(*number))
    {
        cx.outputs[0].handle = Some((data_type, PartialShape::unknown()));
    }
    Ok(())
}
