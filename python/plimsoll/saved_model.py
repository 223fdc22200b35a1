"""SavedModels, with their signatures as functions."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

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
) -> SavedModel:
    """Loads a SavedModel; `config` and the rest as for `plimsoll.Session`. Variables are read from its files when a call needs them."""
    return SavedModel(Session(path, config, limits, device_count=device_count, sim_gpus=sim_gpus, tags=tags))


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
