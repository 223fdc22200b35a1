//! The variants that were chosen for requests, for works that ask the same again.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::Result;
use plimsoll_device::Variant;
use plimsoll_graph::id::Id;
use plimsoll_request::KernelRequest;
use plimsoll_request::anchor::Anchor;
use plimsoll_request::expr::{Expr, Instr};

use crate::plan::DeviceId;

/// So many are kept. What would be more makes room: everything before it goes.
const MOST: usize = 1 << 14;

/// Of requests of one key that differ no more than this are kept.
const MOST_OF_KEY: usize = 32;

/// Variants by device and request. A library and a table of costs are pure, so what is chosen for a request stays.
#[derive(Default)]
pub(super) struct Answers {
    found: Mutex<Found>,
}

#[derive(Default)]
struct Found {
    by_key: HashMap<u64, Vec<Answer>>,
    count: usize,
}

struct Answer {
    device: DeviceId,
    request: Arc<KernelRequest>,
    variant: Result<Arc<Variant>>,
}

/// A request, shared by those who ask the same, and the variant that was chosen.
pub(crate) type Answered = (Arc<KernelRequest>, Arc<Variant>);

impl Answers {
    /// What `choose` says of a request, or what it said before.
    pub fn answer(&self, device: DeviceId, request: &KernelRequest, choose: impl Fn() -> Result<Arc<Variant>>) -> Result<Answered> {
        let Some(key) = key(device, request) else { return Ok((Arc::new(request.clone()), choose()?)) };
        let lock = || self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it = |answer: &&Answer| answer.device == device && *answer.request == *request;
        if let Some(known) = lock().by_key.get(&key).and_then(|answers| answers.iter().find(is_it)) {
            return Ok((Arc::clone(&known.request), known.variant.clone()?));
        }
        let (request, variant) = (Arc::new(request.clone()), choose());
        let mut found = lock();
        if found.count == MOST {
            *found = Found::default();
        }
        let answers = found.by_key.entry(key).or_default();
        if answers.len() < MOST_OF_KEY && !answers.iter().any(|answer| answer.device == device && answer.request == request) {
            answers.push(Answer { device, request: Arc::clone(&request), variant: variant.clone() });
            found.count += 1;
        }
        Ok((request, variant?))
    }
}

/// The key of a request; none of a kind of which few ask the same.
fn key(device: DeviceId, request: &KernelRequest) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    device.index().hash(&mut hasher);
    match request {
        KernelRequest::Expr { expr, shape, operands } => {
            (0, shape, operands).hash(&mut hasher);
            hash_expr(expr, &mut hasher);
        }
        KernelRequest::Anchor { anchor, epilogue, pooling: None } => {
            1.hash(&mut hasher);
            match anchor {
                Anchor::Product(_, spec) => (spec.m, spec.n, spec.k, spec.batch, spec.transpose_a, spec.transpose_b).hash(&mut hasher),
                Anchor::Conv(spec) | Anchor::ConvBackpropInput(spec) | Anchor::DepthwiseConv(spec) => {
                    (spec.batch, spec.in_c, spec.out_c).hash(&mut hasher);
                }
            }
            if let Some(epilogue) = epilogue {
                epilogue.operands.hash(&mut hasher);
                hash_expr(&epilogue.expr, &mut hasher);
            }
        }
        _ => return None,
    }
    Some(hasher.finish())
}

fn hash_expr(expr: &Expr, hasher: &mut DefaultHasher) {
    (expr.inputs().len(), expr.instrs().len(), expr.outputs().len()).hash(hasher);
    let numbers = expr.instrs().iter().filter_map(|instr| if let Instr::Const(number) = instr { Some(number.bits()) } else { None });
    numbers.for_each(|bits| bits.hash(hasher));
}

#[cfg(test)]
mod tests {
    use plimsoll_base::DataType;
    use plimsoll_request::expr::{BinaryOp, ExprBuilder};

    use super::*;

    fn times(number: f64) -> KernelRequest {
        let mut expr = ExprBuilder::new();
        let operand = expr.input(DataType::Float).unwrap();
        let number = expr.number(DataType::Float, number).unwrap();
        let product = expr.binary(BinaryOp::Mul, operand, number).unwrap();
        KernelRequest::Expr { expr: expr.finish(vec![product]), shape: vec![4], operands: vec![vec![4]] }
    }

    #[test]
    fn what_is_asked_again_is_answered_once() {
        let answers = Answers::default();
        let asked = std::cell::Cell::new(0);
        let choose = || {
            asked.set(asked.get() + 1);
            let name = asked.get().to_string();
            Ok(Arc::new(Variant { name: name.as_str().into(), numerics: "".into(), between: vec![], steps: vec![], laid_out: None }))
        };
        let name = |device: usize, request: &KernelRequest| {
            answers.answer(DeviceId::from_index(device), request, choose).unwrap().1.name.to_string()
        };
        // Another device, another number and one of other bits are other questions.
        let all = [(0, times(0.0)), (1, times(0.0)), (0, times(2.0)), (0, times(-0.0))];
        for _ in 0..2 {
            assert_eq!(all.iter().map(|(device, request)| name(*device, request)).collect::<Vec<_>>(), ["1", "2", "3", "4"]);
        }
        // Kinds of which few are alike are asked each time.
        assert_eq!([name(0, &KernelRequest::Nothing), name(0, &KernelRequest::Nothing)], ["5", "6"]);
    }
}
