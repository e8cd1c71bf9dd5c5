"""A verdict on a sampler that somebody wrote: `from nanospec.proof.judge import judge`.

verdict.py judges, other_programs.py has samplers of other projects, endpoint.py servers,
sequential.py stops early, and __main__.py is the command for all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nanospec.proof.judge.verdict import Verdict, judge

__all__ = ["Verdict", "judge"]


def __getattr__(name: str) -> Any:
    """Read when first asked for: the command can be interrupted before torch is imported."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.verdict"), name)
