"""PyTorch's module `distributions`; see `frontend.torch.distributions`, `families`, `transforms`."""

from frontend.torch import constraints as constraints
from frontend.torch import transforms as transforms
from frontend.torch.distributions import *  # noqa: F403 - all of it
from frontend.torch.divergences import *  # noqa: F403 - as above
from frontend.torch.families import *  # noqa: F403 - as above
from frontend.torch.transforms import *  # noqa: F403 - as above
