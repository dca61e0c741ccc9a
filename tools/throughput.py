#!/usr/bin/env python3
"""Prompt tokens per second of engines and geometries on the same prompts and cores, interleaved, medians: what more
agents than cores cost, and what lockstep does.

    tools/throughput.py [BINARY]
"""

import concurrent.futures
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
if len(sys.argv) > 1:
    os.environ["ASAP_BINARY"] = os.path.abspath(sys.argv[1])

from support import Server  # noqa: E402 (needs the path above)

# Scheduler, D, T, E; the synchronous ones have attention and experts on the same D·T devices.
SHAPES = [("asap", 1, 1, 1), ("asap", 2, 1, 2), ("asap", 2, 2, 2),
          ("default", 1, 1, 1), ("default", 2, 1, 2), ("chunked", 2, 1, 2)]
ROUNDS = 5
LENGTHS = [16, 900, 120, 450, 60, 700, 33, 250] * 4


def tokens_per_second(server):
    prompts = [[2 + (11 * n + i) % 4000 for i in range(length)] for n, length in enumerate(LENGTHS)]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
        for status, body in pool.map(server.complete, prompts):
            assert status == 200, body
    return sum(LENGTHS) / (time.monotonic() - begin)


def main():
    servers = [Server("--scheduler", scheduler, "--dp", d, "--tp", t, "--num-moe-ranks", e)
               for scheduler, d, t, e in SHAPES]
    rates = [[] for _ in SHAPES]
    for server in servers:
        tokens_per_second(server)  # warm
    for _ in range(ROUNDS):
        for server, row in zip(servers, rates):
            row.append(tokens_per_second(server))
    for server in servers:
        server.stop(within=5)
    base = statistics.median(rates[0])
    for (scheduler, d, t, e), row in zip(SHAPES, rates):
        print(f"{scheduler:8} D={d} T={t} E={e}: {statistics.median(row):8.0f} tokens/s "
              f"(min {min(row):.0f}, max {max(row):.0f}), "
              f"{statistics.median(row) / base:.2f} of asap D=1 T=1 E=1")


if __name__ == "__main__":
    main()
