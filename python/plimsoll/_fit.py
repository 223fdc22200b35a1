"""Training by a signature of a SavedModel: epochs, batches, a bar of progress."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional

import numpy

Batch = Mapping[str, Any]


def batches(dataset: Any, names: List[str], batch_size: Optional[int], seed: Optional[int], epoch: int) -> Iterator[Batch]:
    """The batches of an epoch: of arrays that hold all examples, in an order that the seed decides; or of an iterable, as it gives them."""
    if isinstance(dataset, Mapping):
        arrays = {name: numpy.asarray(value) for name, value in dataset.items()}
    elif isinstance(dataset, tuple) and all(hasattr(each, "shape") for each in dataset):
        arrays = dict(zip(names, map(numpy.asarray, dataset)))
    else:
        for each in dataset:
            yield _named(each, names)
        return
    sizes = {len(array) for array in arrays.values()}
    if len(sizes) != 1:
        raise ValueError(f"the arrays have {sorted(sizes)} examples: each holds all of them along its first axis")
    [count] = sizes
    size = min(batch_size or 32, count)
    order = numpy.arange(count) if seed is None else numpy.random.default_rng([seed, epoch]).permutation(count)
    for first in range(0, count - size + 1, size):
        chosen = order[first : first + size]
        yield {name: numpy.ascontiguousarray(array[chosen]) for name, array in arrays.items()}


def _named(batch: Any, names: List[str]) -> Batch:
    if isinstance(batch, Mapping):
        return batch
    if not isinstance(batch, (tuple, list)) or len(batch) != len(names):
        raise TypeError(f"a batch is a dict or a tuple of {', '.join(names)}, not {type(batch).__name__}")
    return dict(zip(names, batch))


class Progress:
    """One line for each epoch, which grows on a terminal."""

    def __init__(self, epochs: int, steps: Optional[int], shown: bool) -> None:
        self._epochs, self._steps, self._shown = epochs, steps, shown
        self._last = 0.0

    def step(self, epoch: int, done: int, results: Dict[str, float]) -> None:
        now = time.monotonic()
        if self._shown and sys.stdout.isatty() and now - self._last > 0.1:
            self._last = now
            sys.stdout.write("\r" + self._line(epoch, done, results))
            sys.stdout.flush()

    def end(self, epoch: int, done: int, results: Dict[str, float]) -> None:
        if self._shown:
            start = "\r" if sys.stdout.isatty() else ""
            sys.stdout.write(f"{start}{self._line(epoch, done, results)}\n")
            sys.stdout.flush()
        self._steps = done

    def _line(self, epoch: int, done: int, results: Dict[str, float]) -> str:
        of = self._steps or done
        full = 20 * done // max(of, 1)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in results.items())
        return f"epoch {epoch}/{self._epochs} [{'=' * full}{' ' * (20 - full)}] {done}/{of}  {shown}"


def fit(
    step: Callable[..., Dict[str, Any]],
    names: List[str],
    dataset: Any,
    epochs: int,
    batch_size: Optional[int],
    seed: Optional[int],
    verbose: bool,
) -> Dict[str, List[float]]:
    """Takes the steps of so many epochs; the mean of each result for each epoch."""
    history: Dict[str, List[float]] = {}
    progress = Progress(epochs, None, verbose)
    if isinstance(dataset, Iterator):
        raise TypeError("an iterator ends with the first epoch: give a list of batches, arrays, or what can be iterated over again")
    for epoch in range(1, epochs + 1):
        sums: Dict[str, float] = {}
        done = 0
        for batch in batches(dataset, names, batch_size, seed, epoch):
            for name, value in step(**batch).items():
                if numpy.size(value) == 1:
                    sums[name] = sums.get(name, 0.0) + float(value)
            done += 1
            progress.step(epoch, done, {name: value / done for name, value in sums.items()})
        if not done:
            raise ValueError("the data set has no batch")
        means = {name: value / done for name, value in sums.items()}
        progress.end(epoch, done, means)
        for name, value in means.items():
            history.setdefault(name, []).append(value)
    return history


def mean(step: Callable[..., Dict[str, Any]], names: List[str], dataset: Any, batch_size: Optional[int]) -> Dict[str, float]:
    """The mean of each result over the batches of a data set."""
    return {name: values[0] for name, values in fit(step, names, dataset, 1, batch_size, None, False).items()}
