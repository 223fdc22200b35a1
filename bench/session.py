#!/usr/bin/env python3
"""Times runs of a scalar addition from Python: the least of 40 repetitions of 5000 runs, in microseconds.

    python bench/session.py                                 (needs the native module: python/README.md)
"""

import pathlib
import sys
import timeit

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import plimsoll  # noqa: E402

GRAPH = b"""
node { name: "x" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "y" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } } }
node { name: "sum" op: "AddV2" input: "x" input: "y" attr { key: "T" value { type: DT_FLOAT } } }
"""

with plimsoll.Session(GRAPH) as session:
    call = session.make_callable("sum:0", ["x:0", "y:0"])
    for kind, value in (("float", 1.0), ("numpy.float32", numpy.float32(1)), ("array of 4", numpy.ones(4, numpy.float32))):
        feed = {"x:0": value, "y:0": value}
        runs = {
            "make_callable": lambda: call(value, value),
            "Session.run": lambda: session.run("sum:0", feed),
            "Session.run of a list": lambda: session.run(["sum:0"], feed),
        }
        for name, run in runs.items():
            run()
            print(f"{kind:14} {name:22} {min(timeit.repeat(run, number=5000, repeat=40)) / 5000 * 1e6:6.2f} us")
