#!/usr/bin/env python3
"""Writes crates/ops/data/kernels.txt: the kernels that TensorFlow registers, by operation and device type.

    python scripts/record_kernels.py > crates/ops/data/kernels.txt     (needs TensorFlow 2.21, any build: all register the same)

A line is one operation:  Name | kernel | kernel | …  where a kernel reads

    CPU 2 label=host T=float,double data_format="NHWC" host=x,y

the device type (DEFAULT serves every type that has none of its own), a priority other than 0, a label, the values that an
attribute may have (types by name, others as `crates/graph/data/ops.txt` spells them), and the arguments in host memory.
Kernels that differ only in the values of one attribute are written as one. Left out: device types that no device here has
(XLA and TPU), and the labels of operations that only oneDNN's rewriting makes.
"""
import collections

from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

DEVICES = ["CPU", "GPU", "DEFAULT"]
LABELS = {"MklNameChangeOp", "MklLayoutDependentOp", "QuantizedMklOp"}


def type_name(number):
    return types_pb2.DataType.Name(number).removeprefix("DT_").lower()


def values(constraint):
    items = constraint.allowed_values.list
    found = [type_name(number) for number in items.type]
    found += ['"' + text.decode() + '"' for text in items.s]
    found += [str(number) for number in items.i]
    found += [str(value).lower() for value in items.b]
    assert found and not items.f and not items.shape, constraint
    return frozenset(found)


def merged(group):
    """One kernel for several whose constraints differ in one attribute only."""
    group = sorted(set(group), key=str)
    while True:
        for position in range(len(group[0]) if group else 0):
            by_rest = collections.defaultdict(set)
            for constraints in group:
                by_rest[constraints[:position] + constraints[position + 1 :]] |= constraints[position][1]
            name = group[0][position][0]
            better = [rest[:position] + ((name, frozenset(all_values)),) + rest[position:] for rest, all_values in by_rest.items()]
            if len(better) < len(group):
                group = better
                break
        else:
            return group


TYPES = [type_name(number) for number in sorted(types_pb2.DataType.values()) if 0 < number < 100]


def spelled(device, priority, label, host, constraints):
    words = [device]
    words += [str(priority)] if priority else []
    words += [f"label={label}"] if label else []
    order = lambda value: (TYPES.index(value) if value in TYPES else -1, value)
    words += [f"{name}={','.join(sorted(allowed, key=order))}" for name, allowed in constraints]
    words += ["host=" + ",".join(host)] if host else []
    return " ".join(words)


def main():
    ops = collections.defaultdict(lambda: collections.defaultdict(list))
    for kernel in kernels.get_all_registered_kernels().kernel:
        if kernel.device_type not in DEVICES or kernel.label in LABELS:
            continue
        constraints = tuple(sorted((constraint.name, values(constraint)) for constraint in kernel.constraint))
        names = tuple(name for name, _ in constraints)
        key = (kernel.device_type, kernel.priority, kernel.label, tuple(sorted(set(kernel.host_memory_arg))), names)
        ops[kernel.op][key].append(constraints)
    for op in sorted(ops):
        lines = []
        for (device, priority, label, host, _), group in ops[op].items():
            lines += [(DEVICES.index(device), spelled(device, priority, label, host, constraints)) for constraints in merged(group)]
        print(" | ".join([op] + [line for _, line in sorted(lines)]))


main()
