"""Checkpoints: `Saver`, and what a folder's file `checkpoint` says."""

from __future__ import annotations

import glob
import os
import re
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ... import _native, errors
from ._missing import refuse
from ._summaries import field
from ._variables import Variable, global_variables


class CheckpointState(NamedTuple):
    """The checkpoints of a folder, the oldest first."""

    model_checkpoint_path: str
    all_model_checkpoint_paths: List[str]


def get_checkpoint_state(checkpoint_dir: str, latest_filename: Optional[str] = None) -> Optional[CheckpointState]:
    """What a folder's file `checkpoint` says; None where there is none."""
    try:
        with open(os.path.join(checkpoint_dir, latest_filename or "checkpoint"), encoding="utf-8") as file:
            text = file.read()
    except OSError:
        return None
    found: Dict[str, List[str]] = {"model_checkpoint_path": [], "all_model_checkpoint_paths": []}
    for key, value in re.findall(r'^\s*(\w+)\s*:\s*"((?:[^"\\]|\\.)*)"', text, re.M):
        if key in found:
            path = re.sub(r"\\(.)", r"\1", value)
            found[key].append(path if os.path.isabs(path) else os.path.join(checkpoint_dir, path))
    if not found["model_checkpoint_path"]:
        return None
    return CheckpointState(found["model_checkpoint_path"][0], found["all_model_checkpoint_paths"])


def latest_checkpoint(checkpoint_dir: str, latest_filename: Optional[str] = None) -> Optional[str]:
    """The prefix of a folder's latest checkpoint; None where there is none."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    return state.model_checkpoint_path if state is not None and checkpoint_exists(state.model_checkpoint_path) else None


def checkpoint_exists(checkpoint_prefix: str) -> bool:
    """Whether there are files of a checkpoint of that prefix."""
    return bool(glob.glob(glob.escape(checkpoint_prefix) + ".index")) or os.path.isfile(checkpoint_prefix)


def list_variables(ckpt_dir_or_file: str) -> List[Tuple[str, List[int]]]:
    """Names and shapes of a checkpoint's tensors."""
    prefix = latest_checkpoint(ckpt_dir_or_file) if os.path.isdir(ckpt_dir_or_file) else ckpt_dir_or_file
    if prefix is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {ckpt_dir_or_file}")
    return [(name, list(shape)) for name, _, shape in _native.checkpoint_entries(prefix)]


def load_variable(ckpt_dir_or_file: str, name: str) -> Any:
    """A tensor of a checkpoint."""
    prefix = latest_checkpoint(ckpt_dir_or_file) if os.path.isdir(ckpt_dir_or_file) else ckpt_dir_or_file
    if prefix is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {ckpt_dir_or_file}")
    return _native.read_checkpoint(prefix, [name.removesuffix(":0")])[0]


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace('"', '\\"')


class Saver:
    """Writes variables into checkpoints, and reads them. The files are TensorFlow's; the graph gets no nodes for it."""

    def __init__(
        self,
        var_list: Any = None,
        reshape: bool = False,
        sharded: bool = False,
        max_to_keep: Optional[int] = 5,
        keep_checkpoint_every_n_hours: float = 10000.0,
        name: Optional[str] = None,
        restore_sequentially: bool = False,
        saver_def: Any = None,
        builder: Any = None,
        defer_build: bool = False,
        allow_empty: bool = False,
        write_version: int = 2,
        pad_step_number: bool = False,
        save_relative_paths: bool = False,
        filename: Optional[str] = None,
    ) -> None:
        refuse("train.Saver", reshape=reshape, sharded=sharded, saver_def=saver_def, builder=builder, defer_build=defer_build)
        refuse(
            "train.Saver", pad_step_number=pad_step_number, filename=filename, write_version=None if write_version == 2 else write_version
        )
        refuse(
            "train.Saver", keep_checkpoint_every_n_hours=None if keep_checkpoint_every_n_hours >= 10000.0 else keep_checkpoint_every_n_hours
        )
        variables = global_variables() if var_list is None else var_list
        if isinstance(variables, dict):
            self._variables: Dict[str, Variable] = dict(variables)
        else:
            self._variables = {variable.op.name: variable for variable in variables}
        if not self._variables and not allow_empty:
            raise ValueError("No variables to save")
        self._max_to_keep = max_to_keep or 0
        self._last: List[str] = []

    @property
    def last_checkpoints(self) -> List[str]:
        return list(self._last)

    def set_last_checkpoints(self, last_checkpoints: Sequence[str]) -> None:
        self._last = list(last_checkpoints)

    def recover_last_checkpoints(self, checkpoint_paths: Sequence[str]) -> None:
        self._last = [path for path in checkpoint_paths if checkpoint_exists(path)]

    def save(
        self,
        sess: Any,
        save_path: str,
        global_step: Any = None,
        latest_filename: Optional[str] = None,
        meta_graph_suffix: str = "meta",
        write_meta_graph: bool = True,
        write_state: bool = True,
        strip_default_attrs: bool = False,
        save_debug_info: bool = False,
    ) -> str:
        """Writes the variables' values, and the graph beside them. The prefix of the checkpoint: `save_path`, and the step behind it."""
        refuse("train.Saver.save", strip_default_attrs=strip_default_attrs, save_debug_info=save_debug_info)
        prefix = str(save_path)
        if global_step is not None:
            step = global_step if isinstance(global_step, int) else int(sess.run(global_step))
            prefix = f"{prefix}-{step}"
        folder = os.path.dirname(prefix)
        if folder and not os.path.isdir(folder):
            raise ValueError(f"Parent directory of {save_path} doesn't exist, can't save.")
        names, variables = list(self._variables), list(self._variables.values())
        _native.write_checkpoint(prefix, list(zip(names, sess._read(variables))))
        if write_meta_graph:
            graph = field(2, sess.graph.as_graph_def().SerializeToString())
            with open(f"{prefix}.{meta_graph_suffix}", "wb") as file:
                file.write(graph)
        if write_state:
            self._last = [path for path in self._last if path != prefix] + [prefix]
            gone = self._last[: -self._max_to_keep] if self._max_to_keep else []
            self._last = self._last[len(gone) :]
            _write_state(folder, prefix, self._last, latest_filename)
            for path in gone:
                for part in glob.glob(glob.escape(path) + ".*"):
                    if re.fullmatch(r"\.(index|data-\d+-of-\d+|" + re.escape(meta_graph_suffix) + ")", part[len(path) :]):
                        os.remove(part)
        return prefix

    def restore(self, sess: Any, save_path: str) -> None:
        """Reads the variables' values. ValueError where there is no such checkpoint, NotFoundError where a variable is not in it."""
        if save_path is None:
            raise ValueError("Can't load save_path when it is None.")
        prefix = str(save_path)
        if not checkpoint_exists(prefix):
            raise ValueError(f"The passed save_path is not a valid checkpoint: {prefix}")
        there = {name: shape for name, _, shape in _native.checkpoint_entries(prefix)}
        for name, variable in self._variables.items():
            if name not in there:
                raise errors.NotFoundError(f"Key {name} not found in checkpoint")
            if not variable.shape.is_compatible_with(there[name]):
                raise errors.InvalidArgumentError(
                    f"Assign requires shapes of both tensors to match. {name} is {variable.shape} here and {there[name]} in the checkpoint"
                )
        values = _native.read_checkpoint(prefix, list(self._variables))
        sess._load(dict(zip(self._variables.values(), values)))


def _write_state(folder: str, prefix: str, paths: List[str], latest_filename: Optional[str]) -> None:
    def shown(path: str) -> str:
        return _escaped(os.path.relpath(path, folder or ".") if os.path.dirname(path) == folder else path)

    lines = [f'model_checkpoint_path: "{shown(prefix)}"', *(f'all_model_checkpoint_paths: "{shown(path)}"' for path in paths)]
    place = os.path.join(folder, latest_filename or "checkpoint")
    fresh = f"{place}.tmp{os.getpid()}{time.monotonic_ns()}"
    with open(fresh, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.replace(fresh, place)
