//! Plans on a handle's stream.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};

use crate::attention::Attention;
use crate::attributes::kind;
use crate::behind::Finish;
use crate::convolution::{Convolution, Tensor};
use crate::descriptor::{Answer, Computed, Descriptor, Made, Pack, Plan, because};
use crate::driver;
use crate::status::{BAD, MISALIGNED, NULL};

/// A graph with the addresses of its tensors and of its workspace.
struct Work {
    of: Of,
    /// Each with its extent. Of a convolution: input, filter, result, bias, residual, features, sums, sums of squares.
    tensors: Vec<(u64, u64)>,
    workspace: (u64, u64),
    units: u64,
}

#[allow(clippy::large_enum_variant, reason = "a stream has a few of them")]
enum Of {
    Convolution {
        convolution: Convolution,
        finish: Option<Finish>,
        /// The number that is said for it.
        zero: f32,
        tensor_cores: bool,
    },
    Attention {
        attention: Attention,
        /// The numbers of the tensors, as they come.
        names: Vec<i64>,
        said: HashMap<i64, f32>,
    },
}

/// The driver's status for memory that cannot be used.
const NO_ADDRESS: c_int = 700;
/// What an engine leaves in its workspace.
const LEFT: u8 = 0xB5;

impl Work {
    fn run(&self) -> c_int {
        let places: Vec<*mut u8> = self.tensors.iter().map(|(address, extent)| driver::host(*address, *extent)).collect();
        let (workspace, bytes) = self.workspace;
        let scratch = if bytes > 0 { driver::host(workspace, bytes) } else { std::ptr::dangling_mut() };
        if places.iter().any(|place| place.is_null()) || scratch.is_null() {
            return NO_ADDRESS;
        }
        driver::spend(self.units);
        // SAFETY: the driver has said that these bytes are a card's, and nothing else runs on the stream.
        unsafe {
            scratch.write_bytes(LEFT, bytes as usize);
            match &self.of {
                Of::Convolution { convolution, finish, zero, tensor_cores } => {
                    let finish = finish.as_ref().map(|finish| (finish, &places[3..], *zero));
                    convolution.compute([places[0], places[1], places[2]], finish, *tensor_cores);
                }
                Of::Attention { attention, names, said } => {
                    attention.compute(&names.iter().copied().zip(places.iter().copied()).collect(), said);
                }
            }
        }
        0
    }
}

/// Does the work that it is given.
unsafe extern "C" fn act(with: *mut c_void) -> c_int {
    // SAFETY: `execute` pushes it with such a value.
    unsafe { &*with.cast::<Work>() }.run()
}

unsafe extern "C" fn end(with: *mut c_void) {
    // SAFETY: as above, once.
    drop(unsafe { Box::from_raw(with.cast::<Work>()) });
}

/// Pushes a plan with addresses on the handle's stream.
///
/// # Errors
/// As cuDNN. A plan for another card than the handle's is refused, and so are addresses that are null or not aligned as the tensors say.
pub fn execute(handle: usize, plan: &Descriptor, pack: &Descriptor) -> Answer<()> {
    let (Made::Plan(Plan { choice, handle: of, workspace }), Made::Pack(pack)) = (plan.made()?, pack.made()?) else {
        return because(BAD, "no plan, or no addresses");
    };
    if of != Some(handle) {
        return because(BAD, "a plan that was not made for the handle");
    }
    let named = |tensor: &Tensor| pack.tensors.iter().find(|(name, _)| *name == tensor.name).map_or(0, |(_, address)| *address);
    let said = |tensor: &Tensor| match named(tensor) {
        0 => because(NULL, "no address of a number"),
        // SAFETY: cuDNN's contract: the address of such a tensor is that of a float of the host's.
        address => Ok(unsafe { (address as *const f32).read() }),
    };
    let address = |tensor: &Tensor| match named(tensor) {
        0 => because(NULL, format!("no address of tensor {}", tensor.name)),
        address if address % tensor.alignment as u64 != 0 => because(MISALIGNED, format!("tensor {} at {address:#x}", tensor.name)),
        address => Ok((address, tensor.extent())),
    };
    let (of, tensors) = match &choice.graph.of {
        Computed::Convolution(convolution, behind) => {
            let finish = behind.finish(convolution);
            let mut in_memory: Vec<&Tensor> = vec![&convolution.input, &convolution.filter, &convolution.result];
            if let Some(finish) = &finish {
                in_memory[if convolution.kind == kind::BY_INPUT { 0 } else { 2 }] = &finish.result;
                in_memory.extend(finish.tensors().skip(1));
            }
            let zero = finish.as_ref().and_then(|finish| finish.zero.as_ref()).map_or(Ok(0.0), said)?;
            if in_memory.iter().any(|tensor| tensor.is_virtual) {
                return because(BAD, "a tensor in memory that is virtual");
            }
            let tensors = in_memory.into_iter().map(address).collect::<Answer<Vec<_>>>()?;
            if convolution.tensors().iter().any(|tensor| tensor.elements() == 0) {
                return because(BAD, "a tensor without elements");
            }
            let tensor_cores = choice.engine.uses_tensor_cores();
            (Of::Convolution { convolution: convolution.clone(), finish, zero, tensor_cores }, tensors)
        }
        Computed::Attention(attention) => {
            let in_memory = attention.in_memory();
            let names = in_memory.iter().map(|tensor| tensor.name).collect();
            let numbers = attention.said().into_iter().map(|tensor| Ok((tensor.name, said(tensor)?)));
            let numbers = numbers.collect::<Answer<HashMap<_, _>>>()?;
            let tensors = in_memory.into_iter().map(address).collect::<Answer<Vec<_>>>()?;
            (Of::Attention { attention: attention.clone(), names, said: numbers }, tensors)
        }
    };
    let Pack { workspace: place, .. } = pack;
    if workspace > 0 && place == 0 {
        return because(NULL, "no workspace");
    }
    let work = Box::new(Work { of, tensors, workspace: (place, workspace), units: choice.engine.units });
    // SAFETY: both take a `Work`, which may go to any thread.
    unsafe { driver::push(handle, act, end, Box::into_raw(work).cast()) }
}
