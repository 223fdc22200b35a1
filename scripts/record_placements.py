#!/usr/bin/env python3
"""Records where TensorFlow puts nodes, in crates/cli/tests/placements.

    python scripts/record_placements.py [SUBJECT...]     (needs tensorflow-cpu 2.21)

The graphs are in placements/, a file for each subject; TensorFlow's optimisers leave them alone. For each subject there is
SUBJECT.jsonl, a line for each case:

    name, cpus, soft, pruned  the case, and of ConfigProto: device_count, allow_soft_placement, graph_options.place_pruned_graph
    log                       "node number of the CPU", in the order of log_device_placement: the placer's word, for all nodes of
                              the graph
    runs                      what was run: fetches and targets; `nodes`: how many nodes of the graph the partitions had, of which
                              `moved` are not where the log says; `pruned`: nodes of control flow that they had not; `transfers`: "tensor from>to" for each _Send (slot ^: control)
    bodies                    the same for nodes of functions' bodies, by the names that they have here. TensorFlow places bodies by
                              themselves, unless it is told to inline calls first; `modes` has those that are elsewhere then, and
                              nothing where that graph cannot be placed
    error                     instead of both: code and message
    graph                     the GraphDef as the session got it, without what is a default

With place_pruned_graph there is a log for each run, in the runs, and what ran `before` it.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import json
import pathlib
import re
import tempfile

import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.framework.meta_graph import strip_graph_default_valued_attrs

tf.compat.v1.disable_v2_behavior()

from placements import bodies, calls, flow, queues, random_graphs, strings, towers, variables  # They fill the table.
from placements.common import CASES, tf1

FOLDER = pathlib.Path(__file__).parent.parent / "crates/cli/tests/placements"
LINE = re.compile(r"^(.*): \((\w+)\): /job:localhost/replica:0/task:0/device:CPU:(\d+)$")
SEATED = {"Switch", "RefSwitch", "Enter", "RefEnter", "Exit", "RefExit", "NextIteration", "RefNextIteration"}
CODES = {
    tf.errors.InvalidArgumentError: "INVALID_ARGUMENT", tf.errors.InternalError: "INTERNAL",
    tf.errors.FailedPreconditionError: "FAILED_PRECONDITION", tf.errors.UnimplementedError: "UNIMPLEMENTED",
    tf.errors.NotFoundError: "NOT_FOUND",
}


class Printed:
    """What is printed on standard output below Python."""

    def __enter__(self):
        sys.stdout.flush()
        self.file, self.saved = tempfile.TemporaryFile(), os.dup(1)
        os.dup2(self.file.fileno(), 1)
        return self

    def __exit__(self, *_):
        os.dup2(self.saved, 1)
        os.close(self.saved)
        self.file.seek(0)
        self.lines = self.file.read().decode().splitlines()


def configuration(cpus, soft, pruned, inlined=False):
    config = tf1.ConfigProto(device_count={"CPU": cpus}, allow_soft_placement=soft, log_device_placement=True)
    config.graph_options.place_pruned_graph = pruned
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    config.graph_options.optimizer_options.do_function_inlining = inlined
    config.inter_op_parallelism_threads = config.intra_op_parallelism_threads = 2
    return config


def placed(lines):
    return {m[1]: int(m[3]) for m in map(LINE.match, lines) if m}


def number(device):
    return int(device.rsplit(":", 1)[1])


def partitions(definition, metadata, log):
    """What `runs` says of the partitions of a run."""
    graph = {node.name: node.op for node in definition.node}
    nodes, transfers = {}, []
    for partition in metadata.partition_graphs:
        for node in partition.node:
            if node.op in ("_Send", "_HostSend"):
                sent = node.attr["tensor_name"].s.decode().split("_", 2)[2]
                slot = node.input[0].rpartition(":")[2] if ":" in node.input[0] else "0"
                slot = "^" if "/ctrl/" in node.input[0] else slot
                transfers.append(f"{sent}:{slot} {number(node.attr['send_device'].s.decode())}>{number(node.attr['recv_device'].s.decode())}")
            elif node.name in graph:
                nodes[node.name] = number(node.device)
    pruned = sorted(name for name, op in graph.items() if op in SEATED and name not in nodes)
    return dict(nodes=len(nodes), pruned=pruned, moved={name: at for name, at in sorted(nodes.items()) if log.get(name) != at}, transfers=sorted(transfers))


def said(error):
    """Code and message, without where in Python the nodes were made."""
    code = next(code for kind, code in CODES.items() if isinstance(error, kind))
    message = error.message.split("\n\nErrors may have originated")[0].split("\n\nOriginal stack trace")[0]
    message = re.split(r"\nNode: '[^']*'\n(?!Detected)", message)[-1].removeprefix("Graph execution error:\n\n")
    # TensorFlow's order of attributes is that of a hash.
    message = re.sub(r"attrs: \[(.*?)\]", lambda found: f"attrs: [{', '.join(sorted(found[1].split(', ')))}]", message)
    return dict(code=code, message=message)


def in_bodies(graph, runs, cpus, soft, log):
    """What `bodies` and `modes` say, with `log` as it is without inlining."""
    inlined = None
    try:
        with tf1.Session(graph=graph, config=configuration(cpus, soft, False, inlined=True)) as session, Printed() as printed:
            for before, wanted in runs:
                for op in before:
                    session.run(op)
                session.run(wanted)
        inlined = placed(printed.lines)
    except tf.errors.InvalidArgumentError:
        pass
    found, modes = bodies.found(graph.as_graph_def(), log, inlined)
    return dict(bodies=found, modes=modes)


def record(name, build, cpus, soft, fails, pruned):
    """A case, as a value for JSON."""
    graph = tf1.Graph()
    with graph.as_default():
        tf1.set_random_seed(1)
        runs = build()
    definition = graph.as_graph_def()
    names = {node.name for node in definition.node}
    log, results, error = {}, [], None
    options = tf1.RunOptions(output_partition_graphs=True, timeout_in_ms=20000)
    with tf1.Session(graph=graph, config=configuration(cpus, soft, pruned)) as session:
        for before, wanted in runs:
            metadata = tf1.RunMetadata()
            with Printed() as first:
                try:
                    for op in before:
                        session.run(op)
                except tuple(CODES) as caught:
                    error = caught
            with Printed() as printed:
                try:
                    error or session.run(wanted, options=options, run_metadata=metadata)
                except tuple(CODES) as caught:
                    error = caught
            log = placed(printed.lines) if pruned else log or placed(first.lines + printed.lines)
            if error:
                break
            things = tf.nest.flatten(wanted)
            run = dict(fetches=[thing.name for thing in things if isinstance(thing, tf.Tensor)],
                       targets=[thing.name for thing in things if not isinstance(thing, tf.Tensor)])
            if pruned:
                run.update(before=[op.name for op in before], log=[f"{n} {at}" for n, at in log.items() if n in names])
            results.append(run | partitions(definition, metadata, log))
    found = dict(name=name, cpus=cpus, soft=soft, pruned=pruned)
    if error:
        # The log of what was placed before the error is of no use.
        assert fails in (None, True) and not results, (name, said(error))
        found["error"] = said(error)
    else:
        assert not fails, name
        if not pruned:
            # Lowering replaces nodes and adds some.
            found["log"] = [f"{n} {at}" for n, at in log.items() if n in names]
            if definition.library.function:
                found |= in_bodies(graph, runs, cpus, soft, log)
        found["runs"] = results
    whole = tf1.MetaGraphDef(graph_def=definition)
    strip_graph_default_valued_attrs(whole)
    found["graph"] = text_format.MessageToString(whole.graph_def, as_one_line=True).strip()
    print(f"{name}: {len(names)} nodes, {found['error']['code'] if error else f'{len(results)} runs'}", flush=True)
    return found


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    for subject in sys.argv[1:] or sorted({subject for subject, _, _ in CASES.values()}):
        found = [record(name, build, **options) for name, (of, build, options) in CASES.items() if of == subject]
        (FOLDER / f"{subject}.jsonl").write_text("".join(json.dumps(case) + "\n" for case in found))


if __name__ == "__main__":
    main()
