#!/usr/bin/env python3
"""Writes docs/models.md: which recorded models run, what the others need, their times and peaks beside TensorFlow's.

    python scripts/write_models_doc.py [--note TEXT] TITLE=FOLDER... [--untimed TITLE=FOLDER...]

Needs tensorflow-cpu 2.21, and target/release/plimsoll or the program that PLIMSOLL_BINARY names. TEXT goes into the page.

Each FOLDER holds recorded cases (CONTRIBUTING.md), one folder each. A case is replayed and compared by `plimsoll verify`. One that
passes is timed by `plimsoll bench` and then, at once, by TensorFlow in a process of its own; both with two threads. Nothing else
should run on the machine. Cases without a step to time, and graphs that TensorFlow trains through sessions, have no time.
"""
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("PLIMSOLL_BINARY", str(ROOT / "target/release/plimsoll"))
THREADS, STEPS = 2, 10
LONGEST = 240


def plimsoll(*arguments):
    """The document that a command prints, and what it says otherwise."""
    command = [PROGRAM, *arguments, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired:
        return None, f"more than {LONGEST} s"
    try:
        return json.loads(done.stdout), done.stderr.strip()
    except json.JSONDecodeError:
        return None, done.stderr.strip()


def needs(case, reason):
    """What a case that does not pass needs: operations without rules, or the error."""
    description = json.loads((case / "case.json").read_text())
    model = case / (description.get("saved_model") or description["graph"])
    document, _ = plimsoll("ops", "--missing", str(model))
    called = {step.get("signature") for step in description["steps"]} | {"__saved_model_init_op"}
    entries = [entry for entry in (document or {"signatures": []})["signatures"] if entry["signature"] in called or entry["signature"] is None]
    operations = sorted({missing["operation"] for entry in entries for missing in entry["missing"]})
    return ", ".join(operations) if operations else " ".join(reason.split())[:200].replace("|", "\\|")


def measure(case, timed):
    """A line of the tables: a dictionary."""
    verdicts, said = plimsoll("verify", str(case), "--intra-op", str(THREADS))
    verdict = verdicts[0] if verdicts else {"status": "FAIL", "reason": said}
    if verdict["status"] != "OK":
        return {"name": case.name, "needs": needs(case, verdict.get("reason", ""))}
    line = {"name": case.name, "error": verdict["worst_error"], "peak": verdict["peak_bytes"], "steps": verdict["steps"]}
    if not timed:
        return line
    timing, _ = plimsoll("bench", str(case), "--intra-op", str(THREADS), "--runs", str(STEPS))
    line["ms"] = timing["median_ms"] if timing else None
    command = [sys.executable, __file__, "--tensorflow", str(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
        line.update(json.loads(done.stdout.splitlines()[-1]))
    except (subprocess.TimeoutExpired, json.JSONDecodeError, IndexError):
        pass
    return line


def tensorflow(case):
    """TensorFlow's median time of the last step, and by how much loading and running let this process grow."""
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import numpy as np
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    float(tf.reduce_sum(tf.ones([2, 2]) @ tf.ones([2, 2])))
    before = resident()
    description = json.loads((case / "case.json").read_text())
    step = description["steps"][-1]
    arrays = {name: np.load(case / file) for name, file in step["feeds"].items()}
    if "saved_model" in description:
        run = of_saved_model(tf, case / description["saved_model"], step, arrays)
    elif "init" in description:
        return {}
    else:
        run = of_graph(tf, case / description["graph"], step, arrays)
    run()
    run()
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"tensorflow_ms": statistics.median(times), "tensorflow_peak": max(0, peak - before)}


def resident():
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def of_saved_model(tf, folder, step, arrays):
    model = tf.saved_model.load(str(folder))
    function = model.signatures[step["signature"]]
    feeds = {name: tf.constant(array) for name, array in arrays.items()}

    def run():
        results = function(**feeds)
        return [tensor.numpy() for tensor in results.values()], model
    return run


def of_graph(tf, file, step, arrays):
    graph = tf.Graph()
    with graph.as_default():
        definition = tf.compat.v1.GraphDef()
        definition.ParseFromString(file.read_bytes())
        tf.import_graph_def(definition, name="")
    config = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=THREADS, inter_op_parallelism_threads=THREADS, allow_soft_placement=True)
    tensor = lambda name: name if ":" in name else f"{name}:0"
    session = tf.compat.v1.Session(graph=graph, config=config)
    wanted = [*map(tensor, step["fetches"]), *(graph.get_operation_by_name(name) for name in step["targets"])]
    return lambda: session.run(wanted, {tensor(name): array for name, array in arrays.items()})


def processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if pathlib.Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def size(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1024


def cell(value, form):
    return form(value) if value is not None else ""


def document(groups, notes):
    lines = sum(groups.values(), [])
    running = [line for line in lines if "needs" not in line]
    text = [
        "# Models",
        "",
        f"{len(running)} of {len(lines)} recorded models and functions give TensorFlow's values. This page is written by",
        "`scripts/write_models_doc.py`; `plimsoll verify` replays each, and `plimsoll ops --missing` says what a model needs.",
        "",
        f"Times are medians of {STEPS} steps of the last recorded call, with {THREADS} threads, TensorFlow's right after ours, on this processor:",
        f"{processor()}. The peak is what the devices held at most, variables and constants included. TensorFlow's is by how much its",
        "process grew from before the model was loaded. `of tolerance` is the largest distance from TensorFlow's value as a share of the",
        "recorded tolerance.",
        *notes,
    ]
    milliseconds = lambda value: f"{value:.2f} ms" if value >= 0.01 else "< 0.01 ms"
    for title, group in groups.items():
        runs = [line for line in group if "needs" not in line]
        text += ["", f"## {title}", "", f"{len(runs)} of {len(group)} run."]
        timed = any("ms" in line for line in runs)
        header = ["model", *(["time", "TensorFlow"] if timed else []), "peak", *(["TensorFlow"] if timed else []), "of tolerance"]
        if runs:
            text += ["", f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
        for line in runs:
            times = [cell(line.get("ms"), milliseconds), cell(line.get("tensorflow_ms"), milliseconds)] if timed else []
            peaks = [size(line["peak"]), *([cell(line.get("tensorflow_peak"), size)] if timed else [])]
            text.append(f"| {' | '.join([line['name'], *times, *peaks, format(line['error'], '.2g')])} |")
        rest = [line for line in group if "needs" in line]
        if rest:
            text += ["", "| does not run yet | needs |", "|---|---|"]
            text += [f"| {line['name']} | {line['needs']} |" for line in rest]
    return "\n".join(text) + "\n"


def main(arguments):
    if arguments[:1] == ["--tensorflow"]:
        print(json.dumps(tensorflow(pathlib.Path(arguments[1]))))
        return
    groups, notes, timed = {}, [], True
    arguments = iter(arguments)
    for argument in arguments:
        if argument == "--note":
            notes.append(next(arguments))
            continue
        if argument == "--untimed":
            timed = False
            continue
        title, _, folder = argument.partition("=")
        cases = sorted(path.parent for path in pathlib.Path(folder).glob("*/case.json"))
        groups[title] = []
        for case in cases:
            line = measure(case, timed)
            print(json.dumps(line), file=sys.stderr, flush=True)
            groups[title].append(line)
    (ROOT / "docs/models.md").write_text(document(groups, notes))


if __name__ == "__main__":
    main(sys.argv[1:])
