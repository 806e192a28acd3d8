"""Writes independent.safetensors from the format's description, with the
standard library only. The header's key order, its spacing, and the order of
its entries against the data differ from what riffle writes."""

import json
import pathlib
import struct

parts = {
    "counts": ("I64", [3], struct.pack("<3q", -1, 1 << 40, -(1 << 63))),
    "matrix": ("F32", [2, 3], struct.pack("<6f", 0, 1.5, -2.25, 3e38, 1e-45, 6)),
    "empty": ("F32", [0, 7], b""),
    "scalar": ("F64", [], struct.pack("<d", 3.141592653589793)),
    "bytes": ("U8", [3], bytes([0, 127, 255])),
}
data = b""
entries = {}
for name, (dtype, shape, raw) in parts.items():
    entries[name] = {"shape": shape, "data_offsets": [len(data), len(data) + len(raw)], "dtype": dtype}
    data += raw
header = dict(reversed(entries.items()))
header["__metadata__"] = {"framework": "n\u00f6mpy"}
text = json.dumps(header, indent=1, ensure_ascii=True).encode() + b"   "
out = pathlib.Path(__file__).with_name("independent.safetensors")
out.write_bytes(struct.pack("<Q", len(text)) + text + data)
