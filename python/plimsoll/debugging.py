"""What sessions tell about themselves. TensorFlow's `tf.debugging`, as far as it is there."""

from __future__ import annotations

from .config import _context

__all__ = ["get_log_device_placement", "set_log_device_placement"]


def get_log_device_placement() -> bool:
    """Whether sessions without a `config` log their placement."""
    return _context.settings().log_placement()


def set_log_device_placement(enabled: bool) -> None:
    """Logs the device of each node of sessions that are opened from now on, on standard output; remarks go to standard error."""
    _context.settings(is_set=True).set_log_placement(bool(enabled))
