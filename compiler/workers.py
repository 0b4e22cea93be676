"""Compilation in worker processes, for kernels on which LLVM may abort the process.

LLVM aborts on code that it cannot select. A worker is a new interpreter, spawned and not forked, that imports
this package and serves requests on its pipes. Kernels are sent as canonical text, results as the bytes of the
disk cache. If a worker aborts, its kernel becomes a `CompileError` with the kernel's text and the worker's
last output, and a new worker takes the next kernel.

Not here: which kernels are compiled in workers. Next: `compile`, the caller.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from compiler.image import CompiledKernel, MalformedError, from_bytes, to_bytes
from compiler.plan.choice import from_text, to_text
from compiler.targets import target_of
from hcq.errors import CompileError, HcqError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO

    from compiler.plan.choice import Choice

_LENGTH = struct.Struct("<cI")
_DONE, _REFUSED, _UNSUPPORTED = b"k", b"c", b"u"
"""Kinds of replies: a kernel, the text of a `CompileError`, the text of an `UnsupportedError`."""
STDERR_SHOWN = 2000
"""Characters of a dead worker's stderr that an error shows."""


def _write(pipe: IO[bytes], kind: bytes, data: bytes) -> None:
    pipe.write(_LENGTH.pack(kind, len(data)) + data)
    pipe.flush()


def _read(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Return one message as (kind, data); None if the other process closed the pipe before its end."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    kind, size = _LENGTH.unpack(head)
    data = pipe.read(size)
    return (kind, data) if len(data) == size else None


class Interpreter:
    """A spawned interpreter that runs some code and talks on its pipes. Not thread-safe."""

    def __init__(self, code: str, prelude: str = "") -> None:
        """Start the process; `prelude` is Python code that it runs first, for tests."""
        home = str(Path(__file__).resolve().parent.parent)
        start = f"import sys; sys.path.insert(0, {home!r}); exec({prelude!r}); {code}"
        self.dead = False
        """Whether the process has ended, or must not be used any more."""
        self.stderr = tempfile.TemporaryFile()  # noqa: SIM115  # lives as long as the process
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", start],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.stderr,
        )

    def ended(self) -> tuple[str, str]:
        """Wait for the end of the process; return how it ended, and the end of what it wrote to stderr."""
        self.dead = True
        code = self.process.wait()
        self.stderr.seek(0)
        output = self.stderr.read().decode(errors="replace")[-STDERR_SHOWN:].strip()
        return f"signal {-code}" if code < 0 else f"exit status {code}", output

    def close(self, timeout_s: float | None = None) -> None:
        """Close the pipes and wait for the end of the process, killed after `timeout_s` if given."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    self.dead = True
        try:
            self.process.wait(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.stderr.close()


class Worker:
    """One worker process for an architecture. Not thread-safe."""

    def __init__(self, arch: str, *, prelude: str = "") -> None:
        """Start a process; `prelude` is Python code that it runs first, for tests.

        Raises `UnsupportedError` for an architecture without a target.
        """
        self._arch = target_of(arch).arch
        self._interpreter = Interpreter(f"from compiler.workers import serve; serve({arch!r})", prelude)

    @property
    def dead(self) -> bool:
        """Whether the process has ended; another worker must take the next kernel."""
        return self._interpreter.dead

    def compile(self, text: str, choice: Choice | None = None) -> CompiledKernel | HcqError:
        """Compile the kernel of a canonical text, and return it or its error; no error is raised.

        Without a choice the plan is estimated. After an abort the worker is `dead`.
        """
        process = self._interpreter.process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(process.stdin, _DONE, f"{to_text(choice) if choice else ''}\0{text}".encode())
            reply = _read(process.stdout)
        except BrokenPipeError:
            reply = None
        if reply is None:
            how, output = self._interpreter.ended()
            what = f"the compile worker ended ({how}): LLVM could not select the code; its output: {output}"
            return CompileError(what, ast=text)
        kind, data = reply
        if kind == _DONE:
            try:
                return from_bytes(data, arch=self._arch)
            except MalformedError as error:
                return CompileError(f"the compile worker sent an invalid kernel: {error}", ast=text)
        message = data.decode()
        return CompileError(message) if kind == _REFUSED else UnsupportedError(message)

    def close(self) -> None:
        """End the process, and wait for its end."""
        self._interpreter.close()


def compile_texts(
    texts: Sequence[str | tuple[str, Choice | None]],
    arch: str,
    *,
    processes: int = 0,
    start: Callable[[str], Worker] = Worker,
) -> list[CompiledKernel | HcqError]:
    """Compile kernels on up to `processes` workers; return a result or an error for each, in order.

    `texts` are canonical texts, or pairs (canonical text, choice or None). With `processes` 0 there
    is a worker for each CPU that this process may use. `start` makes a worker. Errors of kernels are results;
    others, such as an architecture without a target, are raised.
    """
    processes = processes or len(os.sched_getaffinity(0))
    results: list[CompiledKernel | HcqError | None] = [None] * len(texts)
    pending = iter(range(len(texts)))
    lock = threading.Lock()
    failures: list[BaseException] = []

    def run() -> None:
        worker: Worker | None = None
        try:
            while True:
                with lock:
                    number = next(pending, None)
                if number is None:
                    return
                if worker is None:
                    worker = start(arch)
                text = texts[number]
                results[number] = worker.compile(*((text,) if isinstance(text, str) else text))
                if worker.dead:
                    worker.close()
                    worker = None
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            failures.append(error)
        finally:
            if worker is not None:
                worker.close()

    threads = [threading.Thread(target=run) for _ in range(max(1, min(processes, len(texts))))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    assert all(r is not None for r in results)
    return [r for r in results if r is not None]


def serve(arch: str) -> None:
    """Serve requests on stdin until it is closed, in a worker process; other output goes to stderr.

    A request that fails is answered with its error, if that is an `HcqError`. Any other error, as of a text
    that no `kernel_key` made, ends the process.
    """
    from compiler.compile import compile_uncached  # noqa: PLC0415  # the worker's own imports
    from compiler.ir.serialize import parse_kernel  # noqa: PLC0415

    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    while (request := _read(requests)) is not None:
        chosen, _, text = request[1].decode().partition("\0")
        try:
            kernel = compile_uncached(parse_kernel(text), arch, from_text(chosen) if chosen else None)
        except UnsupportedError as error:
            _write(replies, _UNSUPPORTED, str(error).encode())
        except HcqError as error:
            _write(replies, _REFUSED, str(error).encode())
        else:
            _write(replies, _DONE, to_bytes(kernel))
