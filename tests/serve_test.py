"""asap serve as clients see it: many requests at once, broken ones, streams. Standard library only."""

import http.client
import json
import os
import pathlib
import random
import tempfile
import time

from support import Server, TINY, main, run_asap, together


def test_many_requests_of_all_lengths():
    """64 concurrent requests of 1 to 4,000 tokens all return, each with its own answer."""
    random.seed(7)
    lengths = [1, 2, 3999, 4000] + [int(4000 ** random.random()) for _ in range(60)]
    prompts = [[2 + (7 * n + i) % 4000 for i in range(length)] for n, length in enumerate(lengths)]
    longer = ["--max-model-len", 4200, "--hf-overrides", '{"max_position_embeddings": 4200}']  # than the model was made for
    with Server("--dp", 2, "--tp", 1, "--num-moe-ranks", 2, *longer) as server:
        begin = time.monotonic()
        answers = together([lambda p=p: server.complete(p, max_tokens=2) for p in prompts])
        seconds = time.monotonic() - begin
        assert all(status == 200 for status, _ in answers), answers
        for prompt, (_, body) in zip(prompts, answers):
            assert body["usage"]["prompt_tokens"] == len(prompt)
            assert len(body["choices"][0]["token_ids"]) == 2
        # The same prompt alone gives the same tokens: nobody got another's answer.
        for n in (0, 5, 40):
            alone = server.complete(prompts[n], max_tokens=2)[1]["choices"][0]["token_ids"]
            assert alone == answers[n][1]["choices"][0]["token_ids"]
        print(f"  64 requests, {sum(lengths)} prompt tokens in {seconds:.1f} s")


def test_broken_requests_get_an_error_and_the_server_goes_on():
    with Server("--num-moe-ranks", 2, "--served-model-name", "tiny") as server:
        ok = {"model": "tiny", "prompt": [1, 2, 3], "max_tokens": 1}
        cases = [
            ({"raw": "{not json"}, 400, "JSON"),
            ({"raw": ""}, 400, ""),
            ({"raw": "[1,2]"}, 400, ""),
            ({"body": {**ok, "model": "other"}}, 404, "other"),
            ({"body": {**ok, "prompt": [5] * 2000}}, 400, "1024"),
            ({"body": {**ok, "max_tokens": -1}}, 400, "max_tokens"),
            ({"body": {**ok, "max_tokens": "many"}}, 400, "max_tokens"),
            ({"body": {**ok, "prompt": []}}, 400, "prompt"),
            ({"body": {**ok, "prompt": [99999]}}, 400, "99999"),
            ({"body": {**ok, "temperature": -1}}, 400, "temperature"),
            ({"raw": json.dumps({**ok, "prompt": "x" * (17 << 20)})}, 413, ""),
            ({"raw": "[" * 100000}, 400, ""),
        ]
        for arguments, expected, words in cases:
            status, body = server.request("POST", "/v1/completions", **arguments)
            name = str(arguments)[:80]
            assert status == expected, (name, status, body)
            error = body["error"]
            assert words in error["message"] and error["code"] == expected, (name, error)
            assert isinstance(error["type"], str), (name, error)
            status, body = server.request("POST", "/v1/completions", ok)
            assert status == 200, (name, body)
        assert server.request("GET", "/nowhere")[0] == 404


def test_stream_gives_the_same_tokens():
    with Server("--dp", 2, "--num-moe-ranks", 1) as server:
        prompt = "Once upon a time there was a"
        fields = {"temperature": 0.7, "seed": 11}
        whole = server.complete(prompt, max_tokens=30, **fields)[1]["choices"][0]
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(
            {"prompt": prompt, "max_tokens": 30, "stream": True, "ignore_eos": True,
             "stream_options": {"include_usage": True}, **fields}))
        response = connection.getresponse()
        assert response.status == 200
        assert response.getheader("Content-Type").startswith("text/event-stream")
        events = [line[6:] for line in response.read().decode().split("\n")
                  if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        parsed = [json.loads(event) for event in events[:-1]]
        text = "".join(e["choices"][0]["text"] for e in parsed if e["choices"])
        assert text == whole["text"]
        assert parsed[-1]["choices"] == [] and parsed[-1]["usage"]["completion_tokens"] == 30


def test_models_metrics_and_probes():
    with Server("--dp", 2, "--num-moe-ranks", 2) as server:
        status, models = server.request("GET", "/v1/models")
        assert status == 200 and models["data"][0]["id"] == TINY.name
        assert models["data"][0]["max_model_len"] == 1024
        assert server.request("GET", "/health")[0] == 200
        assert server.request("GET", "/ready")[0] == 200
        assert server.complete([1, 2, 3], max_tokens=4)[0] == 200
        status, text = server.request("GET", "/metrics")
        assert status == 200
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[:1] not in ("#", ""))
        def value(name):
            return sum(float(v) for k, v in lines.items() if k.split("{")[0] == name)
        assert value("asap:prompt_tokens_total") == 3, text
        assert value("asap:generation_tokens_total") == 4, text
        assert value("asap:time_to_first_token_seconds_count") == 1, text
        peers = server.peers()
        assert len(peers) == 4 and {p["state"] for p in peers} == {"ready"}, peers
        assert {p["role"] for p in peers} == {"attention", "moe"}


CHATML = """{% for message in messages %}
{{ bos_token if loop.first }}<{{ message.role }}>{{ message.content }}
{% endfor %}
{% if add_generation_prompt %}<assistant>{% endif %}"""


def copy_without_template(folder):
    for path in TINY.iterdir():
        if path.name != "chat_template.jinja":
            os.symlink(path, os.path.join(folder, path.name))


def chat_copy(folder):
    """The bundled model with another chat template of its own."""
    copy_without_template(folder)
    pathlib.Path(folder, "chat_template.jinja").write_text(CHATML)


def test_the_bundled_model_takes_chats():
    """Its template joins the messages to a beginning that the model goes on from."""
    fields = {"max_tokens": 8, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
    with Server() as server:
        messages = [{"role": "system", "content": "A tale."}, {"role": "user", "content": "There was once a king who"}]
        status, chat = server.request("POST", "/v1/chat/completions", {"messages": messages, **fields})
        assert status == 200, chat
        status, whole = server.complete("A tale.\n\nThere was once a king who", max_tokens=8)
        assert status == 200 and chat["choices"][0]["token_ids"] == whole["choices"][0]["token_ids"], (chat, whole)
        assert chat["choices"][0]["message"]["content"] == whole["choices"][0]["text"] != "", chat


def test_chat_through_the_models_own_template():
    messages = [{"role": "system", "content": "Tell tales."}, {"role": "user", "content": [{"type": "text", "text": "A king?"}]}]
    prompt = "<|begin_of_text|><system>Tell tales.\n<user>A king?\n<assistant>"
    with tempfile.TemporaryDirectory(prefix="asap-chat-") as folder:
        chat_copy(folder)
        with Server("--num-moe-ranks", 2, model=folder) as server:
            fields = {"max_tokens": 12, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
            status, chat = server.request("POST", "/v1/chat/completions", {"messages": messages, **fields})
            assert status == 200, chat
            assert chat["object"] == "chat.completion" and chat["choices"][0]["message"]["role"] == "assistant"
            # The same as the completion of the text that the template makes.
            status, whole = server.request("POST", "/v1/completions",
                                           {"prompt": prompt, "add_special_tokens": False, **fields})
            assert status == 200, whole
            for field in ("token_ids", "prompt_token_ids"):
                assert chat["choices"][0][field] == whole["choices"][0][field], field
            assert chat["choices"][0]["message"]["content"] == whole["choices"][0]["text"]
            assert chat["usage"] == whole["usage"]
            assert chat["choices"][0]["prompt_token_ids"][0] == 0  # one BOS, written by the template
            assert chat["choices"][0]["prompt_token_ids"].count(0) == 1
        code, out, error = run_asap("run", folder, "--prompt", "A king?", "--chat", "--max-tokens", 4, "--json", "--in-process")
        assert code == 0, error
        chatted = json.loads(out)["token_ids"]
        code, out, error = run_asap("run", folder, "--prompt", "A king?", "--max-tokens", 4, "--json", "--in-process")
        assert code == 0, error
        assert chatted != json.loads(out)["token_ids"]


def test_chat_template_flag_and_its_absence():
    with tempfile.TemporaryDirectory(prefix="asap-chat-") as folder:
        copy_without_template(folder)
        with Server(model=folder) as server:
            status, body = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]})
            assert status == 400 and "--chat-template" in body["error"]["message"], body
        code, _, error = run_asap("run", folder, "--prompt", "x", "--chat")
        assert code == 3 and "--chat-template" in error, (code, error)
    with tempfile.TemporaryDirectory(prefix="asap-chat-") as folder:
        path = pathlib.Path(folder, "mine.jinja")
        path.write_text(CHATML)
        with Server("--chat-template", path) as server:
            status, body = server.request("POST", "/v1/chat/completions",
                                          {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
            assert status == 200 and body["usage"]["completion_tokens"] == 2, body
        path.write_text("a\n{% if %}")
        code, _, error = run_asap("serve", "--chat-template", path, "--port", 0)
        assert code == 2 and "line 2" in error and "mine.jinja" in error, (code, error)


def test_logprobs():
    with Server() as server:
        body = server.complete("The old woman", max_tokens=3, logprobs=4)[1]
        logprobs = body["choices"][0]["logprobs"]
        assert len(logprobs["tokens"]) == 3 and len(logprobs["top_logprobs"]) == 3
        for chosen, top in zip(logprobs["token_logprobs"], logprobs["top_logprobs"]):
            assert chosen <= 0 and abs(chosen - max(top.values())) < 1e-6  # greedy


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
