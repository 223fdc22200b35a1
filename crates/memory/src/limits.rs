//! Limits of a process (`ulimit`) that an error of the system's came of.

use std::{fmt, io};

use plimsoll_base::{Bytes, Error, Result};

/// An error of the system's as one of ours: RESOURCE_EXHAUSTED, with the limit, where there is no descriptor, process or memory
/// left; INTERNAL otherwise. `what` names the operation that could not be done.
pub fn no_room(what: &str, cause: &io::Error) -> Error {
    let limited = |name: &str, option: &str, limit: Option<u64>| {
        let limit = limit.map_or("none".into(), |limit| limit.to_string());
        Error::resource_exhausted(format!("{what}: no room: {name} ({option}, now {limit}): {cause}"))
            .with_remedy(format!("raise the limit ({option})"))
    };
    match cause.raw_os_error() {
        Some(libc::EMFILE) => limited("the limit of open files is reached", "RLIMIT_NOFILE, ulimit -n", get(libc::RLIMIT_NOFILE)),
        Some(libc::EFBIG) => limited("the limit of file sizes is reached", "RLIMIT_FSIZE, ulimit -f", get(libc::RLIMIT_FSIZE)),
        Some(libc::EAGAIN) => limited("the limit of processes is reached", "RLIMIT_NPROC, ulimit -u", get(libc::RLIMIT_NPROC)),
        Some(libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC | libc::EDQUOT | libc::ETOOMANYREFS) => {
            Error::resource_exhausted(format!("{what}: no room: {cause}"))
        }
        _ => Error::internal(format!("{what}: {cause}")),
    }
}

/// Refuses a file of so many bytes, where this process may not write one. The system would end the process (SIGXFSZ). `what` names the
/// operation that needs the file.
///
/// # Errors
/// RESOURCE_EXHAUSTED with the limit.
pub fn check_file_size(what: impl fmt::Display, bytes: Bytes) -> Result<()> {
    match get(libc::RLIMIT_FSIZE) {
        Some(limit) if bytes.0 > limit => Err(no_room(&what.to_string(), &io::Error::from_raw_os_error(libc::EFBIG))),
        _ => Ok(()),
    }
}

/// The limit that holds now; none where there is none.
fn get(what: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes to a local of the type that it expects.
    let done = unsafe { libc::getrlimit(what, &mut limit) } == 0;
    Some(limit.rlim_cur).filter(|limit| done && *limit != libc::RLIM_INFINITY)
}

#[cfg(test)]
mod tests {
    use plimsoll_base::Code;

    use super::*;

    #[test]
    fn errors_name_the_limit() {
        let said = |number: i32| no_room("a file", &io::Error::from_raw_os_error(number));
        for (number, name) in
            [(libc::EMFILE, "RLIMIT_NOFILE"), (libc::EFBIG, "RLIMIT_FSIZE"), (libc::EAGAIN, "RLIMIT_NPROC"), (libc::ENOMEM, "")]
        {
            let error = said(number);
            assert!(error.code() == Code::ResourceExhausted && error.message().contains("a file: no room"), "{error}");
            assert!(error.message().contains(name), "{error}");
        }
        assert_eq!(said(libc::EPERM).code(), Code::Internal);
    }
}
