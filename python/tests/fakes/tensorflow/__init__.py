from . import config  # noqa: F401
from .python.client import session  # noqa: F401
from .python.eager import context  # noqa: F401
