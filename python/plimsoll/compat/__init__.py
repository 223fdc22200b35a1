"""Interfaces of older TensorFlow: `plimsoll.compat.v1`."""
