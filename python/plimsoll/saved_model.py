"""SavedModels, with their signatures as functions."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _fit
from .session import Limits, Session

Spec = Tuple[str, str, Optional[Tuple[int, ...]]]
"""The tensor, the type and the shape of an argument or a result: -1 is a size that a call decides, None a rank that it does."""


def load(
    path: Union[str, os.PathLike[str]],
    tags: Optional[Sequence[str]] = None,
    *,
    config: Any = None,
    limits: Optional[Limits] = None,
    device_count: Optional[Mapping[str, int]] = None,
    sim_gpus: Optional[str] = None,
    spill: Optional[str] = None,
    exact_convolutions: bool = False,
    matmul_precision: Optional[str] = None,
    fit: bool = True,
) -> SavedModel:
    """Loads a SavedModel; `config` and the rest as for `plimsoll.Session`. Variables are read from its files when a call needs them."""
    options: Dict[str, Any] = {"spill": spill, "exact_convolutions": exact_convolutions, "matmul_precision": matmul_precision}
    options.update(fit=fit, tags=tags)
    return SavedModel(Session(path, config, limits, device_count=device_count, sim_gpus=sim_gpus, **options))


class SavedModel:
    """A SavedModel on devices."""

    signatures: Dict[str, Signature]
    """Its signatures by name."""

    def __init__(self, session: Session) -> None:
        self.session = session
        found = session._session.signatures()
        self.signatures = {name: Signature(session, name, _specs(ends[0]), _specs(ends[1])) for name, ends in found.items()}

    @property
    def variables(self) -> List[Tuple[str, str, Tuple[int, ...]]]:
        """Name, type and shape of each variable."""
        return self.session.variables

    def restore(self, checkpoint: Union[str, os.PathLike[str]]) -> None:
        """Reads variables from a checkpoint: a folder (the latest in it) or a prefix."""
        self.session.restore(checkpoint)

    def save(self, prefix: Union[str, os.PathLike[str]]) -> None:
        """Writes a checkpoint that Keras and TensorFlow read."""
        self.session.save(prefix)

    def fit(
        self,
        dataset: Any,
        epochs: int = 1,
        batch_size: Optional[int] = None,
        *,
        signature: str = "train_step",
        seed: Optional[int] = 0,
        verbose: bool = True,
    ) -> Dict[str, List[float]]:
        """Trains by a signature: a step for each batch. The mean of each of its scalars for each epoch, which `verbose` prints.

        `dataset` holds all examples along the first axes of arrays: a tuple in the order of the signature's arguments, or a dict. Batches are
        drawn in an order that `seed` decides (None: as they lie), and a rest that fills none is left out. Or it is an iterable of batches.
        `batch_size` is by default that of the signature, or 32.
        """
        step, names, size = self._step(signature, batch_size)
        return _fit.fit(step, names, dataset, epochs, size, seed, verbose)

    def evaluate(self, dataset: Any, batch_size: Optional[int] = None, *, signature: str = "test_step") -> Dict[str, float]:
        """The mean of each scalar that a signature gives for the batches of a data set, as they lie: see `fit`."""
        step, names, size = self._step(signature, batch_size)
        return _fit.mean(step, names, dataset, size)

    def _step(self, name: str, batch_size: Optional[int]) -> Tuple[Signature, List[str], Optional[int]]:
        if name not in self.signatures:
            raise ValueError(f"the model has no signature '{name}', but {', '.join(self.signatures) or 'none'}: signature= names one")
        signature = self.signatures[name]
        shapes = [shape for _, _, shape in signature.structured_input_signature.values()]
        fixed = [shape[0] for shape in shapes if shape and shape[0] > 0]
        return signature, list(signature.structured_input_signature), batch_size or (fixed[0] if fixed else None)

    def close(self) -> None:
        """Gives every byte back."""
        self.session.close()

    def __enter__(self) -> SavedModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Signature:
    """A signature: called with its arguments by name, it returns its results by name."""

    def __init__(self, session: Session, name: str, inputs: Dict[str, Spec], outputs: Dict[str, Spec]) -> None:
        self._session = session
        self.name = name
        self.structured_input_signature = inputs
        self.structured_outputs = outputs

    def __call__(self, **inputs: Any) -> Dict[str, Any]:
        return dict(self._session._session.call(self.name, list(inputs), tuple(inputs.values())))

    def __repr__(self) -> str:
        ends = [
            ", ".join(f"{name}: {kind}{_shape(shape)}" for name, (_, kind, shape) in specs.items())
            for specs in (self.structured_input_signature, self.structured_outputs)
        ]
        return f"<plimsoll signature {self.name}({ends[0]}) -> {ends[1]}>"


def _specs(ends: Mapping[str, Tuple[str, str, Optional[Sequence[int]]]]) -> Dict[str, Spec]:
    return {name: (tensor, kind, None if shape is None else tuple(shape)) for name, (tensor, kind, shape) in ends.items()}


def _shape(shape: Optional[Sequence[int]]) -> str:
    return "[...]" if shape is None else "[" + ",".join("?" if size < 0 else str(size) for size in shape) + "]"
