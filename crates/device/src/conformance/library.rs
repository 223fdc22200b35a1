//! A library of kernels that tests bring along.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_base::{Error, Result};
use plimsoll_request::KernelRequest;

use super::CellOperation;
use crate::{Cost, CpuLibrary, DeviceSpec, KernelCall, Library, Load, Prepared, Step, Variant};

/// Kernels by the order in which they came.
#[derive(Debug, Default)]
pub struct TestKernels(Mutex<Vec<Prepared>>);

impl TestKernels {
    /// A call of the processor's kernel for an operation on cells.
    pub fn cells(&self, operation: CellOperation, pieces: u32) -> KernelCall {
        let (cost, kernel) = (Cost::default(), Arc::new(operation));
        self.call(Prepared { chunks: pieces, scratch: 0, per_worker: 0, cost, in_place: vec![], kernel })
    }

    /// A call of that kernel.
    pub fn call(&self, prepared: Prepared) -> KernelCall {
        let mut kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let variant = variant(&prepared);
        kernels.push(prepared);
        KernelCall { request: Arc::new(KernelRequest::Named((kernels.len() - 1).to_string())), variant: Arc::new(variant), step: 0 }
    }

    fn get(&self, request: &KernelRequest) -> Result<Prepared> {
        let KernelRequest::Named(name) = request else { return Err(Error::unimplemented("not a kernel of a test")) };
        let kernels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kernel = name.parse().ok().and_then(|number: usize| kernels.get(number).cloned());
        kernel.ok_or_else(|| Error::not_found(format!("no kernel of a test is called {name}")))
    }
}

fn variant(prepared: &Prepared) -> Variant {
    Variant {
        name: "test".into(),
        numerics: "test".into(),
        between: Vec::new(),
        steps: vec![Step::of(prepared, None, Load::default())],
        laid_out: None,
    }
}

impl Library for TestKernels {
    fn variants(&self, _: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        Ok(vec![variant(&self.get(request)?)])
    }
}

impl CpuLibrary for TestKernels {
    fn code(&self, _: &DeviceSpec, call: &KernelCall) -> Result<Prepared> {
        self.get(&call.request)
    }
}
