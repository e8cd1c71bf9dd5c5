"""How it runs fastest on this machine: clocks, autotuning, capture."""
