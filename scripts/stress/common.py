"""What the attacks share: the program under attack, bounded commands, and the verdict on each of them."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Statuses of a panic, and of signals that a program without faults never gets: SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS.
CRASHES = {101} | {status for number in (4, 6, 7, 8, 11, 31) for status in (-number, 128 + number)}


class Outcome:
    """How a command ended. `status` is None where it did not end in time."""

    def __init__(self, status, out, err, seconds):
        self.status, self.out, self.err, self.seconds = status, out, err, seconds


class Context:
    """An attack that goes on: its time, its chance, its folder, and what it found."""

    def __init__(self, name, binary, seconds, seed, keep):
        self.name, self.binary, self.seconds = name, str(binary), seconds
        self.random = random.Random(f"{seed}:{name}")
        self.folder = Path(tempfile.mkdtemp(prefix=f"plimsoll-stress-{name}-"))
        self.folder.chmod(0o755)
        self.keep = Path(keep)
        self.failures = []
        self.counts = {}
        self.skipped = None
        self.end = time.monotonic() + seconds

    def goes_on(self):
        """Whether there is time left, and not yet more failures than are looked at."""
        return time.monotonic() < self.end and len(self.failures) < 20

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def at_most(self, what, number):
        self.counts[what] = max(self.counts.get(what, 0), number)

    def skip(self, why):
        self.skipped = why

    def fail(self, message, *files):
        """Something fell through. Files (or folders) that show it are kept."""
        kept = []
        for path in map(Path, files):
            target = self.keep / f"{self.name}-{len(self.failures)}" / path.name
            target.parent.mkdir(parents=True, exist_ok=True)
            (shutil.copytree if path.is_dir() else shutil.copy)(path, target)
            kept.append(str(target))
        text = f"{self.name}: {message}" + "".join(f"\n    kept: {path}" for path in kept)
        self.failures.append(text)
        print(text, file=sys.stderr, flush=True)

    def environment(self, state, cards, **more):
        """The environment of a machine of its own: simulated cards, a ledger in `state`, and a mark on all processes."""
        return dict(
            os.environ,
            PLIMSOLL_STATE_DIR=str(state),
            PLIMSOLL_SIM_GPUS=cards,
            PLIMSOLL_NVML="",
            PLIMSOLL_BINARY=self.binary,
            STRESS_MARK=str(self.folder),
            **more,
        )

    def run(self, words, timeout=30, memory=4 << 30, env=None, cwd=None, stack=None):
        """Runs the program with these words, in at most so many seconds and bytes of address space."""

        def limits():
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

        began = time.monotonic()
        process = subprocess.Popen(
            [self.binary, *map(str, words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env or dict(os.environ, PLIMSOLL_NVML="", PLIMSOLL_STATE_DIR=str(self.folder / "state")),
            cwd=cwd,
            preexec_fn=limits,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            status = None
        return Outcome(status, out.decode(errors="replace"), err.decode(errors="replace"), time.monotonic() - began)

    def judged(self, what, words, *files, **options):
        """As `run`, for input of any kind: a success or an error is right, a panic, a crash or a hang is not."""
        outcome = self.run(words, **options)
        self.count("commands")
        self.count("accepted" if outcome.status == 0 else "refused")
        self.at_most("slowest_seconds", round(outcome.seconds, 1))
        command = " ".join(map(str, words))
        if outcome.status is None:
            self.fail(f"hangs: {what}: {command}", *files)
        elif outcome.status in CRASHES or "panicked" in outcome.err:
            self.fail(f"crashes with {outcome.status}: {what}: {command}\n    {outcome.err.strip()[-400:]}", *files)
        return outcome

    def clean_up(self):
        for pid in self.processes():
            signal_to(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def processes(self, mark=None):
        """The living processes that this attack started, by the mark in their environment."""
        wanted = f"STRESS_MARK={mark or self.folder}".encode()
        return [pid for pid in all_processes() if pid != os.getpid() and wanted in environment_of(pid) and is_alive(pid)]


def all_processes():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def environment_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def state_of(pid):
    """The state and parent of a process as /proc has them, or None."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return words[0], int(words[1])
    except (OSError, IndexError):
        return None


def is_alive(pid):
    state = state_of(pid)
    return state is not None and state[0] not in "ZX"


def signal_to(pid, number):
    """Sends it; whether there was a process."""
    try:
        os.kill(pid, number)
        return True
    except (ProcessLookupError, PermissionError):
        return False


def comes(condition, seconds=15, nap=0.05):
    """Whether that becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(nap)
    return True
