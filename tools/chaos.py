#!/usr/bin/env python3
"""Chaos: a server under steady load whose workers are killed or stopped at random, one every few seconds.

Every admitted request has to end with the tokens that an undisturbed run gives it. Prints counts, and memory and
descriptors of the front over time; exits with 1 if a request got other tokens or an error.

    tools/chaos.py --seconds 600                      # D=2, T=2, E=2 of the bundled model
    tools/chaos.py --seconds 60 --every 1 --seed 7    # faster, replayable choices
"""

import argparse
import collections
import os
import pathlib
import random
import signal
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from support import Server  # noqa: E402


def make_requests(rng, count):
    """Different prompts, lengths and samplings; half of them greedy."""
    out = []
    for i in range(count):
        length = 1 + int(rng.random() ** 2 * 400)
        fields = {"prompt": [2 + rng.randrange(4000) for _ in range(length)],
                  "max_tokens": 1 + int(rng.random() ** 2 * 80)}
        fields |= {"temperature": 0.8, "seed": rng.randrange(2**31)} if i % 2 else {"temperature": 0}
        out.append(fields)
    return out


def tokens_of(server, fields):
    """(token ids, "") or (None, what went wrong)."""
    try:
        status, body = server.complete(timeout=120, **fields)
    except OSError as error:
        return None, f"{type(error).__name__}: {error}"
    if status != 200:
        return None, f"{status}: {body}"
    return body["choices"][0]["token_ids"], ""


class Load:
    """Clients that ask without a pause and compare."""

    def __init__(self, server, requests, expected, clients, seed):
        self.server, self.requests, self.expected = server, requests, expected
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.problems = []
        self.times = []
        self.threads = [threading.Thread(target=self.client, args=(random.Random(seed * 1000 + i),))
                        for i in range(clients)]

    def client(self, rng):
        while not self.stop.is_set():
            i = rng.randrange(len(self.requests))
            begin = time.monotonic()
            tokens, problem = tokens_of(self.server, self.requests[i])
            took = time.monotonic() - begin
            kind = "errors" if tokens is None else "right" if tokens == self.expected[i] else "wrong"
            with self.lock:
                self.counts[kind] += 1
                self.times.append(took)
                if kind != "right" and len(self.problems) < 10:
                    self.problems.append(f"request {i}: {problem or (tokens, self.expected[i])}")
            if kind == "errors":
                time.sleep(0.2)


def resident_mb(pid):
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except (OSError, IndexError, ValueError):
        return 0.0


def descriptors(pid):
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def disturb(server, rng, done):
    """Kills or stops a random worker; what it did, or None."""
    peers = server.peers()
    peer = rng.choice(peers)
    how = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
    try:
        os.kill(peer["pid"], how)
    except ProcessLookupError:
        return
    done[f"{how.name} {peer['role']}"] += 1


def report(seconds, server, load):
    front = server.process.pid
    workers = sum(resident_mb(peer["pid"]) for peer in server.peers())
    with load.lock:
        c = load.counts
        line = f"{seconds:6.0f} s  right {c['right']:6d}  wrong {c['wrong']}  errors {c['errors']}"
    print(f"{line}  front {resident_mb(front):6.1f} MB {descriptors(front):4d} fds, "
          f"workers {workers:7.1f} MB", flush=True)
    return resident_mb(front), descriptors(front)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--every", type=float, default=5, help="seconds between two disturbances")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--requests", type=int, default=40, help="different requests")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dp", type=int, default=2)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--num-moe-ranks", type=int, default=2)
    parser.add_argument("--watchdog-timeout", type=int, default=3)
    parser.add_argument("--crash-dir", default="", help="default: the user's runtime folder")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    requests = make_requests(rng, args.requests)
    done = collections.Counter()
    with Server("--dp", args.dp, "--tp", args.tp, "--num-moe-ranks", args.num_moe_ranks,
                "--watchdog-timeout", args.watchdog_timeout, "--max-restarts", 1000000,
                "--crash-dir", args.crash_dir, "--shutdown-timeout", 5) as server:
        expected = [tokens_of(server, fields) for fields in requests]
        bad = [problem for tokens, problem in expected if tokens is None]
        assert not bad, bad
        print(f"{len(requests)} requests answered undisturbed; chaos for {args.seconds:.0f} s, seed {args.seed}")
        load = Load(server, requests, [tokens for tokens, _ in expected], args.clients, args.seed)
        for thread in load.threads:
            thread.start()
        begin = time.monotonic()
        samples = []
        next_report = 10.0
        while time.monotonic() - begin < args.seconds:
            time.sleep(args.every)
            disturb(server, rng, done)
            if time.monotonic() - begin >= next_report:
                samples.append(report(time.monotonic() - begin, server, load))
                next_report += 10
        load.stop.set()
        for thread in load.threads:
            thread.join(timeout=150)
        stuck = sum(thread.is_alive() for thread in load.threads)
        samples.append(report(time.monotonic() - begin, server, load))
        lines = [line for line in server.output().splitlines() if "recovered " in line]
        took = sorted(float(line.split(" in ")[1].split(" s")[0]) for line in lines)
        times = sorted(load.times)
        print(f"disturbances: {', '.join(f'{n} x {what}' for what, n in sorted(done.items()))}")
        if took:
            print(f"{len(took)} recoveries: median {statistics.median(took):.2f} s, longest {took[-1]:.2f} s")
        print(f"requests: {dict(load.counts)}, stuck {stuck}; time median {statistics.median(times):.2f} s, "
              f"longest {times[-1]:.2f} s")
        print(f"front: {samples[0][0]:.1f} MB and {samples[0][1]} fds at first, "
              f"{samples[-1][0]:.1f} MB and {samples[-1][1]} fds at the end")
        for problem in load.problems:
            print("  " + problem[:400])
        failed = load.counts["wrong"] or load.counts["errors"] or stuck
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
