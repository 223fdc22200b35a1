//! The control daemon of MPS, as its pipes show it. It is not spoken to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::Daemon;

/// Where its pipes are unless CUDA_MPS_PIPE_DIRECTORY says otherwise.
pub(super) const PIPES: &str = "/tmp/nvidia-mps";

/// The system's name of the daemon; it keeps 15 characters of a name.
const NAME: &str = "nvidia-cuda-mps";

/// The daemon that has its pipes in a folder. `user` is the user that would use it.
pub(super) fn look(folder: &Path, user: u32) -> Daemon {
    let socket = folder.join("control");
    let Ok(facts) = fs::metadata(&socket) else { return Daemon::None(folder.into()) };
    // Older daemons have a named pipe there.
    if !facts.file_type().is_socket() && !facts.file_type().is_fifo() {
        return Daemon::None(folder.into());
    }
    if !listens(&socket) && !runs(folder) {
        return Daemon::Ended(folder.into());
    }
    match facts.uid() {
        owner if owner == user || owner == 0 => Daemon::Runs(folder.into()),
        owner => Daemon::OfAnother(folder.into(), owner),
    }
}

/// Whether a process listens at that socket, by the kernel's list.
fn listens(socket: &Path) -> bool {
    // Flags of a socket: it accepts connections.
    const ACCEPTS: u32 = 1 << 16;
    let Some(path) = socket.to_str() else { return false };
    let sockets = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    sockets.lines().skip(1).any(|line| {
        let mut words = line.splitn(8, ' ');
        let flags = words.nth(3).and_then(|flags| u32::from_str_radix(flags, 16).ok()).unwrap_or(0);
        flags & ACCEPTS != 0 && line.ends_with(path) && line.strip_suffix(path).is_some_and(|rest| rest.ends_with(' '))
    })
}

/// Whether the process lives whose number the daemon wrote down.
fn runs(folder: &Path) -> bool {
    let text = fs::read_to_string(folder.join("nvidia-cuda-mps-control.pid")).unwrap_or_default();
    let Ok(pid) = text.trim().parse::<u32>() else { return false };
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim().starts_with(NAME))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_daemon_is_one_that_listens() {
        let folder = std::env::temp_dir().join(format!("plimsoll-mps-{}", std::process::id()));
        let user = fs::metadata("/proc/self").unwrap().uid();
        assert_eq!(look(&folder, user), Daemon::None(folder.clone()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("control"), "").unwrap();
        assert_eq!(look(&folder, user), Daemon::None(folder.clone()), "no socket");
        fs::remove_file(folder.join("control")).unwrap();
        let listener = UnixListener::bind(folder.join("control")).unwrap();
        assert_eq!(look(&folder, user), Daemon::Runs(folder.clone()));
        if user != 0 {
            assert_eq!(look(&folder, user + 1), Daemon::OfAnother(folder.clone(), user));
        }
        drop(listener);
        assert_eq!(look(&folder, user), Daemon::Ended(folder.clone()));
        for pid in ["", "x", "-1", "99999999999", &std::process::id().to_string()] {
            fs::write(folder.join("nvidia-cuda-mps-control.pid"), pid).unwrap();
            assert_eq!(look(&folder, user), Daemon::Ended(folder.clone()), "{pid}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
