"""PyTorch's side of bench/compare.py, in processes of its own: the networks of networks.py, with values of its own.

    python torch_side.py serve NAME THREADS      times a network: reads lines "WARM RUNS", answers with JSON

Images lie channels last. Networks for inference run in `torch.inference_mode`, with weights that oneDNN packs once where
`torch.jit.optimize_for_inference` does so. Only times are compared: TensorFlow's values are what Plimsoll's are held against.
"""
import json
import os
import statistics
import sys
import time
import warnings

warnings.filterwarnings("ignore")
import torch
from torch import nn
from torch.nn import functional

LAST = torch.channels_last


class Same(nn.Conv2d):
    """A convolution without bias whose padding is TensorFlow's SAME, for even sizes."""

    def __init__(self, before, after, taps, stride=1, groups=1):
        super().__init__(before, after, taps, stride, taps // 2, groups=groups, bias=False)


def block(before, after, taps, stride=1, groups=1, activation=nn.ReLU):
    parts = [Same(before, after, taps, stride, groups), nn.BatchNorm2d(after, 1e-3)]
    return nn.Sequential(*parts, activation()) if activation else nn.Sequential(*parts)


class Tutorial(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
        self.local = nn.Sequential(nn.Linear(2304, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))

    def forward(self, x):
        normalize = lambda x: functional.local_response_norm(x, 9, 0.001, 0.75, 1.0)
        pool = lambda x: functional.max_pool2d(x, 3, 2, 1)
        x = normalize(pool(functional.relu(self.conv1(x))))
        x = pool(normalize(functional.relu(self.conv2(x))))
        return self.local(x.flatten(1))


class Residual(nn.Module):
    def __init__(self, branch, shortcut):
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x):
        return functional.relu(self.branch(x) + self.shortcut(x))


class Inverted(nn.Module):
    def __init__(self, branch, adds):
        super().__init__()
        self.branch, self.adds = branch, adds

    def forward(self, x):
        return x + self.branch(x) if self.adds else self.branch(x)


def resnet20():
    parts, before = [block(3, 16, 3)], 16
    for stage, channels in enumerate((16, 32, 64)):
        for number in range(3):
            stride = 2 if stage and not number else 1
            branch = nn.Sequential(block(before, channels, 3, stride), block(channels, channels, 3, activation=None))
            parts.append(Residual(branch, block(before, channels, 1, stride, activation=None) if stride > 1 else nn.Identity()))
            before = channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet50():
    parts, before = [block(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        channels = 64 << stage
        for number in range(blocks):
            stride = 2 if stage and not number else 1
            branch = nn.Sequential(block(before, channels, 1), block(channels, channels, 3, stride), block(channels, 4 * channels, 1, activation=None))
            parts.append(Residual(branch, nn.Identity() if number else block(before, 4 * channels, 1, stride, activation=None)))
            before = 4 * channels
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000), nn.Softmax(1))


def mobilenet_v2():
    parts, before = [block(3, 32, 3, 2, activation=nn.ReLU6)], 32
    for expand, channels, blocks, first_stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
        for number in range(blocks):
            wide, stride = before * expand, 1 if number else first_stride
            branch = [block(before, wide, 1, activation=nn.ReLU6)] if expand > 1 else []
            branch += [block(wide, wide, 3, stride, wide, nn.ReLU6), block(wide, channels, 1, activation=None)]
            parts.append(Inverted(nn.Sequential(*branch), number > 0))
            before = channels
    return nn.Sequential(*parts, block(before, 1280, 1, activation=nn.ReLU6), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000), nn.Softmax(1))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = lambda: nn.ModuleList([nn.LayerNorm(256), nn.Linear(256, 768), nn.Linear(256, 256), nn.LayerNorm(256), nn.Linear(256, 1024), nn.Linear(1024, 256)])
        self.layers, self.norm = nn.ModuleList([layer() for _ in range(4)]), nn.LayerNorm(256)

    def forward(self, x):
        for norm1, qkv, o, norm2, wide, narrow in self.layers:
            q, k, v = qkv(norm1(x)).view(x.shape[0], x.shape[1], 3, 8, 32).permute(2, 0, 3, 1, 4).unbind(0)
            x = x + o(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
            x = x + narrow(functional.gelu(wide(norm2(x))))
        return self.norm(x)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


class Recurrent(nn.Module):
    def __init__(self, layers=nn.LSTM):
        super().__init__()
        self.layers, self.classes = layers(64, 128, 2, batch_first=True), nn.Linear(128, 10)

    def forward(self, x):
        return self.classes(self.layers(x)[0][:, -1])


def gated():
    return Recurrent(nn.GRU)


def mlp():
    return nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))


def sgd(rate, **others):
    return lambda parameters: torch.optim.SGD(parameters, rate, **others)


def adam(rate):
    return lambda parameters: torch.optim.Adam(parameters, rate)


# The network, the shape of what it is fed, and its optimizer where it is trained.
NETWORKS = {
    "cifar10": (Tutorial, [128, 3, 24, 24], sgd(0.1)),
    "resnet20": (resnet20, [128, 3, 32, 32], sgd(0.01, momentum=0.9, weight_decay=1e-4)),
    "mlp_50": (mlp, [50, 784], sgd(0.01)),
    "mlp_512": (mlp, [512, 784], sgd(0.01)),
    "resnet50_1": (resnet50, [1, 3, 224, 224], None),
    "resnet50_8": (resnet50, [8, 3, 224, 224], None),
    "mobilenet_v2_1": (mobilenet_v2, [1, 3, 224, 224], None),
    "mobilenet_v2_8": (mobilenet_v2, [8, 3, 224, 224], None),
    "transformer": (Encoder, [8, 128, 256], None),
    "transformer_training": (lambda: nn.Sequential(Encoder(), Mean(), nn.Linear(256, 10)), [8, 128, 256], adam(1e-4)),
    "lstm": (Recurrent, [32, 50, 64], None),
    "lstm_training": (Recurrent, [32, 50, 64], adam(1e-3)),
    "gru": (gated, [32, 50, 64], None),
    "gru_training": (gated, [32, 50, 64], adam(1e-3)),
}


def prepared(name):
    """A function that runs a step."""
    make, shape, optimizer = NETWORKS[name]
    torch.manual_seed(1)
    model, x = make(), torch.rand(shape)
    if len(shape) == 4:
        model, x = model.to(memory_format=LAST), x.to(memory_format=LAST)
    if optimizer is None:
        model.eval()
        if len(shape) == 4:
            with torch.inference_mode():
                model = torch.jit.optimize_for_inference(torch.jit.trace(model, x))

        def step():
            with torch.inference_mode():
                return model(x)

        return step
    labels, optimizer = torch.randint(0, 10, shape[:1]), optimizer(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def serve(name, threads):
    torch.set_num_threads(int(threads))
    step = prepared(name)
    print(json.dumps({"torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        warm, runs = map(int, line.split())
        before, times = os.times().user, []
        for _ in range(warm + runs):
            start = time.perf_counter()
            step()
            times.append((time.perf_counter() - start) * 1e3)
        cpu = (os.times().user - before) * 1e3 / (warm + runs)
        print(json.dumps({"median_ms": statistics.median(times[warm:]), "cpu_ms": cpu}), flush=True)


if __name__ == "__main__":
    {"serve": serve}[sys.argv[1]](*sys.argv[2:])
