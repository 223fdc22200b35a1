"""Writes the list of the CUDA driver's functions that the shim is compared with.

    python scripts/record_cuda_entry_points.py FOLDER > crates/shim/data/entry_points.txt.new

FOLDER has cuda.h (of the PyPI package nvidia-cuda-runtime: nvidia/cu13/include). Marks of names that are in the list already are
kept; a new name gets the mark `?`, and the shim's test asks for another. The header itself is not kept.
"""

import pathlib
import re
import subprocess
import sys

LIST = pathlib.Path(__file__).parent.parent / "crates/shim/data/entry_points.txt"
# As programs see it, with streams per thread, and as the driver itself is compiled.
WAYS = [[], ["-DCUDA_API_PER_THREAD_DEFAULT_STREAM"], ["-D__CUDA_API_VERSION_INTERNAL"]]


def symbols(folder):
    found = set()
    for way in WAYS:
        command = ["cc", "-E", "-P", *way, "-include", "stddef.h", f"{folder}/cuda.h"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found |= set(re.findall(r"\b(cu[A-Z]\w*)\s*\([^;{}]*\)\s*;", text))
    return {name for name in found if not re.search(r"_v1$|_st$", name)}


def main():
    marks = {}
    comments = []
    if LIST.exists():
        for line in LIST.read_text().splitlines():
            if line.startswith("#") or not line:
                comments.append(line)
            else:
                name, mark = line.split(maxsplit=1)
                marks[name] = mark
    print("\n".join(comments))
    for name in sorted(symbols(sys.argv[1]) | set(marks)):
        print(name, marks.get(name, "?"))


main()
