"""What PyTorch's ways to save memory do on a CPU: the peak of a training step and its time, for budgets of activations.

    python bench/torch_budget.py [NETWORK…]

Networks: mlp (100 dense layers of 256 units, batch 512) and cifar (the CIFAR-10 tutorial's, batch 128). Each line is a way:
`eager`, `checkpoint_sequential` with a number of segments, and `torch.compile` with an `activation_memory_budget`, a part of what
it keeps without one. The peak is the most bytes of tensors at once within a step, above the parameters, the momenta and the batch,
counted from what PyTorch's allocator tells its profiler. The time is the median of steps, in milliseconds of one thread's
time on a processor. Needs `torch` and a C++ compiler.
"""

import statistics
import sys
import time

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


def mlp():
    layers = [layer for _ in range(100) for layer in (nn.Linear(256, 256), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(256, 10)), torch.randn(512, 256), torch.randint(10, (512,))


def cifar():
    pool = lambda: nn.MaxPool2d(3, 2, padding=1)
    convolutions = [nn.Conv2d(3, 64, 5, padding=2), nn.ReLU(), pool(), nn.Conv2d(64, 64, 5, padding=2), nn.ReLU(), pool()]
    dense = [nn.Flatten(), nn.Linear(4096, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10)]
    return nn.Sequential(*convolutions, *dense), torch.randn(128, 3, 32, 32), torch.randint(10, (128,))


NETWORKS = {"mlp": mlp, "cifar": cifar}
BUDGETS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
SEGMENTS = (2, 5, 10, 20)
STEPS = 5


def peak(step):
    """The most bytes at once of what is allocated within a step."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    live = most = 0
    events = sorted(profile.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    for event in events:
        if event.name() == "[memory]":
            live += event.nbytes()
            most = max(most, live)
    return most


def measure(name, network, way, forward, model, x, y):
    """Prints a line for a way to run the forward pass."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loss_of = nn.CrossEntropyLoss()

    def step():
        loss = loss_of(forward(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for _ in range(2):
        step()
    times = []
    for _ in range(STEPS):
        start = time.process_time()
        step()
        times.append((time.process_time() - start) * 1e3)
    print(f"{network} {name} {way}: peak {peak(step) / 2**20:.1f} MiB, {statistics.median(times):.0f} ms", flush=True)


def main():
    torch.set_num_threads(1)
    for network in sys.argv[1:] or NETWORKS:
        torch.manual_seed(1)
        model, x, y = NETWORKS[network]()
        measure("eager", network, "", model, model, x, y)
        for segments in SEGMENTS:
            if segments < len(model):
                split = lambda x: checkpoint_sequential(model, segments, x, use_reentrant=False)
                measure("checkpoint_sequential", network, segments, split, model, x, y)
        for budget in BUDGETS:
            torch._dynamo.reset()
            torch._functorch.config.activation_memory_budget = budget
            measure("compile", network, budget, torch.compile(model), model, x, y)


if __name__ == "__main__":
    main()
