import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Small tensors gain nothing from threads, and two test runs at once lose much."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
