"""TensorFlow 1's `tf.logging`, by Python's logger "plimsoll"."""

from __future__ import annotations

import logging as _logging

DEBUG, INFO, WARN, ERROR, FATAL = _logging.DEBUG, _logging.INFO, _logging.WARNING, _logging.ERROR, _logging.CRITICAL
_logger = _logging.getLogger("plimsoll")
debug, info, warning, warn, error, fatal = _logger.debug, _logger.info, _logger.warning, _logger.warning, _logger.error, _logger.critical


def set_verbosity(v: int) -> None:
    """The least level that is written."""
    _logger.setLevel(v)


def get_verbosity() -> int:
    """The least level that is written."""
    return _logger.getEffectiveLevel()
