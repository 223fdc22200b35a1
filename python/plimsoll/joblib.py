"""joblib's parallel loops in workers of a `plimsoll.Pool`, each under its lease: importing this registers the backend "plimsoll".

    import joblib, plimsoll.joblib
    with joblib.parallel_backend("plimsoll", gpus=1, memory="2GiB", n_jobs=4):
        search.fit(x, y)

`gpus`, `memory`, `timeout`, `wait`, `priority`, `name`, `recycle_above`: see `plimsoll.Pool`. Workers are kept for the loops of one `with` block.
joblib itself runs a loop of `n_jobs=1` in this process.
"""

from __future__ import annotations

import os
from typing import Any, Callable, Optional

import joblib  # type: ignore[import-not-found,import-untyped,unused-ignore]
from joblib._parallel_backends import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    AutoBatchingMixin,
    ParallelBackendBase,
)

from .pool import Pool

__all__ = ["PlimsollBackend"]


class PlimsollBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc,unused-ignore]
    """Calls of a joblib loop as jobs of a pool."""

    supports_retrieve_callback = True

    def __init__(self, nesting_level: Optional[int] = None, inner_max_num_threads: Optional[int] = None, **options: Any) -> None:
        if inner_max_num_threads is not None:
            raise NotImplementedError("plimsoll.joblib: inner_max_num_threads")
        super().__init__(nesting_level=nesting_level)
        self._options = options
        self._pool: Optional[Pool] = None
        self._workers = 0

    def effective_n_jobs(self, n_jobs: Optional[int]) -> int:
        """How many workers there are for that `n_jobs`: negative numbers count from the number of processors, -1 is that."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is None:
            return 1
        return n_jobs if n_jobs > 0 else max((os.cpu_count() or 1) + 1 + n_jobs, 1)

    def configure(self, n_jobs: int = 1, parallel: Any = None, prefer: Any = None, require: Any = None, **_: Any) -> int:
        """Makes the pool where there is none with so many workers."""
        self.parallel = parallel
        workers = self.effective_n_jobs(n_jobs)
        if self._pool is None or self._workers != workers:
            if self._pool is not None:
                self._pool.shutdown()
            self._pool, self._workers = Pool(workers, **self._options), workers
        return workers

    def submit(self, func: Callable[[], Any], callback: Optional[Callable[[Any], Any]] = None) -> Any:
        """A job's future; `callback` is called with it when it is done."""
        assert self._pool is not None
        future = self._pool.submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit

    def retrieve_result_callback(self, out: Any) -> Any:
        """The result of a future that is done, or its exception."""
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """Ends the workers with what they run."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()
        if ensure_ready:
            self.configure(n_jobs=self._workers, parallel=self.parallel)

    def terminate(self) -> None:
        """Resets what was learned of the calls' times. The workers stay for the next loop, until the backend is left."""
        self.reset_batch_stats()
        # The loop refers to the backend: otherwise the workers, with their leases, would stay until the interpreter looks for cycles.
        self.parallel = None


joblib.register_parallel_backend("plimsoll", PlimsollBackend)
