//! Cubins in files: named by a hash of what they were made from, which they hold whole. A file that is not what it should be is none.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// What a cubin is made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub source: &'a str,
    pub version: (u32, u32),
    pub architecture: &'a str,
    pub options: &'a [&'a str],
}

impl Key<'_> {
    fn text(&self) -> String {
        let (major, minor) = self.version;
        format!("plimsoll cubin 1\nNVRTC {major}.{minor}\n{}\n{}\n{}", self.architecture, self.options.join(" "), self.source)
    }
}

/// The folder, if there is one.
#[derive(Debug)]
pub(super) struct Cubins(Option<PathBuf>);

impl Cubins {
    /// Files in that folder, which is made for this user alone.
    pub fn new(folder: Option<PathBuf>) -> Cubins {
        Cubins(folder.filter(|folder| is_ours(folder)))
    }

    /// The cubin of a key.
    pub fn get(&self, key: &Key<'_>) -> Option<Vec<u8>> {
        let text = key.text();
        let bytes = fs::read(self.path(&text)?).ok()?;
        let (check, rest) = bytes.split_first_chunk::<8>()?;
        let cubin = rest.strip_prefix(text.as_bytes())?.strip_prefix(&[0])?;
        (u64::from_le_bytes(*check) == fnv(rest) && !cubin.is_empty()).then(|| cubin.to_vec())
    }

    /// Keeps a cubin, where that is possible. Readers see the whole of a file, or none.
    pub fn put(&self, key: &Key<'_>, cubin: &[u8]) {
        let text = key.text();
        let Some(path) = self.path(&text) else { return };
        let rest = [text.as_bytes(), &[0], cubin].concat();
        let part = path.with_extension(format!("{}-{:?}", std::process::id(), std::thread::current().id()));
        let written = fs::File::create_new(&part).and_then(|mut file| {
            file.write_all(&fnv(&rest).to_le_bytes())?;
            file.write_all(&rest)
        });
        if written.and_then(|()| fs::rename(&part, &path)).is_err() {
            let _ = fs::remove_file(&part);
        }
    }

    fn path(&self, text: &str) -> Option<PathBuf> {
        self.0.as_ref().map(|folder| folder.join(format!("{:016x}.cubin", fnv(text.as_bytes()))))
    }
}

/// Makes the folder; whether no other user can write to it.
fn is_ours(folder: &Path) -> bool {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
    let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    // SAFETY: it reads a number of the process.
    let user = unsafe { libc::geteuid() };
    fs::metadata(folder).is_ok_and(|data| data.is_dir() && data.uid() == user && data.permissions().mode() & 0o022 == 0)
}

/// The hash FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cubin_is_found_again_and_no_other_file_is() {
        let folder = std::env::temp_dir().join(format!("plimsoll-cubins-{}", std::process::id()));
        let cubins = Cubins::new(Some(folder.clone()));
        let key = Key { source: "kernel", version: (13, 0), architecture: "sm_90a", options: &["-w"] };
        assert_eq!(cubins.get(&key), None);
        cubins.put(&key, b"code");
        assert_eq!(cubins.get(&key).as_deref(), Some(&b"code"[..]));
        for other in [Key { source: "kernel ", ..key }, Key { version: (13, 1), ..key }, Key { architecture: "sm_80", ..key }] {
            assert_eq!(cubins.get(&other), None);
        }
        let path = cubins.path(&key.text()).unwrap();
        let whole = fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..3], &[&whole[..20], &[whole[20] ^ 1], &whole[21..]].concat(), &[]] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cubins.get(&key), None);
        }
        // Anybody's folder is none.
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Cubins::new(Some(folder.clone())).0.is_none() && Cubins::new(Some("/proc/nowhere".into())).0.is_none());
        fs::remove_dir_all(folder).unwrap();
    }
}
