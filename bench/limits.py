#!/usr/bin/env python3
"""Runs recorded steps under ten limits each, from the least to what their plans take as they are. Prints a table for each case.

    python bench/limits.py [--binary PROGRAM] [--runs N] [--rounds N] CASE…

A case is a folder with a graph, as `plimsoll bench` takes it; its last step is measured. A line has the limit, the peak that the plan
promises, the peak that was measured, and the time of a step, predicted and measured, by that without a limit. Measured times are lower tenths of the runs, medians over
rounds; in each round the step without a limit and the step with it run one behind the other. The exit status is 1 where a peak
is not the one that was promised, or over its limit, or where a lower limit has a faster prediction.
"""

import argparse
import ast
import json
import pathlib
import statistics
import subprocess
import sys

POINTS = 10


def shape_of(file):
    """The shape of an array in a file of NumPy's."""
    data = file.read_bytes()
    start, length = (10, int.from_bytes(data[8:10], "little")) if data[6] == 1 else (12, int.from_bytes(data[8:12], "little"))
    return ast.literal_eval(data[start : start + length].decode("latin1"))["shape"]


def document(*command):
    """What a command prints as JSON; none where it says that the case does not fit."""
    ran = subprocess.run(command, capture_output=True, text=True)
    if not ran.stdout:
        sys.exit(f"{' '.join(map(str, command))}: {ran.stderr}")
    return json.loads(ran.stdout)


def measure(binary, folder, runs, rounds):
    """Prints the table of a case; false where a promise does not hold."""
    case = json.loads((folder / "case.json").read_text())
    step = case["steps"][-1]
    request = [binary, "plan", folder / case["graph"], "--json"]
    for tensor, file in step["feeds"].items():
        dims = "x".join(map(str, shape_of(folder / file)))
        request += ["--feed-shape", f"{tensor.removesuffix(':0')}={dims}" if dims else f"{tensor.removesuffix(':0')}="]
    for tensor in step["fetches"]:
        request += ["--fetch", tensor]
    for target in step.get("targets", []):
        request += ["--target", target]
    bench = [binary, "bench", folder, "--json", "--runs", str(runs)]

    def limited(limit):
        return ["--memory-limit", f"CPU:0={limit}B"]

    plain = document(*bench)
    # Initialisation may hold more than the step: limits are those of all that a run does.
    highest = plain["devices"][0]["planned_peak_bytes"]
    predicted = document(*request)["predicted_step_seconds"]
    least = document(*request)["minimum_limit_bytes"]
    print(f"\n{case['name']}: {highest:,} bytes as it is, predicted {predicted * 1e3:.3f} ms, measured {plain['median_ms']:.3f} ms\n")
    print("| limit | peak promised | measured | time predicted | measured |\n|---|---|---|---|---|")
    holds, slower = True, float("inf")
    for point in range(POINTS):
        limit = least + (highest - least) * point // (POINTS - 1)
        plan = document(*request, *limited(limit))
        found, ratios = None, []
        for _ in range(rounds):
            free = document(*bench)["p10_ms"]
            found = document(*bench, *limited(limit))
            ratios.append(found["p10_ms"] / free)
        device = found["devices"][0]
        promise, peak = device["planned_peak_bytes"], device["measured_peak_bytes"]
        seconds = plan["predicted_step_seconds"]
        is_right = promise == peak <= limit and seconds <= slower
        holds, slower = holds and is_right, seconds
        ratio = statistics.median(ratios)
        print(f"| {limit:,} | {promise:,} | {peak:,} | {seconds / predicted:.3f} | {ratio:.3f} |{'' if is_right else ' WRONG'}", flush=True)
    return holds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="target/release/plimsoll")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    options = parser.parse_args()
    measured = [measure(options.binary, case, options.runs, options.rounds) for case in options.cases]
    sys.exit(0 if all(measured) else 1)


if __name__ == "__main__":
    main()
