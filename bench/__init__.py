"""Measures the budgets: `make bench`."""
