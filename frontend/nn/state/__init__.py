"""State of models: their tensors by name, and files of tensors.

    nn.state.safe_save(nn.state.get_state_dict(model), "model.safetensors")
    nn.state.load_state_dict(model, nn.state.safe_load("model.safetensors"))

Not here: pickles of tensors (`frontend.copies`), the state of an optimiser (`frontend.optim`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from frontend.nn.state.gguf import GgufFile, gguf_load, gguf_open
from frontend.nn.state.models import get_parameters, get_state_dict, load_state_dict
from frontend.nn.state.safetensors import SafeFile, safe_load, safe_metadata, safe_open, safe_save
from hcq.names import lazy

if TYPE_CHECKING:
    from frontend.nn.state.checkpoints import torch_load

__all__ = [
    "GgufFile", "SafeFile", "get_parameters", "get_state_dict", "gguf_load", "gguf_open", "load_state_dict",
    "safe_load", "safe_metadata", "safe_open", "safe_save", "torch_load",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know all names
    __getattr__, __dir__ = lazy(__name__, __all__, {"torch_load": "frontend.nn.state.checkpoints"})
