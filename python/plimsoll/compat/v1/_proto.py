"""ConfigProto and its parts: messages with the fields that say how devices are made, as protobuf's text form has them."""

from __future__ import annotations

from typing import Any, Dict, List, Type, Union

from ._missing import Missing

Kind = Union[type, str]


class Message:
    """A message: fields as attributes, with protobuf's defaults. Prints in the text form."""

    _fields: Dict[str, Any] = {}

    def __init__(self, **values: Any) -> None:
        object.__setattr__(self, "_values", {})
        for name, value in values.items():
            if value is None:
                continue
            kind = self._kind(name)
            if isinstance(kind, type) and issubclass(kind, Message):
                if not isinstance(value, kind):
                    raise TypeError(f"{type(self).__name__}.{name} must be a {kind.__name__}, not {type(value).__name__}")
                self._values[name] = value
            elif isinstance(kind, (list, dict)):
                self._values[name] = type(kind)(value)
            else:
                setattr(self, name, value)

    _values: Dict[str, Any]

    def _kind(self, name: str) -> Any:
        if name not in self._fields:
            raise Missing(f"plimsoll.compat.v1.{type(self).__name__}.{name}")
        return self._fields[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        kind = self._kind(name)
        if name not in self._values:
            if isinstance(kind, type) and issubclass(kind, Message):
                self._values[name] = kind()
            elif isinstance(kind, (list, dict)):
                self._values[name] = type(kind)() if not (isinstance(kind, list) and kind) else Repeated(kind[0])
            else:
                return kind()
        return self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        kind = self._kind(name)
        if not isinstance(kind, type) or issubclass(kind, Message):
            raise AttributeError(f"Assignment not allowed to message, map, or repeated field {name!r}")
        wanted: Any = (int, float) if kind is float else kind
        if not isinstance(value, wanted) and not (kind is bool and value in (0, 1)) and not hasattr(value, "__index__"):
            raise TypeError(f"{value!r} has type {type(value).__name__}, but expected {kind.__name__} for {name}")
        self._values[name] = kind(value)  # type: ignore[call-arg]

    def CopyFrom(self, other: Any) -> None:  # noqa: N802
        """Becomes another message of its type."""
        if type(other) is not type(self):
            raise TypeError(f"{type(self).__name__} expected, not {type(other).__name__}")
        self._values.clear()
        self._values.update(other._values)

    def _text(self) -> List[str]:
        lines: List[str] = []
        for name, value in self._values.items():
            if isinstance(value, dict):
                lines += [f'{name} {{ key: "{key}" value: {each} }}' for key, each in value.items()]
                continue
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, Message):
                    lines.append(f"{name} {{ {' '.join(each._text())} }}")
                elif isinstance(each, bool):
                    lines.append(f"{name}: {str(each).lower()}")
                elif isinstance(each, str):
                    escaped = each.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                    lines.append(f'{name}: "{escaped}"')
                else:
                    lines.append(f"{name}: {each!r}")
        return lines

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self._text())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({' '.join(self._text())})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and str(other) == str(self)

    __hash__ = None  # type: ignore[assignment]


class Repeated(List[Any]):
    """A repeated field of messages: `add` appends one."""

    def __init__(self, kind: Type[Message]) -> None:
        super().__init__()
        self._kind = kind

    def add(self, **values: Any) -> Any:
        self.append(self._kind(**values))
        return self[-1]


class VirtualDevices(Message):
    """The parts of a GPU."""

    _fields = {"memory_limit_mb": [], "priority": [], "device_ordinal": []}


class GPUOptionsExperimental(Message):
    """GPUOptions.Experimental."""

    VirtualDevices = VirtualDevices
    _fields = {
        "virtual_devices": [VirtualDevices],
        "use_unified_memory": bool,
        "num_dev_to_dev_copy_streams": int,
        "timestamped_allocator": bool,
        "internal_fragmentation_fraction": float,
        "use_cuda_malloc_async": bool,
        "disallow_retry_on_allocation_failure": bool,
        "gpu_host_mem_limit_in_mb": float,
        "gpu_host_mem_disallow_growth": bool,
        "num_virtual_devices_per_gpu": int,
        "gpu_system_memory_size_in_mb": int,
    }


class GPUOptions(Message):
    """How memory of GPUs is taken, and which are seen."""

    Experimental = GPUOptionsExperimental
    _fields = {
        "per_process_gpu_memory_fraction": float,
        "allocator_type": str,
        "deferred_deletion_bytes": int,
        "allow_growth": bool,
        "visible_device_list": str,
        "polling_active_delay_usecs": int,
        "polling_inactive_delay_msecs": int,
        "force_gpu_compatible": bool,
        "experimental": GPUOptionsExperimental,
    }


class OptimizerOptions(Message):
    """Hints for TensorFlow's optimisers of graphs."""

    L1, L0 = 0, -1
    OFF, DEFAULT, ON_1, ON_2 = -1, 0, 1, 2
    _fields = {
        "do_common_subexpression_elimination": bool,
        "do_constant_folding": bool,
        "do_function_inlining": bool,
        "opt_level": int,
        "global_jit_level": int,
        "max_folded_constant_in_bytes": int,
        "cpu_global_jit": bool,
    }


class GraphOptions(Message):
    """How graphs are prepared."""

    _fields = {"optimizer_options": OptimizerOptions, "place_pruned_graph": bool, "infer_shapes": bool, "enable_bfloat16_sendrecv": bool}


class ConfigProtoExperimental(Message):
    """ConfigProto.Experimental, with fields of Plimsoll's own: convolutions that do all multiplications, cards that round to TF32, and the precision
    of products on processors."""

    _fields = {"exact_convolutions": bool, "tensor_float_32_execution": bool, "matmul_precision": str}


class ConfigProto(Message):
    """The devices of a session. What is not built yet is refused when the session is opened."""

    Experimental = ConfigProtoExperimental
    _fields = {
        "device_count": {},
        "intra_op_parallelism_threads": int,
        "inter_op_parallelism_threads": int,
        "placement_period": int,
        "device_filters": [],
        "gpu_options": GPUOptions,
        "allow_soft_placement": bool,
        "log_device_placement": bool,
        "use_per_session_threads": bool,
        "graph_options": GraphOptions,
        "operation_timeout_in_ms": int,
        "isolate_session_state": bool,
        "experimental": ConfigProtoExperimental,
    }


class RunOptions(Message):
    """Options of a run."""

    NO_TRACE, SOFTWARE_TRACE, HARDWARE_TRACE, FULL_TRACE = 0, 1, 2, 3
    _fields = {
        "trace_level": int,
        "timeout_in_ms": int,
        "inter_op_thread_pool": int,
        "output_partition_graphs": bool,
        "report_tensor_allocations_upon_oom": bool,
    }
