"""asap serve as a service: TLS and keys, admission, deadlines, cancellation, sampling, monitoring. Standard library only."""

import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import subprocess
import tempfile
import time

from support import ASAP, SOURCE, Server, main, run_asap, together, wait_for

TLS = SOURCE / "tests/tls"
# Kernels that only take their time: a server that is slow in a known way, and needs no cores for it.
PRICED = ["--preset", "deepseek-v3.2", "--num-hidden-layers", 4, "--load-format", "dummy", "--ops", "priced",
          "--profile", "cm384-deepseek-v3.2", "--max-model-len", 16384]


def metric(server, name, **labels):
    """Sum of a metric's samples with these labels."""
    text = server.request("GET", "/metrics")[1]
    total = 0.0
    for line in text.splitlines():
        if line.split("{")[0].split(" ")[0] == name and all(f'{k}="{v}"' in line for k, v in labels.items()):
            total += float(line.rsplit(" ", 1)[1])
    return total


def test_tls_and_keys():
    with tempfile.TemporaryDirectory(prefix="asap-keys-") as folder:
        keys = pathlib.Path(folder, "keys")
        keys.write_text("# clients\nsecret\n")
        keys.chmod(0o600)
        with Server("--ssl-certfile", TLS / "cert.pem", "--ssl-keyfile", TLS / "key.pem", "--api-key-file", keys,
                    "--admin-api-key", "boss") as server:
            context = ssl.create_default_context(cafile=TLS / "cert.pem")

            def ask(method, path, key=None, body=None):
                connection = http.client.HTTPSConnection("localhost", server.port, timeout=30, context=context)
                connection.request(method, path, body, {"Authorization": f"Bearer {key}"} if key else {})
                response = connection.getresponse()
                return response.status, response.read().decode()

            assert ask("GET", "/health")[0] == 200
            assert ask("GET", "/v1/models")[0] == 401
            assert ask("GET", "/v1/models", "wrong")[0] == 401
            assert ask("POST", "/admin/drain", "secret")[0] == 403
            body = json.dumps({"prompt": [5, 6, 7], "max_tokens": 20, "stream": True, "ignore_eos": True})
            status, text = ask("POST", "/v1/completions", "secret", body)
            assert status == 200 and text.count("data: {") == 20 and text.endswith("data: [DONE]\n\n"), text
            large = json.dumps({"prompt": [5] * 100, "max_tokens": 1, "ignored": "x" * (4 << 20)})
            assert ask("POST", "/v1/completions", "secret", large)[0] == 200
            # A client without TLS gets nothing, and disturbs nobody.
            with socket.create_connection(("127.0.0.1", server.port)) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                plain.settimeout(10)
                assert b"200" not in plain.recv(100)
            assert ask("GET", "/ready")[0] == 200
            assert "secret" not in server.output() and "boss" not in server.output()
    code, _, error = run_asap("serve", "--ssl-certfile", TLS / "cert.pem", "--port", 0)
    assert code == 2 and "--ssl-keyfile" in error, error
    code, _, error = run_asap("serve", "--api-key-file", "/nowhere", "--port", 0)
    assert code == 3 and "/nowhere" in error, error


def test_overload_is_refused_at_once_and_what_is_taken_is_served():
    """Three queues' worth of requests at once: the queue fills, the rest learns within milliseconds."""
    with Server(*PRICED, "--time-scale", 5, "--max-num-queued-reqs", 10) as server:
        def one(_):
            begin = time.monotonic()
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": [7] * 4000, "max_tokens": 1}))
            response = connection.getresponse()
            answer = json.loads(response.read())
            return response.status, time.monotonic() - begin, response.getheader("Retry-After"), answer
        results = together([lambda i=i: one(i) for i in range(120)])
        served = [r for r in results if r[0] == 200]
        refused = [r for r in results if r[0] == 429]
        assert len(served) + len(refused) == 120, [r for r in results if r[0] not in (200, 429)][:3]
        assert len(served) >= 10 and len(refused) >= 20, (len(served), len(refused))
        assert all(int(r[2]) >= 1 and "--max-num-queued-reqs" in r[3]["error"]["message"] for r in refused)
        assert metric(server, "asap:requests_refused_total", kind="overload") == len(refused)
        print(f"  {len(served)} served, {len(refused)} refused")


def test_deadlines_end_what_waits_and_nothing_else():
    with Server(*PRICED, "--time-scale", 20, "--queue-timeout-s", 60) as server:
        def one(length, timeout):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=120)
            begin = time.monotonic()
            connection.request("POST", "/v1/completions", json.dumps({"prompt": [7] * length, "max_tokens": 1}),
                               {"X-Queue-Timeout-S": str(timeout)} if timeout else {})
            response = connection.getresponse()
            return response.status, time.monotonic() - begin, json.loads(response.read())
        # The first ones fill every stage of the group; the last one cannot start in time.
        calls = [lambda: one(8000, None)] * 4 + [lambda: (time.sleep(0.3), one(8000, 0.2))[1]]
        results = together(calls)
        assert [status for status, _, _ in results[:4]] == [200] * 4, results
        status, seconds, body = results[4]
        assert status == 408 and body["error"]["type"] == "timeout_error", results[4]
        assert 0.15 < seconds < 2, seconds
        assert metric(server, "asap:num_requests_waiting") == 0


def test_clients_that_leave_free_their_requests_in_every_phase():
    with Server(*PRICED, "--time-scale", 10) as server:
        body = json.dumps({"prompt": [7] * 6000, "max_tokens": 50, "stream": True, "ignore_eos": True}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        clients = []
        for _ in range(8):  # some in attention, some at the experts, the others queued
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(head + body)
            clients.append(client)
        wait_for(lambda: metric(server, "asap:num_requests_waiting") >= 1, 10, "a queue")
        wait_for(lambda: metric(server, "asap:stages_live") >= 2, 10, "live stages")
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(head + body[:1000])  # one that leaves while it still sends
        for client in clients + [half]:
            client.close()
        begin = time.monotonic()
        wait_for(lambda: server.request("GET", "/load")[1]["server_load"] == 0, 30, "an empty server")
        print(f"  empty after {time.monotonic() - begin:.2f} s")
        assert metric(server, "asap:request_success_total", finished_reason="abort") == 8
        wait_for(lambda: metric(server, "asap:kv_cache_usage_perc") == 0, 30, "an empty cache")
        assert server.complete([7] * 100)[0] == 200


def test_sampling_parameters_reach_the_sampler():
    with Server("--dp", 1, "--num-moe-ranks", 2) as server:
        prompt = "Once upon a time"
        plain = server.complete(prompt, max_tokens=12)[1]["choices"][0]["token_ids"]
        hot = dict(temperature=1.5, seed=3)
        assert server.complete(prompt, max_tokens=12, top_k=1, **hot)[1]["choices"][0]["token_ids"] == plain
        assert server.complete(prompt, max_tokens=12, top_p=1e-6, **hot)[1]["choices"][0]["token_ids"] == plain
        assert server.complete(prompt, max_tokens=12, min_p=1.0, **hot)[1]["choices"][0]["token_ids"] == plain
        drawn = server.complete(prompt, max_tokens=12, **hot)[1]["choices"][0]["token_ids"]
        assert drawn != plain and drawn == server.complete(prompt, max_tokens=12, **hot)[1]["choices"][0]["token_ids"]
        banned = server.complete(prompt, max_tokens=12, logit_bias={str(plain[0]): -100})[1]["choices"][0]["token_ids"]
        assert banned[0] != plain[0]
        forced = server.complete(prompt, max_tokens=5, logit_bias={"77": 100})[1]["choices"][0]["token_ids"]
        assert forced == [77] * 5
        # The penalty grows until another token wins, and each comes once: history is counted.
        fresh = server.complete(prompt, max_tokens=12, repetition_penalty=100.0)[1]["choices"][0]["token_ids"]
        assert len(set(fresh)) == 12, fresh
        seen = server.complete(prompt, max_tokens=30, presence_penalty=2, frequency_penalty=2)[1]["choices"][0]["token_ids"]
        assert len(set(seen)) > len(set(server.complete(prompt, max_tokens=30)[1]["choices"][0]["token_ids"]))
        answers = server.complete(prompt, max_tokens=6, n=3, **hot)[1]["choices"]
        assert len({tuple(a["token_ids"]) for a in answers}) == 3 and [a["index"] for a in answers] == [0, 1, 2]
        stopped = server.complete(prompt, max_tokens=12, stop_token_ids=[plain[3]])[1]["choices"][0]
        first = plain.index(plain[3])
        assert stopped["token_ids"] == plain[:first + 1] and stopped["stop_reason"] == plain[3], stopped
        longer = server.complete(prompt, max_tokens=12, stop_token_ids=[plain[3]], min_tokens=9)[1]["choices"][0]
        assert len(longer["token_ids"]) >= 9 and plain[3] not in longer["token_ids"][:8], longer


def test_profiles_and_request_logs():
    with tempfile.TemporaryDirectory(prefix="asap-trace-") as folder:
        trace = pathlib.Path(folder, "trace.json")
        with Server("--trace", trace, "--enable-log-requests") as server:
            server.complete([1, 2, 3], max_tokens=2)
            assert server.request("POST", "/stop_profile")[0] == 400
            assert server.request("POST", "/start_profile")[0] == 200
            server.complete([4, 5, 6], max_tokens=3)
            status, body = server.request("POST", "/stop_profile")
            assert status == 200, body
            events = json.loads(pathlib.Path(body["file"]).read_text())["traceEvents"]
            batches = {e["args"]["batch"] for e in events if e.get("ph") == "X"}
            assert batches == {3, 4, 5}, batches  # not those of before
            lines = re.findall(r"request id=cmpl-\S+ status=200 .*completion_tokens=(\d+)", server.output())
            assert lines == ["2", "3"], server.output()
    with Server() as server:
        status, body = server.request("POST", "/start_profile")
        assert status == 400 and "--trace" in body["error"]["message"]


def raw_request(port, body, tail=b""):
    """A connection that has sent POST /v1/completions."""
    data = json.dumps(body).encode()
    client = socket.create_connection(("127.0.0.1", port))
    client.settimeout(60)
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n" % len(data) + data + tail)
    return client


def read_all(client):
    data = b""
    while piece := client.recv(65536):
        data += piece
    return data.decode()


def test_what_a_shutdown_cuts_off_is_told():
    """503 where nothing was sent yet, else an error event and the end of the stream."""
    with Server(*PRICED, "--time-scale", 20, "--shutdown-timeout", 0.5) as server:
        port_file = pathlib.Path(server.port_file)
        stream = raw_request(server.port, {"prompt": [7] * 10, "max_tokens": 3000, "stream": True, "ignore_eos": True})
        first = stream.recv(65536).decode()
        assert "data: {" in first, first
        waiting = [raw_request(server.port, {"prompt": [7] * 9000, "max_tokens": 2000, "stream": s}) for s in (False, True)]
        wait_for(lambda: server.request("GET", "/load")[1]["server_load"] == 3, 10, "three requests")
        assert port_file.exists()
        begin = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        for client in waiting:
            answer = read_all(client)
            assert answer.startswith("HTTP/1.1 503"), answer
            error = json.loads(answer.split("\r\n\r\n", 1)[1])["error"]
            assert "--shutdown-timeout" in error["message"] and error["type"] == "service_unavailable_error", error
        rest = first + read_all(stream)
        assert '"code":503' in rest and rest.rstrip("0\r\n").endswith("data: [DONE]"), rest[-400:]
        assert server.process.wait(timeout=10) == 0
        assert 0.4 < time.monotonic() - begin < 6
        assert not port_file.exists()


def test_the_first_burst_is_judged_by_time():
    """The speed is known before the first request comes."""
    with Server(*PRICED, "--time-scale", 5, "--max-queued-s", 0.5) as server:
        results = together([lambda: server.complete([7] * 4000) for _ in range(80)])
        served = [body for status, body in results if status == 200]
        refused = [body for status, body in results if status == 429]
        assert len(served) + len(refused) == 80 and served, results
        assert len(refused) >= 20, (len(served), len(refused))
        assert all("--max-queued-s" in body["error"]["message"] for body in refused), refused[0]


def test_probes_get_through_where_clients_do_not():
    with Server("--max-connections", 4) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(4)]
        for path in ("/health", "/ready", "/metrics"):
            wait_for(lambda p=path: server.request("GET", p)[0] == 200, 5, path)
        status, body = server.request("GET", "/v1/models")
        assert status == 503 and "--max-connections" in body["error"]["message"], body
        for client in idle:
            client.close()
        wait_for(lambda: server.request("GET", "/v1/models")[0] == 200, 5, "room again")


def test_a_client_that_half_closes_gets_its_answer():
    with Server() as server:
        for stream in (False, True):
            client = raw_request(server.port, {"prompt": [7] * 300, "max_tokens": 40, "stream": stream, "ignore_eos": True})
            client.shutdown(socket.SHUT_WR)
            answer = read_all(client)
            assert "HTTP/1.1 200 OK" in answer and '"finish_reason":"length"' in answer, answer


def test_one_model_by_its_name():
    with Server("--served-model-name", "org/tiny moe") as server:
        listed = server.request("GET", "/v1/models")[1]["data"][0]
        for name in ("org/tiny%20moe", "org%2Ftiny%20moe"):
            assert server.request("GET", f"/v1/models/{name}") == (200, listed)
        status, body = server.request("GET", "/v1/models/other")
        assert status == 404 and "other" in body["error"]["message"] and "org/tiny moe" in body["error"]["message"], body


def processor_seconds(pid):
    """User and system time of a process, all threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_idle_front_rests():
    with Server("--dp", 2, "--num-moe-ranks", 2) as server:
        server.complete([1, 2, 3])
        time.sleep(0.5)
        begin, used = time.monotonic(), processor_seconds(server.process.pid)
        time.sleep(3)
        share = (processor_seconds(server.process.pid) - used) / (time.monotonic() - begin)
        print(f"  {100 * share:.2f} % of a core")
        assert share < 0.015, share  # a tick of the clock is a third of a percent here


def test_a_trace_that_cannot_be_written_is_an_error():
    with tempfile.TemporaryDirectory(prefix="asap-trace-") as folder:
        code, _, err = run_asap("serve", "--trace", pathlib.Path(folder, "nowhere/trace.json"), "--port", 0, timeout=30)
        assert code == 2 and "--trace" in err and "nowhere" in err, err

        def limited(*arguments):  # no file grows beyond 4 KB
            done = subprocess.run([ASAP, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                                  preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
            return done.returncode, done.stderr
        trace = pathlib.Path(folder, "trace.json")
        code, err = limited("run", SOURCE / "models/asap-tiny-moe", "--tokens", "1,2,3", "--trace", trace, "--in-process")
        assert code == 1 and "trace.json" in err and "too large" in err, (code, err)


def test_dashboard_alerts_and_documents_name_real_metrics():
    """Every metric that deploy/ and docs/operations.md name is on the page, and every alert has its runbook."""
    with Server("--dp", 2, "--num-moe-ranks", 2) as server:
        server.complete([1, 2, 3], max_tokens=3)
        server.request("POST", "/v1/completions", {"prompt": 5})
        page = server.request("GET", "/metrics")[1]
    known = set(re.findall(r"^# TYPE (asap:\w+)", page, re.M))
    rules = (SOURCE / "deploy/prometheus-rules.yml").read_text()
    document = (SOURCE / "docs/operations.md").read_text()
    dashboard = (SOURCE / "deploy/grafana-dashboard.json").read_text()
    json.loads(dashboard)
    for name, text in (("rules", rules), ("dashboard", dashboard), ("document", document)):
        used = set(re.findall(r"asap:[a-z]\w+", text)) - {"asap:request_"}
        missing = {metric for metric in used if not {metric, re.sub(r"_(bucket|sum|count)$", "", metric)} & known}
        assert used and not missing, (name, sorted(missing))
    # And the document names every metric, in full or in braces: `asap:request_{queueing,...}_time_seconds`.
    spelled = set(re.findall(r"`(?:asap:)?([a-z]\w+)", document))
    for head, names, tail in re.findall(r"`asap:(\w*){([^}`]+)}(\w*)", document):
        spelled |= {head + name + tail for name in names.split(",")} | {head}
    silent = {metric for metric in known if metric.removeprefix("asap:") not in spelled}
    assert not silent, sorted(silent)
    alerts = re.findall(r"alert: (\w+)", rules)
    assert len(alerts) >= 10
    for alert in alerts:
        assert f"### {alert}\n" in document, alert
        assert f"docs/operations.md#{alert.lower()}" in rules, alert


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
