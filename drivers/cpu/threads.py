"""Functions of libc for native code: their addresses, and threads.

The threads run native code only: they never hold the interpreter lock, and all Unix signals are blocked in
them.

Not here: the code of the threads (`processor`, `workers`), when they start and stop (`device`). Next:
`device`.
"""

from __future__ import annotations

import ctypes
import signal

from drivers.kernel import fail

IMPORTS = ("syscall", "clock_gettime", "memcpy", "sched_getcpu")
"""Functions that the command processor calls, through addresses in `Pool`."""
KERNEL_IMPORTS = ("memcpy", "memmove", "memset")
"""Functions that a kernel may call: LLVM itself may emit calls of them."""
STACK_BYTES = 16 << 20
"""Stack size of a thread in bytes, independent of the process's default; a kernel may use 12 MiB of it.

Linux provides memory only for the pages that were accessed.
"""
_ATTRIBUTES_BYTES = 128
"""An upper bound of `sizeof(pthread_attr_t)`, which is 56 or 64."""


class Libc:
    """The C library of this process; `address` maps the names of its imported functions to addresses."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self.address = {
            name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
            for name in (*IMPORTS, *KERNEL_IMPORTS)
        }
        self._create = library.pthread_create
        self._attributes = (ctypes.c_uint64 * (_ATTRIBUTES_BYTES // 8))()
        library.pthread_attr_init(self._attributes)
        library.pthread_attr_setstacksize(self._attributes, ctypes.c_size_t(STACK_BYTES))
        self._join = library.pthread_join
        self._join.argtypes = (ctypes.c_ulong, ctypes.c_void_p)
        self._name = library.pthread_setname_np
        self._name.argtypes = (ctypes.c_ulong, ctypes.c_char_p)

    def start(self, entry: int, argument: int, name: str) -> int:
        """Start a thread at the native function `entry` with one argument; return its handle.

        `name` is shown by tools, cut to 15 bytes. The caller must join the thread. Raises `DriverError`, or
        `OutOfMemoryError` for ENOMEM, if the thread cannot be created.
        """
        handle = ctypes.c_ulong()
        before = signal.pthread_sigmask(
            signal.SIG_BLOCK, signal.valid_signals()
        )  # the new thread inherits the mask
        try:
            error = self._create(
                ctypes.byref(handle),
                self._attributes,
                ctypes.c_void_p(entry),
                ctypes.c_void_p(argument),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if error:
            fail(
                "pthread_create",
                error,
                name,
                hint="the limit of threads of this user or container is reached",
            )
        self._name(handle, name.encode()[:15])
        return handle.value

    def join(self, handle: int) -> None:
        """Wait until a thread has returned, and free its resources."""
        self._join(handle, None)
