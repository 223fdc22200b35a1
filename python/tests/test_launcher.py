"""The program of the wheel: it finds the package's module from where it lies, and opens it without an interpreter."""

import ctypes
import os
import shutil
import subprocess
import sys
import zipfile

import pytest
from conftest import PACKAGE, ROOT

sys.path.insert(0, str(ROOT / "backend"))
import plimsoll_build  # noqa: E402
from weak_symbols import weaken  # noqa: E402

RUSTC = shutil.which("rustc")
pytestmark = pytest.mark.skipif(RUSTC is None or not sys.platform.startswith("linux"), reason="there is no rustc for Linux")
MAIN = f"plimsoll_main_{plimsoll_build.VERSION}"
# As a module of PyO3: data and functions of the interpreter, which the program's code leaves alone.
SOURCE = """
unsafe extern "C" { static PyExc_ValueError: *const u8; fn Py_GetVersion() -> *const u8; }
#[unsafe(export_name = "NAME")]
pub extern "C" fn main() -> ! {
    let words: Vec<String> = std::env::args().collect();
    print!("TEXT {}", words[1..].join(","));
    std::process::exit(words.len() as i32)
}
#[unsafe(no_mangle)]
pub extern "C" fn has_python() -> i32 {
    unsafe { i32::from(!PyExc_ValueError.is_null() && !Py_GetVersion().is_null()) }
}
"""


def compiled(source, made, *options):
    words = [RUSTC, "--edition", "2024", "-C", "opt-level=1", "-o", made, *options, "-"]
    environment = {**os.environ, "CARGO_PKG_VERSION": plimsoll_build.VERSION}
    done = subprocess.run(words, input=source, text=True, capture_output=True, env=environment)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """The launcher, and modules whose program says what it was given: as compiled, by another name, of another version."""
    folder = tmp_path_factory.mktemp("build")
    launcher = compiled((ROOT / "native" / "src" / "launcher.rs").read_text(), folder / "launcher", "--crate-name", "launcher")
    modules = {}
    for name, main in {"first": MAIN, "second": MAIN, "other": "plimsoll_main_0.0.9"}.items():
        source = SOURCE.replace("NAME", main).replace("TEXT", name)
        modules[name] = compiled(source, folder / f"{name}.so", "--crate-type", "cdylib", "--crate-name", name)
    return launcher, modules


def installed(build, program, *modules):
    """Puts the launcher and modules (their names and packages) where an installer would. The program."""
    launcher, built = build
    program.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(launcher, program)
    for at, (name, packages) in enumerate(modules):
        module = packages / "plimsoll" / plimsoll_build.MODULE
        module.parent.mkdir(parents=True)
        module.write_bytes(weaken(built[name].read_bytes()))
        os.utime(module, (at, at))
    return program


def said(program, *words, **options):
    done = subprocess.run([program, *words], capture_output=True, text=True, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "packages",
    ["lib/python3.11/site-packages", "lib64/python3.13/site-packages", "lib/python3/dist-packages", "lib/python3.11/dist-packages", "."],
)
def test_the_module_is_found_wherever_installers_put_it(build, tmp_path, packages):
    prefix = tmp_path / "a folder"
    program = installed(build, prefix / "bin" / "plimsoll", ("first", prefix / packages))
    assert said(program, "a", "b c") == (3, "first a,b c", "")
    # An environment that moves takes its program along.
    moved = tmp_path / "elsewhere"
    prefix.rename(moved)
    assert said(moved / "bin" / "plimsoll") == (1, "first ", "")


def test_links_lead_to_the_module(build, tmp_path):
    program = installed(build, tmp_path / "venv" / "bin" / "plimsoll", ("first", tmp_path / "venv/lib/python3.11/site-packages"))
    (tmp_path / "link").symlink_to(program)
    (tmp_path / "folder").symlink_to(program.parent)
    assert said(tmp_path / "link")[:2] == (1, "first ")
    assert said(tmp_path / "folder" / "plimsoll")[:2] == (1, "first ")
    assert said("./bin/plimsoll", cwd=tmp_path / "venv")[:2] == (1, "first ")
    assert said("plimsoll", env={"PATH": str(program.parent)})[:2] == (1, "first ")
    # The folder of programs is a link, and the packages are beside the link.
    (tmp_path / "other/lib").mkdir(parents=True)
    program.rename(tmp_path / "plimsoll")
    program.symlink_to(tmp_path / "plimsoll")
    assert said(program)[:2] == (1, "first ")


def test_what_was_installed_last_is_run(build, tmp_path):
    libraries = [tmp_path / "lib" / name / "site-packages" for name in ("python3.12", "python3.11", "python3.13")]
    program = installed(build, tmp_path / "bin" / "plimsoll", *zip(["first", "second", "other"], libraries))
    # The latest is of another version, and the first one old.
    assert said(program) == (1, "second ", "")


def test_a_missing_module_is_a_sentence(build, tmp_path):
    program = installed(build, tmp_path / "bin" / "plimsoll")
    status, out, error = said(program, "plan")
    assert (status, out) == (2, "") and f"no site-packages that belongs to {tmp_path / 'bin'} has it" in error and "pip install" in error
    # Nobody reads it.
    assert subprocess.run(["sh", "-c", 'exec "$0" 2>&-', program]).returncode == 2
    module = tmp_path / "lib/python3.11/site-packages/plimsoll" / plimsoll_build.MODULE
    module.parent.mkdir(parents=True)
    module.write_text("not a library")
    status, _, error = said(program)
    assert status == 2 and str(module) in error and "cannot be opened" in error
    module.write_bytes(weaken(build[1]["other"].read_bytes()))
    status, _, error = said(program)
    assert status == 2 and f"{module} is of another version than this program, {plimsoll_build.VERSION}" in error


def test_only_symbols_of_python_become_weak(build, tmp_path):
    """Without that, the interpreter's data keep a program from opening the module; an interpreter finds them all the same."""
    launcher, modules = build
    raw = modules["first"].read_bytes()
    program = installed(build, tmp_path / "bin" / "plimsoll", ("first", tmp_path))
    module = tmp_path / "plimsoll" / plimsoll_build.MODULE
    assert said(program)[0] == 1
    changed = [at for at, (old, new) in enumerate(zip(raw, module.read_bytes())) if old != new]
    assert len(changed) == 2 and module.stat().st_size == len(raw)
    assert ctypes.CDLL(str(module)).has_python() == 1
    # This process runs the file's code until it ends: another file takes its name.
    module.unlink()
    module.write_bytes(raw)
    status, _, error = said(program)
    assert status == 2 and "undefined symbol: Py" in error
    assert weaken(b"no library") is None


def test_the_wheel_holds_the_code_once(build, tmp_path, monkeypatch):
    launcher, modules = build
    native = tmp_path / "release" / "lib_native.so"
    native.parent.mkdir()
    shutil.copy(modules["first"], native)
    shutil.copy(launcher, native.with_name(plimsoll_build.LAUNCHER))
    monkeypatch.delenv("PLIMSOLL_BINARY", raising=False)
    monkeypatch.setenv("PLIMSOLL_NATIVE", str(native))
    monkeypatch.setattr(plimsoll_build, "_cargo", lambda *_: None)
    name = plimsoll_build.build_wheel(tmp_path)
    with zipfile.ZipFile(tmp_path / name) as wheel:
        scripts = f"{plimsoll_build.NAME}.data/scripts"
        assert wheel.read(f"{scripts}/plimsoll") == launcher.read_bytes()
        assert wheel.read(f"plimsoll/{plimsoll_build.MODULE}") == weaken(native.read_bytes())


@pytest.mark.skipif(not (PACKAGE / "plimsoll" / plimsoll_build.MODULE).is_file(), reason="the native module is not built")
def test_the_real_module_has_the_command_line(build, tmp_path):
    import plimsoll

    program = installed(build, tmp_path / "bin" / "plimsoll")
    module = tmp_path / "plimsoll" / plimsoll_build.MODULE
    module.parent.mkdir()
    native = (PACKAGE / "plimsoll" / plimsoll_build.MODULE).read_bytes()
    assert b"\0libpython3." not in native
    module.write_bytes(weaken(native))
    assert said(program, "--version") == (0, f"plimsoll {plimsoll.__version__}\n", "")
    assert said(program, "ops", "--frobnicate")[0] == 2
    assert "MatMul" in said(program, "ops")[1]
    assert said(program, "plan", tmp_path / "missing.pb", "--fetch", "x:0")[0] == 2
    assert said(program, "run", "--", "sh", "-c", "exit 7")[0] == 7
