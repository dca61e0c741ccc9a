"""Death, hang and restart of the real binary's worker processes under load: no request fails, none gets other tokens.
Draining, and what stays of a killed front. Standard library only."""

import json
import os
import signal
import statistics
import tempfile
import threading
import time

from support import Server, ended, is_running, main, shared_memory, together, wait_for

WORKERS = (("attention", {"group": 0, "tp_rank": 0}), ("attention", {"group": 1, "tp_rank": 1}),
           ("moe", {"moe_rank": 1}))


class Load:
    """Requests under way, and the tokens that they get without disturbance."""

    def __init__(self, server, count=8, max_tokens=120):
        self.server = server
        self.bodies = [{"prompt": [5 + n + i % 900 for i in range(20 + 40 * n)], "max_tokens": max_tokens,
                        "temperature": 0.9 if n % 2 else 0, "seed": 7 + n} for n in range(count)]
        self.expected = together([lambda b=b: server.complete(timeout=60, **b) for b in self.bodies])
        assert all(status == 200 for status, _ in self.expected), self.expected
        self.expected = [self.ids(body) for _, body in self.expected]
        self.results = []

    @staticmethod
    def ids(body):
        return body["choices"][0]["token_ids"]

    def start(self):
        self.results = [None] * len(self.bodies)

        def work(n):
            self.results[n] = self.server.complete(timeout=60, **self.bodies[n])
        self.threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(len(self.bodies))]
        for thread in self.threads:
            thread.start()

    def check(self, within=30):
        """All have ended, with the tokens of the undisturbed run."""
        deadline = time.monotonic() + within
        for thread in self.threads:
            thread.join(timeout=max(0.1, deadline - time.monotonic()))
        assert None not in self.results, f"{self.results.count(None)} requests did not end: " + self.server.output()
        for (status, body), expected in zip(self.results, self.expected):
            assert status == 200, (status, body, self.server.output())
            assert self.ids(body) == expected, (self.ids(body), expected)


def strike(server, how, role, **where):
    """Sends the signal to the worker, whoever it is by now; its pid."""
    def hit():
        pid = server.pid_of(role, **where)
        try:
            os.kill(pid, how)
        except ProcessLookupError:
            return None  # it died with its group, or is just being started again
        return pid
    return wait_for(hit, 10, f"a {role} worker {where} to strike")


def all_ready(server):
    return all(peer["state"] == "ready" for peer in server.peers())


def test_recovery_of_any_worker():
    """kill -9 and SIGSTOP of each role under load: no request fails or gets other tokens, and the worker is back."""
    for role, where in WORKERS:
        for how in (signal.SIGKILL, signal.SIGSTOP):
            with Server("--dp", 2, "--tp", 2, "--num-moe-ranks", 2, "--watchdog-timeout", 3) as server:
                load = Load(server)
                before = {peer["pid"] for peer in server.peers()}
                load.start()
                time.sleep(0.3)
                begin = time.monotonic()
                pid = strike(server, how, role, **where)
                wait_for(lambda: "recovered " in server.output(), 10, "the recovery in the log")
                took = time.monotonic() - begin
                load.check()
                wait_for(lambda: all_ready(server), 5, "all workers")
                new = [peer for peer in server.peers() if peer["pid"] not in before]
                # The whole group starts again: its ranks share a KV cache. An expert rank is alone.
                assert len(new) == (2 if role == "attention" else 1), server.peers()
                assert all(peer["role"] == role and peer["epoch"] == 2 for peer in new), new
                assert not is_running(pid)
                assert server.request("GET", "/ready")[0] == 200
                line = next(l for l in server.output().splitlines() if "recovered " in l)
                print(f"  {how.name} {role}: {took:.2f} s; {line.split('] ')[-1]}")


def test_recovery_during_start_up():
    """Workers that are killed or stopped while the instance starts are started again."""
    def disturb(server):
        killed = set()
        deadline = time.monotonic() + 20
        while len(killed) < 5 and time.monotonic() < deadline:
            try:
                for pid in server.workers():
                    if pid not in killed and len(killed) < 5:
                        os.kill(pid, signal.SIGSTOP if len(killed) == 2 else signal.SIGKILL)
                        killed.add(pid)
                        time.sleep(0.02 * len(killed))
            except (OSError, ValueError):
                pass
            time.sleep(0.005)
    with Server("--dp", 2, "--num-moe-ranks", 2, "--watchdog-timeout", 3, while_starting=disturb) as server:
        wait_for(lambda: all_ready(server), 20, "all workers")
        # A start may take no longer than two strikes.
        assert sum(peer["epoch"] - 1 for peer in server.peers()) >= 1, (server.peers(), server.output())
        load = Load(server, count=4, max_tokens=20)
        load.start()
        load.check()


def test_recovery_during_recovery():
    """A worker that is killed again while it starts, and others meanwhile: all requests end with their tokens."""
    with Server("--dp", 2, "--tp", 2, "--num-moe-ranks", 2, "--max-restarts", 20) as server:
        load = Load(server)
        load.start()
        time.sleep(0.2)
        for _ in range(3):
            for role, where in WORKERS:
                strike(server, signal.SIGKILL, role, **where)
                time.sleep(0.05)
        load.check(within=60)
        wait_for(lambda: all_ready(server), 30, "all workers")
        assert server.output().count("recovered ") >= 3, server.output()


def test_an_untouched_group_does_not_notice():
    """Groups beside one that is killed again and again keep their time to first token."""
    with Server("--dp", 2, "--num-moe-ranks", 1, "--max-restarts", 100) as server:
        words = [100 + i % 3000 for i in range(60)]

        def ttft():
            begin = time.monotonic()
            status, body = server.complete(words)
            assert status == 200, body
            return time.monotonic() - begin
        together([ttft] * 4)
        before = statistics.median(ttft() for _ in range(30))
        during = []
        for _ in range(4):
            strike(server, signal.SIGKILL, "attention", group=1)
            end = time.monotonic() + 1
            while time.monotonic() < end:
                during.append(ttft())
        after = statistics.median(during)
        print(f"  TTFT before {before * 1e3:.1f} ms, with a group that dies {after * 1e3:.1f} ms "
              f"({len(during)} requests)")
        assert server.output().count("recovered ") >= 3, server.output()
        assert after < 2 * before + 0.02, (before, after)


def test_too_many_deaths():
    """A group that dies too often stays away and the rest serves; without an expert rank nothing can."""
    with tempfile.TemporaryDirectory() as crashes:
        with Server("--dp", 2, "--num-moe-ranks", 2, "--max-restarts", 1, "--crash-dir",
                    crashes) as server:
            load = Load(server, count=6, max_tokens=150)
            load.start()
            time.sleep(0.2)
            strike(server, signal.SIGKILL, "attention", group=1)
            wait_for(lambda: "recovered " in server.output(), 10, "the recovery")
            strike(server, signal.SIGKILL, "attention", group=1)
            wait_for(lambda: "stays out of service" in server.output(), 10, "the retirement")
            load.check()
            states = {(p["role"], p["group"]): p["state"] for p in server.peers()}
            assert states["attention", 1] == "retired" and states["attention", 0] == "ready", states
            status, body = server.request("GET", "/ready")
            assert status == 200, body
            assert server.complete([1, 2, 3])[0] == 200
            for _ in range(2):
                pid = strike(server, signal.SIGKILL, "moe", moe_rank=0)
                wait_for(lambda: not is_running(pid), 5, "the death")
                wait_for(lambda: server.pid_of("moe", moe_rank=0) != pid or
                         "it stays out of service" in server.output(), 10, "what follows")
            wait_for(lambda: server.complete([1, 2, 3])[0] == 503, 5, "the refusal")
            status, body = server.complete([1, 2, 3])
            assert "moe e0" in body["error"]["message"], body
            assert "--max-restarts" in body["error"]["message"], body
            assert server.request("GET", "/ready")[0] == 503
        reports = sorted(os.listdir(crashes))
        assert len(reports) == 4, reports
        with open(os.path.join(crashes, reports[0], "report.json")) as file:
            report = json.load(file)
        assert report["who"] == "attention g1 t0" and "signal 9" in report["cause"], report
        assert report["flags"]["moe e0"] and report["batches_in_flight"], report
        assert report["config"]["num_moe_ranks"] == 2 and len(report["workers"]) == 4, report
        with open(os.path.join(crashes, reports[0], "trace.json")) as file:
            assert any(e["ph"] == "X" for e in json.load(file)["traceEvents"])
        with open(os.path.join(crashes, reports[1], "log.txt")) as file:
            assert "recovered attention g1 t0" in file.read()


def test_without_restarts():
    """--max-restarts 0: the requests of a group that dies run elsewhere; an expert rank's death ends everything."""
    with Server("--dp", 2, "--num-moe-ranks", 2, "--max-restarts", 0) as server:
        load = Load(server)
        load.start()
        time.sleep(0.2)
        strike(server, signal.SIGKILL, "attention", group=0)
        load.check()
        load.start()
        time.sleep(0.2)
        strike(server, signal.SIGKILL, "moe", moe_rank=1)
        begin = time.monotonic()
        for thread in load.threads:
            thread.join(timeout=max(0.1, begin + 5 - time.monotonic()))
        assert None not in load.results, "requests hang"
        assert all(s == 503 and "moe e1" in b["error"]["message"] for s, b in load.results), load.results


def test_two_instances_and_a_killed_front():
    """Instances do not see each other; of one whose front is killed nothing stays, also no stopped worker."""
    before = shared_memory()
    with Server("--dp", 2) as first, Server("--dp", 2) as second:
        strike(second, signal.SIGKILL, "attention", group=0)
        wait_for(lambda: "recovered " in second.output(), 10, "the recovery")
        assert first.complete([1, 2, 3])[0] == 200 and second.complete([1, 2, 3])[0] == 200
        assert {peer["epoch"] for peer in first.peers()} == {1}
        pids = [peer["pid"] for peer in first.peers()]
        os.kill(pids[0], signal.SIGSTOP)
        first.process.kill()
        first.process.wait()
        wait_for(lambda: not any(map(is_running, pids)), 3, "the workers to end")
        assert second.complete([1, 2, 3])[0] == 200
    assert shared_memory() == before


def test_drain_on_sigterm():
    """SIGTERM: what is there ends with its tokens, new requests are refused; a second one ends at once."""
    with Server("--dp", 2, "--num-moe-ranks", 2) as server:
        load = Load(server)
        load.start()
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.1)
        status, body = server.complete([1, 2, 3])
        assert status == 503 and "draining" in body["error"]["message"], (status, body)
        load.check()
        assert server.process.wait(timeout=5) == 0
    with Server("--dp", 2, "--num-moe-ranks", 2) as server:
        pids = [peer["pid"] for peer in server.peers()]
        threading.Thread(target=lambda: ended(server, [9] * 200), daemon=True).start()
        time.sleep(0.3)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        took = server.stop(signal.SIGINT, within=1)
        wait_for(lambda: not any(map(is_running, pids)), 1, "the workers to end")
        print(f"  twice: {took:.2f} s")


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
