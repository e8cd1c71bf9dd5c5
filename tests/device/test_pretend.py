"""The pretend GPU: what it holds against a program, and what it lets pass."""

import copy

import pytest
import torch
from torch import nn

from nanospec.errors import DeviceError
from nanospec.files.runnable import available
from tests.device.pretend import NAME, OnDevice


@pytest.fixture
def x(gpu):
    return torch.arange(6.0).view(2, 3).to(NAME)


MIXED = {"a sum": lambda x: x + torch.ones(2, 3), "a product": lambda x: x @ torch.ones(3, 1),
         "joined": lambda x: torch.cat([x, torch.ones(1, 3)]), "an index": lambda x: x[torch.tensor([0, 1])],
         "in place": lambda x: x.add_(torch.ones(3)), "chosen": lambda x: torch.where(x > 1, x, torch.ones(2, 3)),
         "written into the CPU's": lambda x: torch.ones(2, 3).mul_(x)}


@pytest.mark.parametrize("mix", MIXED.values(), ids=MIXED)
@pytest.mark.parametrize("inference", [False, True])
def test_what_mixes_both_devices_raises(x, mix, inference):
    with torch.inference_mode(inference), pytest.raises(RuntimeError, match="tensors of both devices"):
        mix(x)


def test_a_number_of_the_cpus_may_stand_beside(x):
    """As on CUDA: a tensor of no dimension goes with the call."""
    assert (x + torch.tensor(1.0)).tolist() == [[1, 2, 3], [4, 5, 6]] and (2 * x)[1, 2].item() == 10


READS = {"a list": lambda x: x.tolist(), "a number": lambda x: x[0, 0].item(),
         "a condition": lambda x: bool(x[0, 0] > 1), "an index": lambda x: int(x[0, 0]),
         "a copy": lambda x: x.cpu(), "as a device": lambda x: x.to(device="cpu"),
         "into the CPU's": lambda x: torch.zeros(2, 3).copy_(x), "a mask": lambda x: x[x > 1],
         "places": lambda x: x.nonzero(), "counts": lambda x: x[0].long().bincount(),
         "equal": lambda x: torch.equal(x, x)}
WRITES = {"a tensor": lambda x: torch.tensor([1, 2], device=NAME), "a copy": lambda x: torch.ones(2).to(NAME),
          "into it": lambda x: x.copy_(torch.ones(2, 3)), "into a row of it": lambda x: x[0].copy_(torch.ones(3)),
          "a list as an index": lambda x: x[[1, 0]], "a list as a place": lambda x: x.__setitem__([0], 1)}


@pytest.mark.parametrize("way, ask", [*(("read", ask) for ask in READS.values()),
                                      *(("write", ask) for ask in WRITES.values())],
                         ids=[*(f"read {name}" for name in READS), *(f"write {name}" for name in WRITES)])
@pytest.mark.parametrize("inference", [False, True])
def test_a_transfer_waits_for_the_work_before_it(gpu, x, way, ask, inference):
    with torch.inference_mode(inference):
        y = x + 1
        gpu.taken()
        ask(y)
        assert [(transfer.way, transfer.waits) for transfer in gpu.taken()] == [(way, True)]


def test_a_transfer_after_another_waits_for_nothing(gpu, x):
    x.tolist(), x.tolist()
    assert [transfer.waits for transfer in gpu.taken()][1:] == [False, False]       # what wrote x came before


def test_a_copy_that_is_told_not_to_wait(gpu, x):
    torch.ones(2).to(NAME, non_blocking=True)
    (x + 1).copy_(torch.ones(2, 3), non_blocking=True)
    x.tolist()
    assert [(transfer.way, transfer.waits) for transfer in gpu.taken()][1:] == [
        ("write", False), ("write", False), ("read", True)]


def test_what_asks_for_no_number_is_no_transfer(gpu, x):
    gpu.taken()
    rows = torch.arange(2, device=NAME)
    y = x[rows, rows].cumsum(0).topk(1).indices
    x[:, 1:] = 3
    x[rows, 1 + rows] = x[rows, rows]
    nn.functional.one_hot(y, 4), torch.where(x > 1, x, 0.0).softmax(-1)
    torch.zeros(3, device=NAME).scatter_(0, y, 1.0)
    assert gpu.taken() == [] and gpu.queued


def test_it_says_which_line_asked(gpu):
    from nanospec.text import Text
    Text([[1, 2]], 3, 5, NAME).ids()
    assert all(transfer.where.startswith("text.py:") for transfer in gpu.taken())


def test_weights_move_and_stay_tied(gpu):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    there = copy.deepcopy(model).to(NAME)
    assert there[0].weight is there[1].weight and isinstance(there[0].weight, nn.Parameter)
    assert isinstance(there[0].weight, OnDevice) and there[0].weight.requires_grad
    here = copy.deepcopy(there).to("cpu")
    assert here[0].weight is here[1].weight and torch.equal(here[0].weight, model[0].weight)


def test_gradients_are_the_cpus(gpu):
    model, found = nn.Linear(3, 2), {}
    for device in "cpu", NAME:
        moved = copy.deepcopy(model).to(device)
        optimizer = torch.optim.AdamW(moved.parameters(), fused=True)
        moved(torch.arange(6.0).view(2, 3).to(device)).square().sum().backward()
        nn.utils.clip_grad_norm_(moved.parameters(), 1.0)
        gpu.taken()
        optimizer.step()
        found[device] = [weight.detach().cpu() for weight in moved.parameters()]
    assert all(map(torch.equal, *found.values()))


def test_products_are_in_bfloat16_under_autocast_and_sums_are_not(gpu, x):
    with torch.autocast(NAME, torch.bfloat16):
        assert (x @ x.T).dtype == nn.Linear(3, 2).to(NAME)(x).dtype == torch.bfloat16
        assert x.bfloat16().softmax(-1).dtype == (x + 1).dtype == torch.float32


def test_unplugged_it_is_no_device(gpu):
    from tests.device.pretend import GPU
    GPU.here = False
    with pytest.raises(DeviceError, match="not plugged in"):
        available(NAME)
    with pytest.raises(DeviceError):
        available("privateuseone")
