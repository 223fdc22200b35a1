#!/usr/bin/env python3
"""Records crates/cli/tests/keras: every layer, loss and operation of Keras 3, as TensorFlow ran it; layers at their defaults and
main options.

    python scripts/record_keras_layers.py [NAME...]     (needs tensorflow-cpu 2.21, Keras 3.15 and scipy)

A folder for each class, and one for all losses and one for all of `keras.ops`, in the format of recorded cases (CONTRIBUTING.md). A
variant is two steps: `forward` fetches the layer's
results; `gradient` fetches one vector, the gradients of a weighted sum of the results by all float inputs and weights, one behind
the other. Weights are constants of the graph. The script fails where `keras.layers` has a class that `keras_cases` does not name.
"""
import inspect
import io
import json
import os
import pathlib
import shutil
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import keras
import numpy as np
import tensorflow as tf
from keras import tree
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from keras_cases import functions as function_cases
from keras_cases import layers as layer_cases
from record_cases import strip_default_attrs

CASES = pathlib.Path(__file__).parent.parent / "crates/cli/tests/keras"


class Folder:
    """A case that is written: arrays that are equal share a file."""

    def __init__(self, group, name):
        self.path = CASES / group / name
        shutil.rmtree(self.path, ignore_errors=True)
        self.path.mkdir(parents=True)
        self.case = {"name": f"{group}/{name}", "tensorflow": tf.__version__, "keras": keras.__version__, "rtol": 1e-4, "atol": 2e-5, "steps": []}
        self.files = {}

    def save(self, array, file):
        array = np.asarray(array)
        if array.dtype == object:
            array = array.astype("S")
        data = io.BytesIO()
        np.save(data, np.ascontiguousarray(array).reshape(array.shape))
        if data.getvalue() not in self.files:
            self.files[data.getvalue()] = file
            (self.path / file).write_bytes(data.getvalue())
        return self.files[data.getvalue()]

    def step(self, name, feeds, fetches, **more):
        file = name.replace(" ", "_")
        self.case["steps"].append({
            "name": name, **more,
            "feeds": {tensor: self.save(array, f"{file}.in{index}.npy") for index, (tensor, array) in enumerate(feeds.items())},
            "targets": [],
            "fetches": {tensor: self.save(array, f"{file}.out{index}.npy") for index, (tensor, array) in enumerate(fetches.items())},
        })

    def finish(self, **model):
        self.case = {**self.case, **model}
        (self.path / "case.json").write_text(json.dumps(self.case, indent=1) + "\n")


def open_spec(array):
    """The argument's type and shape; the batch is unknown, as it is in models."""
    tensor = tf.convert_to_tensor(array)
    return tf.TensorSpec([None, *tensor.shape[1:]] if tensor.shape.rank else [], tensor.dtype)


def flat(result):
    """Tensors of a result, in an order that does not change; half floats of eight bits of exponent as float, since arrays have no such type;
    complex numbers as two floats."""
    tensors = []
    for tensor in tree.flatten(result):
        tensor = tf.convert_to_tensor(tensor)
        tensors += [tf.math.real(tensor), tf.math.imag(tensor)] if tensor.dtype.is_complex else [tensor]
    return [tf.cast(tensor, tf.float32) if tensor.dtype == tf.bfloat16 else tensor for tensor in tensors]


def weighted_sum(tensors, shapes):
    """A number that depends on every element of every float tensor, on each in another way."""
    total = 0.0
    for tensor, shape in zip(tensors, shapes):
        if tensor.dtype.is_floating:
            weights = np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape).astype(np.float32)
            total += tf.reduce_sum(tf.cast(tensor, tf.float32) * weights)
    return total


def functions(call, variables, inputs, gradient):
    """`forward` and, where there is something to derive, `gradient`, as functions of the flat inputs."""
    structure = inputs

    def forward(*flat_inputs):
        return flat(call(variables, tree.pack_sequence_as(structure, list(flat_inputs))))

    arrays = [tf.convert_to_tensor(array) for array in tree.flatten(inputs)]
    shapes = [tuple(tensor.shape) for tensor in forward(*arrays)]
    made = {"forward": forward}

    def gradients(*flat_inputs):
        with tf.GradientTape() as tape:
            weights = [tf.convert_to_tensor(variable) for variable in variables[0]]
            sources = [tensor for tensor in [*flat_inputs, *weights] if tensor.dtype.is_floating]
            tape.watch(sources)
            results = flat(call((weights, variables[1]), tree.pack_sequence_as(structure, list(flat_inputs))))
            total = weighted_sum(results, shapes)
        if not tf.is_tensor(total):
            return []
        found = [tf.convert_to_tensor(found) for found in tape.gradient(total, sources) if found is not None]
        return [tf.concat([tf.reshape(tf.cast(found, tf.float32), [-1]) for found in found], 0)] if found else []

    if gradient and gradients(*arrays):
        made["gradient"] = gradients
    return made, arrays


def record_variant(folder, name, call, variables, inputs, gradient=True):
    """Adds the steps of a variant; the graph of each as a part of the case's."""
    parts = []
    made, arrays = functions(call, variables, inputs, gradient)
    for kind, function in made.items():
        traced = tf.function(function, autograph=False)
        try:
            concrete = traced.get_concrete_function(*[open_spec(array) for array in arrays])
        except (ValueError, TypeError, NotImplementedError):
            concrete = traced.get_concrete_function(*arrays)
        if concrete.captured_inputs:
            concrete = convert_variables_to_constants_v2(concrete, lower_control_flow=False)
        assert not concrete.captured_inputs, f"{name} {kind} captures {concrete.captured_inputs}"
        outputs = tree.flatten(concrete(*arrays))
        parts.append((f"{name}/{kind}", concrete))
        at = lambda tensor: f"{name}/{kind}/{tensor.name}"
        feeds = {at(tensor): array.numpy() for tensor, array in zip(concrete.inputs, arrays)}
        fetches = {at(tensor): value.numpy() for tensor, value in zip(concrete.outputs, outputs)}
        folder.step(f"{name} {kind}", feeds, fetches)
    return parts


def write_graph(folder, parts):
    """One graph of all parts, with what the fetches need, and names as short as they can be."""
    graph = tf.Graph()
    with graph.as_default():
        for prefix, concrete in parts:
            tf.graph_util.import_graph_def(cleared(concrete.graph.as_graph_def()), name=prefix)
    definition = cleared(graph.as_graph_def())
    steps = folder.case["steps"]
    wanted = [tensor.split(":")[0] for step in steps for tensor in [*step["feeds"], *step["fetches"]]]
    definition = tf.compat.v1.graph_util.extract_sub_graph(definition, wanted)
    strip_default_attrs(definition)
    called = reachable_functions(definition)
    functions = [function for function in definition.library.function if function.signature.name in called]
    del definition.library.function[:]
    definition.library.function.extend(functions)
    definition.library.ClearField("gradient")
    names = shortened(definition.node)
    for function in definition.library.function:
        inside = shortened(function.node_def)
        for result, tensor in list(function.ret.items()):
            function.ret[result] = renamed(tensor, inside)
        for result, node in list(function.control_ret.items()):
            function.control_ret[result] = inside.get(node, node)
    for step in steps:
        for kind in ("feeds", "fetches"):
            step[kind] = {renamed(tensor, names): file for tensor, file in step[kind].items()}
    (folder.path / "graph.pb").write_bytes(definition.SerializeToString(deterministic=True))
    folder.finish(graph="graph.pb")


def cleared(definition):
    """Without what only helps TensorFlow's debugger."""
    for nodes in [definition.node, *(function.node_def for function in definition.library.function)]:
        for node in nodes:
            node.ClearField("experimental_debug_info")
            for noise in ("_user_specified_name", "_XlaMustCompile", "_class", "_output_shapes"):
                node.attr.pop(noise, None)
    for function in definition.library.function:
        function.arg_attr.clear()
    return definition


def shortened(nodes):
    """Renames nodes to the last part of their names, with a number where several would be called the same."""
    names, taken = {}, set()
    for node in nodes:
        short = base = node.name.split("/")[-1]
        number = 0
        while short in taken:
            number += 1
            short = f"{base}_{number}"
        taken.add(short)
        names[node.name] = short
    for node in nodes:
        node.name = names[node.name]
        node.input[:] = [renamed(tensor, names) for tensor in node.input]
    return names


def renamed(tensor, names):
    """A tensor (`node`, `node:0`, `node:output:0`) or control input (`^node`) of a renamed node."""
    control, tensor = tensor.startswith("^"), tensor.lstrip("^")
    node, colon, output = tensor.partition(":")
    return "^" * control + names.get(node, node) + colon + output


def reachable_functions(definition):
    """The names of functions that nodes of the graph call, and those that these call. A gradient function that is only named in an
    attribute of a forward call is none."""
    by_name = {function.signature.name: function for function in definition.library.function}
    used, waiting = set(), [definition.node]
    while waiting:
        for node in waiting.pop():
            named = [attr.func.name for attr in node.attr.values()] + [function.name for attr in node.attr.values() for function in attr.list.func]
            for name in [node.op, *named]:
                if name in by_name and name not in used:
                    used.add(name)
                    waiting.append(by_name[name].node_def)
    return used


def layer_call(layer, variant):
    def call(variables, inputs):
        results, _ = layer.stateless_call(variables[0], variables[1], *inputs, **variant.call)
        changed = _ if variant.call.get("training") else []
        return [results, [value for value in changed if value.dtype.is_floating]]
    return call


def built(variant):
    """The layer with weights that are not zero, and its variables as arrays."""
    keras.utils.set_random_seed(7)
    layer = variant.make()
    layer(*variant.inputs, **variant.call)
    random = np.random.default_rng(5)
    for weight in layer.trainable_variables:
        value = np.asarray(weight)
        if not np.any(value):
            weight.assign(random.normal(size=value.shape, scale=0.3).astype(value.dtype))
    return layer, ([np.asarray(v) for v in layer.trainable_variables], [np.asarray(v) for v in layer.non_trainable_variables])


def record_layer(name, variants):
    folder = Folder("layers", name)
    if any(variant.saved for variant in variants):
        return record_saved(folder, variants)
    parts = []
    for variant in variants:
        try:
            layer, variables = built(variant)
            parts += record_variant(folder, variant.name, layer_call(layer, variant), variables, variant.inputs, variant.gradient)
        except Exception as error:
            raise RuntimeError(f"{name} {variant.name}") from error
    write_graph(folder, parts)


def record_saved(folder, variants):
    """Layers with tables: a SavedModel with a signature for each variant."""
    module, signatures = tf.Module(), {}
    for variant in variants:
        layer = variant.make()
        setattr(module, variant.name, layer)
        arrays = [tf.convert_to_tensor(array) for array in variant.inputs]
        function = tf.function(lambda x, layer=layer: {"y": layer(x)}, autograph=False)
        results = function(*arrays)
        signatures[variant.name] = function.get_concrete_function(open_spec(variant.inputs[0]))
        folder.step(f"{variant.name} forward", {"x": arrays[0].numpy()}, {"y": results["y"].numpy()}, signature=variant.name)
    tf.saved_model.save(module, str(folder.path / "model"), signatures)
    shutil.rmtree(folder.path / "model/assets", ignore_errors=True)
    (folder.path / "model/fingerprint.pb").unlink(missing_ok=True)
    folder.finish(saved_model="model")


def record_functions(name, functions, gradient):
    """One case with a variant for each function."""
    lacking = sorted(name for name, found in functions.items() if found is None)
    assert not lacking, f"no arguments are known of {lacking}"
    folder, parts, failed = Folder("functions", name), [], []
    for variant, (function, arrays) in sorted(functions.items()):
        try:
            call = lambda _, inputs, function=function: function(*inputs)
            parts += record_variant(folder, variant, call, ([], []), arrays, gradient)
        except Exception as error:
            print(f"{name} {variant}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            failed.append(variant)
    assert not failed, f"not recorded: {failed}"
    write_graph(folder, parts)
    print(f"{name}: {len(functions)} functions")


def classes(module):
    """Name by class; the first name in the alphabet whose class is called so."""
    found = {}
    for name, value in sorted(inspect.getmembers(module, inspect.isclass)):
        if value not in found or value.__name__ == name:
            found[value] = name
    return set(found.values())


def main(chosen):
    table = layer_cases.table()
    known, wanted = {*table, *layer_cases.WITHOUT}, classes(keras.layers)
    assert known == wanted, f"not named: {sorted(wanted - known)}; no class: {sorted(known - wanted)}"
    failed = []
    for name, variants in sorted(table.items()):
        if not chosen or name in chosen:
            try:
                record_layer(name, variants)
                size = sum(file.stat().st_size for file in (CASES / "layers" / name).rglob("*") if file.is_file())
                print(f"{name}: {len(variants)} variants, {size} bytes", flush=True)
            except Exception as error:
                failed.append(name)
                shutil.rmtree(CASES / "layers" / name, ignore_errors=True)
                print(f"{error}: {type(error.__cause__).__name__}: {str(error.__cause__)[:600]}", flush=True)
    assert not failed, f"not recorded: {failed}"
    if not chosen or "losses" in chosen:
        record_functions("losses", function_cases.loss_functions(), gradient=True)
    if not chosen or "ops" in chosen:
        record_functions("ops", function_cases.operations(), gradient=False)


if __name__ == "__main__":
    main(sys.argv[1:])
