"""Reads and writes safetensors documents: models, and the frames of the gradient protocol."""

import json
import math
import struct
from typing import Any, Dict, List, Mapping, Optional, Tuple

import numpy as np

from . import _files
from .errors import Error

# The longest header that is read, in bytes, and the most tensors, which may be empty; riffle's own limits.
MAX_HEADER = 16 << 20
MAX_ENTRIES = 1 << 16

_TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}
_NAMES = {np.dtype(t): name for name, t in _TYPES.items() if name != "BF16"}


def loads(document: bytes) -> Tuple[Dict[str, "np.ndarray[Any, Any]"], Dict[str, str]]:
    """Return the tensors and the metadata of a safetensors document.

    Tensors share memory with the document and cannot be written to; BF16 becomes float32.

    >>> tensors, metadata = loads(dumps({"theta": np.zeros(3, np.float32)}, {"op": "gradients"}))
    >>> tensors["theta"].shape, metadata
    ((3,), {'op': 'gradients'})
    """
    if len(document) < 8:
        raise Error(f"safetensors: {len(document)} bytes, want at least 8")
    (length,) = struct.unpack_from("<Q", document)
    if length > MAX_HEADER or length > len(document) - 8:
        raise Error(f"safetensors: header of {length} bytes in a document of {len(document)}")
    try:
        header = json.loads(document[8 : 8 + length].decode("utf-8"), object_pairs_hook=_once, parse_int=whole)
    except ValueError as err:
        raise Error(f"safetensors: the header is not JSON: {err}") from None
    except RecursionError:
        raise Error("safetensors: the header is nested too deeply") from None
    if not isinstance(header, dict):
        raise Error("safetensors: the header is no object")
    metadata = header.pop("__metadata__", {})
    if len(header) > MAX_ENTRIES:
        raise Error(f"safetensors: {len(header)} tensors, at most {MAX_ENTRIES}")
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Error("safetensors: metadata must be texts")
    data = memoryview(document)[8 + length :]
    out, covered = {}, []
    for name, entry in header.items():
        out[name], span = _tensor(name, entry, data)
        covered.append(span)
    end = 0
    for first, last in sorted(covered):
        if first != end:
            raise Error(f"safetensors: tensors overlap or leave a hole at byte {end}")
        end = last
    if end != len(data):
        raise Error(f"safetensors: {len(data) - end} bytes behind the tensors")
    return out, metadata


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    for key, value in pairs:
        if key in out:
            raise ValueError(f"{key!r} occurs twice")
        out[key] = value
    return out


def whole(digits: str) -> int:
    """Return a whole number; more digits than a size can have would take long."""
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _tensor(name: str, entry: Any, data: memoryview) -> Tuple["np.ndarray[Any, Any]", Tuple[int, int]]:
    try:
        kind, shape, (first, last) = entry["dtype"], entry["shape"], entry["data_offsets"]
        dtype = np.dtype(_TYPES[kind])
        # numpy has at most 32 dimensions, or 64.
        plain = type(shape) is list and len(shape) <= 64 and all(type(n) is int and n >= 0 for n in [first, last, *shape])
    except (KeyError, TypeError, ValueError):
        raise Error(f"safetensors: tensor {name!r} is not described by a known dtype, shape and data_offsets") from None
    if not plain or not first <= last <= len(data) or last - first != math.prod(shape) * dtype.itemsize:
        raise Error(f"safetensors: tensor {name!r}: bytes {first} to {last} do not hold {kind} of shape {str(shape)[:80]}")
    try:
        array = np.frombuffer(data[first:last], dtype).reshape(shape)
    except ValueError:
        raise Error(f"safetensors: tensor {name!r}: numpy cannot hold shape {str(shape)[:80]}") from None
    if kind == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array, (first, last)


def dumps(tensors: Mapping[str, "np.ndarray[Any, Any]"], metadata: Optional[Mapping[str, str]] = None) -> bytes:
    """Return a safetensors document. Tensors keep their order and are stored little-endian."""
    header: Dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    parts, at = [], 0
    for name, array in tensors.items():
        array = np.asarray(array)
        kind = _NAMES.get(array.dtype.newbyteorder("<") if array.dtype.itemsize > 1 else array.dtype)
        if kind is None:
            raise Error(f"safetensors: tensor {name!r} of {array.dtype} cannot be stored")
        part = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [at, at + len(part)]}
        parts.append(part)
        at += len(part)
    head = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    head += b" " * (-len(head) % 8)
    return b"".join([struct.pack("<Q", len(head)), head, *parts])


def load(file: str) -> Tuple[Dict[str, "np.ndarray[Any, Any]"], Dict[str, str]]:
    """Return the tensors and the metadata of a safetensors file."""
    return loads(_files.read(file))
