//! What cannot be had is an error with a sentence.

use std::path::Path;
use std::sync::Arc;

use plimsoll_base::{Bytes, Code};
use plimsoll_device::{BufferRef, Command, Cost, Device, KernelCall, Library, Load, Place, Program, Work};
use plimsoll_device_cuda::emit::{Emitted, Kernel};
use plimsoll_device_cuda::{Compiler, CudaDriver, CudaLibrary, CudaSource, any_card, variant_of};
use plimsoll_request::KernelRequest;
use plimsoll_request::movement::Movement;

use super::rig::Cards;

#[test]
fn libraries_that_are_none_are_sentences() {
    let nowhere = Path::new("/nowhere/libcuda.so.1");
    let error = CudaDriver::load(nowhere).err().unwrap();
    assert!(error.code() == Code::NotFound && error.message().starts_with("there is no NVIDIA driver: "), "{error}");
    let error = Compiler::load(nowhere, None).err().unwrap();
    assert!(error.code() == Code::NotFound && error.to_string().contains("pip install nvidia-cuda-nvrtc"), "{error}");
    // A library without any of the functions.
    let Some(name) = ["libm.so.6", "libSystem.dylib"].into_iter().find(|name| plimsoll_device_cuda::can_load(name).is_ok()) else { return };
    let error = CudaDriver::load(Path::new(name)).err().unwrap();
    assert_eq!(error.message(), "the NVIDIA driver cannot begin: this driver has no cuDriverGetVersion: it is too old");
    let error = Compiler::load(Path::new(name), None).err().unwrap();
    assert_eq!(error.message(), "this compiler for kernels (NVRTC) has no nvrtcVersion");
}

/// Kernels that do not compile.
#[derive(Debug)]
struct Broken;

impl Library for Broken {
    fn variants(&self, _: &plimsoll_device::DeviceSpec, request: &KernelRequest) -> plimsoll_base::Result<Vec<plimsoll_device::Variant>> {
        Ok(vec![variant_of(&self.emitted(request)?, Cost::default(), Load::default())?])
    }
}

impl CudaSource for Broken {
    fn emitted(&self, _: &KernelRequest) -> plimsoll_base::Result<Emitted> {
        let kernel = Kernel {
            entry: "broken".into(),
            body: "KERNEL BOUNDS broken(u64 n) {\n  no_such_name = n;\n}\n".into(),
            blocks: 1,
            args: vec![],
        };
        Ok(Emitted { kernels: vec![kernel], ..Emitted::default() })
    }
}

fn command(work: Work, args: Vec<BufferRef>) -> Command {
    Command { work, args, scratch: None, worker_scratch: None, guard: None, waits: vec![], label: "node".into() }
}

fn call(library: &dyn CudaSource, request: KernelRequest) -> KernelCall {
    let variant = library.variants(&any_card(), &request).unwrap().remove(0);
    KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 }
}

#[test]
fn programs_that_no_card_can_run_are_refused_when_they_are_loaded() {
    let Some(cards) = Cards::new("refused", &[64]) else { return };
    let card = cards.card(0);
    let device = cards.device(&card, 0, Some(Bytes(32 << 20)), Arc::new(Broken)).unwrap();
    let load = |device: &dyn Device, command: Command| device.load(0, Arc::new(Program { commands: vec![command] })).err().unwrap();
    let error = load(&device, command(Work::Kernel(call(&Broken, KernelRequest::Nothing)), vec![]));
    assert!(error.code() == Code::Internal && error.to_string().contains("no_such_name"), "{error}");
    let device = cards.device(&card, 1, Some(Bytes(32 << 20)), Arc::new(CudaLibrary)).unwrap();
    let error = load(&device, command(Work::Outside { call: 0, inputs: 0 }, vec![]));
    assert_eq!(error.code(), Code::Unimplemented, "{error}");
    // Another library's variant, and arguments that are not there.
    let fill = || KernelRequest::Movement { element: 4, movement: Movement::Fill { elements: 100 } };
    let mut other = call(&CudaLibrary, fill());
    Arc::make_mut(&mut other.variant).name = "avx512".into();
    let error = load(&device, command(Work::Kernel(other), vec![]));
    assert_eq!((error.code(), error.message()), (Code::Internal, "avx512 is another kernel here"));
    let error = load(&device, command(Work::Kernel(call(&CudaLibrary, fill())), vec![]));
    assert_eq!(error.code(), Code::Internal, "{error}");
    let byte = BufferRef { place: Place::Arena(0), offset: 0, bytes: 1 };
    for (work, args) in [
        (Work::Loop { body: u32::MAX, with: vec![] }, vec![byte]),
        (Work::Again { body: 1 }, vec![byte]),
        (Work::Loop { body: 1, with: vec![] }, vec![]),
    ] {
        assert_eq!(load(&device, command(work, args)).code(), Code::Internal);
    }
}
