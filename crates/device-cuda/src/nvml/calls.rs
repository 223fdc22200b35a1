//! Calls of NVML made safe: every pointer that is handed out points at something of the right type and size.

use std::ffi::{CStr, c_char, c_uint};
use std::ptr;

use plimsoll_base::Bytes;
use plimsoll_cards::ComputeCapability;

use super::raw::{
    self, Functions, GetFn, GetLimits, GetOfFn, Handle, ListFn, MemoryV2, Pci, Plain, ProcessSample, ProcessV1, ProcessV2, SetLimits,
    TextFn, Trouble,
};
use super::{Driver, Memory, Nvml};

type Found<T> = Result<T, Trouble>;

/// Longer than every text that the library gives.
const TEXT: usize = 256;

/// The most processes on a card that are listed.
const MOST_PROCESSES: u32 = 1 << 16;

/// Where a card is, ordered as `PCI_BUS_ID` orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PciAddress {
    pub(super) domain: u32,
    pub(super) bus: u32,
    pub(super) device: u32,
    pub(super) function: u32,
}

impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

/// A process as a list of the library has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) pid: u32,
    pub(super) bytes: Option<Bytes>,
}

fn said(code: c_uint) -> Found<()> {
    if code == 0 { Ok(()) } else { Err(Trouble::Code(code)) }
}

fn there<F: Copy>(function: Option<F>) -> Found<F> {
    function.ok_or(Trouble::Missing)
}

/// A text that `call` writes into a buffer of a length.
fn text(call: impl FnOnce(*mut c_char, c_uint) -> c_uint) -> Found<String> {
    let mut bytes = [0; TEXT];
    said(call(bytes.as_mut_ptr(), TEXT as c_uint))?;
    Ok(raw::text(&bytes))
}

impl Nvml {
    fn functions(&self) -> &Functions {
        &self.functions
    }

    pub(super) fn begin(&self) -> Found<()> {
        let init = there(self.functions().init)?;
        // SAFETY: takes nothing; may be called as often as one likes.
        said(unsafe { init() })
    }

    /// The counterpart of [`Nvml::begin`].
    pub(super) fn end(&self) {
        if let Some(shutdown) = self.functions().shutdown {
            // SAFETY: takes nothing; the library counts beginnings and ends.
            unsafe { shutdown() };
        }
    }

    pub(super) fn driver(&self) -> Driver {
        let version = |function: Option<unsafe extern "C" fn(*mut c_char, c_uint) -> c_uint>| {
            // SAFETY: the buffer is as long as is said.
            function.and_then(|function| text(|bytes, length| unsafe { function(bytes, length) }).ok())
        };
        let cuda = self.functions().cuda_version.and_then(|function| {
            let mut number = 0;
            // SAFETY: writes one number.
            said(unsafe { function(&mut number) }).ok()?;
            u32::try_from(number).ok()
        });
        Driver {
            driver: version(self.functions().driver_version),
            nvml: version(self.functions().nvml_version),
            cuda: cuda.map(|number| (number / 1000, number % 1000 / 10)),
        }
    }

    pub(super) fn count(&self) -> Found<u32> {
        let (function, mut count) = (there(self.functions().count)?, 0);
        // SAFETY: writes one number.
        said(unsafe { function(&mut count) })?;
        Ok(count)
    }

    pub(super) fn handle(&self, index: u32) -> Found<Handle> {
        let (function, mut handle) = (there(self.functions().handle)?, ptr::null_mut());
        // SAFETY: writes one handle.
        said(unsafe { function(index, &mut handle) })?;
        Ok(handle)
    }

    /// One value of a card.
    pub(super) fn get<T: Plain>(&self, card: Handle, function: impl FnOnce(&Functions) -> Option<GetFn<T>>) -> Found<T> {
        let (function, mut value) = (there(function(self.functions()))?, T::zeros());
        // SAFETY: the handle comes from the library, which writes a value of this type.
        said(unsafe { function(card, &mut value) })?;
        Ok(value)
    }

    /// One value of a card, of several of its sort.
    pub(super) fn get_of<T: Plain>(&self, card: Handle, which: u32, function: impl FnOnce(&Functions) -> Option<GetOfFn<T>>) -> Found<T> {
        let (function, mut value) = (there(function(self.functions()))?, T::zeros());
        // SAFETY: as in `get`.
        said(unsafe { function(card, which, &mut value) })?;
        Ok(value)
    }

    pub(super) fn text(&self, card: Handle, function: impl FnOnce(&Functions) -> Option<TextFn>) -> Found<String> {
        let function = there(function(self.functions()))?;
        // SAFETY: the handle comes from the library, and the buffer is as long as is said.
        text(|bytes, length| unsafe { function(card, bytes, length) })
    }

    pub(super) fn pci(&self, card: Handle) -> Found<PciAddress> {
        let pci: Pci = self.get(card, |functions| functions.pci)?;
        let texts = [raw::text(&pci.bus_id), raw::text(&pci.bus_id_legacy)];
        let function = texts.iter().find_map(|text| u32::from_str_radix(text.rsplit_once('.')?.1, 16).ok());
        Ok(PciAddress { domain: pci.domain, bus: pci.bus, device: pci.device, function: function.unwrap_or(0) })
    }

    pub(super) fn capability(&self, card: Handle) -> Found<ComputeCapability> {
        let (function, mut major, mut minor) = (there(self.functions().capability)?, 0, 0);
        // SAFETY: the handle comes from the library, which writes two numbers.
        said(unsafe { function(card, &mut major, &mut minor) })?;
        Ok(ComputeCapability(u32::try_from(major).unwrap_or(0), u32::try_from(minor).unwrap_or(0)))
    }

    pub(super) fn memory(&self, card: Handle) -> Found<Memory> {
        let newer = there(self.functions().memory_v2).and_then(|function| {
            let mut memory = MemoryV2 { version: MemoryV2::VERSION, ..MemoryV2::zeros() };
            // SAFETY: the handle comes from the library; the version says which structure this is.
            said(unsafe { function(card, &mut memory) })?;
            Ok(Memory { total: Bytes(memory.total), used: Bytes(memory.used), free: Bytes(memory.free), reserved: Bytes(memory.reserved) })
        });
        newer.or_else(|_| {
            let memory = self.get(card, |functions| functions.memory)?;
            Ok(Memory { total: Bytes(memory.total), used: Bytes(memory.used), free: Bytes(memory.free), reserved: Bytes::ZERO })
        })
    }

    /// Whether the card is divided into instances now.
    pub(super) fn mig(&self, card: Handle) -> Found<bool> {
        let (function, mut now, mut pending) = (there(self.functions().mig)?, 0, 0);
        // SAFETY: the handle comes from the library, which writes two numbers.
        said(unsafe { function(card, &mut now, &mut pending) })?;
        Ok(now != 0)
    }

    /// Whether a card reads another one's memory directly.
    pub(super) fn reaches(&self, card: Handle, other: Handle) -> Found<bool> {
        const READ: c_uint = 0;
        let (function, mut status) = (there(self.functions().peer)?, u32::MAX);
        // SAFETY: both handles come from the library, which writes one number.
        said(unsafe { function(card, other, READ, &mut status) })?;
        Ok(status == 0)
    }

    pub(super) fn compute(&self, card: Handle) -> Found<Vec<Listed>> {
        self.list(card, self.functions().compute, self.functions().compute_v1)
    }

    pub(super) fn graphics(&self, card: Handle) -> Found<Vec<Listed>> {
        self.list(card, self.functions().graphics, self.functions().graphics_v1)
    }

    /// Processes that share the card through a server (MPS).
    pub(super) fn shared(&self, card: Handle) -> Found<Vec<Listed>> {
        self.list(card, self.functions().shared, self.functions().shared_v1)
    }

    /// Activity of processes on the card since a time of the driver's clock, in microseconds; 0 is all that it remembers.
    pub(super) fn samples(&self, card: Handle, since: u64) -> Found<Vec<ProcessSample>> {
        let function = there(self.functions().samples)?;
        let mut room: c_uint = 0;
        loop {
            let mut list = vec![ProcessSample::zeros(); room as usize];
            let mut count = room;
            let pointer = if room == 0 { ptr::null_mut() } else { list.as_mut_ptr() };
            // SAFETY: the handle comes from the library; the list has room for as many as `count` says, none where it is null.
            match said(unsafe { function(card, pointer, &mut count, since) }) {
                Ok(()) => {
                    list.truncate(count as usize);
                    return Ok(list);
                }
                // Nothing ran.
                Err(Trouble::NOT_FOUND) => return Ok(Vec::new()),
                Err(Trouble::INSUFFICIENT_SIZE) if room < MOST_PROCESSES => room = (count.max(room) + 8).min(MOST_PROCESSES),
                Err(trouble) => return Err(trouble),
            }
        }
    }

    /// Whether the driver can limit the memory of control groups.
    pub(super) fn has_limits(&self) -> bool {
        self.functions().set_limits.is_some()
    }

    /// Sets the limits of a control group on the card.
    pub(super) fn set_limits(&self, card: Handle, group: &CStr, soft: u64, hard: u64) -> Found<()> {
        let function = there(self.functions().set_limits)?;
        let limits = SetLimits { group: group.as_ptr(), soft, hard };
        // SAFETY: the handle comes from the library, which reads the structure and the text during the call.
        said(unsafe { function(card, &limits) })
    }

    /// The memory of the card for a control group: soft and hard limit, and bytes in use.
    pub(super) fn limits(&self, card: Handle, group: &CStr) -> Found<(u64, u64, u64)> {
        let function = there(self.functions().get_limits)?;
        let mut limits = GetLimits { group: group.as_ptr(), soft: 0, hard: 0, used: 0 };
        // SAFETY: as above; the library writes the three numbers.
        said(unsafe { function(card, &mut limits) })?;
        Ok((limits.soft, limits.hard, limits.used))
    }

    fn list(&self, card: Handle, newer: Option<ListFn<ProcessV2>>, older: Option<ListFn<ProcessV1>>) -> Found<Vec<Listed>> {
        let listed = |pid, bytes| Listed { pid, bytes: (bytes != raw::NOT_AVAILABLE).then_some(Bytes(bytes)) };
        match newer {
            Some(function) => Ok(processes(card, function)?.into_iter().map(|process| listed(process.pid, process.bytes)).collect()),
            None => Ok(processes(card, there(older)?)?.into_iter().map(|process| listed(process.pid, process.bytes)).collect()),
        }
    }
}

/// Asks how many there are, then for them, again as long as there are more by then.
fn processes<T: Plain>(card: Handle, function: ListFn<T>) -> Found<Vec<T>> {
    let mut room: c_uint = 0;
    loop {
        let mut list = vec![T::zeros(); room as usize];
        let mut count = room;
        let pointer = if room == 0 { ptr::null_mut() } else { list.as_mut_ptr() };
        // SAFETY: the handle comes from the library; the list has room for as many as `count` says, none where it is null.
        match said(unsafe { function(card, &mut count, pointer) }) {
            Ok(()) => {
                list.truncate(count as usize);
                return Ok(list);
            }
            // Some more than there are, as new ones come meanwhile.
            Err(Trouble::INSUFFICIENT_SIZE) if room < MOST_PROCESSES => room = (count.max(room) + 8).min(MOST_PROCESSES),
            Err(trouble) => return Err(trouble),
        }
    }
}
