#!/usr/bin/env python3
"""Measures Plimsoll beside TensorFlow in one run and writes docs/benchmarks.md.

    cargo build --release
    python bench/compare.py                                 (needs tensorflow-cpu 2.21; about ten minutes)
    python bench/compare.py --torch PYTHON                  PyTorch beside it, of another environment
    python bench/compare.py --no-write CASE...              recorded cases instead of the workloads here; only printed

Both sides run in processes of their own, with the same number of threads, in turns: in each round each of them runs the same
number of steps, and the ratio is taken in the round. TensorFlow runs with one and with two inter-op threads (and, for towers,
with one and with two CPU devices); its best setting is what counts. PLIMSOLL names the program; the default is
target/release/plimsoll.
"""
import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.environ.get("PLIMSOLL") or os.path.join(HERE, "..", "target", "release", "plimsoll")
SIDE, TORCH = os.path.join(HERE, "tensorflow_side.py"), os.path.join(HERE, "torch_side.py")
ENVIRONMENT = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}

# What each workload is, on how many CPU devices it runs here, and options of ours. What is served is frozen on both sides.
WORKLOADS = {
    "cifar10": ("CIFAR-10 tutorial network, one training step, batch 128", 1, []),
    "cifar10_towers2": ("the same as two towers of 64 on two devices", 2, []),
    "resnet20": ("ResNet-20 for CIFAR-10, one training step, batch 128", 1, []),
    "mlp_50": ("MLP 784-300-100-10, one training step, batch 50", 1, []),
    "mlp_512": ("the same, batch 512", 1, []),
    "resnet50_1": ("ResNet-50, inference, batch 1", 1, ["--freeze"]),
    "resnet50_8": ("the same, batch 8", 1, ["--freeze"]),
    "mobilenet_v2_1": ("MobileNetV2, inference, batch 1", 1, ["--freeze"]),
    "mobilenet_v2_8": ("the same, batch 8", 1, ["--freeze"]),
    "transformer": ("Transformer encoder (4 layers, width 256, 8 heads, length 128), inference, batch 8", 1, ["--freeze"]),
    "transformer_training": ("the same, one training step", 1, []),
    "lstm": ("LSTM (2 layers of 128, 50 steps), inference, batch 32", 1, ["--freeze"]),
    "lstm_training": ("the same, one training step", 1, []),
    "gru": ("GRU (2 layers of 128, 50 steps), inference, batch 32", 1, ["--freeze"]),
    "gru_training": ("the same, one training step", 1, []),
}
# Those of which the page shows where the time goes.
SHOWN = ("cifar10", "cifar10_towers2", "mlp_50", "mlp_512", "resnet50_1", "transformer", "lstm_training")
BY_PROCESSOR = "\n## By processor\n"
FIRST = "mlp_50"
WARM_UP = 3


def plimsoll(*args):
    done = subprocess.run([BINARY, *args], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"plimsoll {' '.join(args)}\n{done.stdout}{done.stderr}")
    return done.stdout


class Side:
    """A process of another framework that runs a case in one setting."""

    def __init__(self, name, command):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=ENVIRONMENT)
        self.versions = json.loads(self.process.stdout.readline())
        self.medians, self.cpu = [], []
        self.peak = 0

    def round(self, runs, warm=WARM_UP):
        self.process.stdin.write(f"{warm} {runs}\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        self.peak = answer.get("peak_bytes", 0)
        self.latest_cpu = answer["cpu_ms"]
        return answer["median_ms"]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def tensorflow(case, threads, inter, cpus):
    name = f"inter-op {inter}" + (f", {cpus} CPU devices" if cpus > 1 else "")
    return Side(name, [sys.executable, SIDE, "serve", case, str(threads), str(inter), str(cpus)])


def milliseconds(time):
    return f"{time:.0f} ms" if time >= 100 else f"{time:.3g} ms"


def cpu_of_bench(folder, runs, flags):
    """What `bench` prints, and the milliseconds of user time that its process took."""
    before = os.times().children_user
    printed = json.loads(plimsoll("bench", folder, "--runs", str(runs), *flags))
    return printed, (os.times().children_user - before) * 1e3


class Result:
    """One case, both sides."""

    def __init__(self, folder, devices, options, threads, rounds, seconds, torch=None):
        flags = ["--intra-op", str(threads), "--device-count", f"CPU={devices}", "--json", *options]
        settings = [(1, 1), (2, 1)] + ([(1, 2), (2, 2)] if devices > 1 else [])
        theirs = [tensorflow(folder, threads, inter, cpus) for inter, cpus in settings]
        self.load = os.getloadavg()[0]
        self.torch = torch and Side("PyTorch", [torch, TORCH, "serve", os.path.basename(folder), str(threads)])
        self.versions = theirs[0].versions
        fastest = min(side.round(3, warm=WARM_UP) for side in theirs)
        self.steps = int(min(2000, max(3, seconds * 1e3 / fastest)))
        self.ours, self.our_cpu, self.rss = [], [], 0
        # The processor time of a step is what more steps take: the rest of a process counts once.
        once = min(cpu_of_bench(folder, 1, flags)[1] for _ in range(2))
        for _ in range(rounds):
            ours, cpu = cpu_of_bench(folder, self.steps + 1, flags)
            self.ours.append(ours["median_ms"])
            self.our_cpu.append((cpu - once) / self.steps)
            self.rss = max(self.rss, ours["max_rss_bytes"])
            for side in theirs + ([self.torch] if self.torch else []):
                side.medians.append(side.round(self.steps))
                side.cpu.append(side.latest_cpu)
        self.devices = ours["devices"]
        best = min(theirs, key=lambda side: statistics.median(side.medians))
        self.theirs, self.their_cpu, self.their_rss, self.setting = best.medians, best.cpu, best.peak, best.name
        for side in theirs + ([self.torch] if self.torch else []):
            side.end()
        self.ratios = sorted(mine / other for mine, other in zip(self.ours, self.theirs))
        self.cpu_ratio = statistics.median(self.our_cpu) / max(statistics.median(self.their_cpu), 1e-9)
        with tempfile.TemporaryDirectory() as scratch:
            path = os.path.join(scratch, "profile.json")
            plimsoll("bench", folder, "--runs", str(min(self.steps, 100)), "--profile", path, *flags)
            self.profile = json.load(open(path))

    def row(self, what):
        mine, other = (milliseconds(statistics.median(values)) for values in (self.ours, self.theirs))
        ratio = statistics.median(self.ratios)
        spread = f"{self.ratios[0]:.2f} to {self.ratios[-1]:.2f}"
        rss = f"{self.rss / 2**20:.0f} MiB | {self.their_rss / 2**20:.0f} MiB"
        return f"| {what} | {mine} | {other} | **{ratio:.2f}** | {spread} | {rss} | {self.cpu_ratio:.2f} | {self.beside_torch()} |"

    def beside_torch(self):
        """Our time by PyTorch's, and the same of user time."""
        if not self.torch:
            return ""
        of = lambda mine, others: statistics.median(mine) / max(statistics.median(others), 1e-9)
        return f"{of(self.ours, self.torch.medians):.2f}, {of(self.our_cpu, self.torch.cpu):.2f}"

    def operations(self, limit=8):
        rows = ["| operation | commands | µs | share | GFLOP/s |", "|---|---|---|---|---|"]
        for operation in self.profile["operations"][:limit]:
            rate = f"{operation['gflops']:.0f}" if operation["gflops"] else ""
            rows.append(f"| {operation['op']} | {operation['commands']} | {operation['total_us']:.0f} | {operation['share']:.1%} | {rate} |")
        return "\n".join(rows)

    def commands(self, limit=8):
        rows = ["| command | operations in it | pieces | µs | GFLOP/s |", "|---|---|---|---|---|"]
        for command in sorted(self.profile["commands"], key=lambda command: -command["duration_us"])[:limit]:
            rate = f"{command['gflops']:.0f}" if command["gflops"] else ""
            ops = ", ".join(command["ops"][:4]) + (f" and {len(command['ops']) - 4} more" if len(command["ops"]) > 4 else "")
            label = command["label"].split(" (+")[0]
            rows.append(f"| `{label}` | {ops} | {command['pieces']} | {command['duration_us']:.0f} | {rate} |")
        return "\n".join(rows)


def first_result(folder):
    """Seconds from the start of a process to the first loss: initialize, one training step, print. Medians, each side."""
    step = json.load(open(os.path.join(folder, "case.json")))["steps"][-1]
    feeds = [part for name, file in step["feeds"].items() for part in ("--feed", f"{name}={os.path.join(folder, file)}")]
    ours = [BINARY, "eval", os.path.join(folder, "graph.pb"), "--init", "init", *feeds, "--fetch", "loss:0"]
    theirs = [sys.executable, SIDE, "first", folder]

    def seconds(command):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=ENVIRONMENT)
        return time.perf_counter() - start

    return [statistics.median(seconds(command) for _ in range(count)) for command, count in ((ours, 9), (theirs, 3))]


def processor():
    """What the kernel says of the first processor."""
    lines = [line.split(":", 1) for line in open("/proc/cpuinfo") if ":" in line]
    return {key.strip(): value.strip() for key, value in reversed(lines)}


def machine():
    info = processor()
    flags = [flag for flag in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile") if flag in info.get("flags", "").split()]
    caches = []
    for index in range(8):
        try:
            level, kind, size = (open(f"/sys/devices/system/cpu/cpu0/cache/index{index}/{name}").read().strip() for name in ("level", "type", "size"))
        except OSError:
            break
        if kind != "Instruction":
            caches.append(f"L{level} {size}")
    cores = len(os.sched_getaffinity(0))
    return f"{info.get('model name', 'unknown processor')}, {cores} cores ({', '.join(flags)}); caches of a core: {', '.join(caches) or 'unknown'}; {platform.system()} {platform.machine()}"


def document(results, first, args, seconds):
    versions = next(iter(results.values())).versions
    torch = next((result.torch.versions["torch"] for result in results.values() if result.torch), None)
    what = {name: WORKLOADS[name][0] for name in results}
    settings = "; ".join(f"{name}: {result.setting}, {result.steps} steps a round" for name, result in results.items())
    head = f"""# Measured beside TensorFlow

Written by `{args.line}` in {seconds:.0f} seconds; nothing here was typed by hand.

- Machine: {machine()}. Load when it began: {args.load:.1f}{', all of it run at real-time priority' if args.real_time else ''}.
- {plimsoll('--version').strip()}; TensorFlow {versions['tensorflow']} (oneDNN on, as by default), NumPy {versions['numpy']}, Python {platform.python_version()}.
- {args.threads} threads each. {args.rounds} rounds, in each round all sides in turn, {WARM_UP} steps of warming up, then the same number of steps; a round
  counts with its median. Times are medians of rounds, the ratio is the median of the rounds' ratios, beside it the least and the
  greatest. Where the machine is busy with other things only the ratios mean something, and that of user time (of the processors'
  seconds in the programs, a step on each side) the most.
- TensorFlow runs through `Session.make_callable` on fed arrays, with one and with two inter-op threads (towers: also with one and
  with two CPU devices); its best setting counts: {settings}.
- {f"PyTorch {torch}: the same networks, channels last, as `bench/torch_side.py` has them; frozen for inference. Ratios of time, and of user time." if torch else "PyTorch was not measured."}
- Networks for inference are frozen: their weights are constants on both sides, and ours run with `--freeze`. They have random weights.
- Both give the same results in the first {2} steps (tolerance 1e-4), checked before anything is timed. Float32, random images.

| work | Plimsoll | TensorFlow | ratio | in rounds | resident peak, Plimsoll | TensorFlow | ratio of user time | beside PyTorch |
|---|---|---|---|---|---|---|---|---|
"""
    rows = "\n".join(result.row(what[name]) for name, result in results.items())
    text = head + rows + "\n"
    if first:
        text += f"| from the start of the process to the first loss (MLP, batch 50) | {first[0] * 1e3:.0f} ms | {first[1] * 1e3:.0f} ms | **{first[0] / first[1]:.3f}** | | | | | |\n"
    text += "\n![Time beside TensorFlow](pictures/benchmarks.svg)\n"
    text += "\n## Where our time goes\n\nFrom `plimsoll bench CASE --profile FILE`: a command's time is from its start to its end, on however many threads; what is\nfused into a command counts there. Commands on several devices run side by side.\n"
    for name, result in results.items():
        if name not in SHOWN:
            continue
        promised = ", ".join(f"{device['name'].rsplit('device:', 1)[-1]} {device['planned_peak_bytes'] / 2**20:.1f} MiB" for device in result.devices)
        step, busy = result.profile["step_us"], result.profile["commands_us"]
        text += f"\n### {name}: {what[name]}\n\nA step while it is traced: {step:.0f} µs; its commands together: {busy:.0f} µs. Promised peak, and measured: {promised}.\n\n"
        text += result.operations() + "\n\n" + result.commands() + "\n"
    return text


def by_processor(results, kept):
    """The table with a row for each work on each processor. Those of this processor are made anew, the others kept."""
    info = processor()
    family = ", ".join(f"{word} {info[key]}" for word, key in (("family", "cpu family"), ("model", "model")) if key in info)
    name_of = f"{info.get('model name', 'unknown processor')} ({family})"
    rows = [line for line in kept.split("\n") if line.startswith("| ") and not line.startswith("| processor |")]
    rows = [row for row in rows if row.split(" | ")[0] != f"| {name_of}" or row.split(" | ")[1] not in results]
    median = statistics.median
    for name, result in results.items():
        times = f"{milliseconds(median(result.ours))} | {milliseconds(median(result.theirs))} | {median(result.ratios):.2f} | {result.cpu_ratio:.2f} | {result.beside_torch()}"
        rows.append(f"| {name_of} | {name} | {times} | {result.load:.1f} |")
    head = "| processor | work | Plimsoll | TensorFlow | ratio | of user time | beside PyTorch | load |\n|---|---|---|---|---|---|---|---|\n"
    text = (
        "\nEach run of `python bench/compare.py` writes the rows of its processor anew and keeps the others; `--rows` writes nothing else.\n"
        "Where the load is above the number of cores, times and their ratio say little; the ratio of user time is less disturbed.\n\n"
    )
    return BY_PROCESSOR + text + head + "\n".join(sorted(rows)) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help="folders with a case.json; the workloads of this script, if there are none")
    parser.add_argument("--only", action="append", help="only this workload (again for more)")
    parser.add_argument("--torch", metavar="PYTHON", help="a Python with PyTorch, to be measured in the same rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long a side's steps take in a round, about")
    parser.add_argument("--write", default=os.path.join(HERE, "..", "docs", "benchmarks.md"), metavar="FILE")
    parser.add_argument("--rows", action="store_true", help="write the rows of this processor in the table by processor, and nothing else of the page")
    parser.add_argument("--folder", help="where the networks are, or are built, as cases; they are kept")
    parser.add_argument("--no-write", action="store_true", help="only print")
    args = parser.parse_args()
    shown = ["PYTHON" if before == "--torch" else word for before, word in zip(sys.argv, sys.argv[1:])]
    args.line = " ".join(["python bench/compare.py", *shown])
    args.load = os.getloadavg()[0]
    if args.torch and args.load > len(os.sched_getaffinity(0)):
        print(f"load {args.load:.1f}: PyTorch is not measured, since its threads spin while they wait for others", file=sys.stderr)
        args.torch = None
    args.real_time = os.sched_getscheduler(0) != os.SCHED_OTHER
    if args.cases:
        for case in args.cases:
            result = Result(case, 1, [], args.threads, args.rounds, args.seconds)
            print(result.row(os.path.basename(os.path.normpath(case))), flush=True)
        return
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = args.folder or scratch
        names = args.only or list(WORKLOADS)
        missing = [name for name in {*names, FIRST} if not os.path.exists(os.path.join(folder, name, "case.json"))]
        if missing:
            subprocess.run([sys.executable, SIDE, "build", folder, *missing], check=True, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
        results = {}
        for name in names:
            case, (what, devices, options) = os.path.join(folder, name), WORKLOADS[name]
            plimsoll("verify", case, "--device-count", f"CPU={devices}")
            torch = None if "towers" in name else args.torch
            results[name] = Result(case, devices, options, args.threads, args.rounds, args.seconds, torch)
            print(results[name].row(what), flush=True)
            if args.rows:
                write(args.write, None, results)
        if args.rows:
            return
        first = first_result(os.path.join(folder, FIRST))
        print(f"first result: {first[0] * 1e3:.1f} ms, TensorFlow {first[1] * 1e3:.0f} ms")
    text = document(results, first, args, time.monotonic() - began)
    if not args.no_write:
        write(args.write, text, results)


def write(path, text, results):
    """Writes the page, or where there is no text only the rows of this processor. What `bench/session.py` has written stays."""
    old = ""
    if os.path.exists(path):
        with open(path) as file:
            old = file.read()
    page, from_python, kept = old.partition("\n## From Python\n")
    page, _, before = page.partition(BY_PROCESSOR)
    page = (text or page).rstrip("\n") + "\n"
    with open(path, "w") as file:
        file.write(page + by_processor(results, before) + from_python + kept)


if __name__ == "__main__":
    main()
