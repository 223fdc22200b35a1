"""Python workers and every signal, workers that leave their group, timeouts, and the death of the program: nothing is left over."""

import itertools
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import ledger
import worker_case
from common import ROOT, comes, environment_of, is_alive, signal_to

SIDE_BY_SIDE = 6
# Those that end no process, and those that Python ignores.
HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGPIPE, signal.SIGXFSZ}
STOPS = {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
ENDS = [number for number in sorted(signal.valid_signals()) if number not in HARMLESS | STOPS]


def attack(context):
    if shutil.which("setsid") is None:
        context.skip("there is no setsid")
        return
    chance = context.random
    # Each signal once, then the functions in all ways, then by chance.
    cases = [("call", "dies", number, "none") for number in ENDS]
    cases += [("pool", "group_dies", number, "none") for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)]
    names = [function.__name__ for function in worker_case.FUNCTIONS]
    cases += [("timeout", name, 30, "none") for name in names] + [("call", name, 30, "program") for name in names]
    cases += [("call", "crash", 0, "none"), ("pool", "leaves", 3, "none")]
    chance.shuffle(cases)
    # The functions that leave their group, first of all: an attack of a second tries them too.
    cases.sort(key=lambda case: case[1] in ("dies", "nap"))
    turns = itertools.count()

    def work():
        while context.goes_on():
            turn = next(turns)
            if turn < len(cases):
                case = cases[turn]
            else:
                way = chance.choice(["call", "timeout", "pool"])
                case = (way, chance.choice(names), 30, "none" if way == "timeout" else chance.choice(["worker", "program", "interrupt"]))
            one(context, *case, lease=chance.random() < 0.6, turn=turn)

    # Most of the time they wait.
    threads = [threading.Thread(target=work) for _ in range(SIDE_BY_SIDE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def one(context, way, name, number, kill, lease, turn):
    state = context.folder / f"{turn}"
    state.mkdir()
    what = f"{way} {name} {number}, kill {kill}, {'under a lease' if lease else 'without a lease'}"
    environment = context.environment(state, "1x4GiB", PYTHONPATH=str(ROOT / "python"), STRESS_CASE=str(state))
    # A file, not a pipe: what is left over would keep a pipe open.
    answers = state / "answers"
    program = subprocess.Popen(
        ["/usr/bin/env", "python3", str(Path(worker_case.__file__)), way, name, str(int(number)), str(int(lease))],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=answers.open("wb"),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd=state,
    )
    context.count("cases")
    mark = f"STRESS_CASE={state}".encode()
    mine = lambda: [pid for pid in context.processes() if mark in environment_of(pid)]  # noqa: E731
    if kill != "none":
        # The worker is there, and perhaps in its function.
        comes(lambda: any(pid != program.pid for pid in mine()), 20, 0.2)
        time.sleep(context.random.random() * 0.6)
        if kill == "program":
            program.kill()
        elif kill == "interrupt":
            program.send_signal(signal.SIGINT)
        else:
            others = [pid for pid in mine() if pid != program.pid]
            for pid in others and [context.random.choice(others)]:
                signal_to(pid, context.random.choice(ENDS))
    try:
        program.wait(60)
    except subprocess.TimeoutExpired:
        if kill != "worker":  # else what was hit was a grandchild, and the function goes on as it may
            context.fail(f"hangs: {what}")
        program.kill()
        program.wait()
    said = answers.read_text(errors="replace").split("\n")
    if kill == "none":
        answer = said[1] if len(said) > 1 else ""
        expected = {"timeout": "raised WorkerTimeout"}.get(way, "raised Worker")
        if not answer.startswith(expected):
            context.fail(f"the answer is {answer!r}, not {expected!r}: {what}")
    if not comes(lambda: not mine(), 10, 0.2):
        left = [(pid, Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")) for pid in mine() if is_alive(pid)]
        context.fail(f"processes are left: {left}: {what}")
        for pid in mine():
            signal_to(pid, signal.SIGKILL)
    for path in ledger.files(state):
        if not comes(lambda path=path: ledger.is_free(path), 10):
            context.fail(f"a lease is left: {what}", path)
