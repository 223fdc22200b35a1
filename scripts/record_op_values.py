#!/usr/bin/env python3
"""Writes crates/ops/tests/data/op_values/NAME.txt for each scripts/op_values/NAME.py: see scripts/op_values/cases.py.

    python scripts/record_op_values.py [NAME...]      all of them, or these (needs tensorflow-cpu 2.21)

A module of cases has TOGETHER, functions that draw from the same random numbers, and ALONE, those with numbers of their own.
"""
import contextlib
import importlib
import pathlib
import sys
import zlib

SCRIPTS = pathlib.Path(__file__).parent
DATA = SCRIPTS.parent / "crates/ops/tests/data/op_values"


def record(name):
    cases = importlib.import_module("op_values.cases")
    module = importlib.import_module(f"op_values.{name}")
    cases.RANDOM.seed(7)
    with open(DATA / f"{name}.txt", "w") as file, contextlib.redirect_stdout(file):
        for function in getattr(module, "TOGETHER", []):
            function()
        for function in getattr(module, "ALONE", []):
            cases.RANDOM.seed(zlib.crc32(function.__name__.encode()))
            function()


if __name__ == "__main__":
    names = sorted(path.stem for path in (SCRIPTS / "op_values").glob("*.py") if path.stem not in ("cases", "__init__"))
    for name in sys.argv[1:] or names:
        record(name)
