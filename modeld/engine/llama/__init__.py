"""llama.cpp through the low-level binding of llama-cpp-python: no numpy, no high-level classes."""
