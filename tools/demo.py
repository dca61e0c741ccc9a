#!/usr/bin/env python3
"""Sends prompts of very different lengths to a server at once; prints the completions and a TTFT table.

    demo.py PORT

Standard library only. TTFT is measured here, at the client: from sending the request to the first streamed token.
"""

import http.client
import json
import pathlib
import sys
import textwrap
import threading
import time

HOST = "127.0.0.1"
READY_SECONDS = 120
SAMPLING = {"max_tokens": 60, "temperature": 0.7, "seed": 1}

# Written for this demonstration; its beginnings are the long prompts.
WORDS = (pathlib.Path(__file__).parent / "demo_tale.txt").read_text(encoding="utf-8").split()


def opening(words):
    """The first `words` words of the tale."""
    return " ".join(WORDS[:words])


PROMPTS = [
    "The wolf",
    "There was once a king who",
    '"Who are you?" asked the little girl, and the',
    "In a deep green forest, far from any road, there lived a woodcutter and his wife, and they had",
    opening(62),
    opening(150),
    opening(330),
    opening(len(WORDS)),
]


def request(port, method, path, body=None):
    connection = http.client.HTTPConnection(HOST, port, timeout=300)
    connection.request(method, path, body=json.dumps(body) if body else None,
                       headers={"Content-Type": "application/json"})
    return connection.getresponse()


def wait_until_ready(port):
    deadline = time.monotonic() + READY_SECONDS
    while request(port, "GET", "/ready").status != 200:
        if time.monotonic() > deadline:
            raise TimeoutError(f"/ready did not answer 200 within {READY_SECONDS} s")
        time.sleep(0.1)


def events(response):
    """The JSON objects of a stream of server-sent events."""
    for line in response:
        data = line.decode().removeprefix("data:").strip()
        if data and data != "[DONE]":
            yield json.loads(data)


class Completion(threading.Thread):
    """One streamed request; its results are attributes once it is joined."""

    def __init__(self, port, model, prompt, barrier):
        super().__init__(daemon=True)
        self.port, self.model, self.prompt, self.barrier = port, model, prompt, barrier
        self.text, self.prompt_tokens, self.error = "", 0, None
        self.ttft_ms = self.total_ms = 0.0

    def run(self):
        try:
            self.complete()
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.error = str(error) or type(error).__name__

    def complete(self):
        self.barrier.wait()
        begin = time.monotonic()
        response = request(self.port, "POST", "/v1/completions", {
            "model": self.model, "prompt": self.prompt, "stream": True,
            "stream_options": {"include_usage": True}, **SAMPLING})
        if response.status != 200:
            raise ValueError(f"status {response.status}: {response.read().decode()}")
        for event in events(response):
            if "error" in event:
                raise ValueError(event["error"]["message"])
            elapsed_ms = (time.monotonic() - begin) * 1000
            if event["choices"] and not self.ttft_ms:
                self.ttft_ms = elapsed_ms
            for choice in event["choices"]:
                self.text += choice["text"]
            if event.get("usage"):
                self.prompt_tokens = event["usage"]["prompt_tokens"]
            self.total_ms = elapsed_ms


def paragraph(text):
    return textwrap.fill(" ".join(text.split()), 100, initial_indent="    ", subsequent_indent="    ")


def main():
    port = int(sys.argv[1])
    wait_until_ready(port)
    model = json.load(request(port, "GET", "/v1/models"))["data"][0]["id"]
    barrier = threading.Barrier(len(PROMPTS))
    completions = [Completion(port, model, prompt, barrier) for prompt in PROMPTS]
    for completion in completions:
        completion.start()
    for completion in completions:
        completion.join()

    failed = [c.error for c in completions if c.error]
    if failed:
        sys.exit("demo: " + "; ".join(failed))
    for c in completions:
        shown = c.prompt if len(c.prompt) <= 110 else "... " + c.prompt[-100:].split(" ", 1)[1]
        print(f"{shown}\n{paragraph(c.text)}\n")
    print(f"{len(completions)} requests at once, {SAMPLING['max_tokens']} tokens at most:\n")
    print("prompt tokens   TTFT ms   total ms")
    for c in completions:
        print(f"{c.prompt_tokens:13d} {c.ttft_ms:9.1f} {c.total_ms:10.1f}")


if __name__ == "__main__":
    main()
