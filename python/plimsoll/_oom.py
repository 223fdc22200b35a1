"""Whether the kernel killed a process for want of memory: a count that it keeps."""

from __future__ import annotations

from typing import Optional


def kills() -> Optional[int]:
    """How many processes were killed for want of memory so far: in this process' control group, else on the machine."""
    for path, prefix in _counters():
        try:
            with open(path) as file:
                for line in file:
                    if line.startswith(prefix):
                        return int(line.split()[1])
        except (OSError, ValueError, IndexError):
            continue
    return None


def _counters() -> list[tuple[str, str]]:
    counters = []
    try:
        with open("/proc/self/cgroup") as file:
            for line in file:
                _, controllers, path = line.rstrip("\n").split(":", 2)
                if controllers == "":
                    counters.append((f"/sys/fs/cgroup{path}/memory.events", "oom_kill "))
                elif "memory" in controllers.split(","):
                    counters.append((f"/sys/fs/cgroup/memory{path}/memory.oom_control", "oom_kill "))
    except (OSError, ValueError):
        pass
    return [*counters, ("/proc/vmstat", "oom_kill ")]
