//! The file by which programs share a member's slot.
//!
//! Programs do not inherit the ledger. They inherit an empty file of the lease alone, open for reading. As long as one of them has
//! it the kernel keeps a lock on it, and that is the lease. Nothing can be changed with it but to let go of the lease. The file is
//! the user's (mode 0600), so a program of another user cannot open it again either.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use plimsoll_base::Result;

use super::byte_lock;
use super::file::{Inner, apart};
use super::shared::proof;
use super::state_dir::{made, refused};

/// The name of the folder of the leases' files, behind the ledger's name.
pub(super) const LEASES: &str = ".leases";

impl Inner {
    /// The folder of the leases' files.
    pub(super) fn leases(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(LEASES);
        path.into()
    }

    fn lease_path(&self, slot: u32) -> PathBuf {
        self.leases().join(slot.to_string())
    }

    /// Makes the folder of the leases' files where it is missing.
    pub(super) fn make_leases(&self) -> io::Result<()> {
        let mode = if self.shared.is_some() { 0o2750 } else { 0o700 };
        match DirBuilder::new().mode(mode).create(self.leases()) {
            Ok(()) => made(&self.leases(), mode),
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    /// A file for the lease of a slot, new and locked, and its number.
    pub(super) fn make_lease(&self, slot: u32) -> Result<(File, u64)> {
        let path = self.lease_path(slot);
        let make = || {
            self.make_leases()?;
            // That of a lease before could be locked by a program that had it.
            self.remove_lease(slot);
            if self.shared.is_some() {
                let fifo = proof::make(&path, slot, self.mark)?;
                let number = fifo.metadata()?.ino();
                return Ok((fifo, number));
            }
            let mut options = OpenOptions::new();
            let file = options
                .read(true)
                .mode(0o1600)
                .custom_flags(libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW)
                .open(&path)
                .and_then(apart)?;
            // Other processes open it to see whether it is locked, whatever the mask of this process is.
            file.set_permissions(fs::Permissions::from_mode(0o1600))?;
            byte_lock::share(&file, slot)?;
            byte_lock::mark(&file, self.mark)?;
            let number = file.metadata()?.ino();
            Ok((file, number))
        };
        make().map_err(|error: io::Error| refused("cannot be made", &path, &error))
    }

    /// Removes the file of a lease that has ended.
    pub(super) fn remove_lease(&self, slot: u32) {
        let _ = fs::remove_file(self.lease_path(slot));
    }

    /// Whether a slot is in use, as a handle of the ledger without a slot's byte shows; `lease` is the number of its lease's file.
    pub(super) fn is_in_use(&self, file: &File, slot: u32, lease: u64) -> Result<bool> {
        if self.shared.is_none() {
            return Ok(byte_lock::is_taken(file, slot).map_err(|error| self.broken(&error))? || self.is_leased(slot, lease)?);
        }
        match File::open(self.leases()).and_then(|leases| proof::is_held(&leases, slot)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused("cannot be opened", &self.leases(), &error)),
            held => Ok(held.unwrap_or(false)),
        }
    }

    /// Whether that slot or one behind it is in use, as far as locks of the ledger show.
    pub(super) fn any_in_use_from(&self, file: &File, slot: u32) -> Result<bool> {
        // Every reader of a shared ledger can lock it: that says nothing.
        Ok(self.shared.is_none() && byte_lock::any_taken_from(file, slot).map_err(|error| self.broken(&error))?)
    }

    /// Whether programs have the lease of a slot, whose file has that number.
    pub(super) fn is_leased(&self, slot: u32, number: u64) -> Result<bool> {
        if number == 0 {
            return Ok(false);
        }
        if self.shared.is_some() {
            return self.is_in_use(&self.file, slot, number);
        }
        let path = self.lease_path(slot);
        // Open for writing: waiters are told when a handle that can only read is closed.
        match OpenOptions::new().write(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Ok(file) if file.metadata().is_ok_and(|facts| facts.ino() == number) => {
                byte_lock::is_taken(&file, slot).map_err(|error| self.broken(&error))
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(refused("cannot be opened", &path, &error)),
            // The file was removed or replaced; the kernel knows the lock all the same.
            _ => Ok(self.mark.is_shared(slot)),
        }
    }
}
