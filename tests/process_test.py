"""The real binary with real processes: geometries, bit-equality with one process, independence of groups, death of
workers, shutdown, the trace. Standard library only."""

import http.client
import json
import os
import signal
import statistics
import subprocess
import tempfile
import threading
import time

from support import (ASAP, GOLDEN, TINY, Server, is_running, main, run_asap, shared_memory,
                     together, wait_for)


def golden(name):
    return json.loads((GOLDEN / name / "golden.json").read_text())


def logits_of(*flags):
    """(bytes of the dumped logits, token ids) of one asap run."""
    with tempfile.NamedTemporaryFile() as file:
        code, out, err = run_asap("run", *flags, "--json", "--dump-logits", file.name)
        assert code == 0, err
        return file.read(), json.loads(out.splitlines()[-1])["token_ids"]


def test_processes_equal_one_process():
    """Bit for bit, for asymmetric geometries too; at equal T and E also across D and R."""
    prompt = ",".join(map(str, golden("deepseek_v32")["cases"][-1]["prompt"]))
    base = [GOLDEN / "deepseek_v32", "--tokens", prompt, "--max-tokens", 4, "--ignore-eos",
            "--dtype", "bfloat16"]
    for d, t, e, r in ((1, 1, 1, 2), (2, 1, 1, 1), (1, 2, 4, 3), (3, 1, 2, 2), (2, 2, 3, 2)):
        shape = ["--tp", t, "--num-moe-ranks", e]
        one = logits_of(*base, *shape, "--in-process")
        many = logits_of(*base, *shape, "--dp", d, "--stages", r)
        assert one == many, (d, t, e, r)
        pieces = logits_of(*base, *shape, "--dp", d, "--max-num-batched-tokens", 16)
        assert one == pieces, (d, t, e, r)


def test_synchronous_engines():
    """The bits of the asynchronous engine at equal T and E, from one worker per device; over HTTP too."""
    prompt = ",".join(map(str, golden("deepseek_v32")["cases"][-1]["prompt"]))
    base = [GOLDEN / "deepseek_v32", "--tokens", prompt, "--max-tokens", 4, "--ignore-eos",
            "--dtype", "bfloat16"]
    for d, t in ((2, 1), (2, 2)):
        one = logits_of(*base, "--tp", t, "--num-moe-ranks", d * t, "--in-process")
        for flags in (["default"], ["chunked"], ["chunked", "--chunked-prefill-size", 16]):
            shape = ["--dp", d, "--tp", t, "--scheduler", *flags]
            assert one == logits_of(*base, *shape), (d, t, flags)
            assert one == logits_of(*base, *shape, "--in-process"), (d, t, flags)
    prompts = [[2 + (7 * n + i) % 4000 for i in range(1 + 90 * n)] for n in range(8)]
    answers = []
    for flags in (["asap"], ["default"], ["chunked", "--chunked-prefill-size", 100]):
        with Server("--dp", 2, "--num-moe-ranks", 2, "--scheduler", *flags) as server:
            results = together([lambda p=p: server.complete(p, max_tokens=5) for p in prompts])
            assert all(status == 200 for status, _ in results), results
            answers.append([body["choices"][0]["token_ids"] for _, body in results])
            status, text = server.request("GET", "/metrics")
            rows = [float(line.split()[-1]) for line in text.splitlines()
                    if line.startswith("asap:expert_rows_sum")]
            # Every token but the last ones goes to 4 experts in each of 4 layers.
            tokens = sum(map(len, prompts)) + len(prompts) * 4
            assert rows == [tokens * 4 * 4], (rows, tokens)
            pids = {peer["pid"] for peer in server.peers()}
            assert len(pids) == (4 if flags == ["asap"] else 2), server.peers()
    assert answers[0] == answers[1] == answers[2]


def test_a_death_ends_a_synchronous_engine():
    """All groups wait for each other: whoever dies, the server says so and every request ends; it stops on a signal."""
    for scheduler, group in (("default", 1), ("chunked", 0)):
        with Server("--dp", 2, "--scheduler", scheduler) as server:
            pid = server.pid_of("attention", group=group)
            results = []
            threads = [threading.Thread(
                target=lambda: results.append(server.complete([5, 6, 7] * 50, 600, 30)), daemon=True)
                for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(0.3)
            os.kill(pid, signal.SIGKILL)
            begin = time.monotonic()
            for thread in threads:
                thread.join(timeout=max(0.1, begin + 5 - time.monotonic()))
            assert len(results) == 4, f"{len(results)} of 4 requests ended within 5 s"
            name = f"attention g{group} t0"
            assert all(s == 503 and name in b["error"]["message"] for s, b in results), results
            status, body = server.request("GET", "/ready")
            assert status == 503 and "in lockstep" in str(body), (status, body)
            assert server.complete([1, 2, 3])[0] == 503
            states = [p["state"] for p in server.peers() if p["pid"] == pid]
            assert states == ["retired", "retired"], states
        with Server("--dp", 2, "--scheduler", scheduler, "--shutdown-timeout", 0.5) as server:
            pids = [peer["pid"] for peer in server.peers()]
            threading.Thread(target=lambda: ended(server, [9] * 200), daemon=True).start()
            time.sleep(0.3)
            server.stop(signal.SIGTERM, within=3)
            assert not any(map(is_running, pids)), "workers are left"


def ended(server, prompt):
    """A long request whose server may go away."""
    try:
        return server.complete(prompt, max_tokens=700)
    except (OSError, http.client.HTTPException):
        return None


def test_a_stopped_group_does_not_slow_the_other():
    """One worker of a group under SIGSTOP for 10 s: the other group's requests go on with their TTFT, and the stopped
    group's finish after SIGCONT."""
    words = [100 + i % 3000 for i in range(60)]
    with Server("--dp", 2, "--tp", 2, "--num-moe-ranks", 2, "--stages", 2) as server:
        def ttft(_=None):
            begin = time.monotonic()
            status, body = server.complete(words)
            assert status == 200, body
            return time.monotonic() - begin
        together([ttft] * 4)  # warm
        before = statistics.median(ttft() for _ in range(20))
        victim = server.pid_of("attention", group=1, tp_rank=1)
        os.kill(victim, signal.SIGSTOP)
        begin = time.monotonic()
        late, during = [], []
        try:
            # Stages of the stopped group take one request each; those wait.
            waiting = [threading.Thread(target=lambda: late.append(ttft()), daemon=True)
                       for _ in range(8)]
            for thread in waiting:
                thread.start()
            time.sleep(0.5)
            while time.monotonic() - begin < 10:
                during.append(ttft())
        finally:
            os.kill(victim, signal.SIGCONT)
        for thread in waiting:
            thread.join(timeout=20)
        assert len(late) == 8, f"{len(late)} of 8 early requests finished"
        assert max(late) > 5, "no request was on the stopped group: the test shows nothing"
        after = statistics.median(during)
        print(f"  TTFT before {before * 1e3:.1f} ms, while stopped {after * 1e3:.1f} ms "
              f"({len(during)} requests)")
        assert after < 2 * before + 0.02, (before, after)


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
        assert sum(peer["epoch"] - 1 for peer in server.peers()) >= 3, (server.peers(), server.output())
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


def test_interrupt_stops_everything():
    """Ctrl-C and SIGTERM under load: all processes end within 3 s, and no shared memory stays."""
    before = shared_memory()
    for how in (signal.SIGINT, signal.SIGTERM):
        server = Server("--dp", 2, "--tp", 2, "--num-moe-ranks", 2, "--shutdown-timeout", 0.5)
        with server:
            pids = [peer["pid"] for peer in server.peers()]
            assert len(pids) == 6
            def work():
                try:
                    server.complete([9] * 200, max_tokens=700)
                except (OSError, http.client.HTTPException):
                    pass  # the server goes away: that is the test
            for _ in range(4):
                threading.Thread(target=work, daemon=True).start()
            time.sleep(0.3)
            took = server.stop(how, within=3)
            assert not any(map(is_running, pids)), "workers are left"
            print(f"  {how.name}: {took:.2f} s")
    assert shared_memory() == before


def test_workers_do_not_outlive_a_killed_front():
    with Server("--dp", 1, "--num-moe-ranks", 2) as server:
        pids = [peer["pid"] for peer in server.peers()]
        server.process.kill()
        server.process.wait()
        wait_for(lambda: not any(map(is_running, pids)), 3, "the workers to end")


def test_command_lines_say_what_a_worker_is():
    with Server("--dp", 2, "--tp", 2, "--num-moe-ranks", 2) as server:
        for peer in server.peers():
            with open(f"/proc/{peer['pid']}/cmdline") as file:
                line = file.read().split("\0")
            assert line[:3] == ["asap", "worker", "--role"], line
            assert line[3] == peer["role"], line


def test_trace_shows_layers_out_of_order():
    """An expert rank serves different layers of different groups interleaved."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        with Server("--dp", 2, "--num-moe-ranks", 1, "--max-num-batched-tokens", 256, "--trace",
                    path) as server:
            together([lambda n=n: server.complete([3 + n] * (20 + 37 * n), max_tokens=3)
                      for n in range(16)])
            server.stop(within=5)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        tracks = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
        assert len(tracks) >= 1 + 2 + 3, tracks  # front, two attention ranks, three expert agents
        served = sorted((e["ts"], e["args"]["group"], e["args"]["layer"]) for e in events
                        if e.get("cat") == "experts")
        swaps = sum(1 for a, b in zip(served, served[1:]) if a[1] != b[1] and a[2] != b[2])
        backwards = sum(1 for a, b in zip(served, served[1:]) if a[1] != b[1] and b[2] < a[2])
        print(f"  {len(served)} items, {swaps} neighbours of another group and layer, "
              f"{backwards} of them an earlier layer")
        assert swaps > 10 and backwards > 3
        starts = {e["id"] for e in events if e["ph"] == "s"}
        ends = {e["id"] for e in events if e["ph"] == "f"}
        assert ends and ends <= starts


def test_bad_starts_are_clear():
    """Wrong flags, models and workers: one message that names the thing, and an exit code."""
    cases = [
        (["run", "/nowhere", "--tokens", "1"], 3, "/nowhere"),
        (["run", TINY, "--tokens", "1,x"], 2, '"x"'),
        (["run", TINY, "--tokens", "99999"], 2, "99999"),
        (["run", TINY], 2, "--tokens"),
        (["run", TINY, "--tokens", "1", "--tp", "5"], 2, "--tensor-parallel-size 5"),
        (["run", TINY, "--tokens", "1", "--num-moe-ranks", "17"], 2, "16"),
        (["run", TINY, "--tokens", "1", "--stages", "9"], 2, "--stages"),
        (["run", TINY, "--tokens", "1", "--ops", "gpu"], 2, "gpu"),
        (["run", TINY, "--tokens", "1", "--scheduler", "fast"], 2, "asap, paper, default, chunked"),
        (["run", TINY, "--tokens", "1", "--scheduler", "default", "--stages", "2"], 2, "--stages"),
        (["run", TINY, "--tokens", "1", "--scheduler", "chunked", "--dp", "2", "--num-moe-ranks",
          "3"], 2, "leave --num-moe-ranks out or give 2"),
        (["run", TINY, "--tokens", "1", "--max-tokens", "5000"], 2, "1024"),
        (["worker", "--role", "attention", "--group", "0", "--tp-rank", "0"], 2, "asap serve"),
        (["serve", TINY, "--no-such-flag"], 2, "no-such-flag"),
    ]
    for arguments, code, words in cases:
        got, out, err = run_asap(*arguments, timeout=30)
        assert got == code, (arguments, got, err)
        assert words in err + out, (arguments, err)


def test_check_config_prints_topology():
    code, out, _ = run_asap("serve", TINY, "--dp", 2, "--tp", 2, "--num-moe-ranks", 3,
                            "--check-config")
    assert code == 0
    for words in ("attention g1 t1", "moe e2", "dispatch", "combine", "window"):
        assert words in out, out
    code, out, _ = run_asap("serve", TINY, "--dp", 2, "--tp", 2, "--scheduler", "chunked",
                            "--check-config")
    assert code == 0
    for words in ("E=4", "R=1", "scheduler chunked", "at most 8192 tokens", "moe e3", "enter"):
        assert words in out, out


def test_inspect():
    code, out, _ = run_asap("inspect", TINY, "--tp", 2, "--num-moe-ranks", 2)
    assert code == 0, out
    for words in ("deepseek_v3", "4 of 16 experts", "attention rank", "supported   yes"):
        assert words in out, out


def test_bundled_model_matches_its_golden():
    """Text in, the float64 reference's greedy tokens out: tokenizer, model and engine together."""
    for case in json.loads((TINY / "golden.json").read_text())["prompts"]:
        code, out, err = run_asap("run", TINY, "--prompt", case["prompt"], "--max-tokens", 16,
                                  "--ignore-eos", "--ops", "ref", "--json", "--in-process")
        assert code == 0, err
        last = json.loads(out.splitlines()[-1])
        assert last["token_ids"] == case["greedy16"], (case["prompt"], last)
        assert last["text"] and last["ttft_ms"] > 0


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
