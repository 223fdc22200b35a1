//! A card as one more way to run kernels: by the device, as programs do, between bytes that nobody may write.

use std::sync::Arc;

use plimsoll_base::Bytes;
use plimsoll_cards::{CudnnMode, Environment};
use plimsoll_device::{Bindings, BufferRef, CardPart, Command, Device, DeviceSpec, KernelCall, Place, Program, Variant, Work};
use plimsoll_device_cuda::{CudaCard, CudaDevice, CudaLibrary, CudaSource, GraphUse, Toolkit, any_card};
use plimsoll_memory::{Block, Ledger};

use super::engines::Run;

/// Bytes between two buffers, and what they are.
const FENCE: u64 = 256;
const FENCED: u8 = 0x5C;

/// A card that computes with kernels of a library.
pub struct Card {
    device: CudaDevice,
    library: Arc<dyn CudaSource>,
}

/// Where the buffers of a run lie in the arena.
struct Placed {
    inputs: Vec<BufferRef>,
    outputs: Vec<BufferRef>,
    command: Command,
}

impl Card {
    /// The card of this machine, where PLIMSOLL_CHECK says that it is to be checked.
    pub fn find() -> Option<Card> {
        std::env::var_os("PLIMSOLL_CHECK")?;
        let toolkit = Toolkit::find(&Environment::of(std::env::vars()), CudnnMode::Never).unwrap();
        let card = CudaCard::open(&toolkit.driver, &toolkit.driver.cards().unwrap()[0], &toolkit.compiler, None).unwrap();
        Some(Card::on(&card, Arc::new(CudaLibrary)))
    }

    /// The first logical device of a card.
    pub fn on(card: &Arc<CudaCard>, library: Arc<dyn CudaSource>) -> Card {
        let spec = DeviceSpec { card: Some(CardPart { card: 0, priority: 0, modelled: None, real: None }), ..any_card() };
        let spec = CudaDevice::spec(card.granularity(), spec);
        let ledger = Ledger::new(spec.name.to_string(), None);
        let device = CudaDevice::on(card, spec, ledger, library.clone(), GraphUse::on("")).unwrap();
        Card { device, library }
    }

    /// Fails the test where a result is not the expected one. Kernels that find no fault are one program.
    pub fn compare(&self, runs: &[Run]) {
        let first = |run: &Run| self.library.variants(&any_card(), &run.request).unwrap().remove(0);
        let (whole, failing): (Vec<&Run>, Vec<&Run>) = runs.iter().partition(|run| run.expected.is_ok());
        self.run(&whole, whole.iter().map(|run| first(run)).collect());
        failing.iter().for_each(|run| self.run(&[*run], vec![first(run)]));
    }

    /// As [`Card::compare`], of one run by this variant.
    pub fn compare_by(&self, run: &Run, variant: Variant) {
        self.run(&[run], vec![variant]);
    }

    fn run(&self, runs: &[&Run], variants: Vec<Variant>) {
        if runs.is_empty() {
            return;
        }
        let mut end = FENCE;
        let placed: Vec<Placed> = runs.iter().zip(variants).map(|(run, variant)| placed(variant, run, &mut end)).collect();
        let arena = self.device.allocate(Bytes(end), "arena").unwrap();
        arena.write(0, &vec![FENCED; end as usize]).unwrap();
        for (run, placed) in runs.iter().zip(&placed) {
            for (bytes, at) in run.inputs.iter().zip(&placed.inputs) {
                arena.write(at.offset, bytes).unwrap();
            }
        }
        let program = Program { commands: placed.iter().map(|placed| placed.command.clone()).collect() };
        let executable = self.device.load(0, Arc::new(program)).unwrap();
        let bindings = Bindings { arenas: vec![arena.address()], ..Bindings::default() };
        let mut run = Arc::new(plimsoll_device::Run::new(1, bindings));
        plimsoll_device::Run::alone(&mut run).restart();
        executable.submit(&run);
        self.device.drive(&run);
        match run.failure() {
            Some(failure) => runs[failure.command as usize].compare("the card", &Err(failure.fault.to_error().message().to_string())),
            None => {
                let results = |placed: &Placed| Ok(placed.outputs.iter().map(|at| read(&arena, *at)).collect());
                runs.iter().zip(&placed).for_each(|(run, placed)| run.compare("the card", &results(placed)));
            }
        }
        fenced(&arena, end, &placed, runs);
    }
}

fn read(arena: &Block, at: BufferRef) -> Vec<u8> {
    let mut bytes = vec![0; at.bytes as usize];
    arena.read(at.offset, &mut bytes).unwrap();
    bytes
}

fn placed(variant: Variant, run: &Run, end: &mut u64) -> Placed {
    let mut place = |bytes: u64| {
        let offset = *end;
        *end = (offset + bytes).next_multiple_of(256) + FENCE;
        BufferRef { place: Place::Arena(0), offset, bytes }
    };
    let inputs: Vec<BufferRef> = run.inputs.iter().map(|input| place(input.len() as u64)).collect();
    let output = |(at, bytes): (usize, &usize)| match run.in_place {
        Some((input, output)) if output == at => inputs[input],
        _ => place(*bytes as u64),
    };
    let outputs: Vec<BufferRef> = run.outputs.iter().enumerate().map(output).collect();
    let scratch = variant.steps[0].scratch;
    let scratch = (scratch > 0).then(|| place(scratch));
    let args = inputs.iter().chain(&outputs).copied().collect();
    let call = KernelCall { request: Arc::new(run.request.clone()), variant: Arc::new(variant), step: 0 };
    let command = Command {
        work: Work::Kernel(call),
        args,
        scratch,
        worker_scratch: None,
        guard: None,
        waits: vec![],
        label: run.name.chars().take(60).collect::<String>().into(),
    };
    Placed { inputs, outputs, command }
}

/// Nothing is written beside buffers, and inputs stay.
fn fenced(arena: &Block, end: u64, placed: &[Placed], runs: &[&Run]) {
    let mut bytes = vec![0; end as usize];
    arena.read(0, &mut bytes).unwrap();
    for (run, placed) in runs.iter().zip(placed) {
        for (at, (buffer, input)) in placed.inputs.iter().zip(&run.inputs).enumerate() {
            let stays = run.in_place.is_none_or(|(input, _)| input != at);
            assert!(
                !stays || bytes[buffer.offset as usize..][..input.len()] == input[..],
                "{} by the card: input {at} was written",
                run.name
            );
        }
        for buffer in placed.command.args.iter().chain(&placed.command.scratch) {
            let behind = (buffer.offset + buffer.bytes) as usize;
            let before = &bytes[(buffer.offset - FENCE) as usize..buffer.offset as usize];
            let whole = before.iter().rev().take(64).chain(&bytes[behind..behind + 64]).all(|byte| *byte == FENCED);
            assert!(whole, "{} by the card: bytes beside {buffer:?} were written", run.name);
        }
    }
}
