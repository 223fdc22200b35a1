//! Whether a library is the shim: it exports a symbol that no other one has.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The symbol that the shim exports (`shim/src/lib.rs`). The number grows when programs are told of their lease in another way.
pub(super) const MARKER: &str = "plimsoll_shim_1";

/// The most bytes of a table that are looked at.
const MOST: u64 = 16 << 20;

/// Whether a 64-bit library of little-endian numbers exports a symbol.
pub(super) fn exports(file: &File, symbol: &str) -> bool {
    find(file, symbol).unwrap_or(false)
}

fn find(file: &File, symbol: &str) -> Option<bool> {
    const SYMBOLS: u64 = 11;
    let header = read(file, 0, 64)?;
    if header.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (sections, size, count) = (number(&header, 40, 8)?, number(&header, 58, 2)?, number(&header, 60, 2)?);
    let section = |index: u64| read(file, sections.checked_add(index.checked_mul(size)?)?, 64);
    let contents = |section: &[u8]| read(file, number(section, 24, 8)?, number(section, 32, 8)?);
    let table = (0..count).filter_map(section).find(|section| number(section, 4, 4) == Some(SYMBOLS))?;
    let (symbols, names) = (contents(&table)?, contents(&section(number(&table, 40, 4)?)?)?);
    let is_meant = |entry: &[u8]| {
        let name = names.get(number(entry, 0, 4)? as usize..)?;
        let is_defined = number(entry, 6, 2)? != 0;
        Some(is_defined && name.strip_prefix(symbol.as_bytes())?.first() == Some(&0))
    };
    Some(symbols.chunks_exact(24).any(|entry| is_meant(entry).unwrap_or(false)))
}

fn read(file: &File, at: u64, bytes: u64) -> Option<Vec<u8>> {
    let mut out = vec![0; usize::try_from(bytes).ok().filter(|_| bytes <= MOST)?];
    file.read_exact_at(&mut out, at).ok().map(|()| out)
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    Some(bytes.get(at..at + size)?.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_is_one_that_is_defined() {
        let beside = std::env::current_exe().unwrap().with_file_name("libplimsoll_shim.so");
        let shim = File::open(beside).expect("the shim was built");
        assert!(exports(&shim, MARKER) && exports(&shim, "cuMemAlloc_v2"));
        // The first part of a name, a name that it only imports, and one that is not there.
        for other in ["plimsoll_shim", "dlvsym", "plimsoll_shim_0", ""] {
            assert!(!exports(&shim, other), "{other}");
        }
        // This program has the name in it as a text.
        assert!(!exports(&File::open("/proc/self/exe").unwrap(), MARKER));
    }

    #[test]
    fn what_is_no_library_exports_nothing() {
        let whole = std::fs::read(std::env::current_exe().unwrap().with_file_name("libplimsoll_shim.so")).expect("the shim was built");
        let path = std::env::temp_dir().join(format!("plimsoll-marker-{}", std::process::id()));
        for length in (0..70).chain([whole.len() / 2]) {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert!(!exports(&File::open(&path).unwrap(), MARKER), "{length}");
        }
        let mut far = whole.clone();
        far[40..48].fill(0xff);
        std::fs::write(&path, &far).unwrap();
        assert!(!exports(&File::open(&path).unwrap(), MARKER));
        std::fs::remove_file(&path).unwrap();
    }
}
