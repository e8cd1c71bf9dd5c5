"""A pretend GPU: a device of torch's, written in Python, whose tensors lie in ordinary memory.

    with plugged() as gpu:
        model.to(NAME)
        ...
        gpu.transfers               # what has gone between the two memories

It computes what the CPU computes, and holds what a GPU would hold against a program:

    mixing      an operation on tensors of both devices raises, unless the CPU's has no dimension
    reading     to know a number of the device's, or a shape that depends on one, is to wait for it
    writing     a copy of numbers of the CPU's; torch waits for it, too, unless it is told not to

A transfer *waits* if there was work left on the device: then the device stands idle until the CPU has
asked it for more. Of two transfers without work between them, the second waits for nothing.

What it cannot see: kernels that differ from the CPU's, graphs, races, memory, speed. It needs the hooks
that torch has for backends written in Python ("PrivateUse1", experimental; torch 2.9 to 2.13).
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils import backend_registration

NAME = "pretend"
HANDED_OVER = {"aten::copy_", "aten::_to_copy", "aten::to"}         # what takes tensors of both devices, to copy one
MEMORY = ("aten::empty", "aten::new_empty")             # what asks for memory, and for no work
ANSWERS = {"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal", "aten::allclose"}
# What needs a number of the device's before it can go on: the shape of a result, or the result itself.
READS = ANSWERS | {"aten::nonzero", "aten::argwhere", "aten::masked_select", "aten::unique_consecutive",
                   "aten::_unique2", "aten::bincount"}
HALF = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
WHOLE = ("softmax.int", "log_softmax.int", "rms_norm", "cumsum", "smooth_l1_loss")


class Transfer(NamedTuple):
    """way: "read" or "write". waits: whether there was work left. where: the line of nanospec that asked for it."""

    way: str
    waits: bool
    operation: str
    where: str


class Machine:
    """The one device of this kind. queued: whether it has been asked for anything since the last transfer."""

    def __init__(self) -> None:
        self.here, self.queued, self.transfers = False, False, list[Transfer]()

    def transfer(self, way: str, operation: str, blocking: bool = True) -> None:
        self.transfers.append(Transfer(way, self.queued and blocking, operation, _asked_by()))
        self.queued &= not blocking

    def taken(self) -> list[Transfer]:
        """The transfers since this was asked last."""
        new, self.transfers = self.transfers, []
        return new


GPU = Machine()


class OnDevice(Tensor):
    """A tensor of the device. raw: the numbers, a tensor of the CPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor):
        made = Tensor._make_wrapper_subclass(cls, raw.shape, strides=raw.stride(), dtype=raw.dtype, device=f"{NAME}:0",
                                             storage_offset=raw.storage_offset())
        made.raw = raw
        return made

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return _run(operation, *args, **kwargs or {})

    def __repr__(self, **_: Any) -> str:
        return f"OnDevice({self.raw})"

    def __getitem__(self, at: Any) -> Tensor:
        return super().__getitem__(_sent(at))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(_sent(at), value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.raw.__reduce_ex__(protocol)         # saved as on the CPU, which is where files are read to

    def __deepcopy__(self, seen: dict) -> Tensor:
        return seen.setdefault(id(self), OnDevice(self.raw.clone()))

    def tolist(self) -> Any:
        GPU.transfer("read", "tolist")
        return self.raw.tolist()


def _run(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """Do on the raw tensors what was asked for, and note what a GPU would have had to wait for."""
    if not GPU.here:
        raise RuntimeError("the pretend GPU is not plugged in")
    op = _facts(operation)
    given = _leaves((*args, *kwargs.values()))
    tensors = [leaf for leaf in given if isinstance(leaf, Tensor)]
    foreign = [tensor for tensor in tensors if not isinstance(tensor, OnDevice)]
    if not op.hands_over and len(foreign) < len(tensors) and any(tensor.dim() for tensor in foreign):
        raise RuntimeError(f"{op.name}: tensors of both devices; the CPU's have the shapes "
                           f"{[tuple(tensor.shape) for tensor in foreign if tensor.dim()]}")
    leaves = any(isinstance(leaf, torch.device) and leaf.type == "cpu" for leaf in given)
    copies = op.copies and bool(foreign)
    if copies or leaves or op.reads or _by_a_mask(op.name, args):
        way = "write" if copies and foreign[0] is tensors[1] else "read"
        GPU.transfer(way, op.name, blocking=way == "read" or args[2:] != (True,))
    GPU.queued |= not (copies or leaves or op.works_not)
    out = operation(*_mapped(_raw, args), **_mapped(_raw, kwargs))
    if op.mutable:                  # written in place: the tensor itself is the result, where there is one
        written = [leaf for leaf in (args[0], *kwargs.values()) if isinstance(leaf, OnDevice)]
        return written[0] if isinstance(out, Tensor) and written else out
    if leaves:
        return out
    # A view of a tensor made outside inference mode is one, too.
    with torch.inference_mode(torch.is_inference_mode_enabled() and not (op.view and not tensors[0].is_inference())):
        return _mapped(_wrapped, out)


class Facts(NamedTuple):
    """What an operation's schema says of it. works_not: whether it leaves nothing to be done on the device."""

    name: str
    hands_over: bool
    copies: bool
    reads: bool
    view: bool
    works_not: bool
    mutable: bool


@cache
def _facts(operation: Any) -> Facts:
    """Looked up once: to ask a schema takes longer than a small operation."""
    schema = operation._schema
    name = schema.name
    view = any(result.alias_info and not result.alias_info.is_write for result in schema.returns)
    return Facts(operation.name(), name in HANDED_OVER, name == "aten::copy_", name in READS, view,
                 view or name in ANSWERS or name.startswith(MEMORY), schema.is_mutable)


def _raw(leaf: Any) -> Any:
    """What the operation on the CPU gets: the numbers, and its own device for this one."""
    if isinstance(leaf, torch.device) and leaf.type == NAME:
        return torch.device("cpu")
    return leaf.raw if isinstance(leaf, OnDevice) else leaf


def _wrapped(leaf: Any) -> Any:
    return OnDevice(leaf) if isinstance(leaf, Tensor) else leaf


def _leaves(tree: Any) -> list[Any]:
    """Of lists and tuples."""
    leaves = []
    for part in tree:
        leaves += _leaves(part) if isinstance(part, (list, tuple)) else [part]
    return leaves


def _mapped(change: Callable, tree: Any) -> Any:
    """Of lists, tuples and dicts."""
    if isinstance(tree, dict):
        return {name: _mapped(change, part) for name, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_mapped(change, part) for part in tree)
    return change(tree)


def _by_a_mask(name: str, args: tuple) -> bool:
    """Whether it takes elements by a mask, so that how many there are depends on it."""
    return name in ("aten::index.Tensor", "aten::index_put_", "aten::_index_put_impl_") and any(
        index is not None and index.dtype == torch.bool for index in args[1])


def _sent(at: Any) -> Any:
    """An index, whose lists are copied to the device."""
    if isinstance(at, tuple):
        return tuple(map(_sent, at))
    return torch.tensor(list(at)).to(NAME) if isinstance(at, (list, range)) else at


def _asked_by() -> str:
    frame = sys._getframe(1)
    while frame and "/nanospec/" not in frame.f_code.co_filename:
        frame = frame.f_back                            # type: ignore[assignment]
    if frame is None:
        return "outside"
    return f"{frame.f_code.co_filename.rpartition('/nanospec/')[2]}:{frame.f_lineno}"


class _Module(backend_registration._DummyBackendModule):
    """What stands at torch.pretend."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


KEPT: list[torch.library.Library] = []      # no functools.cache: tests/release/mutate.py empties these


def register() -> None:
    """Tell torch of the device, once in a process: it cannot be told to forget it."""
    if KEPT:
        return
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
    everything, products = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(_run, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for names, dtype in (HALF, torch.bfloat16), (WHOLE, torch.float32):
        for name in names:
            products.impl(name, _autocast(name, dtype), "AutocastPrivateUse1")
    KEPT.extend([everything, products])


def _autocast(name: str, dtype: torch.dtype) -> Callable:
    """As autocast on CUDA has it: products in the smaller type, sums in float32."""
    operation, _, overload = name.partition(".")
    original = getattr(getattr(torch.ops.aten, operation), overload or "default")

    def cast(x: Any) -> Any:
        floats = isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype) if floats else x

    def run(*args: Any, **kwargs: Any) -> Any:
        with torch.autocast(NAME, enabled=False):
            return original(*_mapped(cast, args), **_mapped(cast, kwargs))

    return run


def _on_device(make: Callable) -> Callable:
    """torch.tensor(numbers, device=the device): torch itself makes it in C++, past what is registered here."""
    @wraps(make)
    def made(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        if device is not None and torch.device(device).type == NAME:
            return make(*args, **kwargs).to(NAME)
        return make(*args, device=device, **kwargs)
    return made


class _Generator(torch.Generator):
    """For the device it is the CPU's, so that both draw the same."""

    def __new__(cls, device: Any = "cpu"):
        return super().__new__(cls, "cpu" if torch.device(device).type == NAME else device)


@contextmanager
def plugged() -> Iterator[Machine]:
    """Within it the device is there; outside, whatever is asked of it raises."""
    register()
    swap = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)        # what is tied stays tied, as on CUDA
    GPU.here, GPU.queued = True, False
    GPU.transfers.clear()
    try:
        with (patch.object(torch, "tensor", _on_device(torch.tensor)),
              patch.object(torch, "Generator", _Generator)):
            yield GPU
    finally:
        GPU.here = False
        torch.__future__.set_swap_module_params_on_conversion(swap)
