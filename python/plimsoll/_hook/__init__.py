"""The folder in front of PYTHONPATH for Python programs under a lease: `sitecustomize`, which puts the package `plimsoll_hook` to work."""

from __future__ import annotations

import os


def install() -> None:
    """Puts it to work in this process, which is under a lease now; where `sitecustomize` has done so, nothing is done."""
    if os.environ.get("PLIMSOLL_FRAMEWORK_LIMITS") and os.environ.get("PLIMSOLL_HOOK") != "0":
        from . import plimsoll_hook

        plimsoll_hook.install()
