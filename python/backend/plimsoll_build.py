"""Builds the package (PEP 517 and 660) with the standard library alone, so that `pip install ./python` needs no network.

The program `plimsoll` goes into the wheel, for the folder of programs, where there is one: what PLIMSOLL_BINARY names, or the release
build of the source tree around this folder; and the shim beside it. A wheel with it is for this platform only.
"""

import base64
import hashlib
import io
import os
import re
import sysconfig
import tarfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.search(r'^__version__ = "(.+)"$', (ROOT / "plimsoll" / "__init__.py").read_text(), re.M).group(1)
NAME = f"plimsoll-{VERSION}"
METADATA = f"""\
Metadata-Version: 2.1
Name: plimsoll
Version: {VERSION}
Summary: Functions in processes of their own, under leases on a machine's GPUs
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Provides-Extra: notebook
Requires-Dist: cloudpickle; extra == "notebook"
Classifier: Operating System :: POSIX
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in _sources()}
    program = _program()
    if program is not None:
        files[f"{NAME}.data/scripts/plimsoll"] = program.read_bytes()
        shim = program.with_name("libplimsoll_shim.so")
        if shim.is_file():
            files[f"{NAME}.data/scripts/{shim.name}"] = shim.read_bytes()
    platform = "any" if program is None else re.sub(r"[^A-Za-z0-9]", "_", sysconfig.get_platform())
    return _wheel(wheel_directory, f"py3-none-{platform}", files)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, "py3-none-any", {"__editable__.plimsoll.pth": f"{ROOT}\n".encode()})


def build_sdist(sdist_directory, config_settings=None):
    name = f"{NAME}.tar.gz"
    files = {str(path.relative_to(ROOT)): path.read_bytes() for path in [*_sources(), Path(__file__).resolve()]}
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
    return sorted(path for path in (ROOT / "plimsoll").rglob("*") if path.suffix == ".py" or path.name == "py.typed")


def _program():
    named = os.environ.get("PLIMSOLL_BINARY")
    if named:
        return Path(named)
    built = ROOT.parent / "target" / "release" / "plimsoll"
    return built if (ROOT.parent / "Cargo.toml").is_file() and built.is_file() else None


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
