"""How a model runs fastest on this machine: clocks, data type, threads and weight layout chosen by
measuring, packed weights, torch.compile. Only the data type changes what is computed; the
modules and functions of the core are swapped or wrapped from outside.
"""
