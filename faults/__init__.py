"""Breaks runs on purpose and counts what survives: `make faults`."""
