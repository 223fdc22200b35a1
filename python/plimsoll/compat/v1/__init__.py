"""TensorFlow 1's interface, as far as programs for several devices need it: `import plimsoll.compat.v1 as tf`.

Graphs are built of TensorFlow's table of operations, with its names and attributes; no TensorFlow is needed. What is not there raises
NotImplementedError with its name. Differences: see the README.
"""

from __future__ import annotations

from typing import Any, Dict, List

from ... import config, debugging, errors
from . import _array, _control, _gradients, _math, _op, _variables, app, gfile, layers, logging, math, nn, raw_ops, summary, train
from . import _initializers as _init
from ._device import DeviceSpec
from ._graph import (
    Graph,
    GraphDef,
    GraphKeys,
    Operation,
    Tensor,
    add_to_collection,
    colocate_with,
    control_dependencies,
    device,
    get_collection,
    get_collection_ref,
    get_default_graph,
    name_scope,
    reset_default_graph,
    set_random_seed,
)
from ._missing import Missing, missing
from ._proto import ConfigProto, GPUOptions, GraphOptions, OptimizerOptions, RunOptions
from ._session import InteractiveSession, Session, get_default_session
from ._types import BY_NAME as _BY_NAME
from ._types import Dimension, DType, TensorShape, as_dtype
from ._variables import AUTO_REUSE, Variable, VariableScope

flags = app.flags


def _names() -> Dict[str, Any]:
    names: Dict[str, Any] = {}
    for name in (
        "concat expand_dims fill gather get_static_value identity one_hot ones ones_like pad placeholder placeholder_with_default rank "
        "reshape shape size split squeeze stack stop_gradient transpose unstack where zeros zeros_like"
    ).split():
        names[name] = getattr(_array, name)
    names["slice"] = _array.slice_
    for name in "clip_by_global_norm clip_by_norm global_norm gradients".split():
        names[name] = getattr(_gradients, name)
    for name in (
        "assign assign_add assign_sub get_variable get_variable_scope global_variables global_variables_initializer group "
        "is_variable_initialized local_variables local_variables_initializer moving_average_variables no_op trainable_variables "
        "variable_scope variables_initializer"
    ).split():
        names[name] = getattr(_variables, name)
    names["tuple"] = _variables.tuple_
    names["all_variables"] = _variables.global_variables
    names["initialize_all_variables"] = _variables.global_variables_initializer
    names["initialize_variables"] = _variables.variables_initializer
    for name in "case cond while_loop".split():
        names[name] = getattr(_control, name)
    for name in "constant convert_to_tensor".split():
        names[name] = getattr(_op, name)
    for name in "random_normal random_uniform truncated_normal".split():
        names[name] = getattr(_init, name)
    initializers = {
        "zeros": _init.Zeros,
        "ones": _init.Ones,
        "constant": _init.Constant,
        "truncated_normal": _init.TruncatedNormal,
        "random_normal": _init.RandomNormal,
        "random_uniform": _init.RandomUniform,
        "variance_scaling": _init.VarianceScaling,
        "glorot_uniform": _init.GlorotUniform,
        "glorot_normal": _init.GlorotNormal,
    }
    names.update({f"{name}_initializer": kind for name, kind in initializers.items()})
    names["initializers"] = _Initializers()
    return names


class _Initializers:
    """`tf.initializers`."""

    zeros, ones, constant = _init.Zeros, _init.Ones, _init.Constant
    truncated_normal, random_normal, random_uniform = _init.TruncatedNormal, _init.RandomNormal, _init.RandomUniform
    variance_scaling, glorot_uniform, glorot_normal = _init.VarianceScaling, _init.GlorotUniform, _init.GlorotNormal
    he_normal, he_uniform = staticmethod(_init.he_normal), staticmethod(_init.he_uniform)
    lecun_normal, lecun_uniform = staticmethod(_init.lecun_normal), staticmethod(_init.lecun_uniform)

    def global_variables(self) -> Operation:
        """A node that gives all variables their first values."""
        return _variables.global_variables_initializer()

    def __getattr__(self, name: str) -> Any:
        return missing("plimsoll.compat.v1.initializers")(name)


_NAMES = _names()
_absent = missing("plimsoll.compat.v1")


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _NAMES[name]
    if name in _BY_NAME and name != "float":
        return _BY_NAME[name]
    found = _math.function(name)
    if found is not None:
        return found
    return _absent(name)


newaxis = None


def disable_v2_behavior() -> None:
    """Nothing: this is TensorFlow 1's behaviour."""


disable_eager_execution = disable_resource_variables = disable_v2_behavior


def executing_eagerly() -> bool:
    """False: graphs are built, and run by sessions."""
    return False


def __dir__() -> List[str]:
    return sorted({*globals(), *_NAMES, *_BY_NAME, *_math.names()} - {"annotations", "float"})


__all__ = [
    "AUTO_REUSE",
    "ConfigProto",
    "DType",
    "DeviceSpec",
    "Dimension",
    "GPUOptions",
    "Graph",
    "GraphDef",
    "GraphKeys",
    "GraphOptions",
    "InteractiveSession",
    "Missing",
    "Operation",
    "OptimizerOptions",
    "RunOptions",
    "Session",
    "Tensor",
    "TensorShape",
    "Variable",
    "VariableScope",
    "add_to_collection",
    "app",
    "as_dtype",
    "colocate_with",
    "config",
    "control_dependencies",
    "debugging",
    "device",
    "errors",
    "flags",
    "get_collection",
    "get_collection_ref",
    "get_default_graph",
    "get_default_session",
    "gfile",
    "layers",
    "logging",
    "math",
    "name_scope",
    "newaxis",
    "nn",
    "raw_ops",
    "reset_default_graph",
    "set_random_seed",
    "summary",
    "train",
]
