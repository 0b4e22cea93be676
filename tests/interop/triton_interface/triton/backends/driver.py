"""Triton's driver interface: abstract methods as in Triton 3.9."""

from abc import ABCMeta, abstractmethod


class DriverBase(metaclass=ABCMeta):
    @classmethod
    @abstractmethod
    def is_active(cls): ...

    @abstractmethod
    def map_python_to_cpp_type(self, ty): ...

    @abstractmethod
    def get_current_target(self): ...

    @abstractmethod
    def get_active_torch_device(self): ...

    @abstractmethod
    def get_benchmarker(self): ...
