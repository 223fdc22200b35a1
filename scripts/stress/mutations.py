"""Graphs, SavedModels, ConfigProtos and checkpoints, changed as trees, given to the commands that read them."""

import json
import os
import shutil
import struct

import protobuf
import table
from common import ROOT

CASES = ROOT / "crates/cli/tests/cases"
SAVED = ROOT / "crates/cli/tests/saved"
LIMIT = ["--memory-limit", "CPU:0=256MiB"]


def attack(context):
    chance = context.random
    cases = sorted(path.parent for path in CASES.glob("*/graph.pb") if path.stat().st_size < 60_000)
    kinds = [(graph, 40), (saved_model, 20), (config, 15), (checkpoint, 25)]
    while context.goes_on():
        kind = chance.choices([kind for kind, _ in kinds], [weight for _, weight in kinds])[0]
        context.count(kind.__name__)
        kind(context, chance, cases)


def changed(tree, chance):
    """The tree with a few changes, as bytes, and what they were."""
    tree = [field.copy() for field in tree]
    ways = [protobuf.mutate(tree, chance) for _ in range(chance.choice([1, 1, 1, 2, 4]))]
    return protobuf.write(tree), "+".join(ways)


def graph(context, chance, cases):
    case = chance.choice(cases)
    folder = context.folder / case.name
    if not folder.exists():
        shutil.copytree(case, folder)
    facts = json.loads((case / "case.json").read_text())
    data, ways = changed(protobuf.parse((case / facts["graph"]).read_bytes()), chance)
    (folder / facts["graph"]).write_bytes(data)
    file, step = folder / facts["graph"], facts["steps"][0]
    wanted = [word for name in step.get("fetches", {}) for word in ("--fetch", name)]
    wanted += [word for name in step.get("targets", []) for word in ("--target", name)]
    init = [word for name in facts.get("init", []) for word in ("--init", name)]
    feeds = [word for name, array in step.get("feeds", {}).items() for word in ("--feed", f"{name}={folder / array}")]
    fetches = [word for name in step.get("fetches", {}) for word in ("--fetch", name)]
    commands = [
        ["place", file],
        ["plan", file, *wanted, *init, *LIMIT],
        ["verify", folder, *LIMIT],
        ["eval", file, *feeds, *fetches, *init, *LIMIT],
    ]
    context.judged(f"graph of {case.name} ({ways})", chance.choice(commands), file)


def saved_model(context, chance, _cases):
    folder = context.folder / "model"
    shutil.copytree(SAVED / "model", folder, dirs_exist_ok=True)
    file = folder / "saved_model.pb"
    data, ways = changed(protobuf.parse((SAVED / "model/saved_model.pb").read_bytes()), chance)
    file.write_bytes(data)
    context.judged(f"saved_model.pb ({ways})", chance.choice([plan_words(folder), eval_words(folder), ["place", folder]]), file)


def plan_words(folder):
    return ["plan", folder, "--signature", "train", "--feed-shape", "x=2x4", "--feed-shape", "y=2", *LIMIT]


def eval_words(folder):
    feeds = ["--feed", f"x={SAVED / 'x.npy'}", "--feed", f"y={SAVED / 'y.npy'}"]
    return ["eval", folder, "--signature", "train", *feeds, *LIMIT]


def config(context, chance, _cases):
    if chance.random() < 0.7:
        data, ways = changed(protobuf.parse(binary_config(chance)), chance)
        file = context.folder / "config.pb"
    else:
        data, ways = text_config(chance), "text"
        file = context.folder / "config.pbtxt"
    file.write_bytes(data)
    command = chance.choice([["devices"], ["place", CASES / "mlp_sgd_ref/graph.pb"], ["verify", CASES / "scalars"]])
    context.judged(f"ConfigProto ({ways})", [*command, "--config", file], file)


def binary_config(chance):
    """A ConfigProto: device_count, threads, gpu_options with virtual devices, placement."""
    field, varint, data = protobuf.Field, protobuf.VARINT, protobuf.BYTES
    count = [field(1, data, b"CPU"), field(2, varint, chance.choice([1, 2, 4]))]
    limits = struct.pack("<ff", 128.0, 64.0)
    virtual = [field(1, data, [field(1, data, limits), field(2, data, b"\x01\x01")])]
    gpu = [
        field(1, protobuf.FIXED64, struct.pack("<d", chance.choice([0.5, 1.0, 0.0]))),
        field(2, data, b"BFC"),
        field(4, varint, 1),
        field(5, data, b"0"),
        field(9, data, virtual),
    ]
    return protobuf.write(
        [
            field(1, data, count),
            field(2, varint, 2),
            field(5, varint, 2),
            field(6, data, gpu),
            field(7, varint, 1),
            field(8, varint, 0),
            field(10, data, [field(3, data, [field(1, varint, 1)])]),
        ]
    )


def text_config(chance):
    words = [
        "device_count", "gpu_options", "experimental", "virtual_devices", "memory_limit_mb", "key", "value", "{", "}", "{", "}", ":", "<", ">",
        "[", "]", ",", ";", "-", "#", '"CPU"', '"GPU"', "'", '"', "1", "-1", "99999999999999999999", "1e999", "nan", "0x7f", "true", "0.5", "\n",
        "allow_soft_placement", "visible_device_list", '"0,1,99999999999"', "per_process_gpu_memory_fraction", "\\377", "\ufffd",
    ]  # fmt: skip
    text = 'device_count { key: "CPU" value: 2 } gpu_options { visible_device_list: "0" per_process_gpu_memory_fraction: 0.5 } '.split(" ")
    for _ in range(chance.randint(1, 6)):
        text.insert(chance.randint(0, len(text)), chance.choice(words) * chance.choice([1, 1, 1, 3000]))
    return " ".join(text).encode()


def checkpoint(context, chance, _cases):
    folder = context.folder / "restored"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(SAVED / "model", folder)
    index, data = folder / "variables/variables.index", folder / "variables/variables.data-00000-of-00001"
    way = chance.choice([entries, entries, entries, keys, bomb, bomb, blocks, contents])
    said = way(chance, index, data)
    command = chance.choice([eval_words(folder), eval_words(folder), [*plan_words(folder), "--restore", folder / "variables/variables"]])
    # A block of a checkpoint becomes at most what a variable needs: the bound on memory is part of the test.
    context.judged(f"checkpoint ({way.__name__}: {said})", command, index, memory=3 << 29)


def entries(chance, index, _data):
    """The messages in the index: shapes, types, shards, offsets, sizes, checksums."""
    found = table.read(index.read_bytes())
    at = chance.randrange(len(found))
    key, value = found[at]
    changed_value, ways = changed(protobuf.parse(value), chance)
    found[at] = (key, changed_value)
    index.write_bytes(table.write(found, chance.choice([None, table.snappy])))
    return f"{key.decode()} {ways}"


def keys(chance, index, _data):
    """Names that are missing, doubled, out of order, long, or no text."""
    found = table.read(index.read_bytes())
    for _ in range(chance.randint(1, 3)):
        at = chance.randrange(len(found))
        way = chance.choice(["delete", "double", "rename", "order", "many"])
        if way == "delete" and len(found) > 1:
            del found[at]
        elif way == "double":
            found.insert(at, found[at])
        elif way == "rename":
            found[at] = (chance.choice(protobuf.TEXTS), found[at][1])
        elif way == "many":
            found += [(found[-1][0] + b"%05d" % number, found[-1][1]) for number in range(2_000)]
            found = found[:2_000]
        else:
            chance.shuffle(found)
    index.write_bytes(table.write(found, chance.choice([None, table.snappy])))
    return f"{len(found)} keys"


def bomb(chance, index, _data):
    name, pack = chance.choice(list(table.bombs(chance).items()))
    index.write_bytes(table.write(table.read(index.read_bytes()), pack))
    return name


def blocks(chance, index, _data):
    """Where blocks are and where their entries begin again."""
    found = table.read(index.read_bytes())
    handle = table.number(chance.choice(protobuf.EXTREMES)) + table.number(chance.choice(protobuf.EXTREMES))
    restarts = chance.choice([[0], [], [1 << 31], [0] * 70000, [5, 3, 1]])
    index.write_bytes(table.write(found, None, restarts, chance.choice([None, handle])))
    return f"{len(restarts)} restarts"


def contents(chance, index, data):
    """The arrays: cut, longer, sparse and huge, or other bytes with the right checksum."""
    way = chance.choice(["cut", "huge", "bytes", "none"])
    if way == "cut":
        os.truncate(data, chance.randrange(400))
    elif way == "huge":
        os.truncate(data, 1 << 40)
        found = [(key, larger(value) if b"VARIABLE" in key else value) for key, value in table.read(index.read_bytes())]
        index.write_bytes(table.write(found))
    elif way == "bytes":
        raw = bytearray(data.read_bytes())
        for _ in range(5):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        data.write_bytes(raw)
        index.write_bytes(table.write([(key, checked(value, raw)) for key, value in table.read(index.read_bytes())]))
    else:
        data.unlink()
    return way


def larger(value):
    """An entry that says that its array has 2^38 bytes."""
    tree = protobuf.parse(value)
    for field in tree:
        if field.number == 5:
            field.value = 1 << 38
        if field.number == 2:
            field.value = [protobuf.Field(2, protobuf.BYTES, [protobuf.Field(1, protobuf.VARINT, 1 << 36)])]
    return protobuf.write(tree)


def checked(value, raw):
    """The entry with the checksum of what the data say now."""
    tree = protobuf.parse(value)
    facts = {field.number: field.value for field in tree}
    for field in tree:
        if field.number == 6 and facts.get(1) != 7:
            field.value = struct.pack("<I", table.masked(bytes(raw[facts.get(4, 0) :][: facts.get(5, 0)])))
    return protobuf.write(tree)
