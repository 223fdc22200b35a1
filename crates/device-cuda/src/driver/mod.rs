//! NVIDIA's driver, as far as computing needs it: contexts, memory, streams, events, modules, graphs. Every handle belongs to one value, which
//! gives it back when it is dropped. The library is found when the program runs; a function that it lacks is an error with its name.

mod context;
mod graph;
mod memory;
mod module;
pub(crate) mod raw;
mod stream;

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use plimsoll_base::{Code, Error, Kind, Result};

pub(crate) use context::{Context, Entered};
pub(crate) use graph::{Captured, Graph, GraphExec, LONGEST_COPY, Spot};
use memory::Pieces;
pub(crate) use memory::{Mapping, Pinned};
pub(crate) use module::{Argument, Function, Module};
pub(crate) use raw::Trouble;
pub(crate) use stream::{Event, Stream};

use crate::library::Library;
use raw::Functions;

/// Calls a function of the driver: `Err` where it is missing or gives a code. For arguments that the function's documentation allows:
/// handles that live, and pointers to locals or to memory that the caller answers for.
macro_rules! call {
    ($driver:expr, $name:ident($($arg:expr),* $(,)?)) => {
        match $driver.functions.$name {
            None => Err($crate::driver::Trouble::Missing($crate::driver::raw::Functions::symbol_of(stringify!($name)))),
            // SAFETY: the function has this type by its documentation, and the arguments are as the macro asks for.
            Some(function) => match unsafe { function($($arg),*) } {
                0 => Ok(()),
                code => Err($crate::driver::Trouble::Code(code)),
            },
        }
    };
}
use call;

/// The oldest driver: it runs what CUDA 13.0 compiles.
const OLDEST: (u32, u32) = (13, 0);

/// Functions that a driver can do without: contexts are not looked for, cards do not reach each other, cuDNN's work is no part of graphs, loops
/// are none, and nothing is timed.
const OPTIONAL: [&str; 11] = [
    "context_flags",
    "context_state",
    "can_reach",
    "copy_across",
    "graph_child",
    "graph_condition",
    "graph_node",
    "graph_nodes",
    "capture_begin",
    "capture_end",
    "event_elapsed",
];

/// The driver's library, loaded and initialised.
#[derive(Debug)]
pub struct CudaDriver {
    functions: Functions,
    version: (u32, u32),
    /// Ranges of addresses in the memory of cards, by their first.
    ranges: Mutex<BTreeMap<u64, Owned>>,
}

/// Addresses of a card.
#[derive(Debug)]
struct Owned {
    end: u64,
    context: Weak<Context>,
    pieces: Arc<Mutex<Pieces>>,
}

// SAFETY: the driver may be called from any thread, several at a time; its functions are never unloaded.
unsafe impl Send for CudaDriver {}
// SAFETY: as above.
unsafe impl Sync for CudaDriver {}

/// A card as the driver numbers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverCard {
    /// The driver's number.
    pub number: i32,
    /// Its name.
    pub name: String,
    /// Its UUID, as the driver's tools write it.
    pub uuid: String,
    /// Bytes of its memory.
    pub bytes: u64,
    /// Major and minor.
    pub capability: (u32, u32),
}

impl CudaDriver {
    /// Loads the library at `path`, or the one that the loader knows by that name.
    ///
    /// # Errors
    /// NOT_FOUND where it cannot be loaded; FAILED_PRECONDITION where it is too old, cannot begin, or lacks a
    /// function.
    pub fn load(path: &Path) -> Result<Arc<CudaDriver>> {
        let name = path.to_str().ok_or_else(|| Error::not_found(format!("{}: not a name in UTF-8", path.display())))?;
        let library = Library::load(name).map_err(|why| Error::not_found(format!("there is no NVIDIA driver: {why}")))?;
        let mut driver = CudaDriver { functions: Functions::of(&library), version: (0, 0), ranges: Mutex::default() };
        let mut version: c_int = 0;
        let begun = call!(driver, version(&mut version)).and_then(|()| call!(driver, init(0)));
        let version = u32::try_from(version).unwrap_or_default();
        driver.version = (version / 1000, version % 1000 / 10);
        begun.map_err(|trouble| Error::failed_precondition(format!("the NVIDIA driver cannot begin: {trouble}")))?;
        if driver.version < OLDEST {
            let ((major, minor), (oldest, point)) = (driver.version, OLDEST);
            let message = format!("the NVIDIA driver is of CUDA {major}.{minor}; cards compute from CUDA {oldest}.{point} on");
            return Err(Error::failed_precondition(message).with_remedy("install a newer driver (580 or later)"));
        }
        if let Some(missing) = driver.functions.missing(&OPTIONAL) {
            let message = format!("the NVIDIA driver has no {missing}: it cannot compute for programs");
            return Err(Error::failed_precondition(message).with_remedy("install a newer driver (580 or later)"));
        }
        Ok(Arc::new(driver))
    }

    /// The context that the calling thread is in; null for none.
    fn context_now(&self) -> std::result::Result<raw::Handle, Trouble> {
        let mut context = std::ptr::null_mut();
        call!(self, context_now(&mut context)).map(|()| context)
    }

    /// The newest CUDA that it runs, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The cards that this process sees, in the driver's order; not those of which the driver does not say what they are.
    ///
    /// # Errors
    /// FAILED_PRECONDITION with the driver's reason, where it cannot count them or says nothing of any.
    pub fn cards(&self) -> Result<Vec<DriverCard>> {
        let cannot = |trouble| self.error("cards cannot be counted", trouble);
        let mut count: c_int = 0;
        call!(self, count(&mut count)).map_err(cannot)?;
        let said = |number| self.card(number).map_err(|trouble| self.error(&format!("card {number}"), trouble));
        let (cards, errors): (Vec<_>, Vec<_>) = (0..count).map(said).partition(std::result::Result::is_ok);
        match errors.into_iter().find_map(Result::err).filter(|_| cards.is_empty()) {
            Some(error) => Err(error),
            None => Ok(cards.into_iter().flatten().collect()),
        }
    }

    /// Whether this process has a context on a card already, as far as the driver says: other devices, or another library, made it.
    pub fn has_context(&self, card: &DriverCard) -> bool {
        let (mut device, mut flags, mut is_active) = (0, 0, 0);
        let asked = call!(self, device(&mut device, card.number));
        asked.and_then(|()| call!(self, context_state(device, &mut flags, &mut is_active))).is_ok() && is_active != 0
    }

    fn card(&self, number: c_int) -> std::result::Result<DriverCard, Trouble> {
        let (mut device, mut name, mut uuid, mut bytes): (c_int, [c_char; 256], _, _) = (0, [0; 256], [0u8; 16], 0usize);
        call!(self, device(&mut device, number))?;
        call!(self, name(name.as_mut_ptr(), name.len() as c_int, device))?;
        call!(self, uuid(&mut uuid, device))?;
        call!(self, total(&mut bytes, device))?;
        let part = |which| self.attribute(device, which).map(|value| u32::try_from(value).unwrap_or_default());
        let capability = (part(raw::attribute::MAJOR)?, part(raw::attribute::MINOR)?);
        let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        let uuid = format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]);
        Ok(DriverCard { number, name: raw::text(&name), uuid, bytes: bytes as u64, capability })
    }

    fn attribute(&self, device: c_int, which: c_int) -> std::result::Result<c_int, Trouble> {
        let mut value = 0;
        call!(self, attribute(&mut value, which, device)).map(|()| value)
    }

    /// The error of a call.
    pub(crate) fn error(&self, what: &str, trouble: Trouble) -> Error {
        let message = format!("{what}: {trouble}");
        match trouble {
            Trouble::OUT_OF_MEMORY => Error::resource_exhausted(format!("CUDA_ERROR_OUT_OF_MEMORY: {message}")),
            trouble if trouble.ends_the_card() => Error::new(Code::Unavailable, message).with_kind(Kind::LostDevice),
            Trouble::Missing(_) => Error::failed_precondition(message).with_remedy("install a newer driver (580 or later)"),
            Trouble::Code(_) | Trouble::Cudnn(_) => Error::failed_precondition(message),
        }
    }

    /// The context in whose memory an address is.
    pub(crate) fn owner(&self, address: u64) -> Option<Arc<Context>> {
        self.find(address).map(|(_, context, _)| context)
    }

    /// Lets another card use the memory behind the addresses among which one is, also what comes there later: without it the driver
    /// refuses to copy between them.
    pub(crate) fn open_to(&self, address: u64, peer: &Context) -> std::result::Result<(), Trouble> {
        let (start, context, pieces) = self.find(address).ok_or(Trouble::INVALID_VALUE)?;
        Pieces::open_to(&pieces, self, (start, context.granularity), peer.device)
    }

    fn find(&self, address: u64) -> Option<(u64, Arc<Context>, Arc<Mutex<Pieces>>)> {
        let ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, owned) = ranges.range(..=address).next_back()?;
        if address < owned.end { Some((*start, owned.context.upgrade()?, owned.pieces.clone())) } else { None }
    }

    fn owns(&self, start: u64, bytes: u64, context: &Arc<Context>, pieces: &Arc<Mutex<Pieces>>) {
        let owned = Owned { end: start + bytes, context: Arc::downgrade(context), pieces: pieces.clone() };
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).insert(start, owned);
    }

    fn disowns(&self, start: u64) {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner).remove(&start);
    }
}
