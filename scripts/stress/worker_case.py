"""A program that uses the Python package: `worker_case.py WAY NUMBER`. It prints the name of what it got. Run by workers.py."""

import ctypes
import os
import signal
import subprocess
import sys
import time


def nap(seconds):
    time.sleep(seconds)
    return "slept"


def dies(number):
    os.kill(os.getpid(), number)
    time.sleep(0.1)
    return "lived"


def group_dies(number):
    os.killpg(0, number)
    time.sleep(0.1)
    return "lived"


def new_session(seconds):
    try:
        os.setsid()
    except PermissionError:  # it leads its group: once it is in another one, it may
        other_group(seconds, and_then=os.setsid)
    return nap(seconds)


def new_group(seconds):
    try:
        os.setpgid(0, 0)
    except PermissionError:  # it leads its session, and so a group of its own already
        pass
    return nap(seconds)


def other_group(seconds, and_then=lambda: nap(60)):
    """Into the group of a child, where the kernel lets it: a leader of a session it does not."""
    child = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: os.setpgid(0, 0))
    try:
        os.setpgid(0, child.pid)
        and_then()
    except PermissionError:
        pass
    return nap(seconds)


def grandchild(seconds):
    subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60"])
    return nap(seconds)


def daemon(seconds):
    """A grandchild in a session of its own, whose parent is gone."""
    subprocess.Popen(["setsid", "sh", "-c", "setsid sleep 60 & exit 0"]).wait()
    return nap(seconds)


def ignores(seconds):
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass
    return nap(seconds)


def stopped(_seconds):
    os.kill(os.getpid(), signal.SIGSTOP)
    return "went on"


def leaves(status):
    os._exit(status)


def crash(_number):
    return ctypes.string_at(0)


def forks(seconds):
    if os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    return nap(seconds)


FUNCTIONS = [nap, new_session, new_group, other_group, grandchild, daemon, ignores, stopped, forks]


def main():
    import plimsoll

    way, name, number, lease = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    function = globals()[name]
    options = {"gpus": 1, "memory": "1GiB"} if lease else {}
    print("begins", flush=True)
    try:
        if way == "pool":
            with plimsoll.Pool(2, **options) as pool:
                futures = [pool.submit(nap, 0.01), pool.submit(function, number), pool.submit(nap, 0.01)]
                outcome = futures[1].exception(30)
                others = [futures[0].result(30), futures[2].result(30)]
                assert others == ["slept", "slept"], others
                if outcome:
                    raise outcome
                print("returned", futures[1].result(), flush=True)
        else:
            timeout = 0.5 if way == "timeout" else 60
            print("returned", plimsoll.call(function, number, timeout=timeout, **options), flush=True)
    except plimsoll.RemoteError as error:
        print("raised", type(error).__name__, flush=True)
    except OSError as error:
        print("failed", error, flush=True)


if __name__ == "__main__":
    main()
