#!/usr/bin/env python3
"""Makes goldens that are another one's weights stored differently, so that its expected values hold as they are.

gpt_oss_bf16   gpt_oss with the experts' MXFP4 blocks multiplied out, transposed, in BF16, as transformers stores them.
               Every MXFP4 value is a BF16 value, so nothing is rounded.

Standard library only. Usage: tests/golden/make_variants.py (writes into tests/golden).
"""
import json
import shutil
import struct
from pathlib import Path

HERE = Path(__file__).parent
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


def read_safetensors(path):
    data = path.read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    return {
        name: (entry["dtype"], entry["shape"], body[entry["data_offsets"][0] : entry["data_offsets"][1]])
        for name, entry in header.items()
        if name != "__metadata__"
    }


def write_safetensors(path, tensors):
    header, body, at = {}, [], 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(body))


def mxfp4_values(blocks, scales):
    """Floats of 16-byte blocks with one exponent byte each, in stored order."""
    for block, exponent in enumerate(scales):
        for byte in blocks[16 * block : 16 * block + 16]:
            for code in (byte & 15, byte >> 4):
                value = E2M1[code & 7] * 2.0 ** (exponent - 127)
                yield -value if code & 8 else value


def to_bf16(value):
    bits = struct.pack("<f", value)
    assert bits[:2] == b"\0\0", f"{value} is no BF16 value"
    return bits[2:]


def multiplied_out(tensors):
    out = {}
    for name, (dtype, shape, data) in tensors.items():
        if name.endswith("_scales"):
            continue
        if not name.endswith("_blocks"):
            out[name] = (dtype, shape, data)
            continue
        base = name[: -len("_blocks")]
        experts, rows, groups, _ = shape
        cols = 32 * groups
        values = [to_bf16(v) for v in mxfp4_values(data, tensors[base + "_scales"][2])]
        transposed = [
            values[(e * rows + r) * cols + c] for e in range(experts) for c in range(cols) for r in range(rows)
        ]
        out[base] = ("BF16", [experts, cols, rows], b"".join(transposed))
    return out


def main():
    source, target = HERE / "gpt_oss", HERE / "gpt_oss_bf16"
    target.mkdir(exist_ok=True)
    write_safetensors(target / "model.safetensors", multiplied_out(read_safetensors(source / "model.safetensors")))
    for name in ("config.json", "config_v5.json"):
        config = json.loads((source / name).read_text())
        del config["quantization_config"]
        (target / name).write_text(json.dumps(config, indent=1) + "\n")
    golden = json.loads((source / "golden.json").read_text())
    golden["storage"] = "BF16"
    (target / "golden.json").write_text(json.dumps(golden) + "\n")
    shutil.copyfile(source / "golden.f32", target / "golden.f32")


if __name__ == "__main__":
    main()
