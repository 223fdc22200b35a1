//! From requests to works: one for each step of the variant that the device's library answers.

use std::sync::Arc;

use plimsoll_base::{DataType, Error, Result};
use plimsoll_device::{KernelCall, StepArg};
use plimsoll_graph::NodeId;
use plimsoll_request::KernelRequest;

use super::Lowering;
use crate::lir::{Arg, Home, ValueId, View, WorkKind};
use crate::prepare::choose;

/// The binding of an argument of a step.
enum Bound {
    Read(View),
    Write(ValueId),
}

impl Lowering<'_> {
    /// The works of a request whose arguments are all inputs, then all results.
    ///
    /// # Errors
    /// The library's error for the request; INTERNAL where its variant has other arguments than the request.
    pub(super) fn kernel(
        &mut self,
        id: NodeId,
        request: KernelRequest,
        inputs: Vec<View>,
        results: Vec<ValueId>,
        is_root: bool,
    ) -> Result<()> {
        let device = self.device(id);
        let variant = Arc::new(choose(self.request, device, &request)?);
        let request = Arc::new(request);
        let mut between: Vec<Option<View>> = vec![None; variant.between.len()];
        let mut written: Vec<ValueId> = Vec::new();
        for (number, step) in variant.steps.iter().enumerate() {
            let all = || (0..(inputs.len() + results.len()) as u32).map(StepArg::Argument).collect();
            let (mut reads, mut writes, mut args) = (Vec::new(), Vec::new(), Vec::new());
            for arg in step.args.clone().unwrap_or_else(all) {
                let outside = || Error::internal(format!("{}: a step without its argument {arg:?}", variant.name));
                let bound = match arg {
                    StepArg::Argument(index) => match (index as usize).checked_sub(inputs.len()) {
                        None => Bound::Read(inputs[index as usize].clone()),
                        Some(result) => Bound::Write(*results.get(result).ok_or_else(outside)?),
                    },
                    StepArg::Between(index) => match between.get_mut(index as usize).ok_or_else(outside)? {
                        Some(view) => Bound::Read(view.clone()),
                        place @ None => {
                            let bytes = variant.between[index as usize];
                            let value = self.lir.value(device, Home::Arena, bytes, id);
                            *place = Some(View { value, data_type: DataType::Uint8, shape: [bytes].into() });
                            Bound::Write(value)
                        }
                    },
                };
                match bound {
                    Bound::Read(view) => {
                        args.push(Arg::Input(reads.len()));
                        reads.push(view);
                    }
                    Bound::Write(value) => {
                        args.push(Arg::Output(writes.len()));
                        writes.push(value);
                    }
                }
            }
            let call = KernelCall { request: request.clone(), variant: variant.clone(), step: number as u32 };
            let is_last = number + 1 == variant.steps.len();
            if step.args.is_some() {
                written.extend(&writes);
            }
            self.work(id, WorkKind::Kernel { call, args }, reads, writes, is_root && is_last);
        }
        let writes_all = variant.steps.iter().any(|step| step.args.is_none());
        match results.iter().position(|result| !writes_all && !written.contains(result)) {
            Some(result) => Err(Error::internal(format!("no step of {} writes result {result}", variant.name))),
            None => Ok(()),
        }
    }
}
