//! The sorted table of a checkpoint's `.index`: LevelDB's format, blocks of prefix-compressed entries with checksums.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom, Write};

use plimsoll_base::{Error, Result};

use super::crc::Crc;
use crate::wire::{read_varint, write_varint};

const MAGIC: [u8; 8] = [0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb];
const FOOTER: usize = 48;
/// Behind every block: its type and its checksum.
const TRAILER: usize = 5;
/// TensorFlow flushes a block when it is this large.
const BLOCK_SIZE: usize = 262_144;
const RESTART_INTERVAL: usize = 16;

/// A table in memory, by key.
pub(crate) type Table = BTreeMap<Vec<u8>, Vec<u8>>;

fn broken(what: impl std::fmt::Display) -> Error {
    Error::data_loss(format!("the index is damaged: {what}"))
}

/// Reads a whole table.
///
/// # Errors
/// DATA_LOSS for anything that is not a table, checksums that differ, and keys that do not ascend.
pub(crate) fn read_table(file: &[u8]) -> Result<Table> {
    let body = file.len().checked_sub(FOOTER).ok_or_else(|| Error::data_loss("this is not an sstable: the file is too short"))?;
    let (body, footer) = file.split_at(body);
    let Some(handles) = footer.strip_suffix(&MAGIC) else {
        return Err(Error::data_loss("this is not an sstable (bad magic number)"));
    };
    let (_, rest) = read_handle(handles).ok_or_else(|| broken("its footer cannot be read"))?;
    let (index, _) = read_handle(rest).ok_or_else(|| broken("its footer cannot be read"))?;
    let mut table = Table::new();
    // Shared prefixes make short files of long keys: a bound on all keys together keeps memory in proportion.
    let mut budget = file.len().saturating_mul(32).saturating_add(1 << 20);
    let index = read_block(body, index)?;
    let mut end = 0;
    for_each_entry(&index, |_, handle| {
        let (handle, _) = read_handle(handle).ok_or_else(|| broken("a block's place cannot be read"))?;
        if handle.0 < end {
            return Err(broken("its blocks lie out of order"));
        }
        end = handle.0.saturating_add(handle.1);
        let block = read_block(body, handle)?;
        for_each_entry(&block, |key, value| {
            if table.last_key_value().is_some_and(|(last, _)| last.as_slice() >= key) {
                return Err(broken("its keys do not ascend"));
            }
            budget = budget.checked_sub(key.len()).ok_or_else(|| broken("its keys take far more room than the file"))?;
            table.insert(key.to_vec(), value.to_vec());
            Ok(())
        })
    })?;
    Ok(table)
}

/// Offset and size of a block.
type Handle = (usize, usize);

fn read_handle(bytes: &[u8]) -> Option<(Handle, &[u8])> {
    let (offset, taken) = read_varint(bytes)?;
    let bytes = &bytes[taken..];
    let (size, taken) = read_varint(bytes)?;
    Some(((usize::try_from(offset).ok()?, usize::try_from(size).ok()?), &bytes[taken..]))
}

fn read_block(body: &[u8], (offset, size): Handle) -> Result<Vec<u8>> {
    let end = offset.checked_add(size).and_then(|end| end.checked_add(TRAILER));
    let block = end
        .and_then(|end| body.get(offset..end))
        .ok_or_else(|| broken(format!("a block of {size} bytes at {offset} reaches beyond its end")))?;
    open_block(block, offset).map(Cow::into_owned)
}

/// The entries of a block with its trailer, which stands at `offset` of its file.
fn open_block(block: &[u8], offset: usize) -> Result<Cow<'_, [u8]>> {
    let size = block.len().checked_sub(TRAILER).ok_or_else(|| broken(format!("the block at {offset} is cut off")))?;
    let (checked, stored) = block.split_at(size + 1);
    if stored != Crc::of(checked).masked().to_le_bytes() {
        return Err(broken(format!("the checksum of the block at {offset} differs")));
    }
    let (payload, kind) = checked.split_at(size);
    match kind {
        [0] => Ok(Cow::Borrowed(payload)),
        [1] => decompress(payload).map(Cow::Owned).ok_or_else(|| broken(format!("the compressed block at {offset} cannot be read"))),
        kind => Err(broken(format!("the block at {offset} has type {}", kind[0]))),
    }
}

/// Snappy makes at most 64 bytes of 3.
fn decompress(payload: &[u8]) -> Option<Vec<u8>> {
    let length = snap::raw::decompress_len(payload).ok()?;
    if length > payload.len().saturating_mul(22) {
        return None;
    }
    snap::raw::Decoder::new().decompress_vec(payload).ok()
}

fn for_each_entry<'b>(block: &'b [u8], mut each: impl FnMut(&[u8], &'b [u8]) -> Result<()>) -> Result<()> {
    let cut = || broken("a block is cut off");
    let (rest, count) = block.split_last_chunk::<4>().ok_or_else(cut)?;
    let restarts = (u32::from_le_bytes(*count) as usize).checked_mul(4).ok_or_else(cut)?;
    let mut rest = &rest[..rest.len().checked_sub(restarts).ok_or_else(cut)?];
    let mut key = Vec::new();
    while !rest.is_empty() {
        let mut number = || {
            let (value, taken) = read_varint(rest)?;
            rest = &rest[taken..];
            usize::try_from(value).ok()
        };
        let (Some(shared), Some(unshared), Some(length)) = (number(), number(), number()) else { return Err(cut()) };
        if shared > key.len() {
            return Err(broken("a key shares more with the key before it than that has"));
        }
        key.truncate(shared);
        let (own, after) = rest.split_at_checked(unshared).ok_or_else(cut)?;
        key.extend_from_slice(own);
        let (value, after) = after.split_at_checked(length).ok_or_else(cut)?;
        rest = after;
        each(&key, value)?;
    }
    Ok(())
}

/// A table whose blocks stay in their file until they are asked for.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// The place of every block, with a key that is not below any of its keys.
    blocks: Vec<(Vec<u8>, Handle)>,
}

impl Blocks {
    /// Reads where the blocks are.
    ///
    /// # Errors
    /// As [`read_table`]; the file system's error.
    pub(crate) fn read(file: &mut (impl Read + Seek)) -> Result<Blocks> {
        let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        let body = length.checked_sub(FOOTER as u64).ok_or_else(|| Error::data_loss("this is not an sstable: the file is too short"))?;
        let mut footer = [0; FOOTER];
        file.seek(SeekFrom::Start(body)).and_then(|_| file.read_exact(&mut footer)).map_err(unreadable)?;
        let Some(handles) = footer.strip_suffix(&MAGIC) else {
            return Err(Error::data_loss("this is not an sstable (bad magic number)"));
        };
        let index = read_handle(handles).and_then(|(_, rest)| read_handle(rest)).ok_or_else(|| broken("its footer cannot be read"))?.0;
        let index = load_block(file, body, index)?;
        let (mut blocks, mut end) = (Vec::new(), 0);
        // Shared prefixes make short blocks of long keys.
        let mut budget = index.len().saturating_mul(32).saturating_add(1 << 20);
        for_each_entry(&index, |key, handle| {
            let (handle, _) = read_handle(handle).ok_or_else(|| broken("a block's place cannot be read"))?;
            if handle.0 < end || blocks.last().is_some_and(|(last, _): &(Vec<u8>, Handle)| last.as_slice() >= key) {
                return Err(broken("its blocks lie out of order"));
            }
            budget = budget.checked_sub(key.len()).ok_or_else(|| broken("its keys take far more room than the file"))?;
            end = handle.0.saturating_add(handle.1);
            blocks.push((key.to_vec(), handle));
            Ok(())
        })?;
        Ok(Blocks { blocks })
    }

    /// The bytes that the block of a key takes in the file.
    pub(crate) fn size_of(&self, key: &[u8]) -> Option<u64> {
        let at = self.blocks.partition_point(|(last, _)| last.as_slice() < key);
        self.blocks.get(at).map(|(_, (_, size))| (size + TRAILER) as u64)
    }

    /// The block that has the key, if any has it, and where it begins.
    ///
    /// # Errors
    /// As [`Blocks::read`]; RESOURCE_EXHAUSTED where this machine has less memory.
    pub(crate) fn block_of(&self, key: &[u8], file: &mut (impl Read + Seek)) -> Result<Option<(Vec<u8>, usize)>> {
        let at = self.blocks.partition_point(|(last, _)| last.as_slice() < key);
        let Some((_, handle)) = self.blocks.get(at) else { return Ok(None) };
        let length = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        load_block(file, length.saturating_sub(FOOTER as u64), *handle).map(|block| Some((block, handle.0)))
    }
}

/// The value of a key in a block.
///
/// # Errors
/// DATA_LOSS where the block is damaged.
pub(crate) fn find_entry<'b>(block: &'b [u8], key: &[u8]) -> Result<Option<&'b [u8]>> {
    let mut found = None;
    for_each_entry(block, |other, value| {
        if other == key {
            found = Some(value);
        }
        Ok(())
    })?;
    Ok(found)
}

fn load_block(file: &mut (impl Read + Seek), body: u64, (offset, size): Handle) -> Result<Vec<u8>> {
    let length = size.checked_add(TRAILER).filter(|length| offset.checked_add(*length).is_some_and(|end| end as u64 <= body));
    let length = length.ok_or_else(|| broken(format!("a block of {size} bytes at {offset} reaches beyond its end")))?;
    plimsoll_base::check_memory(length as u64).map_err(|error| Error::resource_exhausted(error.to_string()))?;
    let mut block = vec![0; length];
    file.seek(SeekFrom::Start(offset as u64)).and_then(|_| file.read_exact(&mut block)).map_err(unreadable)?;
    if let Cow::Owned(entries) = open_block(&block, offset)? {
        return Ok(entries);
    }
    block.truncate(size);
    Ok(block)
}

fn unreadable(error: std::io::Error) -> Error {
    Error::data_loss(format!("reading failed: {error}"))
}

/// Writes a table as TensorFlow does: the same entries give the same bytes.
///
/// # Errors
/// The error of `out`.
pub(crate) fn write_table(table: &Table, out: &mut impl Write) -> std::io::Result<()> {
    let mut writer = TableWriter { out, offset: 0 };
    let mut index = Block::new(1);
    let mut data = Block::new(RESTART_INTERVAL);
    let mut pending: Option<(Vec<u8>, Handle)> = None;
    for (key, value) in table {
        if key.len() + value.len() >= 2 * BLOCK_SIZE && !data.is_empty() {
            pending = Some((data.last.clone(), writer.block(&mut data)?));
        }
        if let Some((last, handle)) = pending.take() {
            index.add(&separator(&last, key), &handle_bytes(handle));
        }
        data.add(key, value);
        if data.size() >= BLOCK_SIZE {
            pending = Some((data.last.clone(), writer.block(&mut data)?));
        }
    }
    if !data.is_empty() {
        pending = Some((data.last.clone(), writer.block(&mut data)?));
    }
    let metaindex = writer.block(&mut Block::new(RESTART_INTERVAL))?;
    if let Some((last, handle)) = pending {
        index.add(&successor(&last), &handle_bytes(handle));
    }
    let index = writer.block(&mut index)?;
    let mut footer = [handle_bytes(metaindex), handle_bytes(index)].concat();
    footer.resize(FOOTER - MAGIC.len(), 0);
    footer.extend(MAGIC);
    writer.out.write_all(&footer)
}

struct TableWriter<'a, W> {
    out: &'a mut W,
    offset: usize,
}

impl<W: Write> TableWriter<'_, W> {
    fn block(&mut self, block: &mut Block) -> std::io::Result<Handle> {
        let mut bytes = block.finish();
        let handle = (self.offset, bytes.len());
        bytes.push(0);
        let crc = Crc::of(&bytes).masked();
        bytes.extend(crc.to_le_bytes());
        self.offset += bytes.len();
        self.out.write_all(&bytes)?;
        Ok(handle)
    }
}

/// A block that grows.
struct Block {
    interval: usize,
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    since_restart: usize,
    last: Vec<u8>,
}

impl Block {
    fn new(interval: usize) -> Block {
        Block { interval, bytes: Vec::new(), restarts: vec![0], since_restart: 0, last: Vec::new() }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn size(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut shared = 0;
        if self.since_restart < self.interval {
            shared = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
        } else {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
        }
        for number in [shared, key.len() - shared, value.len()] {
            write_varint(&mut self.bytes, number as u64);
        }
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(value);
        self.last.clear();
        self.last.extend_from_slice(key);
        self.since_restart += 1;
    }

    fn finish(&mut self) -> Vec<u8> {
        let full = std::mem::replace(self, Block::new(self.interval));
        let mut bytes = full.bytes;
        full.restarts.iter().for_each(|restart| bytes.extend(restart.to_le_bytes()));
        bytes.extend((full.restarts.len() as u32).to_le_bytes());
        bytes
    }
}

fn handle_bytes((offset, size): Handle) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_varint(&mut bytes, offset as u64);
    write_varint(&mut bytes, size as u64);
    bytes
}

/// A short key that is not below `last` and below `next`.
fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let differs = last.iter().zip(next).position(|(a, b)| a != b);
    match differs {
        Some(at) if last[at] < 0xff && last[at] + 1 < next[at] => [&last[..at], &[last[at] + 1]].concat(),
        _ => last.to_vec(),
    }
}

/// A short key that is not below `last`.
fn successor(last: &[u8]) -> Vec<u8> {
    match last.iter().position(|byte| *byte != 0xff) {
        Some(at) => [&last[..at], &[last[at] + 1]].concat(),
        None => last.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(entries: usize, value: usize) -> Table {
        (0..entries).map(|i| (format!("layer{:04}/weights{}", i / 3, i % 3).into_bytes(), vec![i as u8; value])).collect()
    }

    fn written(table: &Table) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_table(table, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn reads_what_it_writes() {
        for table in [sample(0, 0), sample(1, 0), sample(100, 20), sample(3000, 300), sample(3, 600_000)] {
            assert!(read_table(&written(&table)).unwrap() == table);
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let bytes = written(&sample(40, 10));
        for position in 0..bytes.len() - FOOTER {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x10;
            // The metaindex block is not looked at.
            if let Ok(table) = read_table(&damaged) {
                assert!(table == sample(40, 10));
            }
        }
        for end in 0..bytes.len() {
            assert_eq!(read_table(&bytes[..end]).unwrap_err().code(), plimsoll_base::Code::DataLoss);
        }
    }

    #[test]
    fn compressed_blocks_are_read_and_bombs_are_not() {
        let mut block = Block::new(RESTART_INTERVAL);
        block.add(b"key", &[7; 1000]);
        let compressed = snap::raw::Encoder::new().compress_vec(&block.finish()).unwrap();
        let file = |payload: &[u8]| {
            let mut bytes = [payload, &[1]].concat();
            bytes.extend(Crc::of(&bytes).masked().to_le_bytes());
            let mut index = Block::new(1);
            index.add(b"l", &handle_bytes((0, payload.len())));
            let mut writer = TableWriter { offset: bytes.len(), out: &mut bytes };
            let index = writer.block(&mut index).unwrap();
            let mut footer = [handle_bytes((0, 0)), handle_bytes(index)].concat();
            footer.resize(FOOTER - MAGIC.len(), 0);
            [bytes, footer, MAGIC.to_vec()].concat()
        };
        assert_eq!(read_table(&file(&compressed)).unwrap()[&b"key"[..]], vec![7; 1000]);
        assert!(read_table(&file(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0])).is_err());
    }

    #[test]
    fn separators_lie_between() {
        assert_eq!(separator(b"abc", b"abz"), b"abd");
        assert_eq!(separator(b"abc", b"abd"), b"abc");
        assert_eq!(separator(b"ab", b"abc"), b"ab");
        assert_eq!(successor(b"variables"), b"w");
        assert_eq!(successor(b"\xff\xff"), b"\xff\xff");
    }
}
