#!/usr/bin/env python3
"""Measures the Python package: runs of a scalar addition, feeds, the import, the wheel. Prints a table, or writes it into docs/benchmarks.md.

    python bench/session.py [--write]                       (needs the native module: python/README.md)

PLIMSOLL_TENSORFLOW names a Python with TensorFlow and PLIMSOLL_JAX one with JAX, whose numbers stand beside; each is this one where it is
installed. All sides take turns: a number is the least of `--rounds` processes, and a run the least of 300 repetitions of 100 in each.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE, HEAD = ROOT / "docs" / "benchmarks.md", "## From Python\n"
GRAPH = """
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "sum" op: "AddV2" input: "x" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
"""
COMMON = """
import json, os, resource, sys, time, timeit
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20
def least(run, number=100):
    run()
    return min(timeit.repeat(run, number=number, repeat=300)) / number * 1e6
found = {}
before, begin = resident(), time.process_time()
"""
FOUND = """
found["import_ms"], found["import_mib"] = (time.process_time() - begin) * 1e3, resident() - before
x = numpy.float32(1)
"""
SIDES = {
    "Plimsoll": """
import plimsoll, plimsoll.session
{found}
with plimsoll.Session({graph!r}.encode()) as session:
    call, feed = session.make_callable("sum:0", ["x:0", "y:0"]), {{"x:0": 1.0, "y:0": 1.0}}
    found["callable_us"], found["run_us"] = least(lambda: call(1.0, 1.0)), least(lambda: session.run("sum:0", feed))
    big = numpy.ones(25_000_000, numpy.float32)
    total = session.make_callable("sum:0", ["x:0", "y:0"])
    total(big[:1], big[:1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    made = total(big, x)
    found["feed_mib"] = max(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024 - before - made.nbytes / 2**20, 0)
""",
    "plimsoll.compat.v1": """
import plimsoll.compat.v1 as tf
{found}
a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
with tf.Session() as session:
    total, feed = a + b, {{a: 1.0, b: 1.0}}
    call = session.make_callable(total, [a, b])
    found["callable_us"], found["run_us"] = least(lambda: call(1.0, 1.0)), least(lambda: session.run(total, feed))
""",
    "TensorFlow": """
import tensorflow.compat.v1 as tf
{found}
tf.disable_v2_behavior()
a, b = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
with tf.Session() as session:
    total, feed = a + b, {{a: 1.0, b: 1.0}}
    call = session.make_callable(total, [a, b])
    found["callable_us"], found["run_us"] = least(lambda: call(1.0, 1.0)), least(lambda: session.run(total, feed))
""",
    "JAX": """
import jax
{found}
call = jax.jit(lambda a, b: a + b)
found["callable_us"] = least(lambda: call(x, x).block_until_ready())
""",
}
PYTHONS = {"TensorFlow": os.environ.get("PLIMSOLL_TENSORFLOW"), "JAX": os.environ.get("PLIMSOLL_JAX")}
ROWS = [
    ("a scalar addition, `make_callable`", "callable_us", "us", 2),
    ("a scalar addition, `Session.run`", "run_us", "us", 2),
    ("`import`, processor time beyond Python with NumPy", "import_ms", "ms", 0),
    ("`import`, resident beyond Python with NumPy", "import_mib", "MiB", 1),
    ("100 MB fed: resident beyond feed and result", "feed_mib", "MiB", 1),
]


def once(side):
    """What a process of a side measures; none where it is not installed."""
    path = str(ROOT / "python") if side.lower().startswith("plimsoll") else ""
    source = COMMON + SIDES[side].format(found=FOUND, graph=GRAPH) + "print(json.dumps(found))\n"
    python = PYTHONS.get(side) or sys.executable
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "-1", "OPENBLAS_NUM_THREADS": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([python, "-c", source], capture_output=True, text=True, env=environment)
    if "ModuleNotFoundError" in done.stderr and path == "":
        return None
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def wheel():
    """The size of the wheel with what is built, in MiB; none where nothing is."""
    import tempfile

    sys.path.insert(0, str(ROOT / "python" / "backend"))
    import plimsoll_build

    module, release = ROOT / "python" / "plimsoll" / plimsoll_build.MODULE, plimsoll_build._target() / "release"
    program = release / plimsoll_build.LAUNCHER
    if not all(file.is_file() for file in (module, program, release / "libplimsoll_shim.so")):
        return None
    os.environ.update(PLIMSOLL_NATIVE=str(module), PLIMSOLL_BINARY=str(program))
    with tempfile.TemporaryDirectory() as folder:
        return os.path.getsize(os.path.join(folder, plimsoll_build.build_wheel(folder))) / 2**20


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true", help="write docs/benchmarks.md")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    best = {}
    for _ in range(args.rounds):
        for side in [side for side in SIDES if best.get(side, {}) is not None]:
            found = once(side)
            known = best.get(side, {})
            best[side] = None if found is None else {name: min(value, known.get(name, value)) for name, value in found.items()}
    sides = [side for side in SIDES if best[side]]
    lines = [f"| | {' | '.join(sides)} |", "|---" * (len(sides) + 1) + "|"]
    for title, name, unit, digits in ROWS:
        cells = [f"{best[side][name]:.{digits}f} {unit}" if name in best[side] else "" for side in sides]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    size = wheel()
    text = f"Written by `{' '.join(['python bench/session.py', *sys.argv[1:]])}`, load when it began {load:.1f}; the least of {args.rounds} processes.\n\n"
    text += "\n".join(lines) + "\n"
    if size is not None:
        text += f"\nThe wheel, with the native module, the program and the shim: {size:.1f} MiB.\n"
    print(text)
    if args.write:
        PAGE.write_text(PAGE.read_text().split(f"\n{HEAD}")[0].rstrip("\n") + f"\n\n{HEAD}\n{text}")


if __name__ == "__main__":
    main()
