"""What a provider of attention is, and what it reads of a problem."""

from collections.abc import Callable
from dataclasses import dataclass, field

WINDOWS = ["window_left", "window_right"]


class Unsupported(Exception):
    """The provider does not support the problem."""


@dataclass
class Provider:
    name: str
    description: str
    attend: Callable
    node: str = ""  # part of the name of the autograd node that must result
    gives_logsumexp: bool = False  # in that node
    on_request_only: bool = False
    axes: list = field(default_factory=list)  # optional axes of problems that it knows
    context: Callable = None  # runs work in which several GPUs attend together
    plan: Callable = None  # what `attend` finds as problem["plan"], of a problem and a device


def window(problem):
    """Keys before and after a query's own that it sees; None: all. A causal mask hides those after."""
    left, right = (problem.get(name) for name in WINDOWS)
    return left, right if problem["mask"] == "none" else 0
