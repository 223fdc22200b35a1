"""Workers that are kept, and jobs for them."""

from __future__ import annotations

import atexit
import concurrent.futures
import logging
import os
import queue
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Optional, TypeVar, Union, overload

from . import _engines, _slurm
from ._binary import Gpus, LeaseOptions, Memory
from ._process import NotStarted, Worker
from .errors import RemoteError
from .isolation import _name, check_timeout, pickled
from .reports import Report

R = TypeVar("R")
AnyWorker = Union[Worker, _engines.Apart]
_log = logging.getLogger("plimsoll")

_STARTS = 5
"""How often a worker is started that dies before it is there, and a job given to workers that die before they have begun with it."""

_IDLE = 1.0
"""Seconds without a job after which shared memory is given back that was kept for the next."""


class Pool(concurrent.futures.Executor):
    """Up to `workers` processes that run functions; each keeps its lease for as long as it lives.

    A `concurrent.futures.Executor`: its futures are those of the standard library. Jobs go to workers that are ready, so that a pool
    works with as many as can have their cards, while the others wait for theirs. A worker that dies takes the job that it ran with
    it (its future says what happened: `plimsoll.RemoteError`) and is replaced; no job is lost, and none is run twice. A worker whose
    memory stays more than `recycle_above` bytes above what it was after its first job is replaced too (None: never).

    `engine` takes jobs to other machines, each in a process of its own under a lease there: "ray" (see `plimsoll.ray`), or "slurm", which is
    also used where none is named in an allocation of several nodes ("none": not then). A job whose machine is lost is run on another.

    `timeout` is for each job, in seconds. A future's `.report` says what its job took, when it is done; `last_report` is that of the job
    that was done last. `with_report`: results are pairs of a result and its report. Leaving the `with` block waits for all jobs; leaving it by an exception cancels those
    that have not begun, and by KeyboardInterrupt ends those that run.
    """

    def __init__(
        self,
        workers: Optional[int] = None,
        *,
        gpus: Optional[Gpus] = None,
        memory: Optional[Memory] = None,
        timeout: Optional[float] = None,
        wait: Union[bool, float] = True,
        priority: Optional[int] = None,
        name: Optional[str] = None,
        recycle_above: Optional[int] = 256 << 20,
        with_report: bool = False,
        engine: Optional[str] = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers={workers}: a pool has at least one")
        check_timeout(timeout)
        lease = LeaseOptions(gpus, memory, wait, priority, name or "pool")
        found = _engines.of(engine)
        if found is not None:
            found.check(lease)
        elif lease.needs_lease():
            lease.command()  # raises here where there is no program `plimsoll`
        if workers is None:
            workers = _slurm.processors() if found is None else found.workers
        self._crew = _Crew(workers, lease, timeout, recycle_above, with_report, found)
        finish = weakref.finalize(self, _Crew.close, self._crew)
        finish.atexit = False  # at exit, `_finish_all` waits for submitted jobs

    @property
    def last_report(self) -> Optional[Report]:
        """The report of the last job; none before there is one."""
        return self._crew.last_report

    def submit(self, function: Callable[..., R], /, *args: Any, **kwargs: Any) -> Future[R]:
        """A future for `function(*args, **kwargs)`."""
        future: Future[R] = _Future()
        self._crew.put(_Job(future, function, args, kwargs))
        return future

    @overload
    def as_completed(self, jobs: Iterable[Future[R]], /, *, timeout: Optional[float] = None) -> Iterator[Future[R]]: ...

    @overload
    def as_completed(
        self, jobs: Callable[..., R], /, *iterables: Iterable[Any], timeout: Optional[float] = None
    ) -> Iterator[Future[R]]: ...

    def as_completed(self, jobs: Any, /, *iterables: Iterable[Any], timeout: Optional[float] = None) -> Iterator[Future[Any]]:
        """Futures as they come to an end: of those that are given, or of a function for all of its arguments, as `map` takes them."""
        futures = [self.submit(jobs, *args) for args in zip(*iterables)] if callable(jobs) else jobs
        return concurrent.futures.as_completed(futures, timeout)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more jobs. Waits for those that there are; `cancel_futures`: but for those that have not begun."""
        self._crew.close(cancel_futures)
        if wait:
            self._crew.join()

    def terminate(self) -> None:
        """Ends all workers now. What has not ended is cancelled, or fails with `WorkerKilled`."""
        self._crew.terminate()

    def __exit__(self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if kind is not None and not issubclass(kind, Exception):
            self.terminate()
            return
        try:
            self.shutdown(cancel_futures=kind is not None)
        except BaseException:
            self.terminate()
            raise


class _Future(Future[R]):
    """One that says so where it is waited for in a fork of the process that it belongs to: nothing would end the wait there."""

    def __init__(self) -> None:
        super().__init__()
        self._process = os.getpid()
        self.report: Optional[Report] = None
        """The job's report, when it is done."""

    def result(self, timeout: Optional[float] = None) -> R:
        self._check()
        return super().result(timeout)

    def exception(self, timeout: Optional[float] = None) -> Optional[BaseException]:
        self._check()
        return super().exception(timeout)

    def _check(self) -> None:
        if self._process != os.getpid() and self._state not in ("FINISHED", "CANCELLED_AND_NOTIFIED"):
            raise RuntimeError(f"this future belongs to a pool of the process {self._process}, of which this process is a fork")


class _Job:
    def __init__(self, future: Future[Any], function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.future = future
        self.function = function
        self.args = args
        self.kwargs = kwargs


class _Crew:
    """The threads of a pool, one for each worker: it starts the worker, gives it jobs, and replaces it."""

    def __init__(
        self,
        workers: int,
        lease: LeaseOptions,
        timeout: Optional[float],
        recycle_above: Optional[int],
        with_report: bool,
        engine: Optional[_engines.Engine],
    ) -> None:
        self._engine = engine
        self._with_report = with_report
        self.last_report: Optional[Report] = None
        self._lease = lease
        self._timeout = timeout
        self._recycle_above = recycle_above
        self._jobs: queue.SimpleQueue[Optional[_Job]] = queue.SimpleQueue()
        # The next lines are under the lock, which the finalizer of a pool may find taken by its own thread.
        self._lock = threading.RLock()
        self._pending = 0  # jobs that no thread has taken
        self._closed = self._terminated = False
        self._living = workers
        self._refusal: Optional[BaseException] = None
        self._workers: dict[AnyWorker, bool] = {}  # and whether a job waits for it in particular, or is run by it
        self._process = os.getpid()
        self._threads = [threading.Thread(target=self._attend, name=f"plimsoll-{i}", daemon=True) for i in range(workers)]
        for thread in self._threads:
            thread.start()
        _crews.add(self)

    def put(self, job: _Job) -> None:
        if self._process != os.getpid():
            raise RuntimeError(
                f"this pool belongs to the process {self._process}, of which this process is a fork without the pool's threads: "
                "make a pool in this process"
            )
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed: it takes no more jobs")
            if self._refusal is None:
                self._pending += 1
                self._jobs.put(job)
                return
        job.future.set_running_or_notify_cancel()
        job.future.set_exception(self._refusal)

    def close(self, cancel: bool = False) -> None:
        if self._process != os.getpid():
            return  # a fork may end as it likes
        with self._lock:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        if cancel:
            self._drain(None)
        with self._lock:
            self._abandon()

    def terminate(self) -> None:
        if self._process != os.getpid():
            return
        with self._lock:
            self._terminated = True
        self.close(cancel=True)
        with self._lock:
            for worker in self._workers:
                worker.end()
        self.join()

    def join(self) -> None:
        if self._process == os.getpid():
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join()

    def _attend(self) -> None:
        worker: Optional[AnyWorker] = None
        try:
            while True:
                if worker is None:
                    worker = self._start(busy=False)
                    if worker is None:
                        return
                job = self._take(worker)
                if job is None:
                    return
                if job.future.set_running_or_notify_cancel():
                    worker = self._run(job, worker)
                del job
        except BaseException as error:
            self._leave(error)
        finally:
            if worker is not None:
                self._dismiss(worker)

    def _take(self, worker: AnyWorker) -> Optional[_Job]:
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE if worker.keeps_memory else None)
                break
            except queue.Empty:
                worker.rest()
        if job is None:
            self._jobs.put(None)  # for the others
            return None
        with self._lock:
            self._pending -= 1
            self._abandon()
        return job

    def _run(self, job: _Job, worker: AnyWorker) -> Optional[AnyWorker]:
        """Runs a job. The worker for the next; none where another is to be started."""
        try:
            data = pickled(job.function, job.args, job.kwargs)
        except BaseException as error:
            job.future.set_exception(error)
            return worker
        for attempt in range(_STARTS):
            with self._lock:
                self._workers[worker] = True
            try:
                result = worker.run(data, _name(job.function), self._timeout)
                self._note(job, worker)
            except NotStarted as never:
                # It died while it had nothing to do, or was never well.
                self._dismiss(worker)
                with self._lock:
                    if self._terminated or attempt == _STARTS - 1:
                        job.future.set_exception(never.args[0])
                        return None
                try:
                    another = self._start(busy=True)
                except BaseException as error:
                    job.future.set_exception(error)
                    raise
                if another is None:
                    job.future.set_exception(never.args[0])
                    return None
                worker = another
                continue
            except BaseException as error:
                self._note(job, worker)
                job.future.set_exception(error)
            else:
                job.future.set_result((result, worker.report) if self._with_report else result)
                del result
            break
        with self._lock:
            self._workers[worker] = False
        if worker.can_go_on():
            return worker
        self._dismiss(worker)
        return None

    def _note(self, job: _Job, worker: AnyWorker) -> None:
        """Keeps the report of a job."""
        self.last_report = worker.report
        if isinstance(job.future, _Future):
            job.future.report = worker.report

    def _start(self, busy: bool) -> Optional[AnyWorker]:
        """A new worker, when it is there. None where the pool has come to its end meanwhile."""
        for attempt in range(_STARTS):
            if self._needs_none(busy):
                return None
            worker = self._new()
            with self._lock:
                self._workers[worker] = busy
            try:
                if self._needs_none(busy):  # the thread that ended the pool just now may not have seen this one
                    worker.end()
                worker.greet()
                return worker
            except BaseException as error:
                self._dismiss(worker)
                if self._needs_none(busy):
                    return None
                if not isinstance(error, RemoteError) or attempt == _STARTS - 1:
                    raise
        return None

    def _new(self) -> AnyWorker:
        if self._engine is not None:
            return _engines.Apart(self._engine, self._lease)
        return Worker(self._lease, self._recycle_above)

    def _needs_none(self, busy: bool) -> bool:
        with self._lock:
            return self._terminated or (self._closed and not self._pending and not busy)

    def _dismiss(self, worker: AnyWorker) -> None:
        worker.close()
        with self._lock:
            self._workers.pop(worker, None)

    def _abandon(self) -> None:
        """Under the lock: where no more jobs will come, no thread need wait for a worker's lease."""
        if self._closed and not self._pending:
            for worker, busy in self._workers.items():
                if not busy and not worker.is_there:
                    worker.end()

    def _leave(self, error: BaseException) -> None:
        """A thread that gets no worker goes; where it was the last, no job will be done."""
        with self._lock:
            self._living -= 1
            if self._living:
                _log.warning("a pool goes on with %d workers: %s", self._living, error)
                return
            self._refusal = error
        self._drain(error)

    def _drain(self, error: Optional[BaseException]) -> None:
        """Cancels the jobs in the queue, or has them fail."""
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return
            if job is None:
                self._jobs.put(None)
                return
            with self._lock:
                self._pending -= 1
            if error is None:
                job.future.cancel()
                job.future.set_running_or_notify_cancel()
            elif job.future.set_running_or_notify_cancel():
                job.future.set_exception(error)


_crews: weakref.WeakSet[_Crew] = weakref.WeakSet()


def _finish_all() -> None:
    """At exit: submitted jobs are done, as with the executors of the standard library."""
    crews = [crew for crew in _crews if crew._process == os.getpid()]
    try:
        for crew in crews:
            crew.close()
        for crew in crews:
            crew.join()
    except BaseException:
        for crew in crews:
            crew.terminate()
        raise


atexit.register(_finish_all)
