//! SymbolicGradient: the gradients of a function's arguments, from the arguments and the gradients of its results. The planner puts a
//! body in its place where it inlines calls. One that stays cannot be computed, and says why when it has to run.

use plimsoll_base::{Code, Error, Result};
use plimsoll_graph::{AttrValue, Attrs, Node};

use crate::registry::Gradient;
use crate::{Call, InferCx, KernelCx, Lower, OpRules};

/// The operation.
pub const SYMBOLIC_GRADIENT: &str = "SymbolicGradient";

/// The attribute that says why a node cannot be computed: the code's name, and the text.
const REFUSED: &str = "_refused";

/// The rules of SymbolicGradient.
pub(super) const RULES: OpRules = OpRules { name: SYMBOLIC_GRADIENT, infer, lower: Lower::Kernel(stays), gradient: Gradient::Unknown };

/// Lets a SymbolicGradient say `why` it cannot be computed where it has to.
pub fn refuse(node: &mut Attrs, why: &Error) {
    node.insert(REFUSED.to_string(), AttrValue::texts(&[why.code().name(), why.message()]));
}

fn refusal(attrs: &Attrs) -> Option<Error> {
    let Some(AttrValue::List(said)) = attrs.get(REFUSED) else { return None };
    let [code, text] = &said.bytes[..] else { return None };
    let codes = [Code::InvalidArgument, Code::NotFound, Code::Internal];
    let code = codes.into_iter().find(|known| known.name().as_bytes() == code).unwrap_or(Code::Unimplemented);
    Some(Error::new(code, String::from_utf8_lossy(text)))
}

/// A gradient has the shape of its argument; that of a handle has the shape of its variable.
fn infer(cx: &mut InferCx<'_>) -> Result<()> {
    if let Some(why) = refusal(cx.attrs()) {
        return Err(why);
    }
    for index in 0..cx.outputs.len() {
        let Some(input) = cx.inputs.get(index) else { break };
        let shape =
            input.handle.as_ref().map(|(_, shape)| shape).or((input.data_type == cx.outputs[index].data_type).then_some(&input.shape));
        if let Some(shape) = shape.cloned() {
            cx.set(index, shape);
        }
    }
    Ok(())
}

fn stays(cx: &KernelCx<'_>) -> Result<Call> {
    let function = |node: &Node| match node.attrs.get("f") {
        Some(AttrValue::Func(func)) => format!("'{}'", func.name.escape_debug()),
        _ => "no function".to_string(),
    };
    Err(refusal(cx.attrs())
        .unwrap_or_else(|| Error::unimplemented(format!("the gradient of {}, where calls are not inlined", function(cx.node)))))
}
