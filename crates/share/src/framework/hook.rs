//! The hook for Python programs: files that are part of this program, in a folder of the user's that is put in front of PYTHONPATH.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use plimsoll_base::{Code, Error, Result};

/// The hook's files. Python looks for `sitecustomize` when it starts.
const FILES: [(&str, &str); 6] = [
    ("sitecustomize.py", include_str!("../../../../python/plimsoll/_hook/sitecustomize.py")),
    ("plimsoll_hook/__init__.py", include_str!("../../../../python/plimsoll/_hook/plimsoll_hook/__init__.py")),
    ("plimsoll_hook/limits.py", include_str!("../../../../python/plimsoll/_hook/plimsoll_hook/limits.py")),
    ("plimsoll_hook/pytorch.py", include_str!("../../../../python/plimsoll/_hook/plimsoll_hook/pytorch.py")),
    ("plimsoll_hook/tensorflow.py", include_str!("../../../../python/plimsoll/_hook/plimsoll_hook/tensorflow.py")),
    ("plimsoll_hook/jax.py", include_str!("../../../../python/plimsoll/_hook/plimsoll_hook/jax.py")),
];

/// The folder with the hook, whole: in `state`, which is this user's; else in the folder for temporary files. Its name is made of
/// its contents, so that programs of different versions have one each. Written where it is missing or not as it should be; any
/// number of processes may do that at once.
///
/// # Errors
/// Why it can be in neither: code in it runs in every Python program under a lease, so a folder that others can change is no place
/// for it.
pub fn folder(state: &Path) -> Result<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let elsewhere = std::env::temp_dir().join(format!("plimsoll-hook-{user}"));
    written(state, user).or_else(|first| {
        let second = private(&elsewhere, user).and_then(|()| written(&elsewhere, user));
        second.map_err(|second| {
            Error::new(Code::Unavailable, format!("{}: {first}; {}: {second}", state.display(), elsewhere.display()))
                .with_remedy("set PLIMSOLL_STATE_DIR to a folder that is yours alone, without a colon in its name")
        })
    })
}

/// The hook's folder in another one.
fn written(around: &Path, user: u32) -> io::Result<PathBuf> {
    let no = |why: &str| io::Error::other(why.to_string());
    // It stands between colons.
    if around.as_os_str().as_encoded_bytes().contains(&b':') {
        return Err(no("its name has a colon, and is no part of PYTHONPATH"));
    }
    let facts = fs::symlink_metadata(around)?;
    if !facts.is_dir() || facts.uid() != user || facts.mode() & 0o022 != 0 {
        return Err(no("others can change it"));
    }
    let folder = std::path::absolute(around)?.join(format!("hook-{:016x}", hash()));
    private(&folder, user)?;
    private(&folder.join("plimsoll_hook"), user)?;
    for (name, text) in FILES {
        write_whole(&folder.join(name), text)?;
    }
    Ok(folder)
}

/// A folder of this user's alone, made where it is missing.
fn private(folder: &Path, user: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        // Independent of this process's mask: with that, nothing could be made in it.
        Ok(()) if fs::symlink_metadata(folder)?.mode() & 0o700 != 0o700 => fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?,
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let facts = fs::symlink_metadata(folder)?;
    match facts.is_dir() && facts.uid() == user && facts.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::other(format!("others can change {}", folder.display()))),
    }
}

/// Writes a file, unless it is there as it should be. It never has a part of the text.
pub(crate) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let is_there = fs::symlink_metadata(path).is_ok_and(|facts| facts.is_file() && facts.mode() & 0o022 == 0);
    if is_there && plimsoll_base::read_file(path).is_ok_and(|found| found == text.as_bytes()) {
        return Ok(());
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.{:x}", std::process::id(), thread_number()));
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let done = file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(fs::Permissions::from_mode(0o600)));
    done.and_then(|()| fs::rename(&temporary, path)).inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Different for threads of this process.
fn thread_number() -> u64 {
    rustix::thread::gettid().as_raw_nonzero().get() as u64
}

/// Of all that is in the hook (FNV-1a).
fn hash() -> u64 {
    let bytes = FILES.iter().flat_map(|(name, text)| [name.as_bytes(), &[0], text.as_bytes(), &[0]]).flatten();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of a test's own, removed in the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("plimsoll-hook-test-{}-{name}", std::process::id()));
            DirBuilder::new().mode(0o700).create(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_is_whole_for_all_writers() {
        let state = Folder::new("whole");
        let made: Vec<PathBuf> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| folder(&state.0).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(made.iter().all(|one| *one == made[0]) && made[0].starts_with(&state.0));
        for (name, text) in FILES {
            assert_eq!(fs::read_to_string(made[0].join(name)).unwrap(), text);
        }
        let count = |folder: &Path| fs::read_dir(folder).unwrap().count();
        assert_eq!((count(&made[0]), count(&made[0].join("plimsoll_hook"))), (2, 5), "nothing is left over");
        assert_eq!(fs::metadata(&made[0]).unwrap().mode() & 0o777, 0o700);
        // One that was cut short is written anew.
        fs::write(made[0].join("sitecustomize.py"), "import").unwrap();
        folder(&state.0).unwrap();
        assert_eq!(fs::read_to_string(made[0].join("sitecustomize.py")).unwrap(), FILES[0].1);
    }

    #[test]
    fn a_folder_that_cannot_hold_it_is_not_used() {
        let state = Folder::new("with:colon");
        let elsewhere = folder(&state.0).unwrap();
        assert!(!elsewhere.starts_with(&state.0), "{}", elsewhere.display());
        let open = Folder::new("open");
        fs::set_permissions(&open.0, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!folder(&open.0).unwrap().starts_with(&open.0), "others could change it");
        assert!(!folder(&open.0.join("missing")).unwrap().starts_with(&open.0));
    }
}
