"""A device's memory in words. Pure."""

from __future__ import annotations

from shared.protocol.api import Accelerator
from shared.text.words import size_text


def device_text(device: Accelerator) -> str:
    """An accelerator of the resident model, with its memory where it tells it."""
    if not device.total_bytes:
        return f"{device.name}, which does not report its memory"
    total, free = size_text(device.total_bytes), size_text(device.free_bytes)
    return f"{device.name}: {free} of {total} were free before the model was loaded"
