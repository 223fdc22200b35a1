"""Writes crates/cli/tests/cases/two: two networks of which one fits on a card of 8 MiB, the second once more with its device named.

Layers of 512 x 512 floats, 1 MiB each, uniformly random by a seed: the files hold no weights.
"""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf  # noqa: E402

tf1 = tf.compat.v1


def network(layers, device, seed):
    graph = tf1.Graph()
    with graph.as_default(), graph.device(device):
        value = tf1.fill([8, 512], 0.5, name="x")
        for layer in range(layers):
            first = tf1.random_uniform_initializer(-0.1, 0.1, seed=seed + layer)
            weights = tf1.get_variable(f"layer{layer}/weights", [512, 512], initializer=first, use_resource=True)
            value = tf1.tanh(tf1.matmul(value, weights, name=f"layer{layer}/product"), name=f"layer{layer}/out")
        tf1.reduce_mean(tf1.square(value), name="y")
        tf1.global_variables_initializer()
    return graph.as_graph_def()


def main(folder):
    os.makedirs(folder, exist_ok=True)
    for name, layers, device in [("big", 6, ""), ("small", 4, ""), ("small_on_cpu", 4, "/cpu:0"), ("huge", 12, "")]:
        tf1.train.write_graph(network(layers, device, 100 * layers), folder, f"{name}.pb", as_text=False)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "crates/cli/tests/cases/two")
