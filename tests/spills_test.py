"""The inner loops of the GEMM kernels keep their sums in registers: the disassembly of the real
binary has no vector that goes to the stack or comes from it inside a loop that multiplies. Compilers
have spilled here before, at a third of the speed and without a word (asap/compute/kernels/vec.h)."""

import re
import shutil
import subprocess

from support import ASAP, main

MULTIPLY = re.compile(r"\b(vfmadd231ps|vpmaddwd|vpdpbusd|vdpbf16ps)\b.*%([yz])mm")
STACK = re.compile(r"\bv\w+\b.*\(%r[sb]p[,)].*%[yz]mm|\bv\w+\b.*%[yz]mm.*\(%r[sb]p[,)]")
JUMP = re.compile(r"\bj(?!mp)\w+\s+([0-9a-f]+)\b")
KERNEL = re.compile(r"::(tile|int8_tile|block_tile|int8_block_tile|dot_tile|fma_loop)[<(]")


def functions(text):
    """(name, [(address, instruction)]) of each kernel in objdump's listing."""
    name, body = None, []
    for line in text.splitlines():
        head = re.match(r"^[0-9a-f]+ <(.*)>:$", line)
        if head:
            if name:
                yield name, body
            name, body = head.group(1) if KERNEL.search(head.group(1)) else None, []
        elif name and "\t" in line:
            address, instruction = line.split("\t", 1)
            body.append((int(address.strip().rstrip(":"), 16), instruction))
    if name:
        yield name, body


def loops(body):
    """The instructions of each innermost loop: from the target of a conditional jump back to the jump."""
    spans = []
    for address, instruction in body:
        jump = JUMP.search(instruction)
        if jump and body[0][0] <= int(jump.group(1), 16) <= address:
            spans.append((int(jump.group(1), 16), address))
    for begin, end in spans:
        inner = any(begin <= b and e <= end and (b, e) != (begin, end) for b, e in spans)
        if not inner:
            yield [i for a, i in body if begin <= a <= end]


def spills(text):
    """({vector register letter: loops that multiply}, [a loop that spills])."""
    seen, found = {"y": 0, "z": 0}, []
    for name, body in functions(text):
        for loop in loops(body):
            multiply = next(filter(None, map(MULTIPLY.search, loop)), None)
            if not multiply:
                continue
            seen[multiply.group(2)] += 1
            found += [f"{name}: {i}" for i in loop if STACK.search(i)][:1]
    return seen, found


def disassembly():
    done = subprocess.run(["objdump", "-dC", "--no-show-raw-insn", ASAP], capture_output=True,
                          text=True, check=True, timeout=200)
    return done.stdout


def test_a_spill_is_found():
    listing = """0000000000001000 <void asap::(anonymous namespace)::block_tile<6, 2>()>:
    1000:\tvxorps %ymm0,%ymm0,%ymm0
    1004:\tvbroadcastss 0x4(%rax,%rdx,1),%ymm2
    1006:\tvfmadd231ps %ymm1,%ymm2,%ymm0
    1008:\tSTORE
    1010:\tjne    1004 <x+0x4>
    1014:\tvmovaps %ymm0,0x20(%rsp)
"""
    assert spills(listing.replace("STORE", "vmovups %ymm0,(%rax)")) == ({"y": 1, "z": 0}, [])
    for spill in ("vmovaps %ymm0,0x20(%rsp)", "vmovaps -0x40(%rbp),%ymm3",
                  "vfmadd231ps 0x20(%rsp),%ymm2,%ymm0"):
        assert len(spills(listing.replace("STORE", spill))[1]) == 1, spill


def test_kernels_do_not_spill():
    if not shutil.which("objdump"):
        print("SKIPPED: no objdump here (apt install binutils)")
        return
    text = disassembly()
    if "__asan" in text or "__tsan" in text or "__ubsan" in text:
        print("SKIPPED: a sanitizer's own loads and stores are in the loops")
        return
    seen, found = spills(text)
    print(f"loops that multiply: {seen['y']} with AVX2, {seen['z']} with AVX-512")
    # bf16, float32 and int8 tiles of 1 to 6 and of 1 to 12 rows.
    assert seen["y"] >= 6 * 6 and seen["z"] >= 6 * 12, seen
    assert not found, f"{len(found)} loops spill:\n" + "\n".join(found[:20])


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
