"""Functions that tests run in workers; a module that workers import."""

import contextlib
import os
import signal
import sys
import time

import plimsoll


class Awkward(Exception):
    """It pickles, and cannot be made anew from what it pickles to."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Unpicklable:
    def __reduce__(self):
        raise TypeError("not this one")


class DiesWhenPickled:
    def __reduce__(self):
        os.kill(os.getpid(), 9)


class DiesWhenRead:
    def __reduce__(self):
        return os._exit, (7,)


class FailsWhenRead:
    def __reduce__(self):
        return int, ("nonsense",)


def identity(value):
    return value


def raise_(kind, *args):
    raise kind(*args)


def raise_with_attribute():
    error = ValueError("told")
    error.code = 42
    raise error


def raise_unpicklable():
    error = ValueError("with a lock")
    error.thing = Unpicklable()
    raise error


def die(number):
    os.kill(os.getpid(), number)
    time.sleep(10)


def leave(status):
    os._exit(status)


def exit_(code):
    sys.exit(code)


def pid(*_):
    return os.getpid()


def sleep(seconds):
    time.sleep(seconds)
    return seconds


def limit_memory():
    """From now on the process may have 64 MiB more than it has."""
    import resource

    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (64 << 20), resource.RLIM_INFINITY))


def fill_limited():
    """Asks for more memory than the process may have."""
    limit_memory()
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def leave_child():
    """Leaves a process behind that has everything the worker has, and dies."""
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)
    os.kill(os.getpid(), 9)


def fork_and_return():
    """Comes back twice, in two processes."""
    child = os.fork()
    if child == 0:
        print("from the child", flush=True)
        return "child"
    os.waitpid(child, 0)
    return "parent"


def leave_apart():
    """Leaves a process in a session of its own whose parent is gone, and that ignores what it can. Its process id."""
    ours, theirs = os.pipe()
    if os.fork() == 0:
        os.setsid()
        child = os.fork()
        if child:
            os.write(theirs, str(child).encode())
            os._exit(0)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        time.sleep(3600)
        os._exit(0)
    os.wait()
    child = int(os.read(ours, 20))
    os.close(ours)
    os.close(theirs)
    return child


def go_apart(path, how):
    """Changes its own session or group, and goes on for long, beside a process in a session of its own."""
    child = leave_apart()
    if how == "fork" and os.fork():
        time.sleep(3600)
    if how in ("setsid", "fork"):
        with contextlib.suppress(PermissionError):  # it leads its group
            os.setsid()
    elif how == "setpgid":
        with contextlib.suppress(PermissionError):  # it leads its session
            os.setpgid(0, 0)
    with open(path + ".new", "w") as file:
        file.write(f"{os.getpid()} {child}")
    os.rename(path + ".new", path)
    time.sleep(3600)


def limit_file_size(size):
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def limit_files():
    """No more descriptors than there are."""
    import resource

    highest = max(map(int, os.listdir("/proc/self/fd")))
    while os.open(os.devnull, os.O_RDONLY) < highest:
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def limited(limit, *args):
    limit(*args)
    return bytes(1 << 20)


def leave_thread(seconds):
    import threading

    threading.Thread(target=time.sleep, args=(seconds,)).start()


def start_sleeper():
    """Leaves a program behind. Its process id."""
    import subprocess

    return subprocess.Popen(["sleep", "3600"]).pid


HELD = []


def hold(size):
    HELD.append(bytearray(os.urandom(1) * size))
    return os.getpid()


def fill(size):
    return len(bytearray(b"x") * size)


def log_line(path, line):
    with open(path, "a") as file:
        file.write(f"{line}\n")


@plimsoll.isolated
def double(x):
    """Doubles."""
    return 2 * x, os.getpid()


@plimsoll.isolated(timeout=30)
def fibonacci(n):
    return n if n < 2 else fibonacci.__wrapped__(n - 1) + fibonacci.__wrapped__(n - 2)


class Account:
    def __init__(self, amount):
        self.amount = amount

    @plimsoll.isolated
    def times(self, factor):
        return self.amount * factor, os.getpid()


def place(number):
    """Where this runs: a node of an allocation, and its cards."""
    time.sleep(0.2)
    return number, os.environ.get("SLURMD_NODENAME"), os.environ.get("CUDA_VISIBLE_DEVICES")
