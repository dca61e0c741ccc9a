#!/usr/bin/env python3
"""Many clients on one server: idle connections beside active ones, clients that vanish, a soak with its memory.

  tools/connections.py idle    --idle 5000 --active 500    all active ones are served, all idle ones still work afterwards
  tools/connections.py vanish  --clients 1000              as many clients that leave in the middle of their streams
  tools/connections.py soak    --seconds 300               steady load with a few vanishing clients; memory every 10 s

Starts its own `asap serve` (--asap, flags after --) and exits with 1 if something was lost. Standard library only.
"""

import argparse
import asyncio
import json
import os
import pathlib
import random
import resource
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests"))
TINY = ["--dp", "2", "--num-moe-ranks", "2"]


def post(body, keep=False):
    text = json.dumps(body)
    return (f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nConnection: {'keep-alive' if keep else 'close'}\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}").encode()


async def read_reply(reader):
    """Status of a reply that has a Content-Length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.lower().startswith("content-length"))
    await reader.readexactly(length)
    return int(head.split()[1])


async def complete(port, tokens, stream=False, leave_after=None, prompt=8):
    """Status of one request on a connection of its own, and its events; leaves after so many events."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        ids = [random.randrange(100, 4000) for _ in range(prompt)]
        writer.write(post({"prompt": ids, "max_tokens": tokens, "ignore_eos": True, "stream": stream}))
        if not stream:
            return await read_reply(reader), 0
        status = int((await reader.readuntil(b"\r\n\r\n")).split()[1])
        events = 0
        async for line in reader:
            events += line.startswith(b"data: {")
            if leave_after is not None and events >= leave_after:
                return 499, events
        return status, events
    finally:
        writer.transport.abort() if leave_after is not None else writer.close()


class Memory:
    def __init__(self, server):
        self.pids = [server.process.pid] + [peer["pid"] for peer in server.peers()]

    def now(self):
        """(MiB of the front, MiB of all processes, open descriptors of the front)."""
        def rss(pid):
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) / 1024
            return 0
        sizes = [rss(pid) for pid in self.pids]
        return sizes[0], sum(sizes), len(os.listdir(f"/proc/{self.pids[0]}/fd"))

    def say(self, when):
        front, everything, files = self.now()
        print(f"  {when:<28} front {front:7.1f} MiB, all processes {everything:8.1f} MiB, {files} descriptors", flush=True)
        return front, files


def load_of(server):
    return server.request("GET", "/load")[1]["server_load"]


async def until_idle(server, seconds=30):
    begin = time.monotonic()
    while load_of(server) > 0:
        if time.monotonic() - begin > seconds:
            return False
        await asyncio.sleep(0.05)
    return True


async def idle(server, args):
    memory = Memory(server)
    memory.say("before")
    held = []
    for _ in range(args.idle):
        held.append(await asyncio.open_connection("127.0.0.1", server.port))
    memory.say(f"{len(held)} idle connections")
    begin = time.monotonic()
    results = await asyncio.gather(*[complete(server.port, 8, stream=True) for _ in range(args.active)])
    seconds = time.monotonic() - begin
    good = sum(result == (200, 8) for result in results)
    memory.say(f"after {args.active} active ones")
    print(f"  active: {good} of {args.active} complete in {seconds:.1f} s")
    answered = 0
    for reader, writer in held:
        writer.write(b"GET /health HTTP/1.1\r\nHost: t\r\n\r\n")
        answered += await read_reply(reader) == 200
        writer.close()
    print(f"  idle: {answered} of {args.idle} answered afterwards")
    await asyncio.sleep(0.5)
    memory.say("all closed")
    return good == args.active and answered == args.idle


async def vanish(server, args):
    memory = Memory(server)
    await complete(server.port, 4)
    memory.say("before")
    begin = time.monotonic()
    gone = await asyncio.gather(*[complete(server.port, 400, stream=True, leave_after=random.choice([0, 1, 2, 5]))
                                  for _ in range(args.clients)])
    left = time.monotonic()
    idle_again = await until_idle(server)
    memory.say("after")
    print(f"  {sum(status == 499 for status, _ in gone)} clients vanished within {left - begin:.1f} s; the server was idle "
          f"{time.monotonic() - left:.2f} s after the last: {idle_again}")
    status, _ = await complete(server.port, 4)
    return idle_again and status == 200


async def soak(server, args):
    memory = Memory(server)
    counts = {"complete": 0, "vanished": 0, "lost": 0}

    async def one():
        leaves = random.random() < 0.1
        tokens = random.choice([1, 4, 16])
        try:
            status, _ = await complete(server.port, 200 if leaves else tokens, stream=leaves or random.random() < 0.5,
                                       leave_after=random.choice([0, 1, 3]) if leaves else None,
                                       prompt=int(700 ** random.random()))
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        counts["vanished" if status == 499 else "complete" if status == 200 else "lost"] += 1

    begin = time.monotonic()
    running, next_say, points = set(), begin, []
    while (now := time.monotonic()) - begin < args.seconds:
        if now >= next_say:
            points.append((now - begin, *memory.say(f"{now - begin:5.0f} s, {counts['complete']} complete")))
            next_say += args.every
        task = asyncio.create_task(one())
        running.add(task)
        task.add_done_callback(running.discard)
        await asyncio.sleep(random.expovariate(args.rate))
    await asyncio.gather(*running)
    idle_again = await until_idle(server)
    memory.say("end")
    half = [point for point in points if point[0] >= args.seconds / 2]
    growth = half[-1][1] - half[0][1] if len(half) > 1 else 0
    print(f"  {counts}; idle at the end: {idle_again}; the front grew {growth:+.1f} MiB over the second half, "
          f"descriptors {points[0][2]} -> {points[-1][2]}")
    return counts["lost"] == 0 and idle_again


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["idle", "vanish", "soak"])
    parser.add_argument("--asap", default=str(SOURCE / "build/release/asap"))
    parser.add_argument("--idle", type=int, default=5000)
    parser.add_argument("--active", type=int, default=500)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--rate", type=float, default=20, help="soak: requests a second")
    parser.add_argument("--every", type=float, default=10, help="soak: seconds between two lines")
    parser.add_argument("flags", nargs="*", help="of asap serve, after --")
    args = parser.parse_args()
    random.seed(1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ["ASAP_BINARY"] = args.asap
    from support import Server  # reads ASAP_BINARY
    with Server(*(args.flags or TINY)) as server:
        print(f"{args.what}:")
        good = asyncio.run({"idle": idle, "vanish": vanish, "soak": soak}[args.what](server, args))
    print("good" if good else "FAILED")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
