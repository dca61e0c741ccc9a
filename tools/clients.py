#!/usr/bin/env python3
"""Runs real clients against a real server and prints what each of them measured, as a table for docs/clients.md.

  tools/clients.py --asap build/release/asap --venvs build/venv-clients [--install] [openai guidellm aiperf vllm]

Each client lives in a virtual environment of its own, which --install makes from tools/clients_requirements/NAME.txt. A
client that does not install, or does not run here, is reported as that; one that runs and gets a wrong answer fails.
"""

import argparse
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests"))
MODEL = SOURCE / "models/asap-tiny-moe"
REQUESTS = 20
CHAT = "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}<assistant>"

OPENAI = """
import openai, sys
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="secret", max_retries=0)
model = client.models.list().data[0].id
whole = client.completions.create(model=model, prompt="Once upon a time", max_tokens=12, temperature=0, logprobs=2,
                                  extra_body={"ignore_eos": True})
assert whole.usage.completion_tokens == 12 and len(whole.choices[0].logprobs.tokens) == 12
events = list(client.completions.create(model=model, prompt="Once upon a time", max_tokens=12, temperature=0, stream=True,
                                        stream_options={"include_usage": True}, extra_body={"ignore_eos": True}))
assert "".join(e.choices[0].text for e in events if e.choices) == whole.choices[0].text
assert events[-1].usage.completion_tokens == 12 and events[-2].choices[0].finish_reason == "length"
messages = [{"role": "user", "content": "Hello"}]
chat = client.chat.completions.create(model=model, messages=messages, max_tokens=8, n=2, seed=1, top_p=0.9)
assert len(chat.choices) == 2 and chat.choices[0].message.role == "assistant"
deltas = list(client.chat.completions.create(model=model, messages=messages, max_tokens=8, stream=True, logprobs=True,
                                             top_logprobs=2))
assert deltas[0].choices[0].delta.role == "assistant" and deltas[-1].choices[0].finish_reason
for wrong, kind in (({"model": "other"}, openai.NotFoundError), ({"max_tokens": -1}, openai.BadRequestError)):
    try:
        client.completions.create(**{"model": model, "prompt": "x", **wrong})
    except kind as error:
        assert error.body["message"]
    else:
        raise AssertionError(wrong)
try:
    openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="wrong", max_retries=0).models.list()
except openai.AuthenticationError:
    print("completions, chat, streams, usage, logprobs, n, errors by class, keys: as expected")
"""


def run(command, folder, seconds=300, **more):
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "secret", "PYTHONUNBUFFERED": "1",
           "TOKENIZERS_PARALLELISM": "false", **more}
    done = subprocess.run([str(part) for part in command], cwd=folder, env=env, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise AssertionError(f"exit {done.returncode}: " + (done.stdout + done.stderr)[-1500:])
    return done.stdout + done.stderr


def openai(venv, url, folder):
    return run([venv / "bin/python", "-c", OPENAI, url], folder).strip().splitlines()[-1]


def guidellm(venv, url, folder):
    run([venv / "bin/guidellm", "run", "--backend",
         f"kind=openai_http,target={url},request_format=/v1/completions,api_key=secret,model={MODEL.name}",
         "--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=8", "--profile", "kind=constant,rate=5",
         "--constraint", f"kind=max_requests,count={REQUESTS}", "--tokenizer", f"kind=huggingface_auto,model={MODEL}",
         "--output", "kind=json,path=guidellm.json"], folder)
    report = json.loads(pathlib.Path(folder, "guidellm.json").read_text())["benchmarks"][0]
    totals = report["metrics"]["request_totals"]
    assert totals["successful"] >= REQUESTS - 1 and totals["errored"] == 0, totals
    ttft = report["metrics"]["time_to_first_token_ms"]["successful"]
    return f"{totals['successful']} of {totals['total']} successful, TTFT median {ttft['median']:.0f} ms"


def aiperf(venv, url, folder):
    # It takes an absolute path for a name on the hub; a folder of that name where it runs is found, but not by its
    # offline mode, which looks into the hub's cache alone.
    pathlib.Path(folder, MODEL.name).symlink_to(MODEL)
    run([venv / "bin/aiperf", "profile", "-m", MODEL.name, "--url", url, "--endpoint-type", "completions", "--streaming",
         "--tokenizer", MODEL.name, "--isl", 64, "--osl", 8, "--request-rate", 5, "--request-count", REQUESTS, "--api-key", "secret",
         "--extra-inputs", "ignore_eos:true", "--ui", "none"], folder, HF_HUB_OFFLINE="")
    found = glob.glob(str(pathlib.Path(folder, "artifacts/**/profile_export_aiperf.json")), recursive=True)
    report = json.loads(pathlib.Path(found[0]).read_text())
    assert report["request_count"]["avg"] == REQUESTS, report["request_count"]
    assert not report.get("error_summary"), report["error_summary"]
    return f"{REQUESTS} of {REQUESTS} requests, TTFT median {report['time_to_first_token']['p50']:.0f} ms"


def vllm(venv, url, folder):
    out = run([venv / "bin/vllm", "bench", "serve", "--backend", "openai", "--base-url", url, "--model", MODEL.name,
               "--tokenizer", MODEL, "--dataset-name", "random", "--random-input-len", 64, "--random-output-len", 8,
               "--request-rate", 5, "--num-prompts", REQUESTS, "--percentile-metrics", "ttft,e2el", "--save-result",
               "--result-filename", "vllm.json"], folder)
    report = json.loads(pathlib.Path(folder, "vllm.json").read_text())
    assert report["completed"] == REQUESTS, out[-1500:]
    assert report["total_output_tokens"] == 8 * REQUESTS, report["total_output_tokens"]
    return f"{report['completed']} of {REQUESTS} requests, TTFT median {report['median_ttft_ms']:.0f} ms"


CLIENTS = {"openai": openai, "guidellm": guidellm, "aiperf": aiperf, "vllm": vllm}


def version_of(venv, name):
    done = subprocess.run([venv / "bin/python", "-c", f"import importlib.metadata as m; print(m.version('{name}'))"],
                          capture_output=True, text=True)
    return done.stdout.strip() or "not installed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asap", default=str(SOURCE / "build/release/asap"))
    parser.add_argument("--venvs", type=pathlib.Path, default=SOURCE / "build/venv-clients")
    parser.add_argument("--install", action="store_true", help="make the virtual environments that are missing")
    parser.add_argument("names", nargs="*", default=list(CLIENTS))
    args = parser.parse_args()
    os.environ["ASAP_BINARY"] = args.asap
    from support import Server  # reads ASAP_BINARY
    failed = 0
    with tempfile.TemporaryDirectory(prefix="asap-clients-") as folder:
        template = pathlib.Path(folder, "chat.jinja")
        template.write_text(CHAT)
        keys = ["--api-key", "secret"]
        with Server("--num-moe-ranks", 2, "--chat-template", template, *keys) as server:
            url = f"http://127.0.0.1:{server.port}"
            print("| client | version | result |\n|---|---|---|")
            for name in args.names:
                venv = args.venvs / name
                if args.install and not (venv / "installed").exists():
                    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
                    if subprocess.run([venv / "bin/pip", "install", "--quiet", "--requirement",
                                       SOURCE / f"tools/clients_requirements/{name}.txt"]).returncode == 0:
                        (venv / "installed").touch()
                version = version_of(venv.resolve(), name)
                if version == "not installed":
                    print(f"| {name} | - | does not install here |", flush=True)
                    continue
                work = pathlib.Path(folder, name)
                work.mkdir()
                try:
                    print(f"| {name} | {version} | {CLIENTS[name](venv.resolve(), url, work)} |", flush=True)
                except (AssertionError, subprocess.TimeoutExpired, OSError, KeyError, IndexError) as error:
                    failed += 1
                    print(f"| {name} | {version} | FAILED: {type(error).__name__}: {str(error)[-1500:]} |", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
