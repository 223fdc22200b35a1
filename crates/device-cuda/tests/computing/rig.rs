//! Mock cards as the suite of all devices wants them, and its kernels in CUDA C.

use std::sync::Arc;

use plimsoll_base::{Bytes, Code, Error, Result};
use plimsoll_device::conformance::{CellOperation, Rig};
use plimsoll_device::{CardPart, Cost, Device, DeviceName, DeviceSpec, KernelCall, Library, Load, Variant};
use plimsoll_device_cuda::emit::{Emitted, FaultNumber, FaultText, Kernel, KernelArg};
use plimsoll_device_cuda::{Compiler, CudaCard, CudaDevice, CudaDriver, CudaSource, GraphUse, any_card, variant_of};
use plimsoll_memory::Ledger;
use plimsoll_request::KernelRequest;

use super::machine::Machine;

/// Mock cards, opened.
pub struct Cards {
    pub machine: Machine,
    pub driver: Arc<CudaDriver>,
    pub compiler: Arc<Compiler>,
    /// Whether devices are parts of one card.
    pub is_one: bool,
    pub graphs: GraphUse,
}

impl Cards {
    pub fn new(test: &str, mebibytes: &[u64]) -> Option<Cards> {
        let machine = Machine::new(test, mebibytes)?;
        let driver = CudaDriver::load(&machine.driver()).unwrap();
        let compiler = Arc::new(Compiler::load(&machine.compiler(), Some(machine.folder().join("cubins"))).unwrap());
        Some(Cards { machine, driver, compiler, is_one: false, graphs: GraphUse::on("") })
    }

    pub fn card(&self, number: usize) -> Arc<CudaCard> {
        CudaCard::open(&self.driver, &self.driver.cards().unwrap()[number], &self.compiler, None).unwrap()
    }

    /// Logical device `GPU:index` on a card.
    pub fn device(&self, card: &Arc<CudaCard>, index: u32, line: Option<Bytes>, library: Arc<dyn CudaSource>) -> Result<CudaDevice> {
        self.device_with(card, index, (line, self.graphs), library)
    }

    /// The same, with room of its own for graphs.
    pub fn device_with(
        &self,
        card: &Arc<CudaCard>,
        index: u32,
        (line, graphs): (Option<Bytes>, GraphUse),
        library: Arc<dyn CudaSource>,
    ) -> Result<CudaDevice> {
        let number = if self.is_one { 0 } else { index };
        let part = CardPart { card: number, priority: -(index as i32), modelled: None, real: None };
        let spec = DeviceSpec { name: DeviceName::local("GPU", index), memory_limit: line, card: Some(part), ..any_card() };
        let spec = CudaDevice::spec(card.granularity(), spec);
        let ledger = Ledger::new(spec.name.to_string(), spec.memory_limit);
        CudaDevice::on(card, spec, ledger, library, graphs)
    }
}

impl Rig for Cards {
    fn devices(&self, count: usize, line: Bytes) -> Vec<Arc<dyn Device>> {
        (0..self.machine.gpus.cards().len()).for_each(|card| self.machine.gpus.mend(card).unwrap());
        let one = self.card(0);
        let device = |index: usize| {
            let card = if self.is_one { one.clone() } else { self.card(index) };
            Arc::new(self.device(&card, index as u32, Some(line), Arc::new(Cells)).unwrap()) as Arc<dyn Device>
        };
        (0..count).map(device).collect()
    }

    fn call(&self, operation: CellOperation, pieces: u32, arguments: usize) -> KernelCall {
        let (name, number) = match &operation {
            CellOperation::Mix(number) => ("mix", *number),
            CellOperation::Fail(number) => ("fail", *number as u64),
            CellOperation::When(now) => ("when", now.as_ptr() as u64),
            CellOperation::Panic => panic!("no kernel of a card panics"),
        };
        let request = KernelRequest::Named(format!("{name} {number} {pieces} {arguments}"));
        let variant = Cells.variants(&any_card(), &request).unwrap().remove(0);
        KernelCall { request: Arc::new(request), variant: Arc::new(variant), step: 0 }
    }

    fn lose(&self, device: &Arc<dyn Device>) -> bool {
        // The parts of one card are lost together.
        if !self.is_one {
            let card = device.spec().card.as_ref().expect("a card").card;
            self.machine.gpus.lose(card as usize).unwrap();
        }
        !self.is_one
    }

    fn unit(&self) -> u64 {
        2 << 20
    }

    fn can_panic(&self) -> bool {
        false
    }
}

/// The suite's operations on cells of eight bytes.
#[derive(Debug)]
pub struct Cells;

impl Library for Cells {
    fn variants(&self, _: &DeviceSpec, request: &KernelRequest) -> Result<Vec<Variant>> {
        Ok(vec![variant_of(&self.emitted(request)?, Cost::default(), Load::default())?])
    }
}

impl CudaSource for Cells {
    fn emitted(&self, request: &KernelRequest) -> Result<Emitted> {
        let KernelRequest::Named(name) = request else { return Err(Error::unimplemented("not a kernel of the suite")) };
        let words: Vec<&str> = name.split(' ').collect();
        let [operation, number, pieces, arguments] = words[..] else { return Err(Error::not_found(format!("no kernel {name}"))) };
        let [number, pieces, arguments] = [number, pieces, arguments].map(|word| word.parse::<u64>().unwrap());
        let mut args = vec![KernelArg::Guard, KernelArg::Stop, KernelArg::FaultBase, KernelArg::Fault, KernelArg::FaultBase];
        args.extend([KernelArg::U64(number), KernelArg::U64(pieces)]);
        args.extend((0..arguments as u32).map(KernelArg::Argument));
        let pointers: String = (0..arguments).map(|at| format!(", u64* p{at}")).collect();
        let begin = match operation {
            "when" => "while (!*(volatile const u8*)number) {}\n  number = 0;",
            "fail" => "if (blockIdx.x == 0 && threadIdx.x == 0) fail(fault, base, 0, 1);\n  return;",
            _ => "(void)fault; (void)base;",
        };
        let step = |at: u64| format!("x = (x ^ (p{at}[i] << 23 | p{at}[i] >> 41)) * 0x9E3779B97F4A7C15ull; x = x << 31 | x >> 33;\n  ");
        let steps: String = (0..arguments - 1).map(step).collect();
        let entry = format!("cells_{operation}_{arguments}");
        let body = format!(
            "KERNEL BOUNDS {entry}(const u8* guard, const u64* stop, u64 command, u64* fault, u64 base, u64 number, u64 pieces{pointers}) {{
  if (is_passed_over(guard, stop, command)) return;
  {begin}
  for (u64 i = (u64)blockIdx.x * THREADS + threadIdx.x; i < pieces; i += (u64)gridDim.x * THREADS) {{
  u64 x = number;
  {steps}p{}[i] = x;
  }}
}}
",
            arguments - 1
        );
        let numbers = [FaultNumber::Constant(number as i64), FaultNumber::Constant(0)];
        let fault = FaultText { code: Code::InvalidArgument, message: "failed with {0}", numbers };
        let faults = if operation == "fail" { vec![fault] } else { Vec::new() };
        Ok(Emitted { kernels: vec![Kernel { entry, body, blocks: 1, args }], faults, ..Emitted::default() })
    }
}
