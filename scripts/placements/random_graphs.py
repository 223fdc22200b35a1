"""Graphs made at random, one for each seed: devices, partial and softened, colocation, variables of both kinds, queues, lists,
stacks, references that are handed on, generators and metadata."""
import random

import tensorflow as tf

from .common import add_case, set_class, set_device, tf1

DEVICES = ["", "", "", "", "/cpu:0", "/cpu:1", "/cpu:2", "/device:CPU:*", "/job:localhost", "/cpu:10", "/gpu:0", "/gpu:1", "/cpu:25", "/task:0/cpu:1"]
RAW = tf.raw_ops


def is_there(device, cpus):
    """Whether one of so many CPUs is meant."""
    number = device.rpartition(":")[2]
    return "gpu" not in device and (not number.isdigit() or int(number) < cpus)


class Maker:
    """Makes operations; `made` has their outputs by kind: tensor, ref, variable, queue, stack, list, text."""

    def __init__(self, choose):
        self.choose = choose
        self.made = {kind: [] for kind in ("tensor", "ref", "variable", "queue", "stack", "list", "text")}

    def pick(self, kind="tensor"):
        """Mostly one of the last."""
        found = self.made[kind]
        return self.choose.choice(found[-8:] if self.choose.random() < 0.6 else found)

    def keep(self, kind, output):
        self.made[kind].append(output)
        return output

    def source(self, name):
        return self.choose.choice([
            lambda: tf.constant(1.0, name=name),
            lambda: RAW.Placeholder(dtype=tf.float32, shape=[], name=name),
            lambda: RAW.RandomStandardNormal(shape=tf.constant([], tf.int32, name=f"{name}_shape"), dtype=tf.float32, seed=1, name=name),
            lambda: self.keep("ref", RAW.VariableV2(shape=[], dtype=tf.float32, name=name)),
            lambda: self.keep("variable", RAW.VarHandleOp(dtype=tf.float32, shape=[], shared_name=name, name=name)),
            lambda: self.keep("queue", RAW.FIFOQueueV2(component_types=[tf.float32], shapes=[[]], shared_name=name, name=name)),
            lambda: self.keep("stack", RAW.StackV2(max_size=tf.constant(-1, name=f"{name}_size"), elem_type=tf.float32, name=name)),
            lambda: self.keep("list", RAW.TensorListReserve(
                element_shape=tf.constant([], tf.int32, name=f"{name}_shape"), num_elements=tf.constant(2, name=f"{name}_size"),
                element_dtype=tf.float32, name=name)),
        ])()

    def change(self, name):
        """Something with a reference, a resource, a variant or a text."""
        kind = self.choose.choice([kind for kind, made in self.made.items() if made and kind != "tensor"] or [None])
        of = self.pick(kind) if kind else None
        return self.choose.choice({
            "ref": [
                lambda: RAW.Assign(ref=of, value=self.pick(), name=name),
                lambda: RAW.AssignAdd(ref=of, value=self.pick(), name=name),
                lambda: RAW.Identity(input=of, name=name),
                lambda: self.keep("ref", RAW.RefIdentity(input=of, name=name)),
                lambda: self.keep("ref", RAW.RefSwitch(data=of, pred=tf.constant(True, name=f"{name}_pred"), name=name)[0]),
            ],
            "variable": [
                lambda: RAW.ReadVariableOp(resource=of, dtype=tf.float32, name=name),
                lambda: RAW.AssignVariableOp(resource=of, value=self.pick(), name=name),
                lambda: RAW.ResourceApplyGradientDescent(var=of, alpha=self.pick(), delta=self.pick(), name=name),
                lambda: self.keep("variable", RAW.Identity(input=of, name=name)),
                lambda: self.keep("variable", RAW.IdentityN(input=[of, self.pick()], name=name)[0]),
                lambda: self.keep("variable", RAW.Merge(inputs=[of, self.pick("variable")], name=name)[0]),
            ],
            "queue": [
                lambda: RAW.QueueEnqueueV2(handle=of, components=[self.pick()], name=name),
                lambda: RAW.QueueDequeueV2(handle=of, component_types=[tf.float32], name=name)[0],
                lambda: RAW.QueueSizeV2(handle=of, name=name),
            ],
            "stack": [lambda: RAW.StackPushV2(handle=of, elem=self.pick(), name=name)],
            "list": [
                lambda: self.keep("list", RAW.TensorListSetItem(
                    input_handle=of, index=tf.constant(0, name=f"{name}_index"), item=self.pick(), name=name)),
                lambda: self.keep("list", RAW.Identity(input=of, name=name)),
                lambda: RAW.TensorListLength(input_handle=of, name=name),
            ],
            "text": [lambda: self.keep("text", RAW.Identity(input=of, name=name))],
            None: [lambda: RAW.NoOp(name=name)],
        }[kind])()

    def step(self, name):
        return self.choose.choice([
            lambda: RAW.AddV2(x=self.pick(), y=self.pick(), name=name),
            lambda: RAW.Neg(x=self.pick(), name=name),
            lambda: RAW.Identity(input=self.pick(), name=name),
            lambda: RAW.Identity(input=self.pick(), name=name),
            lambda: RAW.Shape(input=self.pick(), name=name),
            lambda: RAW.Size(input=self.pick(), name=name),
            lambda: RAW.Rank(input=self.pick(), name=name),
            lambda: RAW.Switch(data=self.pick(), pred=tf.constant(True, name=f"{name}_pred"), name=name)[0],
            lambda: RAW.Merge(inputs=[self.pick(), self.pick()], name=name)[0],
            lambda: self.keep("text", RAW.AsString(input=self.pick(), name=name)),
            lambda: RAW.NoOp(name=name),
        ])()


def graph(seed, cpus, soft):
    def build():
        choose = random.Random(seed)
        there = [device for device in DEVICES if soft or is_there(device, cpus)]
        maker = Maker(choose)
        operations = [maker.keep("tensor", RAW.Placeholder(dtype=tf.float32, shape=[], name="n0")).op]
        for k in range(1, choose.randint(6, 40)):
            before = [choose.choice(operations)] if choose.random() < 0.15 else []
            with tf1.control_dependencies(before):
                made = choose.choices([maker.source, maker.change, maker.step], [0.3, 0.35, 0.35])[0](f"n{k}")
            op = made if isinstance(made, tf.Operation) else made.op
            set_device(op, choose.choice(there))
            if choose.random() < 0.12:
                labels = [choose.choice(operations).name if choose.random() < 0.9 else "no_such_node" for _ in range(choose.randint(1, 2))]
                set_class(op, *[f"loc:@{label}" for label in labels])
            operations.append(op)
            if not isinstance(made, tf.Operation) and made.dtype == tf.float32 and made.shape.rank in (0, None):
                maker.keep("tensor", made)
        return [([], [tf.no_op("nothing")])]

    return build


for seed in range(100):
    choose = random.Random(1000 + seed)
    add_case(f"random_{seed:03}", graph(seed, cpus := choose.choice([1, 2, 3, 4, 12]), soft := choose.random() < 0.7), cpus=cpus, soft=soft, fails=None)
