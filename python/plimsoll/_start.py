"""The program of a worker: `python _start.py LIFELINE SOCKET NOTES STDERR` (see `_supervisor.supervise` and `_worker.main`)."""

import os
import sys

if __name__ == "__main__":
    # The package is the one that this file belongs to, wherever it lies; the rest of the path comes from the parent.
    here = os.path.dirname(os.path.abspath(__file__))
    if sys.path and os.path.abspath(sys.path[0] or ".") == here:
        del sys.path[0]
    sys.path.insert(0, os.path.dirname(here))
    from plimsoll._supervisor import supervise

    lifeline, *others = map(int, sys.argv[1:])
    supervise(lifeline, others[1])
    from plimsoll._worker import main

    sys.exit(main(lifeline, *others))
