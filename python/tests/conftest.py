import importlib.util
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _package():
    """The folder of the package under test: this tree, where it has the native module or no other is installed; else the installation."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != str(ROOT)]
    installed = importlib.util.find_spec("plimsoll")
    if list((ROOT / "plimsoll").glob("_native*.so")) or installed is None or installed.origin is None:
        return ROOT
    return Path(installed.origin).parent.parent


PACKAGE = _package()
sys.path.insert(0, str(PACKAGE))

# What is started inherits it: under nohup, and in a shell's job in the background, these would be ignored.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def run_program(tmp_path):
    """Runs a program of its own: as a script, as a module (`-m`), or as text on standard input, as a notebook would have it."""

    def run(source, how="script", cloudpickle=True, check=True, **options):
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path_for(tmp_path, cloudpickle)))
        path = tmp_path / "program.py"
        path.write_text(textwrap.dedent(source))
        command = {"script": [str(path)], "module": ["-m", "program"], "text": ["-"]}[how]
        with open(path) as text:
            stdin = text if how == "text" else subprocess.DEVNULL
            done = subprocess.run(
                [sys.executable, *command],
                stdin=stdin,
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=environment,
                timeout=60,
                **options,
            )
        assert not check or done.returncode == 0, done.stderr
        return done

    return run


def path_for(folder, cloudpickle):
    if cloudpickle:
        pytest.importorskip("cloudpickle")
        return [str(PACKAGE)]
    missing = folder / "without"
    missing.mkdir(exist_ok=True)
    (missing / "cloudpickle.py").write_text("raise ImportError('not here')\n")
    return [str(missing), str(PACKAGE)]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of its own, with two simulated cards; skipped where there is no program `plimsoll` that leases them."""
    import plimsoll

    try:
        program = plimsoll.binary()
    except plimsoll.BinaryNotFound:
        pytest.skip("the program plimsoll is not built")
    if subprocess.run([program, "run", "--help"], capture_output=True).returncode != 0:
        pytest.skip(f"{program} does not run programs")
    monkeypatch.setenv("PLIMSOLL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PLIMSOLL_SIM_GPUS", "2x4GiB")
    monkeypatch.setenv("PLIMSOLL_NVML", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return plimsoll.devices
