"""What this device is: the fingerprint that a tolerance belongs to."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

NAMES_OF_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
"""Dtypes an audit may be asked for, by the names the command line takes."""

_LIBRARIES = ("torch", "numpy", "pandas", "pyarrow", "duckdb", "safetensors", "streamlit", "securesystemslib")


def fingerprint(device: str) -> dict[str, object]:
    """Device, backend, instruction set and thread counts under which numbers are measured now.

    A tolerance holds for one fingerprint only: other kernels round in another order.
    """
    return {
        "device": device,
        "processor": _processor(),
        "machine": platform.machine(),
        "system": platform.system(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "matmul_backend": "mkl" if torch.backends.mkl.is_available() else "other",  # type: ignore[no-untyped-call]
        "threads": torch.get_num_threads(),
        "accelerator": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def library_versions() -> dict[str, str]:
    """Versions of Python and of the libraries that a figure may depend on."""
    return {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}}


def settle_threads(count: int = 1) -> None:
    """Fix torch's thread count for this process.

    Small batches run many times slower with several threads on a busy machine, and the order of a reduction, hence its
    rounding, changes with the count.
    """
    torch.set_num_threads(count)
    # Read when a process starts: it is for those that are started from here.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def _processor() -> str:
    """Model name of the processor, as Linux tells it; elsewhere what the platform module knows."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [
            line.partition(":")[2].strip() for line in info.read_text().splitlines() if line.startswith("model name")
        ]
        if names:
            return names[0]
    return platform.processor() or "unknown"
