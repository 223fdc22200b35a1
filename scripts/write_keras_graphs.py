"""Writes the graphs of Keras's ResNet-50 and MobileNetV2 with a training step each, which docs/placement.md measures.

    python scripts/write_keras_graphs.py FOLDER

Needs Python with tensorflow-cpu==2.21.0. The number of nodes depends on Keras's version.
"""

import pathlib
import sys

import tensorflow as tf


def training(model, optimizer):
    """The GraphDef of one training step on 32 images."""
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
    optimizer.build(model.trainable_variables)

    @tf.function
    def step(images, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(labels, model(images, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    images = tf.TensorSpec([32, 224, 224, 3], tf.float32)
    labels = tf.TensorSpec([32], tf.int64)
    return step.get_concrete_function(images, labels).graph.as_graph_def()


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    networks = tf.keras.applications
    optimizers = tf.keras.optimizers
    graphs = {
        "keras_resnet50_train_sgdm": training(networks.ResNet50(weights=None), optimizers.SGD(0.1, momentum=0.9)),
        "keras_mobilenetv2_train_adam": training(networks.MobileNetV2(weights=None), optimizers.Adam()),
    }
    for name, graph in graphs.items():
        (folder / f"{name}.pb").write_bytes(graph.SerializeToString())
        print(f"{name}: {len(graph.node)} nodes")


if __name__ == "__main__":
    main()
