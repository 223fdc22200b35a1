"""Builds the package (PEP 517 and 660) with the standard library alone, so that `pip install ./python` needs no network.

In a checkout with cargo, the native module (`native/`: sessions, and the code of the program `plimsoll`) and a launcher of its code are
built and go into the wheel, the launcher as the program, with the shim beside it. Where there is no module, or it cannot be opened without
an interpreter, the program is a whole one. PLIMSOLL_BINARY and PLIMSOLL_NATIVE name other ones, or none where they are empty. A wheel with
the program is for this platform only, and one with the native module for Python 3.11 and later.
"""

import base64
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

from weak_symbols import weaken

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "plimsoll" / "__init__.py").read_text(), re.M).group(1)
NAME = f"plimsoll-{VERSION}"
MODULE = "_native.abi3.so"
LAUNCHER = "plimsoll-launcher"
METADATA = f"""\
Metadata-Version: 2.1
Name: plimsoll
Version: {VERSION}
Summary: TensorFlow graphs under a memory limit; functions in processes of their own, under leases on a machine's GPUs
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Requires-Dist: numpy
Provides-Extra: notebook
Requires-Dist: cloudpickle; extra == "notebook"
Classifier: Operating System :: POSIX
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in _sources()}
    native = _native()
    module = None if native is None else native.read_bytes()
    launched = None if module is None else weaken(module)
    program = _program(None if launched is None else native.with_name(LAUNCHER))
    if module is not None:
        files[f"plimsoll/{MODULE}"] = launched or module
    if program is not None:
        files[f"{NAME}.data/scripts/plimsoll"] = program.read_bytes()
        shim = program.with_name("libplimsoll_shim.so")
        if shim.is_file():
            files[f"{NAME}.data/scripts/{shim.name}"] = shim.read_bytes()
    platform = "any" if program is None and native is None else re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())
    return _wheel(wheel_directory, f"{'py3-none' if native is None else 'cp311-abi3'}-{platform}", files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    native = _native()
    if native is not None:
        build_native(native)
    return _wheel(wheel_directory, "py3-none-any", {"__editable__.plimsoll.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}.tar.gz"
    backend = sorted(Path(__file__).resolve().parent.glob("*.py"))
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in [*_sources(), *backend]}
    for extra in ("pyproject.toml", "README.md"):
        files[extra] = (ROOT / extra).read_bytes()
    files["PKG-INFO"] = _metadata()
    with tarfile.open(Path(sdist_directory) / name, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path, content in sorted(files.items()):
            entry = tarfile.TarInfo(f"{NAME}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return name


def _sources():
    return sorted(path for path in (ROOT / "plimsoll").rglob("*") if path.suffix in (".py", ".pyi") or path.name == "py.typed")


def build_native(built=None):
    """Puts the native module into the package of this tree, for an editable installation and for tests. Its path."""
    place = ROOT / "plimsoll" / MODULE
    built = built or _native()
    if built is None:
        return None
    # Whoever has loaded the old one keeps it.
    fresh = place.with_suffix(".new")
    shutil.copyfile(built, fresh)
    fresh.replace(place)
    return place


def _program(launcher):
    named = os.environ.get("PLIMSOLL_BINARY")
    if named is not None:
        return Path(named) if named else None
    if not (ROOT.parent / "Cargo.toml").is_file():
        return None
    launcher = launcher if launcher is not None and launcher.is_file() else None
    built = launcher or _target() / "release" / "plimsoll"
    if shutil.which("cargo"):  # it knows whether what is built is old
        _cargo(ROOT.parent / "Cargo.toml", "-p", "plimsoll-shim", *([] if launcher else ["-p", "plimsoll-cli"]))
    return built if built.is_file() else None


def _native():
    named = os.environ.get("PLIMSOLL_NATIVE")
    if named is not None:
        return Path(named) if named else None
    manifest = ROOT / "native" / "Cargo.toml"
    if not manifest.is_file() or not (ROOT.parent / "Cargo.toml").is_file() or not shutil.which("cargo") or sys.version_info < (3, 11):
        return None
    _cargo(manifest)
    return _target() / "release" / "lib_native.so"


def _target():
    """The folder of builds, one for the project and the module, so that both share what they are made of."""
    return Path(os.environ.get("CARGO_TARGET_DIR") or ROOT.parent / "target").resolve()


def _cargo(manifest, *packages):
    command = ["cargo", "build", "--release", "--manifest-path", str(manifest), *packages]
    # A module takes the interpreter's symbols from the process that opens it. Linked to one libpython, it is for that interpreter alone.
    of_a_module = {"PYO3_BUILD_EXTENSION_MODULE": "1"}
    subprocess.run(command, check=True, env={**os.environ, "CARGO_TARGET_DIR": str(_target()), **of_a_module})


def _metadata():
    return (METADATA + (ROOT / "README.md").read_text()).encode()


def _wheel(directory, tag, files):
    pure = "true" if tag.endswith("-any") else "false"
    files[f"{NAME}.dist-info/METADATA"] = _metadata()
    files[f"{NAME}.dist-info/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: plimsoll\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    record = f"{NAME}.dist-info/RECORD"
    lines = [f"{path},sha256={_digest(content)},{len(content)}\n" for path, content in files.items()]
    files[record] = "".join([*lines, f"{record},,\n"]).encode()
    name = f"{NAME}-{tag}.whl"
    with zipfile.ZipFile(Path(directory) / name, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if ".data/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, content)
    return name


def _digest(content):
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
