"""Times of training steps on this card: judges.py FILE SECONDS [PLIMSOLL CASES]. Ours, PyTorch, eager and compiled, and JAX in one run, each where
it is installed. FILE is a JSON document after each of them; what fails is a text in it, and nothing begins after SECONDS."""

import json
import pathlib
import statistics
import subprocess
import sys
import time

BEGUN = time.monotonic()
FILE, LIMIT = pathlib.Path(sys.argv[1]), float(sys.argv[2])


class Results(dict):
    """Results so far, which are in the file as soon as they are known: a run may be cut off."""

    def __setitem__(self, name, result):
        super().__setitem__(name, result)
        FILE.write_text(json.dumps(self, indent=1) + "\n", encoding="utf-8")


RESULTS = Results()


def case(name, make, runs=20, warm=6):
    """Times what `make` gives: a function of a step, one that waits for the card, and one for the bytes that were taken."""
    if time.monotonic() - BEGUN > LIMIT:
        RESULTS[name] = "no time is left"
        return
    try:
        step, wait, taken = make()
        for _ in range(warm):
            step()
        wait()
        times = []
        for _ in range(runs):
            begun = time.perf_counter()
            step()
            wait()
            times.append((time.perf_counter() - begun) * 1e3)
        RESULTS[name] = {"median_ms": statistics.median(times), "least_ms": min(times), "runs": runs, "bytes": taken()}
    except Exception as error:  # pylint: disable=broad-except
        RESULTS[name] = repr(error)[:300]


def torch_cases():
    import torch
    from torch import nn
    from torch.nn import functional as F

    RESULTS["torch"] = torch.__version__
    RESULTS["card"] = torch.cuda.get_device_name(0)
    torch.backends.cudnn.benchmark = True

    class Cifar(nn.Module):
        """The tutorial's network: crops of 24x24, two convolutions of 5x5 with 64 channels, local response normalisation, 384, 192, 10."""

        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 64, 5, padding=2), nn.Conv2d(64, 64, 5, padding=2)
            self.dense = nn.Sequential(nn.Linear(64 * 36, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10))

        def forward(self, x):
            # PyTorch divides alpha by the size: the tutorial's is 0.001 / 9.
            norm = lambda x: F.local_response_norm(x, 9, alpha=0.001, beta=0.75)
            x = norm(F.max_pool2d(F.relu(self.first(x)), 3, 2, 1))
            x = F.max_pool2d(norm(F.relu(self.second(x))), 3, 2, 1)
            return self.dense(x.flatten(1))

    class Gpt(nn.Module):
        """GPT-2's size: 12 layers of 768 in 12 heads, 50257 words."""

        def __init__(self, width=768, layers=12, heads=12, words=50257):
            super().__init__()
            self.words, self.places, self.heads = nn.Embedding(words, width), nn.Embedding(1024, width), heads
            layer = lambda: nn.ModuleDict(
                {"a": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width), "out": nn.Linear(width, width), "b": nn.LayerNorm(width),
                 "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width)}
            )
            self.layers, self.last = nn.ModuleList([layer() for _ in range(layers)]), nn.LayerNorm(width)

        def forward(self, words):
            batch, length = words.shape
            x = self.words(words) + self.places(torch.arange(length, device=words.device))
            for layer in self.layers:
                parts = layer["qkv"](layer["a"](x)).chunk(3, -1)
                q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
                mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, -1)
                x = x + layer["out"](mixed)
                x = x + layer["down"](F.gelu(layer["up"](layer["b"](x)), approximate="tanh"))
            return self.last(x) @ self.words.weight.T

    def trained(model, x, y, amp=False, compiled=None):
        def make():
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            torch.manual_seed(0)
            net = model().cuda()
            inputs, labels = x().cuda(), y().cuda()
            if inputs.dim() == 4:
                net, inputs = net.to(memory_format=torch.channels_last), inputs.to(memory_format=torch.channels_last)
            called = torch.compile(net, mode=compiled) if compiled else net
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast("cuda", torch.bfloat16, enabled=amp):
                    loss = F.cross_entropy(called(inputs).float().flatten(0, -2), labels.flatten())
                loss.backward()
                optimizer.step()

            return step, torch.cuda.synchronize, torch.cuda.max_memory_reserved

        return make

    mlp = lambda: nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10))
    labels = lambda n, of: lambda: torch.randint(of, (n,))
    for how, compiled in (("eager", None), ("compiled", "reduce-overhead")):
        case(f"torch_mlp_512_{how}", trained(mlp, lambda: torch.randn(512, 784), labels(512, 10), compiled=compiled))
        case(f"torch_cifar_128_{how}", trained(Cifar, lambda: torch.randn(128, 3, 24, 24), labels(128, 10), compiled=compiled))
    try:
        from torchvision.models import resnet50

        images = lambda: torch.randn(256, 3, 224, 224)
        for how, compiled in (("eager", None), ("compiled", "default")):
            case(f"torch_resnet50_256_bf16_{how}", trained(resnet50, images, labels(256, 1000), True, compiled), 10, 4)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        case("torch_resnet50_256_tf32_eager", trained(resnet50, images, labels(256, 1000)), 10, 4)
    except ImportError as error:
        RESULTS["torch_resnet50"] = repr(error)
    words = lambda: torch.randint(50257, (16, 1024))
    for how, compiled in (("eager", None), ("compiled", "default")):
        case(f"torch_gpt2_16x1024_bf16_{how}", trained(Gpt, words, words, True, compiled), 10, 4)
    torch.cuda.empty_cache()


def jax_cases():
    import jax
    from jax import numpy as jnp

    RESULTS["jax"] = jax.__version__
    sizes = [784, 300, 100, 10]

    def make():
        keys = jax.random.split(jax.random.key(0), 5)
        layers = list(zip(sizes, sizes[1:]))
        state = [(jax.random.normal(key, shape) * 0.05, jnp.zeros(shape[1])) for key, shape in zip(keys, layers)]
        x, y = jax.random.normal(keys[3], (512, 784)), jax.random.randint(keys[4], (512,), 0, 10)

        def loss(state):
            h = x
            for at, (w, b) in enumerate(state):
                h = h @ w + b
                h = jax.nn.relu(h) if at < 2 else h
            return -jnp.take_along_axis(jax.nn.log_softmax(h), y[:, None], 1).mean()

        update = jax.jit(lambda state: jax.tree.map(lambda value, by: value - 0.01 * by, state, jax.grad(loss)(state)), donate_argnums=0)
        kept = [state]

        def step():
            kept[0] = update(kept[0])

        return step, lambda: jax.block_until_ready(kept[0]), lambda: (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")

    case("jax_mlp_512", make)


def ours(program, cases):
    """The steps of recorded cases, on GPU:0."""
    for folder in sorted(pathlib.Path(cases).iterdir()):
        if time.monotonic() - BEGUN > LIMIT:
            RESULTS[f"plimsoll_{folder.name}"] = "no time is left"
            continue
        said = subprocess.run([program, "bench", folder, "--runs", "30", "--json"], capture_output=True, text=True, timeout=60, check=False)
        try:
            RESULTS[f"plimsoll_{folder.name}"] = json.loads(said.stdout)
        except ValueError:
            RESULTS[f"plimsoll_{folder.name}"] = said.stderr[-300:]


def main():
    if len(sys.argv) > 4:
        ours(*sys.argv[3:5])
    for library in (torch_cases, jax_cases):
        try:
            library()
        except Exception as error:  # pylint: disable=broad-except
            RESULTS[library.__name__] = f"skipped: {error!r}"[:300]


main()
