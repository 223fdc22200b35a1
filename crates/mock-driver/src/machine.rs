//! The machine: cards, and the memory that each process has of them, in one file.
//!
//! A process has a slot in it as long as it has the file open: the kernel frees the lock on the slot's byte. All looks and
//! changes are under one lock, so that each sees an instant.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The variable that names the machine's folder.
pub const MACHINE: &str = "PLIMSOLL_MOCK_GPUS";

const MAX_CARDS: usize = 8;
const MAX_SLOTS: usize = 1024;
const CARD: u64 = 256;
const SLOTS_AT: u64 = 4096;
const SLOT: usize = 8 * (2 + MAX_CARDS);

/// The bytes that are locked: one for a look or a change, then one for each slot.
const LOCKS: i64 = 1 << 40;

/// A card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Card {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// Its memory.
    pub total: u64,
}

impl Program {
    /// Whether the driver lists it for a card.
    pub(crate) fn is_on(&self, card: usize) -> bool {
        self.used[card] > 0 || self.contexts & 1 << card != 0
    }
}

impl Card {
    /// The UUID as the driver's tools write it.
    pub fn name(&self) -> String {
        let hex: String = self.uuid.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

/// A process that has memory, or could have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number.
    pub pid: u32,
    /// Bytes of each card.
    pub used: Vec<u64>,
    /// The cards on which it has a context of the device's own, a bit for each.
    contexts: u64,
}

/// What of its work a card leaves out: for tests of memory, and for measurements of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Nothing.
    Not,
    /// Kernels: memory stays as it was.
    Kernels,
    /// All but events.
    All,
}

/// A machine with cards.
#[derive(Debug)]
pub struct Machine {
    path: PathBuf,
    file: File,
    cards: Vec<Card>,
}

/// A process's own part in a machine. It ends with the last process that has this open.
#[derive(Debug)]
pub(crate) struct Part {
    _lock: File,
    slot: usize,
}

impl Machine {
    /// Makes a machine of that folder, with cards that have so much memory.
    ///
    /// # Errors
    /// The file system's error.
    pub fn create(folder: &Path, totals: &[u64]) -> io::Result<Machine> {
        let path = folder.join("machine");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        file.write_all_at(&(totals.len().min(MAX_CARDS) as u64).to_le_bytes(), 0)?;
        for (number, total) in (1u8..).zip(totals.iter().take(MAX_CARDS)) {
            let mut bytes = [0; CARD as usize];
            bytes[..16].copy_from_slice(&[number; 16]);
            bytes[16..24].copy_from_slice(&total.to_le_bytes());
            file.write_all_at(&bytes, CARD * u64::from(number))?;
        }
        Machine::open(folder)
    }

    /// The machine of a folder.
    ///
    /// # Errors
    /// The file system's error.
    pub fn open(folder: &Path) -> io::Result<Machine> {
        let path = folder.join("machine");
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        let count = word(&file, 0)?.min(MAX_CARDS as u64);
        let card = |number: u64| {
            let mut uuid = [0; 16];
            file.read_exact_at(&mut uuid, CARD * number)?;
            Ok(Card { uuid, total: word(&file, CARD * number + 16)? })
        };
        let cards = (1..=count).map(card).collect::<io::Result<_>>()?;
        Ok(Machine { path, file, cards })
    }

    /// The machine of the variable, or of the folder in which this library is.
    pub(crate) fn found() -> Option<Machine> {
        let folder = std::env::var_os(MACHINE).map(PathBuf::from).or_else(|| {
            // SAFETY: numbers and pointers, for which zero is a value.
            let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
            // SAFETY: an address of this library; the name that it gives lives as long as the library.
            let name = unsafe {
                (libc::dladdr(Machine::found as *const () as *const _, &mut info) != 0 && !info.dli_fname.is_null())
                    .then(|| std::ffi::CStr::from_ptr(info.dli_fname))
            };
            Path::new(name?.to_str().ok()?).parent().map(Path::to_path_buf)
        });
        Machine::open(&folder?).ok()
    }

    /// Of the calls for this card from now on that may find no memory, the one with that number finds none; 0 is none of them.
    ///
    /// # Errors
    /// The file system's error.
    pub fn refuse(&self, card: usize, call: u64) -> io::Result<()> {
        self.file.write_all_at(&call.to_le_bytes(), CARD * (card as u64 + 1) + 40)
    }

    /// How many calls are left before the one that [`Machine::refuse`] named; 0 where it has come.
    ///
    /// # Errors
    /// The file system's error.
    pub fn left(&self, card: usize) -> io::Result<u64> {
        word(&self.file, CARD * (card as u64 + 1) + 40)
    }

    /// Counts a call; whether it is the one that finds no memory.
    pub(crate) fn refuses(&self, card: usize) -> bool {
        let left = self.left(card).unwrap_or(0);
        left > 0 && self.refuse(card, left - 1).is_ok() && left == 1
    }

    /// From now on a device's own context takes so many bytes of the card.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_context(&self, card: usize, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_le_bytes(), CARD * (card as u64 + 1) + 48)
    }

    pub(crate) fn context(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 48).unwrap_or(0)
    }

    /// The driver keeps so many bytes of the card for itself.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_reserved(&self, card: usize, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_le_bytes(), CARD * (card as u64 + 1) + 56)
    }

    pub(crate) fn reserved(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 56).unwrap_or(0)
    }

    /// The driver shows a card to programs that compute, or does not.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_hidden(&self, card: usize, hidden: bool) -> io::Result<()> {
        self.file.write_all_at(&u64::from(hidden).to_le_bytes(), CARD * (card as u64 + 1) + 64)
    }

    pub(crate) fn is_hidden(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 64).is_ok_and(|hidden| hidden != 0)
    }

    /// From now on a context on the card is refused with this code; 0 is none.
    ///
    /// # Errors
    /// The file system's error.
    pub fn refuse_contexts(&self, card: usize, code: u64) -> io::Result<()> {
        self.file.write_all_at(&code.to_le_bytes(), CARD * (card as u64 + 1) + 72)
    }

    pub(crate) fn refuses_contexts(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 72).unwrap_or(0)
    }

    /// The card is divided into instances (MIG), or is not.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_mig(&self, card: usize, mig: bool) -> io::Result<()> {
        self.file.write_all_at(&u64::from(mig).to_le_bytes(), CARD * (card as u64 + 1) + 80)
    }

    pub(crate) fn is_mig(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 80).is_ok_and(|mig| mig != 0)
    }

    /// The driver names the programs on a card, or does not, as in containers.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_unlisted(&self, card: usize, unlisted: bool) -> io::Result<()> {
        self.file.write_all_at(&u64::from(unlisted).to_le_bytes(), CARD * (card as u64 + 1) + 88)
    }

    pub(crate) fn is_unlisted(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 88).is_ok_and(|unlisted| unlisted != 0)
    }

    /// From now on an executable graph takes so many bytes of the card for each of its nodes.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_graph_node(&self, card: usize, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_le_bytes(), CARD * (card as u64 + 1) + 96)
    }

    pub(crate) fn graph_node(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 96).unwrap_or(0)
    }

    /// From now on modules take as much of the card as their images have bytes, or nothing.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_takes_code(&self, card: usize, takes: bool) -> io::Result<()> {
        self.file.write_all_at(&u64::from(takes).to_le_bytes(), CARD * (card as u64 + 1) + 168)
    }

    pub(crate) fn takes_code(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 168).is_ok_and(|takes| takes != 0)
    }

    /// From now on so much of the card's work is left out.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_idle(&self, card: usize, idle: Idle) -> io::Result<()> {
        self.file.write_all_at(&(idle as u64).to_le_bytes(), CARD * (card as u64 + 1) + 104)
    }

    pub(crate) fn idles(&self, card: usize, idle: Idle) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 104).is_ok_and(|now| now >= idle as u64)
    }

    /// Whether the card reaches the memory of others, as they reach its.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_alone(&self, card: usize, alone: bool) -> io::Result<()> {
        self.file.write_all_at(&u64::from(alone).to_le_bytes(), CARD * (card as u64 + 1) + 112)
    }

    /// So many bytes of each context on a card are listed as no process's, as an H200's driver does.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_beside(&self, card: usize, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_le_bytes(), CARD * (card as u64 + 1) + 120)
    }

    pub(crate) fn beside(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 120).unwrap_or(0)
    }

    /// On a card cuDNN wants so many bytes of workspace more than it says where it plans.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_more_workspace(&self, card: usize, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_le_bytes(), CARD * (card as u64 + 1) + 128)
    }

    pub(crate) fn more_workspace(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 128).unwrap_or(0)
    }

    /// A handle of cuDNN takes so many bytes of a card.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_handle(&self, card: usize, bytes: u64) -> io::Result<()> {
        self.file.write_all_at(&bytes.to_le_bytes(), CARD * (card as u64 + 1) + 136)
    }

    pub(crate) fn handle(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 136).unwrap_or(0)
    }

    /// From now on each kernel takes so many nanoseconds of a card's clock, and so does each unit of a library's work; with 0 what they take here.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_times(&self, card: usize, kernel: u64, library: u64) -> io::Result<()> {
        self.file.write_all_at(&kernel.to_le_bytes(), CARD * (card as u64 + 1) + 144)?;
        self.file.write_all_at(&library.to_le_bytes(), CARD * (card as u64 + 1) + 152)
    }

    pub(crate) fn kernel_time(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 144).unwrap_or(0)
    }

    pub(crate) fn library_time(&self, card: usize) -> u64 {
        word(&self.file, CARD * (card as u64 + 1) + 152).unwrap_or(0)
    }

    /// The driver knows of no conditions of graphs on a card, or does again.
    ///
    /// # Errors
    /// The file system's error.
    pub fn set_without_bodies(&self, card: usize, without: bool) -> io::Result<()> {
        self.file.write_all_at(&u64::from(without).to_le_bytes(), CARD * (card as u64 + 1) + 160)
    }

    pub(crate) fn is_without_bodies(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 160).is_ok_and(|without| without != 0)
    }

    pub(crate) fn is_alone(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 112).is_ok_and(|alone| alone != 0)
    }

    /// Bytes that programs can have.
    pub(crate) fn available(&self, card: usize) -> u64 {
        self.cards[card].total.saturating_sub(self.reserved(card))
    }

    /// A card falls off the bus, as real ones do.
    ///
    /// # Errors
    /// The file system's error.
    pub fn lose(&self, card: usize) -> io::Result<()> {
        self.file.write_all_at(&1u64.to_le_bytes(), CARD * (card as u64 + 1) + 32)
    }

    /// A card that was lost is there again.
    ///
    /// # Errors
    /// The file system's error.
    pub fn mend(&self, card: usize) -> io::Result<()> {
        self.file.write_all_at(&0u64.to_le_bytes(), CARD * (card as u64 + 1) + 32)
    }

    pub(crate) fn is_lost(&self, card: usize) -> bool {
        word(&self.file, CARD * (card as u64 + 1) + 32).is_ok_and(|lost| lost != 0)
    }

    /// Its cards.
    pub fn cards(&self) -> &[Card] {
        &self.cards
    }

    /// Bytes of each card that are used at this instant.
    ///
    /// # Errors
    /// The file system's error.
    pub fn used(&self) -> io::Result<Vec<u64>> {
        Ok(self.sum(&self.programs()?))
    }

    /// The most that was used of a card at once.
    ///
    /// # Errors
    /// The file system's error.
    pub fn peak(&self, card: usize) -> io::Result<u64> {
        word(&self.file, CARD * (card as u64 + 1) + 24)
    }

    /// Forgets the peak of a card: it becomes the present use.
    ///
    /// # Errors
    /// The file system's error.
    pub fn reset_peak(&self, card: usize) -> io::Result<()> {
        let lock = self.lock()?;
        let used = self.sum(&self.living(&lock)?.into_iter().map(|(_, program)| program).collect::<Vec<_>>())[card];
        self.file.write_all_at(&used.to_le_bytes(), CARD * (card as u64 + 1) + 24)
    }

    /// The processes that live and have come to the driver.
    ///
    /// # Errors
    /// The file system's error.
    pub fn programs(&self) -> io::Result<Vec<Program>> {
        let lock = self.lock()?;
        Ok(self.living(&lock)?.into_iter().map(|(_, program)| program).collect())
    }

    fn sum(&self, programs: &[Program]) -> Vec<u64> {
        (0..self.cards.len()).map(|card| programs.iter().map(|program| program.used[card]).sum()).collect()
    }

    /// A new handle, locked until it is dropped.
    fn lock(&self) -> io::Result<File> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        control(&file, libc::F_OFD_SETLKW, LOCKS)?;
        Ok(file)
    }

    /// Under the lock: those whose slots are locked by others than this handle.
    fn living(&self, lock: &File) -> io::Result<Vec<(usize, Program)>> {
        let slots = (word(&self.file, 8)? as usize).min(MAX_SLOTS);
        let mut bytes = vec![0; slots * SLOT];
        self.file.read_exact_at(&mut bytes, SLOTS_AT)?;
        let mut out = Vec::new();
        for (slot, bytes) in bytes.chunks_exact(SLOT).enumerate() {
            if control(lock, libc::F_OFD_GETLK, LOCKS + 1 + slot as i64)? {
                let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
                out.push((
                    slot,
                    Program { pid: words[0] as u32, used: words[1..=self.cards.len()].to_vec(), contexts: words[1 + MAX_CARDS] },
                ));
            }
        }
        Ok(out)
    }

    /// A slot for this process.
    pub(crate) fn join(&self) -> io::Result<Part> {
        let lock = self.lock()?;
        let living = self.living(&lock)?;
        let slot = (0..MAX_SLOTS).find(|slot| living.iter().all(|(taken, _)| taken != slot)).ok_or(io::ErrorKind::StorageFull)?;
        let own = OpenOptions::new().read(true).write(true).open(&self.path)?;
        control(&own, libc::F_OFD_SETLK, LOCKS + 1 + slot as i64)?;
        let mut bytes = [0; SLOT];
        bytes[..8].copy_from_slice(&u64::from(std::process::id()).to_le_bytes());
        self.file.write_all_at(&bytes, SLOTS_AT + (slot * SLOT) as u64)?;
        let slots = word(&self.file, 8)?.max(slot as u64 + 1);
        self.file.write_all_at(&slots.to_le_bytes(), 8)?;
        Ok(Part { _lock: own, slot })
    }

    /// Notes whether a process has a context on a card.
    pub(crate) fn note_context(&self, part: &Part, card: usize, is_there: bool) -> io::Result<()> {
        let _lock = self.lock()?;
        let at = SLOTS_AT + (part.slot * SLOT + 8 * (1 + MAX_CARDS)) as u64;
        let others = word(&self.file, at)? & !(1 << card);
        self.file.write_all_at(&(others | u64::from(is_there) << card).to_le_bytes(), at)
    }

    /// Takes bytes of a card for a process; whether the card has them.
    pub(crate) fn take(&self, part: &Part, card: usize, bytes: u64) -> io::Result<bool> {
        let lock = self.lock()?;
        let programs: Vec<Program> = self.living(&lock)?.into_iter().map(|(_, program)| program).collect();
        let used = self.sum(&programs)[card].saturating_add(bytes);
        if used > self.available(card) {
            return Ok(false);
        }
        let at = SLOTS_AT + (part.slot * SLOT + 8 * (1 + card)) as u64;
        self.file.write_all_at(&(word(&self.file, at)? + bytes).to_le_bytes(), at)?;
        let peak = CARD * (card as u64 + 1) + 24;
        self.file.write_all_at(&word(&self.file, peak)?.max(used).to_le_bytes(), peak)?;
        Ok(true)
    }

    /// Gives bytes of a card back.
    pub(crate) fn give_back(&self, part: &Part, card: usize, bytes: u64) -> io::Result<()> {
        let _lock = self.lock()?;
        let at = SLOTS_AT + (part.slot * SLOT + 8 * (1 + card)) as u64;
        self.file.write_all_at(&word(&self.file, at)?.saturating_sub(bytes).to_le_bytes(), at)
    }
}

/// A number in the file; 0 behind its end.
fn word(file: &File, at: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    match file.read_exact_at(&mut bytes, at) {
        Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(u64::from_le_bytes(bytes)),
    }
}

/// Locks a byte, or says whether another handle has it locked.
fn control(file: &File, command: libc::c_int, byte: i64) -> io::Result<bool> {
    // SAFETY: numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = byte;
    lock.l_len = 1;
    loop {
        // SAFETY: the descriptor is open, and the commands read and write the structure alone.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            _ => return Ok(lock.l_type != libc::F_UNLCK as libc::c_short),
        }
    }
}
