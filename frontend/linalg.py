"""PyTorch's module `linalg`; see `frontend.torch.linalg`."""

from frontend.torch.linalg import *  # noqa: F403 - all of it
