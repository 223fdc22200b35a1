"""Where the program `plimsoll` is, and the options that it is run with."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Optional, Union

from .errors import BinaryNotFound

Gpus = Union[int, str, Sequence[int]]
"""How many cards, or which: a list of their numbers, as CUDA_VISIBLE_DEVICES leaves them; or a text as `plimsoll run --gpus` takes it."""
Memory = Union[str, int, float]
"""Of each card: a size ("2GiB", or bytes as an int), or a fraction of it (a float, or "0.4")."""


def binary() -> str:
    """The program's path: PLIMSOLL_BINARY; else where the wheel put it; else on the PATH; else in the source tree around us."""
    import shutil

    named = os.environ.get("PLIMSOLL_BINARY")
    if named:
        if not os.access(named, os.X_OK):
            raise BinaryNotFound(f"PLIMSOLL_BINARY={named} is not a program that can be run")
        return named
    for folder in _scripts():
        if _is_program(folder / "plimsoll"):
            return str(folder / "plimsoll")
    on_path = shutil.which("plimsoll")
    if on_path:
        return on_path
    root = Path(__file__).resolve().parents[2]
    target = root / os.environ.get("CARGO_TARGET_DIR", "target")
    for build in ("release", "debug"):
        if (root / "Cargo.toml").is_file() and _is_program(target / build / "plimsoll"):
            return str(target / build / "plimsoll")
    raise BinaryNotFound(
        "leases are kept by the program `plimsoll`, which is neither beside this package nor on the PATH; "
        "build it with `cargo build --release`, and put it on the PATH or name it in PLIMSOLL_BINARY"
    )


@functools.lru_cache(maxsize=None)
def writes_reports(program: str) -> bool:
    """Whether this version of it has `run --report`."""
    import subprocess

    try:
        help = subprocess.run([program, "run", "--help"], stdin=subprocess.DEVNULL, capture_output=True)
    except OSError:
        return False
    return b"--report" in help.stdout


def _scripts() -> Iterator[Path]:
    """Where installers put the programs that belong to this installation of the package."""
    import sysconfig

    yield Path(__file__).resolve().parent.parent / "bin"  # pip install --target
    yield Path(sysconfig.get_path("scripts"))
    user = f"{os.name}_user"
    if user in sysconfig.get_scheme_names():
        yield Path(sysconfig.get_path("scripts", user))


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _command_line() -> str:
    """This program's, as listings show it."""
    words = getattr(sys, "orig_argv", None) or [sys.executable or "python", *sys.argv]  # the former from Python 3.10 on
    return " ".join(words)


@dataclasses.dataclass(frozen=True)
class LeaseOptions:
    """The request to `plimsoll run`."""

    gpus: Optional[Gpus] = None
    memory: Optional[Memory] = None
    wait: Union[bool, float] = False
    priority: Optional[int] = None
    name: Optional[str] = None
    """For listings."""

    def __post_init__(self) -> None:
        if isinstance(self.gpus, bool) or (isinstance(self.gpus, int) and self.gpus < 0):
            raise ValueError(f"gpus={self.gpus!r}: a number of cards, or a list of them")
        if isinstance(self.memory, bool) or (isinstance(self.memory, (int, float)) and self.memory <= 0):
            raise ValueError(f"memory={self.memory!r}: a size such as '2GiB', a number of bytes, or a fraction such as 0.4")
        if isinstance(self.memory, float) and self.memory > 1:
            raise ValueError(f"memory={self.memory!r}: a fraction is at most 1.0; bytes are an int")
        if not isinstance(self.wait, bool) and self.wait < 0:
            raise ValueError(f"wait={self.wait!r}: True, False, or seconds")

    def needs_lease(self) -> bool:
        return self.gpus is not None or self.memory is not None

    def command(self, report_file: Optional[str] = None) -> list[str]:
        """The command in front of the program under the lease; nothing where none is needed. `report_file`: where to write what it
        took."""
        if not self.needs_lease():
            return []
        command = [binary(), "run"]
        if isinstance(self.gpus, (int, str)):
            command += ["--gpus", str(self.gpus)]
        elif self.gpus is not None:
            command += ["--gpus", f"[{','.join(str(gpu) for gpu in self.gpus)}]"]
        if self.memory is not None:
            command += ["--memory", str(self.memory)]
        if self.wait is True:
            command += ["--wait"]
        elif self.wait is not False:
            command += [f"--wait={self.wait:f}s"]
        if self.priority is not None:
            command += [f"--priority={self.priority}"]
        if self.name is not None:
            command += [f"--name={self.name}"]
        if report_file is not None and writes_reports(command[0]):
            command += [f"--report={report_file}"]
        # The program under the lease is a helper of this program's, and nothing of it stays when it ends.
        command += [f"--program={_command_line()}", "--end-tree"]
        return [*command, "--"]
