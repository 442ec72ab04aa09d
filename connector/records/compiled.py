"""The record loop as compiled code, or an error that says how to get it.

Uncompiled it would give the same rows, at about a thousandth of the speed: nobody should find that out in production.
"""

from __future__ import annotations

from connector.errors import KernelMissing

try:
    from connector.records import kernels
except ModuleNotFoundError as problem:
    if problem.name != "cython":  # what the uncompiled form imports first
        raise
    raise KernelMissing("connector.records.kernels", "only its source is there") from problem

if not kernels.IS_COMPILED:
    raise KernelMissing("connector.records.kernels", f"only its source is there: {kernels.__file__}")

BinaryColumn = kernels.BinaryColumn
ParseStatus = kernels.ParseStatus
RowSink = kernels.RowSink

__all__ = ["BinaryColumn", "ParseStatus", "RowSink"]
