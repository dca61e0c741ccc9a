"""What the tests of the real binary share: starting a server, talking to it, and waiting with a deadline."""

import concurrent.futures
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
ASAP = os.environ.get("ASAP_BINARY", str(SOURCE / "build/release/asap"))
TINY = SOURCE / "models/asap-tiny-moe"
GOLDEN = SOURCE / "tests/golden"


class Server:
    """`asap serve` with its flags; a context that stops it and fails if it does not stop."""

    def __init__(self, *flags, model=None, while_starting=None):
        """`while_starting(server)` runs beside the start-up."""
        self.folder = tempfile.TemporaryDirectory(prefix="asap-test-")
        self.port_file = os.path.join(self.folder.name, "port")
        self.log = open(os.path.join(self.folder.name, "log"), "w+b")
        command = [ASAP, "serve"] + ([str(model)] if model else [])
        command += ["--port", "0", "--port-file", self.port_file, *map(str, flags)]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        if while_starting:
            threading.Thread(target=while_starting, args=(self,), daemon=True).start()
        self.port = int(wait_for(self._read_port, 60, "the port file"))

    def _read_port(self):
        if self.process.poll() is not None:
            raise AssertionError("asap serve exited: " + self.output())
        try:
            return pathlib.Path(self.port_file).read_text().strip()
        except FileNotFoundError:
            return None

    def output(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def request(self, method, path, body=None, timeout=120, raw=None):
        """(status, parsed JSON or text) of one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            data = raw if raw is not None else (json.dumps(body) if body is not None else None)
            connection.request(method, path, body=data,
                               headers={"Content-Type": "application/json"} if data else {})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
            try:
                return response.status, json.loads(text)
            except json.JSONDecodeError:
                return response.status, text
        finally:
            connection.close()

    def complete(self, prompt, max_tokens=1, timeout=120, **fields):
        body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "return_token_ids": True, "ignore_eos": True, **fields}
        return self.request("POST", "/v1/completions", body, timeout)

    def peers(self):
        return self.request("GET", "/admin/peers")[1]["peers"]

    def pid_of(self, role, **where):
        for peer in self.peers():
            if peer["role"] == role and all(peer.get(k) == v for k, v in where.items()):
                return peer["pid"]
        raise AssertionError(f"no peer {role} {where}: {self.peers()}")

    def workers(self):
        """Pids of its child processes, as the system knows them."""
        pid = self.process.pid
        text = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text()
        for thread in os.listdir(f"/proc/{pid}/task"):
            if thread != str(pid):
                text += " " + pathlib.Path(f"/proc/{pid}/task/{thread}/children").read_text()
        return [int(child) for child in text.split()]

    def stop(self, how=signal.SIGINT, within=3.0):
        """Seconds that the stop took; kills and fails after `within`."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout=within)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"asap serve did not stop within {within} s: " + self.output())
        return time.monotonic() - begin

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.stop(within=10)
        finally:
            self.log.close()
            self.folder.cleanup()


def ended(server, prompt):
    """A long request whose server may go away."""
    try:
        return server.complete(prompt, max_tokens=700)
    except (OSError, http.client.HTTPException):
        return None


def wait_for(what, seconds, name):
    """The first true value of what(), polled; fails after the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = what()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"waited {seconds} s for {name}")


def together(calls):
    """Results of the calls, all running at once."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=len(calls)) as pool:
        return [future.result() for future in [pool.submit(call) for call in calls]]


def run_asap(*arguments, timeout=120):
    """(exit code, stdout, stderr)."""
    done = subprocess.run([ASAP, *map(str, arguments)], capture_output=True, text=True,
                          timeout=timeout)
    return done.returncode, done.stdout, done.stderr


def is_running(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def shared_memory():
    """Names in /dev/shm that could be ours."""
    return {name for name in os.listdir("/dev/shm") if re.search("asap", name)}


def main(tests):
    """Runs the functions named on the command line, or all; prints a line each."""
    chosen = sys.argv[1:] or list(tests)
    failed = 0
    for name in chosen:
        begin = time.monotonic()
        try:
            tests[name]()
            print(f"[ OK ] {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        except Exception as error:  # each test reports its own
            failed += 1
            print(f"[FAIL] {name}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
