"""The real binary with real processes: geometries, bit-equality with one process, independence of groups, shutdown, the
trace. Standard library only."""

import http.client
import json
import os
import re
import signal
import statistics
import tempfile
import threading
import time

from support import (GOLDEN, TINY, Server, ended, is_running, main, run_asap, shared_memory,
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


def test_a_synchronous_engine_starts_again_as_a_whole():
    """All groups wait for each other: whoever dies, everybody is started again and the requests get what they would have got."""
    prompts = [[5 + n, 6, 7] * 50 for n in range(4)]
    for scheduler, group in (("default", 1), ("chunked", 0)):
        with Server("--dp", 2, "--scheduler", scheduler, "--shutdown-timeout", 0.5) as server:
            expected = [body["choices"][0]["token_ids"] for _, body in
                        together([lambda p=p: server.complete(p, 250) for p in prompts])]
            pid = server.pid_of("attention", group=group)
            results = [None] * 4
            threads = [threading.Thread(target=lambda n=n: results.__setitem__(n, server.complete(prompts[n], 250, 100)),
                                        daemon=True) for n in range(4)]
            for thread in threads:
                thread.start()
            wait_for(lambda: re.search(r"num_requests_running{[^}]*} [1-4]", server.request("GET", "/metrics")[1]), 10,
                     "a running request")
            os.kill(pid, signal.SIGKILL)
            for thread in threads:
                thread.join(timeout=100)
            assert all(r and r[0] == 200 for r in results), results
            assert [body["choices"][0]["token_ids"] for _, body in results] == expected
            status = server.request("GET", "/v1/fault_tolerance/status")[1]
            assert status["state"] == "serving" and status["recoveries"] == 1, status
            assert f"attention g{group} t0" in status["recent"][0]["who"] and status["requests_rerun"] >= 1, status
            assert {peer["epoch"] for peer in server.peers()} == {2}, server.peers()
            pids = [peer["pid"] for peer in server.peers()]
            threading.Thread(target=lambda: ended(server, [9] * 200), daemon=True).start()
            time.sleep(0.2)
            server.stop(signal.SIGTERM, within=5)
            assert not any(map(is_running, pids)), "workers are left"


def test_an_instance_that_does_not_recover_says_so():
    """Without restarts, or over blocking messages: every request ends with 503 and who died; it stops on a signal."""
    for flags in (["--scheduler", "default", "--max-restarts", 0], ["--link", "p2p", "--num-moe-ranks", 2]):
        with Server("--dp", 2, *flags) as server:
            pid = server.pid_of("attention", group=1)
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
            assert len(results) == 4, f"{flags}: {len(results)} of 4 requests ended within 5 s"
            assert all(s == 503 and "attention g1 t0" in b["error"]["message"] for s, b in results), (flags, results)
            assert server.request("GET", "/ready")[0] == 503
            status, body = server.request("GET", "/health")
            assert status == 503 and body["status"] == "failed" and "attention g1 t0" in body["reason"], body
            assert server.complete([1, 2, 3])[0] == 503
            assert "retired" in {p["state"] for p in server.peers() if p["pid"] == pid}, server.peers()


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
        begins = [e["id"] for e in events if e["ph"] == "b"]
        assert len(begins) == 16 and sorted(begins) == sorted(e["id"] for e in events if e["ph"] == "e")


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
        (["run", TINY, "--tokens", "1", "--queue-kappa", "nan"], 2, "--queue-kappa"),
        (["run", TINY, "--tokens", "1", "--scheduler", "fast"], 2, "asap, paper, default, chunked"),
        (["run", TINY, "--tokens", "1", "--scheduler", "default", "--stages", "2"], 2, "--stages"),
        (["run", TINY, "--tokens", "1", "--scheduler", "chunked", "--dp", "2", "--num-moe-ranks",
          "3"], 2, "leave --num-moe-ranks out or give 2"),
        (["run", TINY, "--tokens", "1", "--max-tokens", "5000"], 2, "1024"),
        (["worker", "--role", "attention", "--group", "0", "--tp-rank", "0"], 2, "asap serve"),
        (["serve", TINY, "--no-such-flag"], 2, "no-such-flag"),
        (["nope"], 2, "no such command: nope"),
        (["bench", "nope"], 2, "no such command: nope"),
        (["run", TINY, "--tokens", "1", "--pairing", "odd"], 2, "one of refill, paper"),
        (["run", TINY, "--tokens", "1", "--hf-overrides", "{"], 2, '--hf-overrides is "{"'),
        (["run", TINY, "--tokens", "1", "--chain-prefill", "7"], 2, "--chain-prefill is 7"),
        (["run", TINY, "--tokens", "1", "--chunked-prefill-size", "64"], 2, "--scheduler chunked"),
        (["run", TINY, "--tokens", "1", "--seed", "1" * 30], 2, "--seed"),
        (["simulate", "--num-prompts", "-3"], 2, "--num-prompts"),
        (["serve", TINY, "--shutdown-timeout", "-1"], 2, "--shutdown-timeout"),
        (["serve", TINY, "--shutdown-timeout", "1e9"], 2, "0 to 86400"),
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
