"""What pip gets."""

import base64
import csv
import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "backend"))
import plimsoll_build  # noqa: E402


def test_a_wheel_lists_what_it_holds(tmp_path, monkeypatch):
    program = tmp_path / "plimsoll"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("PLIMSOLL_BINARY", str(program))
    monkeypatch.setenv("PLIMSOLL_NATIVE", "")
    name = plimsoll_build.build_wheel(tmp_path)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        record = [entry for entry in wheel.namelist() if entry.endswith("RECORD")][0]
        rows = {path: digest for path, digest, _ in csv.reader(io.StringIO(wheel.read(record).decode()))}
        assert set(rows) == set(wheel.namelist())
        for path, digest in rows.items():
            found = base64.urlsafe_b64encode(hashlib.sha256(wheel.read(path)).digest()).rstrip(b"=").decode()
            assert path == record or digest == f"sha256={found}"
        assert "plimsoll/py.typed" in rows and "plimsoll/_worker.py" in rows
        script = [path for path in rows if path.endswith(".data/scripts/plimsoll")]
        assert len(script) == 1 and wheel.getinfo(script[0]).external_attr >> 16 & 0o111
    assert "linux" in name or "macos" in name


@pytest.mark.parametrize("editable", [False, True])
def test_pip_installs_without_a_network(tmp_path, editable):
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        pytest.skip("there is no pip")
    program = tmp_path / "plimsoll"
    program.write_text("#!/bin/sh\necho here\n")
    program.chmod(0o755)
    (tmp_path / "libplimsoll_shim.so").write_text("the shim")
    target = tmp_path / "target"
    environment = dict(os.environ, PLIMSOLL_BINARY=str(program), PLIMSOLL_NATIVE="", PIP_CONFIG_FILE=os.devnull)
    kind = ["--editable"] if editable else []
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target", str(target), *kind, str(ROOT)]
    done = subprocess.run(pip, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    if editable:
        assert (target / "__editable__.plimsoll.pth").read_text() == f"{ROOT}\n"
        return
    # The program is found where pip put it, and beside it the shim.
    assert (target / "bin" / "libplimsoll_shim.so").read_text() == "the shim"
    del environment["PLIMSOLL_BINARY"]
    environment["PYTHONPATH"] = str(target)
    show = [sys.executable, "-c", "import plimsoll; print(plimsoll.binary(), plimsoll.call(abs, -3), plimsoll.__file__)"]
    done = subprocess.run(show, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found, result, package = done.stdout.split()
    assert (found, result) == (str(target / "bin" / "plimsoll"), "3") and package.startswith(str(target))


def test_a_wheel_with_the_native_module_is_for_its_python(tmp_path, monkeypatch):
    module = tmp_path / "lib_native.so"
    module.write_text("a module")
    monkeypatch.setenv("PLIMSOLL_BINARY", "")
    monkeypatch.setenv("PLIMSOLL_NATIVE", str(module))
    name = plimsoll_build.build_wheel(tmp_path)
    assert "-cp311-abi3-" in name and "any" not in name
    with zipfile.ZipFile(tmp_path / name) as wheel:
        assert wheel.read("plimsoll/_native.abi3.so") == b"a module"


def test_a_wheel_can_be_built_from_the_source_archive(tmp_path):
    name = plimsoll_build.build_sdist(tmp_path)
    with tarfile.open(tmp_path / name) as archive:
        names = archive.getnames()
        archive.extractall(tmp_path)
    folder = tmp_path / names[0].split("/")[0]
    assert (folder / "PKG-INFO").read_text().startswith("Metadata-Version: 2.1\nName: plimsoll\n")
    build = [
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, 'backend'); import plimsoll_build; print(plimsoll_build.build_wheel('.'))",
    ]
    environment = {name: value for name, value in os.environ.items() if name != "PLIMSOLL_BINARY"}
    done = subprocess.run(build, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and done.stdout.strip().endswith("-py3-none-any.whl"), done.stderr


def test_types_are_checked():
    pytest.importorskip("mypy")
    pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-m", "mypy"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout
