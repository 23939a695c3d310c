"""How a winner is called from Python: arrays of CuPy, PyTorch and others, plans, launches on the current stream."""
