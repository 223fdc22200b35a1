"""Another user with an inherited lease, and the files that this user finds: nothing can be changed. Needs root."""

import json
import os
import shutil
import subprocess
import textwrap
import time
from pathlib import Path

import ledger
from common import comes

OTHER = 65534


def attack(context):
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        context.skip("not root, or there is no setpriv")
        return
    rounds = [inherited, runtime_folder, links, between]
    turn = 0
    while context.goes_on():
        folder = context.folder / f"{turn}"
        folder.mkdir()
        folder.chmod(0o755)
        rounds[turn % len(rounds)](context, folder)
        context.count(rounds[turn % len(rounds)].__name__)
        turn += 1


# What a program of the other user tries; it prints what it could do.
TRIES = """
import fcntl, os, struct, sys
folder = sys.argv[1]
count = 0
def tried(what, way):
    global count
    count += 1
    try:
        way()
        print(what, flush=True)
    except OSError:
        pass
def lock(kind, start, count):
    return struct.pack("hhqqi4x", kind, 0, start, count, 0)
handles = []
for name in os.listdir("/proc/self/fd"):
    try:
        target = os.readlink("/proc/self/fd/" + name)
    except OSError:
        continue
    if "ledger" in target or folder in target:
        handles.append(int(name))
for handle in handles:
    tried("write", lambda: os.write(handle, b"x"))
    tried("write at 0", lambda: os.pwrite(handle, bytes(4096), 0))
    tried("truncate", lambda: os.ftruncate(handle, 0))
    tried("allocate", lambda: os.posix_fallocate(handle, 0, 1 << 20))
    for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):
        tried("open again", lambda: os.open("/proc/self/fd/%d" % handle, flags))
    tried("change the mode", lambda: os.fchmod(handle, 0o777))
    tried("change the owner", lambda: os.fchown(handle, 65534, 65534))
    tried("lock for writing", lambda: fcntl.fcntl(handle, 37, lock(fcntl.F_WRLCK, 1 << 40, 4000)))
    tried("list as a folder", lambda: os.listdir(handle))
for name in ["", *(os.listdir(folder) if os.access(folder, os.R_OK) else [])] + ["probe"]:
    path = os.path.join(folder, name)
    tried("list " + name, lambda: os.listdir(path))
    tried("open " + name, lambda: os.open(path, os.O_RDWR))
    tried("read " + name, lambda: os.open(path, os.O_RDONLY))
    tried("truncate " + name, lambda: os.truncate(path, 0))
    tried("remove " + name, lambda: os.unlink(path))
    tried("move " + name, lambda: os.rename(path, path + ".away"))
    tried("replace " + name, lambda: os.symlink("/dev/null", path + ".new"))
    tried("change the mode of " + name, lambda: os.chmod(path, 0o777))
tried("make a file", lambda: os.open(os.path.join(folder, "made"), os.O_CREAT | os.O_WRONLY))
print("done", len(handles), count, flush=True)
"""

AS_OTHER = ["setpriv", "--reuid", str(OTHER), "--regid", str(OTHER), "--clear-groups", "--"]


def inherited(context, folder):
    """A program of the other user under root's lease, beside a lease of root's own."""
    state = folder / "state"
    environment = context.environment(state, "1x4GiB")
    script = folder / "tries.py"
    script.write_text(textwrap.dedent(TRIES))
    script.chmod(0o644)
    own = subprocess.Popen(
        [context.binary, "run", "-q", "--memory", "3GiB", "--", "sleep", "60"], env=environment, stderr=subprocess.DEVNULL
    )
    if not comes(lambda: held(state) == 3 << 30, 20):
        context.fail("root gets no lease")
    before = (state / (ledger.files(state)[0].name)).read_bytes()[4096:8192]
    words = ["run", "-q", "--memory", "1GiB", "--", *AS_OTHER, "python3", script, state]
    done = context.run(words, env=environment)
    lines = done.out.splitlines()
    if done.status != 0 or not lines or not lines[-1].startswith("done"):
        context.fail(f"the other user's program ends with {done.status}: {done.err[-300:]}")
    elif lines[-1].startswith("done 0 "):
        context.fail("the other user's program inherits no lease: nothing was tried")
    elif len(lines) > 1:
        context.count("tries", int(lines[-1].split()[2]))
        context.fail(f"the other user could: {', '.join(lines[:-1])}", state)
    else:
        context.count("tries", int(lines[-1].split()[2]))
    if held(state) != 3 << 30 or (ledger.files(state)[0]).read_bytes()[4096 : 4096 + 900] != before[:900]:
        context.fail(f"the lease of root is {held(state)} bytes now", state)
    for asked, fits in [("2GiB", False), ("1GiB", True)]:
        done = context.run(["run", "-q", "--memory", asked, "--", "true"], env=environment)
        if (done.status == 0) != fits:
            context.fail(f"beside 3 of 4 GiB, {asked} end with {done.status}: {done.err.strip()[:200]}")
    own.kill()
    own.wait()
    # The program of a killed wrapper goes on and keeps the lease.
    for pid in context.processes():
        os.kill(pid, 9)
    if not comes(lambda: held(state) == 0, 10):
        context.fail(f"{held(state)} bytes are left", state)


GROUP = 59000
USERS = [0, 59001, 59002]
HOSTILE = 59003


def between(context, folder):
    """Users that share a ledger: their programs are killed, one user writes anything into its own files, and the line holds."""
    lab = folder / "lab"
    done = context.run(["setup", "--group", GROUP, "--folder", lab])
    if done.status != 0:
        context.fail(f"setup ends with {done.status}: {done.err[-300:]}")
        return
    environment = context.environment("", "1x4GiB", PLIMSOLL_MACHINE_DIR=str(lab))
    del environment["PLIMSOLL_STATE_DIR"]

    def start(user, memory, *options):
        words = ["setpriv", "--reuid", str(user), "--regid", str(GROUP), "--clear-groups", "--", context.binary, "run", "-q"]
        words += [*options, "--memory", f"{memory}MiB", "--", "sleep", f"{context.random.uniform(0.05, 1):.2f}"]
        return subprocess.Popen(words, env=environment, cwd="/", stderr=subprocess.DEVNULL)

    running, looks, end = [], 0, time.monotonic() + 8
    while time.monotonic() < end and context.goes_on():
        running = [process for process in running if process.poll() is None]
        if len(running) < 12:
            # The hostile one holds little that is true.
            user, options = context.random.choice([*USERS, HOSTILE]), context.random.choice([[], ["--wait=2s"]])
            running.append(start(user, 16 if user == HOSTILE else context.random.randint(256, 3000), *options))
            context.count("programs")
        if context.random.random() < 0.2 and running:
            context.random.choice(running).kill()
        scribble(context, lab / f"users/{HOSTILE}")
        members = ledger.look_machine(lab)
        if members is not None:
            looks += 1
            honest = [member for user, member in members if user != HOSTILE]
            if None in honest:
                context.fail("a slot of an honest user cannot be read", lab)
                break
            total = sum(ledger.granted(honest).values())
            if total > 4 << 30:
                context.fail(f"{total} of 4 GiB are granted to honest users", lab)
                break
        time.sleep(context.random.uniform(0, 0.05))
    context.count("looks", looks)
    for process in running:
        process.kill()
        process.wait()
    for pid in context.processes():
        os.kill(pid, 9)
    shutil.rmtree(lab / f"users/{HOSTILE}", ignore_errors=True)
    if not comes(lambda: ledger.look_machine(lab) == [], 10):
        context.fail(f"{ledger.look_machine(lab)} is left", lab)
    done = context.run(["devices", "--json"], env=environment)
    if done.status != 0 or "panicked" in done.err or json.loads(done.out)["processes"]:
        context.fail(f"devices ends with {done.status}: {done.out[-200:]}{done.err[-300:]}", lab)
    done = context.run(["setup", "--remove", "--folder", lab])
    if done.status != 0 or lab.exists():
        context.fail(f"setup --remove ends with {done.status}: {done.err[-300:]}")


def scribble(context, home):
    """What a user does to the own ledger."""
    paths = list(home.glob("*.ledger")) if home.exists() else []
    if not paths or context.random.random() < 0.5:
        return
    try:
        with open(paths[0], "r+b") as file:
            file.seek(context.random.choice([0, 12, 32, 4096, 4096 + context.random.randrange(900), 8192]))
            kind = context.random.randrange(4)
            if kind == 0:
                file.truncate(context.random.choice([0, 12, 4096, 5000, 1 << 32]))
            else:
                file.write(context.random.randbytes(context.random.choice([1, 8, 40, 4096])))
        if context.random.random() < 0.05:
            paths[0].unlink()
            context.random.choice([lambda: paths[0].symlink_to("/dev/zero"), lambda: os.mkfifo(paths[0]), lambda: paths[0].mkdir()])()
        elif context.random.random() < 0.05:
            shutil.rmtree(home)
        context.count("scribbles")
    except OSError:
        pass


def held(state):
    """Bytes granted on the only card of a state folder."""
    for path in ledger.files(state):
        members = None
        while members is None:
            members = ledger.look(path)
        return sum(ledger.granted(members).values())
    return 0


def runtime_folder(context, folder):
    """Root with the other user's XDG_RUNTIME_DIR, and the other user with root's: neither makes anything there."""
    fallbacks = [Path(f"/tmp/plimsoll-{user}") for user in (0, OTHER)]
    were_there = [path.exists() for path in fallbacks]
    for owner, who in [(OTHER, []), (0, AS_OTHER)]:
        runtime = folder / f"run-{owner}"
        runtime.mkdir()
        os.chown(runtime, owner, owner)
        runtime.chmod(0o700 if owner else 0o777)
        environment = context.environment("", "1x1GiB", XDG_RUNTIME_DIR=str(runtime))
        del environment["PLIMSOLL_STATE_DIR"]
        words = [*who, context.binary, "run", "-q", "--memory", "64MiB", "--", "true"]
        done = subprocess.run(words, env=environment, capture_output=True, timeout=30)
        context.count("tries")
        if made := list(runtime.iterdir()):
            context.fail(f"in the XDG_RUNTIME_DIR of user {owner} another user made {made}")
        if b"panicked" in done.stderr:
            context.fail(f"panics with the XDG_RUNTIME_DIR of user {owner}: {done.stderr[-300:]}")
    for path, was_there in zip(fallbacks, were_there):
        if not was_there:
            shutil.rmtree(path, ignore_errors=True)


def links(context, folder):
    """State folders that the other user owns, links to, or may write: root refuses them."""
    theirs = folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, OTHER, OTHER)
    theirs.chmod(0o777)
    real = folder / "real"
    real.mkdir(mode=0o700)
    link = folder / "link"
    link.symlink_to(real)
    open_to_all = folder / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    inside = theirs / "new"
    for state in [theirs, link, f"{link}/", f"{link}/.", open_to_all, inside]:
        done = context.run(["run", "-q", "--memory", "64MiB", "--", "true"], env=context.environment(state, "1x1GiB"))
        context.count("tries")
        if done.status != 125 or "panicked" in done.err:
            context.fail(f"the state folder {state} is taken: {done.status} {done.err.strip()[:200]}")
    # A ledger that is a link, a FIFO or another user's.
    for kind in ("link", "fifo", "owner", "mode"):
        state = folder / f"state-{kind}"
        context.run(["run", "-q", "--memory", "64MiB", "--", "true"], env=context.environment(state, "1x1GiB"))
        (path,) = ledger.files(state)
        if kind == "owner":
            os.chown(path, OTHER, OTHER)
        elif kind == "mode":
            path.chmod(0o666)
        else:
            path.unlink()
            path.symlink_to("/dev/null") if kind == "link" else os.mkfifo(path)
        done = context.judged(f"a ledger with another {kind}", ["run", "-q", "--memory", "64MiB", "--", "true"], env=context.environment(state, "1x1GiB"))
        if done.status == 0:
            context.fail(f"a ledger with another {kind} is taken")
