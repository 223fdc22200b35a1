//! A machine, a lease on it, and programs that are started under the shim.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use plimsoll_base::Bytes;
use plimsoll_machine::{CardInfo, Guarantee, Identity, Machine, Member, StateDir};
use plimsoll_mock_driver as mock;

pub const MIB: u64 = 1 << 20;

/// A machine of a test's own, with a folder that is removed in the end.
pub struct Rig {
    folder: PathBuf,
    pub gpus: mock::Machine,
}

/// A lease on a machine.
pub struct Lease {
    pub member: Member,
}

impl Rig {
    /// A machine whose cards have so many MiB.
    pub fn new(test: &str, mebibytes: &[u64]) -> Rig {
        let folder = std::env::temp_dir().join(format!("plimsoll-shim-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(folder.join("driver")).expect("a folder");
        for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
            // Not links: the loader takes two names of one file for one library.
            std::fs::copy(beside("libplimsoll_mock_driver.so"), folder.join("driver").join(name)).expect("the mock driver was built");
        }
        let totals: Vec<u64> = mebibytes.iter().map(|size| size * MIB).collect();
        let gpus = mock::Machine::create(&folder, &totals).expect("a machine");
        Rig { folder, gpus }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn driver(&self) -> PathBuf {
        self.folder.join("driver")
    }

    fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// A lease that has so many MiB of each card.
    pub fn lease(&self, mebibytes: &[u64]) -> Lease {
        let card = |card: &mock::Card| CardInfo { key: card.name(), name: card.name(), capacity: Bytes(card.total) };
        let cards: Vec<CardInfo> = self.gpus.cards().iter().map(card).collect();
        let machine = Machine::open(&StateDir::open(self.state()).expect("a folder"), "cards", &cards).expect("a ledger");
        let identity = Identity { name: String::new(), program: "test".into(), guarantee: Guarantee::Held };
        let member = machine.join(&identity).expect("room for a member");
        let request: Vec<(usize, Bytes)> = mebibytes.iter().enumerate().map(|(card, size)| (card, Bytes(size * MIB))).collect();
        member.reserve(&request).expect("room for the lease");
        Lease { member }
    }

    /// A program on this machine, without the shim.
    pub fn bare(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("LD_LIBRARY_PATH", self.driver());
        command.env(mock::MACHINE, &self.folder).env("PLIMSOLL_STATE_DIR", self.state()).stdin(Stdio::null());
        command
    }

    /// A program on this machine, under a lease and the shim.
    pub fn under(&self, lease: &Lease, program: impl AsRef<Path>) -> Command {
        let mut command = self.bare(program);
        command.env("LD_PRELOAD", shim()).env("PLIMSOLL_LEASE", lease.member.token());
        command
    }

    /// A C program, linked to this machine's driver where it is to be; none, visibly, where there is no compiler.
    pub fn compile(&self, name: &str, options: &[&str]) -> Option<PathBuf> {
        let program = self.folder.join(format!("{name}-{}", options.concat().replace(|c: char| !c.is_ascii_alphanumeric(), "")));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shim").join(format!("{name}.c"));
        let mut command = Command::new("cc");
        command.arg("-o").arg(&program).arg(source).args(options).arg("-L").arg(self.driver());
        if options.contains(&"-DLINKED") {
            command.args(["-l:libcuda.so.1", "-l:libnvidia-ml.so.1"]);
        }
        match command.args(["-ldl", "-lpthread"]).output() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                eprintln!("skipped: there is no C compiler");
                None
            }
            output => {
                let output = output.expect("the compiler starts");
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                Some(program)
            }
        }
    }
}

impl Lease {
    pub fn inside(&self) -> Machine {
        self.member.inside().expect("the lease's ledger")
    }

    /// MiB of a card that programs under the lease hold.
    pub fn held(&self, card: usize) -> u64 {
        self.inside().reserved().expect("the lease's ledger")[card].0 / MIB
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A file that cargo built beside this program.
fn beside(name: &str) -> PathBuf {
    std::env::current_exe().expect("this program").with_file_name(name)
}

pub fn shim() -> PathBuf {
    beside("libplimsoll_shim.so")
}

/// The output of a program. It must have ended well.
pub fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().expect("the program starts");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{status}: {command:?}\n{stdout}\n{stderr}");
    assert_eq!(stderr, "", "{command:?}");
    stdout.into_owned()
}
