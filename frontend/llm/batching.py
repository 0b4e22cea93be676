"""One running batch of a language model: requests join between steps, and leave when they end.

The batch has a fixed number of rows, all of which end in the same slot of the cache. A step runs one token of
each row. A request joins in two stages: its prompt runs in a cache of one row, at the slots that end where
the batch ends; then that row is copied into the batch. Where a prompt is longer than the batch, or the slots
are used up, the batch is arranged anew: all rows run again in a cache that is large enough.

Threads: one thread runs the model and calls `Request.put`. `submit`, `cancel` and `close` may be called from
any thread.

Not here: protocols (`server`). Next: `model`, the cache and its graphs.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from compiler.dtype import dtypes
from frontend.capture.jit import TinyJit
from frontend.llm.model import CHUNKS, LEAST_SLOTS, Session
from frontend.tensor import Tensor
from hcq.errors import UsageError
from hcq.locks import Condition

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from frontend.llm.block import KeyValueCache
    from frontend.llm.model import LanguageModel
    from frontend.llm.sampling import Sampling


class BatchFullError(UsageError):
    """As many requests wait as the batch allows; the caller may try again later."""


class ContextLengthError(UsageError):
    """A prompt and the tokens wanted after it are more than the context of the batch."""


class BatchEndedError(UsageError):
    """The batch runs no more: it is closed, or its device failed."""


@dataclass(eq=False, slots=True, kw_only=True)
class Request:
    """A prompt and how it goes on. `RunningBatch.submit` checks it."""

    ids: list[int]
    most: int
    """Tokens at most."""
    sampling: Sampling
    draw: np.random.Generator
    ends: frozenset[int]
    """Ids that end the text; they are not put."""
    put: Callable[[int | BaseException | None], object]
    """Is called with each id, then with None, or with an error, from the batch's thread. Must not block."""
    cancelled: bool = False
    """Whether nobody wants more; the row is free after the step that runs."""
    tokens: list[int] = field(default_factory=list)
    """The prompt and the ids that were put."""


class RunningBatch:
    """A batch of `rows` rows of a model, with at most `waiting` requests that wait for a row.

    `context` limits the tokens of a request, prompt included; None: the positions of the model. Close it, or
    use it as a context manager. Raises `UsageError` for numbers below 1.
    """

    def __init__(
        self, model: LanguageModel, *, rows: int = 8, waiting: int = 64, context: int | None = None
    ) -> None:
        if rows < 1 or waiting < 1 or (context is not None and context < 1):
            seen = f"{rows}, {waiting}, {context}"
            raise UsageError(f"wanted at least 1 row, 1 that waits, 1 token; saw {seen}")
        self.model, self.waiting = model, waiting
        most = model.description.context
        self.context = most if context is None else min(context, most)
        self.rows: list[Request | None] = [None] * rows
        self._sessions: dict[int, tuple[Session, Session, TinyJit[Any, Any]]] = {}
        """Slots -> a cache of all rows, one of a single row, and the graph that copies a row."""
        self._slots = 0
        self._queue: deque[Request] = deque()
        self._changed = Condition()
        self._closed = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="hcq language model", daemon=True)
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Queue a request.

        Raises `UsageError` for ids that the model does not have, `ContextLengthError` for more tokens than
        the context, `BatchFullError` if too many requests wait, `BatchEndedError` after `close` or a failure.
        """
        size, vocabulary = len(request.ids), self.model.description.vocabulary
        if not size or not all(type(n) is int and 0 <= n < vocabulary for n in request.ids):
            raise UsageError(f"wanted one id or more, each from 0 to {vocabulary - 1}")
        if request.most < 1:
            raise UsageError(f"wanted one token or more, saw {request.most}")
        if size + request.most > self.context:
            raise ContextLengthError(
                f"the context has {self.context} tokens, wanted {size} of the prompt and {request.most} more"
            )
        with self._changed:
            if self._closed or self._error is not None:
                raise BatchEndedError(f"the batch does not run: {self._error or 'it is closed'}")
            self._queue = deque([r for r in self._queue if not r.cancelled])
            if len(self._queue) >= self.waiting:
                raise BatchFullError(f"{self.waiting} requests wait already")
            request.tokens = list(request.ids)
            self._queue.append(request)
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        """End a request: its row is free before the next step. Nothing happens if it has ended."""
        request.cancelled = True

    def close(self) -> None:
        """End the thread after its step. Requests that did not end get a `UsageError`."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        each = [session for found in self._sessions.values() for session in found[:2]]
        self._sessions.clear()  # the graph that copies a row uses both caches
        for session in each:
            session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        """Run steps while there are requests; the thread's function."""
        error: BaseException = UsageError("the server is closed")
        try:
            while self._wait():
                self._join()
                if any(self.rows):
                    self._step()
        except BaseException as found:  # noqa: BLE001 - every request gets it
            error = self._error = found
        with self._changed:
            self._closed = True
            left = [*[r for r in self.rows if r is not None], *self._queue]
            self._queue.clear()
        for request in left:
            request.put(error)

    def _wait(self) -> bool:
        """Free the rows that nobody wants, and wait until there is work; return whether to go on."""
        self.rows = [None if r is None or r.cancelled else r for r in self.rows]
        with self._changed:
            while not (self._closed or self._queue or any(self.rows)):
                self._changed.wait()
            return not self._closed

    def _join(self) -> None:
        """Give free rows to the requests that wait."""
        new = []
        with self._changed:
            for row, held in enumerate(self.rows):
                while held is None and self._queue:
                    held = self._queue.popleft()  # noqa: PLW2901 - the next one that is wanted
                    if held.cancelled:
                        held = None  # noqa: PLW2901 - as above
                    else:
                        new.append(row)
                        self.rows[row] = held
        before = len([r for r in self.rows if r is not None]) - len(new)
        longest = max([len(r.tokens) for r in self.rows if r is not None], default=0)
        if not before:
            self._slots = 0
        if not longest:
            return
        if not self._slots or longest > self._batch.end or self._batch.end >= self._slots:
            self._arrange(longest)
            new = [row for row, held in enumerate(self.rows) if held is not None]
        for row in new:
            self._run_prompt(row)

    @property
    def _batch(self) -> Session:
        return self._sessions[self._slots][0]

    def _arrange(self, longest: int) -> None:
        """Choose a cache with room for the longest row, and where all rows end in it."""
        slots = max(LEAST_SLOTS, 1 << (longest + longest // 4 + CHUNKS[-1]).bit_length())
        if slots not in self._sessions:
            decoder = self.model.decoder
            batch, one = Session(decoder, len(self.rows), slots), Session(decoder, 1, slots)
            self._sessions[slots] = batch, one, TinyJit(partial(_copied, batch.cache, one.cache))
        self._slots = slots
        self._batch.end = max(longest, slots // 4)
        self._batch.starts[:] = self._batch.end - 1

    def _run_prompt(self, row: int) -> None:
        """Run all tokens of a row but the last, and copy them to the row of the batch."""
        batch, one, copy = self._sessions[self._slots]
        held = self.rows[row]
        assert held is not None  # the caller has filled it
        first = batch.end - len(held.tokens)
        for session, place in ((batch, row), (one, 0)):
            session.starts[place] = first
            session.ids[place, first : batch.end] = held.tokens
            session.rotate(place, len(held.tokens))
        one.ids[0, :first] = 0
        for at, count in one.chunks(first, batch.end - 1):
            one.run(at, count, scored=count == 1)
        batch.call(copy, Tensor([row], dtype=dtypes.int32, device=self.model.decoder.device).realize())

    def _step(self) -> None:
        """Run a token of each row, and put the ids that follow."""
        batch = self._batch
        for row, held in enumerate(self.rows):
            if held is not None and batch.rotate(row, len(held.tokens)):
                self._run_prompt(row)
        found = batch.run(batch.end - 1, 1, scored=True)
        assert found is not None  # scored
        logits = found.numpy()[:, 0]
        for row, held in enumerate(self.rows):
            token = 0
            if held is not None and not held.cancelled:
                token = held.sampling.choose(logits[row], held.draw)
                ended = token in held.ends
                if not ended:
                    held.tokens.append(token)
                    held.put(token)
                if ended or len(held.tokens) == len(held.ids) + held.most:
                    held.put(None)
                    self.rows[row] = None
            if batch.end < self._slots:
                batch.ids[row, batch.end] = token
        batch.end += 1
        for row, held in enumerate(self.rows):
            if held is None:
                batch.starts[row] = batch.end - 1


def _copied(batch: KeyValueCache, one: KeyValueCache, row: Tensor) -> None:
    """Copy the cache of one row to a row of the batch's."""
    rows = Tensor.arange(batch.batch, dtype=dtypes.int32, device=row.device)
    here = rows.reshape(batch.batch, 1, 1, 1) == row
    for to, of in ((batch.keys, one.keys), (batch.values, one.values)):
        for whole, single in zip(to, of, strict=True):
            whole.assign(here.where(single, whole))
