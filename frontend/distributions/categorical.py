"""PyTorch's module `distributions.categorical`; see `frontend.torch.distributions`."""

from frontend.torch.distributions import *  # noqa: F403 - all of it
