"""What the distribution ships."""

from tools.check import PACKAGES, wheel_packages


def test_wheel_contains_exactly_the_packages():
    assert wheel_packages() == PACKAGES
