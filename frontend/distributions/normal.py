"""PyTorch's module `distributions.normal`; see `frontend.torch.families`."""

from frontend.torch.families import *  # noqa: F403 - all of it
