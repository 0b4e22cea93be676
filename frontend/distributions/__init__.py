"""PyTorch's module `distributions`; see `frontend.torch.distributions`, `frontend.torch.families`."""

from frontend.torch.distributions import *  # noqa: F403 - all of it
from frontend.torch.families import *  # noqa: F403 - as above
