"""PyTorch's module `distributions`; see `frontend.torch.distributions`."""

from frontend.torch.distributions import *  # noqa: F403 - all of it
