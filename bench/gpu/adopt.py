"""Makes data of the project of what check.sh has measured on a card: adopt.py OUT [DATA]. The card's tables in
crates/device-cuda/data/overhead.txt and rates.txt (or in DATA) are replaced, or added; what was measured lies beside them, in card/NAME."""

import json
import pathlib
import re
import shutil
import sys

DATA = pathlib.Path(__file__).resolve().parents[2] / "crates/device-cuda/data"


ROW = r"(forward|by-input|by-filter|product) (kernels|cudnn|tensor-cores|tensor-cores-16) \d+(\.\d+)? \d+(\.\d+)?\n"


def replace(place, name, table):
    """Puts the card's table in the place of the one that the file has of it, or behind the others."""
    sections = re.split(r"(?m)^(?=card )", place.read_text(encoding="utf-8"))
    kept = [section for section in sections if not section.startswith(f"card {name}\n")]
    place.write_text("".join(kept) + table, encoding="utf-8")


def adopt(out, data=DATA):
    """Takes the results of a folder. Returns the card's name."""
    table = (out / "overhead.txt").read_text(encoding="utf-8")
    measured = json.loads((out / "overhead.json").read_text(encoding="utf-8"))
    name = measured["card"]
    if not table.startswith(f"card {name}\n") or not re.fullmatch(r"card .+\ngraph [1-9]\d*\nnode [1-9]\d*\ndevice [1-9]\d*\n", table):
        raise SystemExit(f"{out}/overhead.txt is no table of a card")
    if name in ("*", "Mock card"):
        raise SystemExit(f"{name}: not a card of which there are others")
    rates = out / "rates.txt"
    rates = rates.read_text(encoding="utf-8") if rates.exists() else None
    if rates and not re.fullmatch(rf"card {re.escape(name)}\n({ROW}){{16}}", rates):
        raise SystemExit(f"{out}/rates.txt is no table of {name}")
    replace(data / "overhead.txt", name, table)
    if rates:
        replace(data / "rates.txt", name, rates)
    folder = data / "card" / re.sub(r"[^A-Za-z0-9]+", "_", name)
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("check.json", "properties.json", "engines.txt", "engines_elsewhere.txt", "engines_by_number.txt", "tuned.txt"):
        if (out / file).exists():
            shutil.copy(out / file, folder / file)
    return name


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    print(adopt(*map(pathlib.Path, sys.argv[1:])))
