"""The compiler class that Triton's plug-in interface requires beside the driver; it compiles nothing.

The driver reports targets of Triton's own "cuda" and "hip" compilers, so that kernels see the same target as
under CUDA and ROCm. This class therefore supports no target, and Triton never makes an instance of it.

Not here: Triton's compilers. Next: `interop/triton_backend/driver.py`, the driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from triton.backends.compiler import BaseBackend

from hcq.errors import UnsupportedError

if TYPE_CHECKING:
    from types import ModuleType

    from triton.backends.compiler import GPUTarget


class HcqCompiler(BaseBackend):  # type: ignore[misc]  # Triton has no types
    """A compiler without targets."""

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:  # noqa: ARG004 - Triton's signature
        """Return False: Triton's own compilers make the code."""
        return False

    def hash(self) -> str:
        """Raise `UnsupportedError`."""
        _refuse()

    def parse_options(self, options: dict[str, object]) -> object:  # noqa: ARG002 - Triton's signature
        """Raise `UnsupportedError`."""
        _refuse()

    def pack_metadata(self, metadata: object) -> object:  # noqa: ARG002 - Triton's signature
        """Raise `UnsupportedError`."""
        _refuse()

    def add_stages(self, stages: dict[str, object], options: object, language: object) -> None:  # noqa: ARG002 - the same
        """Raise `UnsupportedError`."""
        _refuse()

    def load_dialects(self, context: object) -> None:  # noqa: ARG002 - Triton's signature
        """Raise `UnsupportedError`."""
        _refuse()

    def get_module_map(self) -> dict[str, ModuleType]:
        """Raise `UnsupportedError`."""
        _refuse()

    def get_codegen_implementation(self, options: object) -> dict[str, object]:  # noqa: ARG002 - Triton's signature
        """Raise `UnsupportedError`."""
        _refuse()


def _refuse() -> NoReturn:
    raise UnsupportedError("hcq has no compiler for Triton; wanted a target 'cuda' or 'hip' of Triton's own")
