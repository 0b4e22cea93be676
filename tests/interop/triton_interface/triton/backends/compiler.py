"""Triton's compiler interface: abstract methods as in Triton 3.9."""

from abc import ABCMeta, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class GPUTarget:
    backend: str
    arch: object
    warp_size: int


class BaseBackend(metaclass=ABCMeta):
    @staticmethod
    @abstractmethod
    def supports_target(target): ...

    @abstractmethod
    def hash(self): ...

    @abstractmethod
    def parse_options(self, options): ...

    @abstractmethod
    def add_stages(self, stages, options, language): ...

    @abstractmethod
    def load_dialects(self, context): ...

    @abstractmethod
    def get_module_map(self): ...
