"""Graphs made at random, one for each seed: devices, partial and softened, colocation, variables of both kinds, generators."""
import random

import tensorflow as tf

from .common import add_case, set_class, set_device, tf1

DEVICES = ["", "", "", "", "/cpu:0", "/cpu:1", "/cpu:2", "/device:CPU:*", "/job:localhost", "/cpu:10", "/gpu:0", "/gpu:1", "/cpu:25", "/task:0/cpu:1"]
RAW = tf.raw_ops


def is_there(device, cpus):
    """Whether one of so many CPUs is meant."""
    number = device.rpartition(":")[2]
    return "gpu" not in device and (not number.isdigit() or int(number) < cpus)


def graph(seed, cpus, soft):
    def build():
        choose = random.Random(seed)
        there = [device for device in DEVICES if soft or is_there(device, cpus)]
        tensors, refs, handles, count = [RAW.Placeholder(dtype=tf.float32, shape=[], name="n0")], [], [], choose.randint(6, 40)

        def one():
            return choose.choice(tensors[-8:] if choose.random() < 0.7 else tensors)

        def add(k):
            name, kind = f"n{k}", choose.random()
            if kind < 0.16:
                return tf.constant(float(k), name=name)
            if kind < 0.20:
                return RAW.RandomStandardNormal(shape=tf.constant([], tf.int32, name=f"{name}_shape"), dtype=tf.float32, seed=1, name=name)
            if kind < 0.26:
                refs.append(RAW.VariableV2(shape=[], dtype=tf.float32, name=name))
                return refs[-1]
            if kind < 0.32:
                handles.append(RAW.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name, name=name))
                return handles[-1]
            if kind < 0.40 and refs:
                return choose.choice([RAW.Assign, RAW.AssignAdd])(ref=choose.choice(refs), value=one(), name=name)
            if kind < 0.48 and handles:
                return RAW.ReadVariableOp(resource=choose.choice(handles), dtype=tf.float32, name=name)
            if kind < 0.54 and handles:
                return RAW.AssignVariableOp(resource=choose.choice(handles), value=one(), name=name)
            if kind < 0.58 and handles:
                handles.append(RAW.Identity(input=choose.choice(handles), name=name))
                return handles[-1]
            if kind < 0.70:
                return RAW.Identity(input=choose.choice(refs) if refs and choose.random() < 0.3 else one(), name=name)
            if kind < 0.76:
                return choose.choice([RAW.Shape, RAW.Size, RAW.Rank])(input=one(), name=name)
            if kind < 0.80:
                return RAW.NoOp(name=name)
            if kind < 0.84:
                return RAW.Switch(data=one(), pred=tf.constant(True, name=f"{name}_pred"), name=name)[0]
            return RAW.AddV2(x=one(), y=one(), name=name) if choose.random() < 0.7 else RAW.Neg(x=one(), name=name)

        operations = [tensors[0].op]
        for k in range(1, count):
            before = [choose.choice(operations)] if choose.random() < 0.15 else []
            with tf1.control_dependencies(before):
                made = add(k)
            op = made if isinstance(made, tf.Operation) else made.op
            set_device(op, choose.choice(there))
            if choose.random() < 0.15:
                label = choose.choice(operations).name if choose.random() < 0.9 else "no_such_node"
                set_class(op, *[f"loc:@{label}"] + ([f"loc:@{choose.choice(operations).name}"] if choose.random() < 0.3 else []))
            operations.append(op)
            if not isinstance(made, tf.Operation) and made.dtype == tf.float32:
                tensors.append(made)
        return [([], [tf.no_op("nothing")])]

    return build


for seed in range(100):
    choose = random.Random(1000 + seed)
    add_case(f"random_{seed:03}", graph(seed, cpus := choose.choice([1, 2, 3, 4, 12]), soft := choose.random() < 0.6), cpus=cpus, soft=soft, fails=None)
