"""Blocking work with a deadline: a frozen disk or driver costs one thread, never the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from agent.errors import EdgeError

T = TypeVar("T")
LATE = "late"  # slug of the EdgeError that means that the deadline has passed, of this call or of one that still hangs


class BoundedThread:
    """Runs blocking calls one after another, each in a daemon thread and with a deadline.

    At most one thread of an instance ever exists: while a call hangs past its deadline, every further one is
    refused at once. Daemon threads, because those of an executor are waited for when the interpreter ends.
    """

    def __init__(self, edge: str) -> None:
        self._edge = edge
        self._turn = asyncio.Lock()
        self._running: asyncio.Future[Any] | None = None  # done as soon as its thread is
        self._late = False  # the running call has passed its deadline

    async def run(self, what: str, limit_s: float, work: Callable[[threading.Event], T]) -> T:
        """What `work` returns or raises; its OSError becomes EdgeError, as do `limit_s` and an earlier call that hangs.

        `work` is given an event that is set once nobody waits for it any more: it must then leave no effect.
        """
        async with self._turn:
            if self._late:
                raise EdgeError(self._edge, what, "an earlier call still hangs", LATE)
            given_up = threading.Event()
            try:
                async with asyncio.timeout(limit_s) as patience:
                    if self._running is not None:  # its caller was cancelled
                        await asyncio.wait([self._running])
                    future: asyncio.Future[T] = self._start(work, given_up)
                    return await asyncio.shield(future)
            except OSError as error:  # TimeoutError is one, and so is ETIMEDOUT that `work` itself may meet
                if not patience.expired():
                    raise EdgeError(self._edge, what, error.strerror or str(error)) from error
                self._late = True
                raise EdgeError(self._edge, what, f"no answer within {limit_s:g} s", LATE) from None
            finally:
                given_up.set()

    def _start(self, work: Callable[[threading.Event], T], given_up: threading.Event) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: list[T], error: BaseException | None) -> None:
            self._running, self._late = None, False
            if given_up.is_set():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(result[0])

        def body() -> None:
            result: list[T] = []
            error: BaseException | None = None
            try:
                result.append(work(given_up))
            except BaseException as caught:  # handed over: raised again in the loop's thread
                error = caught
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, result, error)

        self._running = future
        threading.Thread(target=body, daemon=True, name=f"gpuagent-{self._edge}").start()
        return future
