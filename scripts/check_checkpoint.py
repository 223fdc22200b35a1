#!/usr/bin/env python3
"""Checks with TensorFlow that the checkpoints of plimsoll-formats are TensorFlow's.

    cargo build -p plimsoll-formats --example rewrite_checkpoint
    python scripts/check_checkpoint.py target/debug/examples/rewrite_checkpoint [PREFIX…]      (needs tensorflow-cpu 2.21)

Checkpoints that TensorFlow writes are read and written again; TensorFlow must read the same from ours, and where tensors are
whole the files must be the same byte by byte. Further prefixes name checkpoints to try it with as well.
"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf


def save(prefix, tensors, slices=None):
    names = sorted(tensors)
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=names, shape_and_slices=slices or [""] * len(names), tensors=[tensors[n] for n in names])


def samples(folder):
    random = np.random.default_rng(0)
    types = [tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64]
    tensors = {f"numbers/{t.name}": tf.cast(random.integers(0, 100, (3, 4)), t) for t in types}
    tensors |= {
        "scalar": tf.constant(1.5), "empty": tf.zeros([0, 3]), "bools": tf.constant([True, False]),
        "complex": tf.constant([1 + 2j], tf.complex64), "complex128": tf.constant([1 + 2j], tf.complex128),
        "strings": tf.constant([["", "a"], ["bc" * 100, "\xff"]]), "no strings": tf.zeros([0], tf.string),
        "nan": tf.bitcast(tf.constant([0x7FC00001, -1], tf.int32), tf.float32),
    }
    save(folder / "types", tensors)
    save(folder / "blocks", {f"a/rather/long/name/for/variable_{i:05}/of/a/layer/{i % 7}": tf.constant(i) for i in range(5000)})
    yield folder / "types", True
    yield folder / "blocks", True
    whole = tf.constant(random.normal(size=(5, 6, 7)).astype(np.float32))
    parts = {"a": (whole[:2], "5 6 7 0,2:-:-"), "b": (whole[2:, :4], "5 6 7 2,3:0,4:-"), "c": (whole[2:, 4:, :], "5 6 7 2,3:4,2:0,7")}
    tf.raw_ops.SaveV2(prefix=str(folder / "slices"), tensor_names=["w"] * 3 + ["x"], shape_and_slices=[p[1] for p in parts.values()] + [""],
                      tensors=[p[0] for p in parts.values()] + [tf.constant(3)])
    yield folder / "slices", False


def check_merge(command, folder):
    """The same parts merged by TensorFlow and by us."""
    whole = tf.reshape(tf.range(12, dtype=tf.float32), [4, 3])
    for who in ("theirs", "ours"):
        for part in range(2):
            tf.raw_ops.SaveV2(prefix=str(folder / who / f"part{part}"), tensor_names=[f"v{1 - part}", "w"], shape_and_slices=["", f"4 3 {2 * part},2:-"],
                              tensors=[tf.constant(part), whole[2 * part:2 * part + 2]])
    parts = lambda who: [str(folder / who / f"part{part}") for part in range(2)]
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=parts("theirs"), destination_prefix=str(folder / "theirs" / "all"), delete_old_dirs=False)
    subprocess.run([command, *parts("ours"), folder / "ours" / "all"], check=True)
    same = all((folder / "theirs" / f"all{end}").read_bytes() == (folder / "ours" / f"all{end}").read_bytes()
               for end in (".index", ".data-00000-of-00002", ".data-00001-of-00002"))
    read = np.array_equal(tf.train.load_checkpoint(str(folder / "ours" / "all")).get_tensor("w"), whole)
    subprocess.run([command, folder / "ours" / "all", folder / "ours" / "again"], check=True)
    read &= np.array_equal(tf.train.load_checkpoint(str(folder / "ours" / "again")).get_tensor("w"), whole)
    print(f"merged: {'same bytes' if same else 'DIFFERENT BYTES'}, {'same tensors' if read else 'DIFFERENT TENSORS'}")
    return not (same and read)


def main():
    command, failed = sys.argv[1], 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        failed += check_merge(command, folder)
        for prefix, whole in [*samples(folder), *((pathlib.Path(path), False) for path in sys.argv[2:])]:
            out = folder / "out" / "again"
            subprocess.run([command, prefix, out], check=True)
            theirs, ours = tf.train.load_checkpoint(str(prefix)), tf.train.load_checkpoint(str(out))
            same = theirs.get_variable_to_shape_map() == ours.get_variable_to_shape_map()
            for name in theirs.get_variable_to_shape_map():
                a, b = theirs.get_tensor(name), ours.get_tensor(name)
                equal = np.array_equal(a, b) if np.asarray(a).dtype == object else np.asarray(a).tobytes() == np.asarray(b).tobytes()
                same &= theirs.get_variable_to_dtype_map()[name] == ours.get_variable_to_dtype_map()[name] and equal
            verdict = "same tensors" if same else "DIFFERENT TENSORS"
            if whole:
                files = all((pathlib.Path(f"{prefix}{end}").read_bytes() == pathlib.Path(f"{out}{end}").read_bytes())
                            for end in (".index", ".data-00000-of-00001"))
                verdict += ", same bytes" if files else ", DIFFERENT BYTES"
            failed += "DIFFERENT" in verdict
            print(f"{prefix.name}: {verdict}")
    sys.exit(1 if failed else 0)


main()
