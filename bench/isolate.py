"""What it takes to have a function run in a process of its own: Plimsoll's pool, concurrent.futures (spawn) and loky, in one run.

    python bench/isolate.py            (with `pip install ./python loky numpy` for all of it)

Latency: an empty function on one warm worker, call and result, median. Throughput: 100 MB returned, and handed over, as bytes and as
a NumPy array, on one warm worker, median. Start: a new worker and its first result. Only ratios in one run count.
"""

import concurrent.futures
import json
import multiprocessing
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import plimsoll  # noqa: E402

try:
    import numpy
except ImportError:
    numpy = None
try:
    import loky
except ImportError:
    loky = None

SIZE = 100_000_000


def nothing():
    return None


KEPT = {}


def kept_bytes():
    """Made once, so that the making is not measured."""
    if "bytes" not in KEPT:
        KEPT["bytes"] = b"\x07" * SIZE
    return KEPT["bytes"]


def kept_array():
    if "array" not in KEPT:
        KEPT["array"] = numpy.full(SIZE // 4, 7, dtype=numpy.float32)
    return KEPT["array"]


def length(data):
    return len(data)


def median_seconds(do, times):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        do()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def measured(make):
    start = time.perf_counter()
    pool = make()
    pool.submit(nothing).result()
    row = {"start_ms": (time.perf_counter() - start) * 1e3}
    with pool:
        row["latency_us"] = median_seconds(lambda: pool.submit(nothing).result(), 1000) * 1e6
        row["jobs_per_second"] = 2000 / median_seconds(
            lambda: [future.result() for future in [pool.submit(nothing) for _ in range(2000)]], 3
        )
        cases = [("bytes", kept_bytes)] + ([("array", kept_array)] if numpy is not None else [])
        for name, make_data in cases:
            pool.submit(make_data).result()
            row[f"{name}_returned_gb_s"] = SIZE / 1e9 / median_seconds(lambda: pool.submit(make_data).result(), 9)
            data = make_data()
            row[f"{name}_given_gb_s"] = SIZE / 1e9 / median_seconds(lambda: pool.submit(length, data).result(), 9)
    return row


def main():
    spawn = multiprocessing.get_context("spawn")
    makers = {
        "plimsoll": lambda: plimsoll.Pool(1),
        "concurrent.futures": lambda: concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn),
    }
    if loky is not None:
        makers["loky"] = lambda: loky.ProcessPoolExecutor(1)
    rows = {name: measured(make) for name, make in makers.items()}
    if "--json" in sys.argv:
        print(json.dumps(rows))
        return
    columns = list(rows["plimsoll"])
    print(f"{'':20}" + "".join(f"{column:>22}" for column in columns))
    for name, row in rows.items():
        print(f"{name:20}" + "".join(f"{row[column]:22.2f}" for column in columns))


if __name__ == "__main__":
    main()
