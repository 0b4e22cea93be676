"""PyTorch's module `distributions.normal`; see `frontend.torch.distributions`."""

from frontend.torch.distributions import *  # noqa: F403 - all of it
