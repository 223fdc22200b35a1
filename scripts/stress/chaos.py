"""Programs on two cards under random signals, while an observer outside reads the ledger by itself."""

import signal
import subprocess
import threading
import time

import ledger
from common import all_processes, comes, environment_of, is_alive, signal_to, state_of

CAPACITY = 4 << 30
MIB = 1 << 20
SIGNALS = [signal.SIGKILL] * 4 + [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


class Observer(threading.Thread):
    """Reads the ledger again and again until it is told to stop."""

    def __init__(self, context, state):
        super().__init__(daemon=True)
        self.context, self.state, self.over = context, state, threading.Event()

    def run(self):
        while not self.over.is_set():
            for path in ledger.files(self.state):
                try:
                    self.check(ledger.look(path))
                except (ledger.Broken, OSError, IndexError, UnicodeDecodeError) as error:
                    self.context.fail(f"the ledger cannot be read: {error!r}", path)
                    return
            time.sleep(0.002)

    def check(self, members):
        if members is None:
            self.context.count("looks_while_locked")
            return
        self.context.count("looks")
        self.context.at_most("members_at_once", len(members))
        for card, held in ledger.granted(members).items():
            self.context.at_most("most_granted_mib", held // MIB)
            if held > CAPACITY:
                holders = [(member.slot, member.pid, member.cards.get(card)) for member in members]
                self.context.fail(f"{held} bytes of {CAPACITY} are granted on card {card:x}: {holders}")


def words(chance):
    """The options of a run and its program."""
    size = f"{chance.randint(1, 40) * 100}MiB"
    out = ["run", "-q", "--memory", size, "--gpus", chance.choice(["1", "1", "1", "2", "0,", "1,"])]
    out += chance.choice([[], ["--wait"], ["--wait"], ["--wait=300ms"], ["--wait", "--priority", str(chance.randint(-2, 2))]])
    if chance.random() < 0.2:
        out += ["--timeout", "200ms"]
    nap = f"sleep 0.{chance.randint(0, 9)}"
    program = chance.choice([["sh", "-c", nap], ["sh", "-c", f"{nap} & wait"], ["sh", "-c", f"({nap}; {nap}) & exit 3"], ["sleep", "0.1"]])
    return [*out, "--", *program]


def below(wrapper):
    """The living children of a process."""
    return [pid for pid in all_processes() if (state_of(pid) or ("", 0))[1] == wrapper]


def attack(context):
    state, chance = context.folder / "state", context.random
    environment = context.environment(state, "2x4GiB")
    observer = Observer(context, state)
    observer.start()
    running, stopped = [], []

    def wake(now=None):
        for entry in list(stopped):
            when, pid = entry
            if now is None or when <= now:
                signal_to(pid, signal.SIGCONT)
                stopped.remove(entry)

    while context.goes_on():
        running = [process for process in running if process.poll() is None]
        while len(running) < 16:
            with open(context.folder / "said", "ab") as said:
                running.append(
                    subprocess.Popen(
                        [context.binary, *words(chance)],
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=said,
                        start_new_session=True,
                    )
                )
            context.count("programs")
        time.sleep(chance.random() * 0.02)
        wake(time.monotonic())
        victim = chance.choice(running).pid
        if chance.random() < 0.5:
            victim = chance.choice(below(victim) or [victim])
        if f"STRESS_MARK={context.folder}".encode() not in environment_of(victim):
            continue
        draw = chance.random()
        if draw < 0.2:
            if signal_to(victim, signal.SIGSTOP):
                stopped.append((time.monotonic() + chance.random(), victim))
                context.count("stops")
        elif draw < 0.7:
            context.count("signals", signal_to(victim, chance.choice(SIGNALS)))
    wake()
    ended = comes(lambda: all(process.poll() is not None for process in running), 60)
    if not ended:
        left = [process.args for process in running if process.poll() is None]
        context.fail(f"{len(left)} runs do not end: {left[:3]}")
    # What a program started in the background lives on with the lease for less than two seconds.
    comes(lambda: not context.processes(), 10)
    observer.over.set()
    observer.join()
    for path in ledger.files(state):
        if not comes(lambda path=path: ledger.is_free(path), 10):
            context.fail(f"locks are left: {[vars(member) for member in ledger.look(path) or []]}", path)
    done = context.run(["run", "-q", "--gpus", "2", "--memory", "4GiB", "--", "true"], env=environment)
    if done.status != 0:
        context.fail(f"not all is back: {done.err.strip()}")
    if left := [pid for pid in context.processes() if is_alive(pid)]:
        context.fail(f"processes are left: {left}")
    said = (context.folder / "said").read_text(errors="replace")
    if "panicked" in said:
        context.fail("a run panicked", context.folder / "said")
