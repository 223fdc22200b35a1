"""Queued runs and sweeps under kills: none is lost, none runs twice, and the order is that of priority and arrival."""

import json
import signal
import subprocess
import time

import ledger
from common import comes, is_alive, signal_to

SEATS = 3


def attack(context):
    rounds = [crowd, order, sweep]
    turn = 0
    while context.goes_on():
        state = context.folder / f"{turn}"
        state.mkdir()
        rounds[turn % len(rounds)](context, state)
        context.count(rounds[turn % len(rounds)].__name__)
        for path in ledger.files(state):
            if not comes(lambda path=path: ledger.is_free(path), 10):
                context.fail(f"locks are left after {rounds[turn % len(rounds)].__name__}: {ledger.look(path)}", path)
        turn += 1


def start(context, environment, words, program):
    return subprocess.Popen(
        [context.binary, "run", "-q", *words, "--", "sh", "-c", program],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def log_of(state):
    """Lines `start RUN PID` and `end RUN`, as the runs wrote them."""
    starts, ends = [], set()
    path = state / "log"
    for line in path.read_text().splitlines() if path.exists() else []:
        words = line.split()
        if words[0] == "start":
            starts.append((int(words[1]), int(words[2])))
        elif words[0] == "end":
            ends.add(int(words[1]))
        else:
            starts.append((-1, 0))
    return starts, ends


def crowd(context, state):
    """Thirty runs, of which three fit; some wrappers and some programs are killed."""
    chance, environment = context.random, context.environment(state, "1x4GiB")
    seats = f"for seat in $(seq {SEATS}); do exec 9>{state}/seat$seat; flock -n 9 && break; exec 9>&-; [ $seat = {SEATS} ] && echo none >> {state}/log; done"
    count = 30
    program = lambda run: f"echo start {run} $$ >> {state}/log; {seats}; sleep 0.0{run % 7}; echo end {run} >> {state}/log"  # noqa: E731
    runs = [start(context, environment, ["--memory", "1300MiB", "--wait"], program(run)) for run in range(count)]
    killed_wrappers, killed_programs = set(), set()
    limit = time.monotonic() + 60
    while any(run.poll() is None for run in runs):
        if time.monotonic() > limit:
            context.fail(f"{sum(run.poll() is None for run in runs)} of {count} queued runs do not end", state)
            return
        draw, run = chance.random(), chance.randrange(count)
        if draw < 0.05 and runs[run].poll() is None:
            runs[run].kill()
            killed_wrappers.add(run)
        elif draw < 0.2:
            starts, ends = log_of(state)
            live = [(run, pid) for run, pid in starts if run not in ends and pid and is_alive(pid)]
            if live:
                run, pid = chance.choice(live)
                if str(state).encode() in read(f"/proc/{pid}/environ") and signal_to(pid, signal.SIGKILL):
                    killed_programs.add(run)
        time.sleep(chance.random() * 0.03)
    # A program whose wrapper was killed goes on.
    comes(lambda: not [pid for _, pid in log_of(state)[0] if pid and is_alive(pid)], 10)
    starts, ends = log_of(state)
    context.count("runs", count)
    context.count("killed", len(killed_wrappers | killed_programs))
    began = [run for run, _ in starts]
    if -1 in began:
        context.fail("more programs run at once than fit", state)
    for run in range(count):
        times = began.count(run)
        if times > 1:
            context.fail(f"run {run} is run {times} times", state)
        elif times == 0 and run not in killed_wrappers:
            context.fail(f"run {run} is lost", state)
        elif times and run not in ends and run not in killed_wrappers | killed_programs:
            context.fail(f"run {run} was not killed and did not come to its end", state)


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def order(context, state):
    """Runs that each want the whole card come by priority, then by arrival, also where some of those that wait are killed."""
    chance, environment = context.random, context.environment(state, "1x4GiB")
    holder = start(context, environment, [], f"touch {state}/held; exec sleep 300")
    if not comes(lambda: (state / "held").exists(), 20):
        context.fail("a run on an empty card does not start")
    (path,) = ledger.files(state)

    def waiting():
        members = ledger.look(path)
        return -1 if members is None else sum(member.waiting for member in members)

    runs = []
    for run in range(12):
        priority = chance.choice([0, 0, 0, 1, -1, 5])
        words = ["--wait", "--priority", str(priority)]
        runs.append((priority, run, start(context, environment, words, f"echo start {run} $$ >> {state}/log; echo end {run} >> {state}/log")))
        if not comes(lambda: waiting() == len(runs), 20, 0.005):
            context.fail(f"run {run} does not come into the queue")
            break
    killed = chance.sample(runs, 3)
    for _, _, process in killed:
        process.kill()
        process.wait()
    for child in context.processes():
        if b"sleep" in read(f"/proc/{child}/cmdline") and str(state).encode() in read(f"/proc/{child}/environ"):
            signal_to(child, signal.SIGTERM)
    holder.wait(20)
    kept = [entry for entry in runs if entry not in killed]
    for _, run, process in kept:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            context.fail(f"run {run} does not end", state)
            return
    context.count("runs", len(runs))
    context.count("killed", len(killed))
    expected = [run for _, run, _ in sorted(kept, key=lambda entry: (-entry[0], entry[1]))]
    found = [run for run, _ in log_of(state)[0]]
    if found != expected:
        context.fail(f"runs came as {found}, not as {expected}", state)


def sweep(context, state):
    """A sweep that is killed and started again until it is done: each value ends well once, and what has ended is not run again."""
    chance, environment = context.random, context.environment(state, "1x4GiB")
    results, count = state / "results.jsonl", 12
    script = 'echo start $1 $$ >> "$2/log"; sleep 0.0$(($1 % 8)); echo end $1 >> "$2/log"; echo "{\\"value\\": $1}"'
    values = ",".join(map(str, range(count)))
    words = [context.binary, "sweep", "--set", f"v={values}", "--memory", "1GiB", "--results", results, "--", "sh", "-c", script, "sh", "{v}", state]
    for attempt in range(40):
        process = subprocess.Popen(
            list(map(str, words)),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            # The last attempts are left alone.
            process.wait(60 if attempt > 6 else chance.random())
            said = process.stderr.read().decode(errors="replace")
            if process.returncode in (0,):
                break
            context.fail(f"a sweep ends with {process.returncode}: {said[-300:]}", state)
            return
        except subprocess.TimeoutExpired:
            if attempt > 6:
                process.kill()
                context.fail("a sweep does not end", state)
                return
            done = values_of(results)
            process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
            process.wait(30)
            context.count("killed")
            mine = str(state).encode()
            left = lambda: [pid for pid in context.processes() if mine in read(f"/proc/{pid}/environ")]  # noqa: E731
            if not comes(lambda: not left(), 10):
                context.fail(f"a killed sweep leaves {[read(f'/proc/{pid}/cmdline') for pid in left()]}", state)
            if lost := set(done) - set(values_of(results)):
                context.fail(f"a killed sweep loses the results {lost}", state)
    context.count("runs", count)
    found = values_of(results)
    if sorted(found) != list(range(count)):
        context.fail(f"the results of a sweep are {found}", state)
    # Started once more, nothing is to be done.
    before = log_of(state)
    again = subprocess.run(list(map(str, words)), env=environment, capture_output=True, timeout=60)
    if again.returncode != 0 or log_of(state) != before:
        context.fail(f"a sweep that has ended runs again ({again.returncode})", state)


def values_of(results):
    """The values whose runs ended well, as the file of results says; a line that a kill cut is none."""
    out = []
    for line in read(results).decode(errors="replace").splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found = find(value)
        if found is not None:
            out.append(found)
    return out


def find(value):
    """The program's own number, wherever a line has it."""
    if isinstance(value, dict):
        if isinstance(value.get("value"), int):
            return value["value"]
        for inner in value.values():
            if (found := find(inner)) is not None:
                return found
    return None
