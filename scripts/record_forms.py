#!/usr/bin/env python3
"""Writes crates/cli/tests/forms: small models in the forms that TensorFlow saves, with what they give for three examples.

    python scripts/record_forms.py     (needs tensorflow-cpu 2.21)

v1.ckpt.meta, v1.ckpt         a MetaGraph and its checkpoint of version 1, with a partitioned variable and slots of an optimizer
v1s.ckpt.meta, v1s.ckpt-*     the same in two shards
v2s.ckpt.meta, v2s.ckpt.*     the same in version 2, in two shards
resource.ckpt.meta, …         resource variables, version 2
simple/                       tf.compat.v1.saved_model.simple_save, with a legacy_init_op that gives a variable its value
tags/                         graphs for training and for serving on another device, as Estimators export them
archive/                      keras.export.ExportArchive: two signatures, one of which uses a table that the other does not
module/                       tf.saved_model.save of nested functions with captured variables, one of which a call changes
open/                         variables of open shapes: a signature reads them, another one gives one of them another shape
x.npy, y_*.npy                the examples and what each model gives; y_tags.npy of the graph that serves, y_train.npy of the other one
"""
import os
import shutil

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
FOLDER = os.path.join(os.path.dirname(__file__), "..", "crates", "cli", "tests", "forms")
X = np.random.default_rng(3).normal(size=(3, 4)).astype(np.float32)


def path(name):
    return os.path.join(FOLDER, name)


def network(resource):
    """A layer whose weights are in two parts, one on each device, and a training step with momentum."""
    x = tf1.placeholder(tf.float32, [None, 4], "x")
    labels = tf1.placeholder(tf.float32, [None, 3], "labels")
    with tf1.variable_scope("layer", use_resource=resource):
        parts = tf1.fixed_size_partitioner(2, axis=0)
        with tf1.device("/cpu:0"):
            w = tf1.get_variable("w", [4, 3], partitioner=parts, initializer=tf1.random_normal_initializer(seed=1))
        with tf1.device("/cpu:1"):
            b = tf1.get_variable("b", initializer=np.array([0.5, -1, 2], np.float32))
            scale = tf1.get_variable("scale", initializer=np.array([2, 3, 4], np.int64), trainable=False)
    y = tf.add(tf.matmul(x, tf.convert_to_tensor(w)) + b, tf.cast(scale, tf.float32), name="y")
    loss = tf.reduce_mean(tf.square(y - labels), name="loss")
    train = tf1.train.MomentumOptimizer(0.1, 0.9).minimize(loss, global_step=tf1.train.get_or_create_global_step(), name="train")
    return x, labels, y, train


def meta(name, version, sharded, resource=False):
    config = tf1.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default() as graph, tf1.Session(config=config) as session:
        graph.seed = 1
        x, labels, y, train = network(resource)
        init = tf1.global_variables_initializer()
        tf1.add_to_collection("init_op", init)
        session.run(init)
        session.run(train, {x: X, labels: np.ones((3, 3), np.float32)})
        saver = tf1.train.Saver(write_version=version, sharded=sharded)
        saver.save(session, path(name), write_state=False)
        np.save(path(f"y_{name.split('.')[0]}.npy"), session.run(y, {x: X}))
        session.run(train, {x: X, labels: np.ones((3, 3), np.float32)})
        np.save(path(f"trained_{name.split('.')[0]}.npy"), session.run(y, {x: X}))


def simple():
    with tf.Graph().as_default(), tf1.Session() as session:
        x = tf1.placeholder(tf.float32, [None, 4], "x")
        w = tf1.get_variable("w", initializer=np.arange(4, dtype=np.float32), use_resource=False)
        made = tf1.get_variable("made", initializer=0.0, collections=[tf1.GraphKeys.LOCAL_VARIABLES], use_resource=False)
        y = tf.reduce_sum(x * w, 1) + made
        init = tf.group(tf1.assign(made, 7.0), name="make")
        session.run([tf1.global_variables_initializer(), init])
        np.save(path("y_simple.npy"), session.run(y, {x: X}))
        tf1.saved_model.simple_save(session, path("simple"), {"x": x}, {"y": y}, legacy_init_op=init)


def tags():
    builder = tf1.saved_model.Builder(path("tags"))
    for index, names in enumerate([["train"], ["serve", "gpu"]]):
        with tf.Graph().as_default(), tf1.Session() as session:
            x = tf1.placeholder(tf.float32, [None, 4], "x")
            w = tf1.get_variable("w", initializer=np.ones(4, np.float32))
            y = tf.reduce_sum(x * w, 1) * (index + 1)
            session.run(tf1.global_variables_initializer())
            signature = tf1.saved_model.predict_signature_def({"x": x}, {"y": y})
            arguments = dict(signature_def_map={"serving_default": signature}, saver=tf1.train.Saver(sharded=True))
            if index == 0:
                builder.add_meta_graph_and_variables(session, names, **arguments)
            else:
                builder.add_meta_graph(names, **arguments)
            np.save(path("y_tags.npy" if index else "y_train.npy"), session.run(y, {x: X}))
    builder.save()


def archive():
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(3, name="dense"), keras.layers.Dropout(0.5)])
    keys, values = tf.constant([b"a", b"b"]), tf.constant([1, 2], tf.int64)
    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, values), -1)
    archive._tf_trackable.table = archive.table
    archive.add_endpoint("serve", lambda x: model(x, training=False), [tf.TensorSpec([None, 4], tf.float32, "x")])
    archive.add_endpoint("find", lambda key: archive.table.lookup(key), [tf.TensorSpec([None], tf.string, "key")])
    archive.write_out(path("archive"), verbose=False)
    np.save(path("y_archive.npy"), model(X).numpy())


class Module(tf.Module):
    def __init__(self):
        self.w = tf.Variable(np.random.default_rng(4).normal(size=(4, 3)).astype(np.float32), name="w")
        self.calls = tf.Variable(0, name="calls", dtype=tf.int64, trainable=False)

    @tf.function
    def inner(self, x):
        return tf.matmul(x, self.w)

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def __call__(self, x):
        self.calls.assign_add(1)
        return {"y": self.inner(x) * tf.cast(self.calls, tf.float32), "calls": self.calls.read_value()}


def module():
    model = Module()
    tf.saved_model.save(model, path("module"), signatures=model.__call__)
    np.save(path("y_module.npy"), model(X)["y"].numpy())


class Open(tf.Module):
    def __init__(self):
        self.any = tf.Variable(np.array([1, 2, 3, 4], np.float32), shape=tf.TensorShape(None), name="any")
        self.rows = tf.Variable(np.ones((2, 4), np.float32), shape=tf.TensorShape([None, 4]), name="rows")

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.float32, "x")])
    def read(self, x):
        return {"y": tf.concat([x * self.any, self.rows], 0), "rows": tf.shape(self.rows)[0]}

    @tf.function(input_signature=[tf.TensorSpec([2, 4], tf.float32, "x")])
    def keep(self, x):
        self.rows.assign(x)
        return {"sum": tf.reduce_sum(self.rows)}

    @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, "x")])
    def grow(self, x):
        self.rows.assign(tf.concat([self.rows, x], 0))
        return {"sum": tf.reduce_sum(self.rows)}


def open_shapes():
    model = Open()
    tf.saved_model.save(model, path("open"), signatures={"read": model.read, "keep": model.keep, "grow": model.grow})
    np.save(path("y_open.npy"), model.read(X)["y"].numpy())


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    np.save(path("x.npy"), X)
    np.save(path("labels.npy"), np.ones((3, 3), np.float32))
    meta("v1.ckpt", tf1.train.SaverDef.V1, False)
    meta("v1s.ckpt", tf1.train.SaverDef.V1, True)
    meta("v2s.ckpt", tf1.train.SaverDef.V2, True)
    meta("resource.ckpt", tf1.train.SaverDef.V2, False, resource=True)
    tf1.reset_default_graph()
    simple()
    tags()
    archive()
    module()
    open_shapes()
    for folder in ["simple", "tags", "archive", "module", "open"]:
        shutil.rmtree(path(f"{folder}/assets"), ignore_errors=True)
        if os.path.exists(path(f"{folder}/fingerprint.pb")):
            os.remove(path(f"{folder}/fingerprint.pb"))


if __name__ == "__main__":
    main()
