"""PyTorch's side of bench/kernels.py, in a process of its own.

    python torch_kernels.py THREADS      reads kernels as lines of JSON, answers each with the milliseconds of each way to compute it
"""
import json
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch

LAST = torch.channels_last


def image(shape):
    """Random values of TensorFlow's NHWC, channels last."""
    n, h, w, c = shape
    return torch.randn(n, c, h, w).to(memory_format=LAST)


def pads(kernel):
    """What lies around an image, as much on both sides: the most of either side where TensorFlow's SAME has one more."""
    if kernel["padding"] == "VALID":
        return [0, 0]
    before = lambda size, result, taps, stride: max(0, (result - 1) * stride + taps - size) / 2
    sizes = zip(kernel["image"][1:3], kernel["result"][1:3], kernel["filters"][:2], kernel["strides"][1:3])
    return [int(before(*of) + 0.5) for of in sizes]


def ways(kernel):
    """Functions that compute it."""
    op, strides = kernel["op"], kernel.get("strides", [1, 1, 1, 1])[1:3]
    if op == "MatMul":
        a, b = (torch.randn(shape) for shape in kernel["inputs"])
        left, right = (value.t() if turned else value for value, turned in zip((a, b), kernel["transpose"]))
        made = {"plain": lambda: torch.mm(left, right)}
        # A single row is no product for oneDNN.
        if kernel["packed"] and not kernel["transpose"][0] and left.shape[0] > 1:
            packed = torch.ops.mkldnn._reorder_linear_weight(right.t().contiguous(), left.shape[0])
            made["packed"] = lambda: torch.ops.mkldnn._linear_pointwise(left, packed, None, "none", [], "")
        return made
    h, w, before, after = kernel["filters"]
    groups = before if op.startswith("Depthwise") else 1
    filters = torch.randn(before * after if groups > 1 else after, before // groups, h, w).to(memory_format=LAST)
    padding = pads(kernel)
    if op.endswith("BackpropInput") or op.endswith("BackpropFilter"):
        x, gradient = image(kernel["image"]), None
        y = torch.conv2d(x, filters, None, strides, padding, 1, groups)
        gradient = torch.randn_like(y, memory_format=LAST)
        mask = [op.endswith("Input"), op.endswith("Filter"), False]
        return {"plain": lambda: torch.ops.aten.convolution_backward(gradient, x, filters, None, strides, padding, [1, 1], False, [0, 0], groups, mask)}
    x = image(kernel["image"])
    made = {"plain": lambda: torch.conv2d(x, filters, None, strides, padding, 1, groups)}
    if kernel["packed"]:
        packed = torch._C._nn.mkldnn_reorder_conv2d_weight(filters.to_mkldnn(), padding, strides, [1, 1], groups, list(x.shape))
        made["packed"] = lambda: torch.ops.mkldnn._convolution_pointwise(x, packed, None, padding, strides, [1, 1], groups, "none", [], "")
    return made


def milliseconds(run, runs):
    times = []
    for number in range(3 + runs):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[3:])


def main(threads):
    torch.set_num_threads(int(threads))
    print(json.dumps({"torch": torch.__version__}), flush=True)
    known, made = None, None
    for line in sys.stdin:
        kernel = json.loads(line)
        runs = kernel.pop("runs")
        with torch.inference_mode():
            if kernel != known:
                known, made = kernel, ways(kernel)
            print(json.dumps({name: milliseconds(run, runs) for name, run in made.items()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
