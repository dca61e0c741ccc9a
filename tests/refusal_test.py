"""Broken checkpoints on the command line: run, serve and inspect each end at once with one clear message and an exit code
that is not zero, also where the files are large. Standard library only."""

import json
import os
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import tempfile
import time

from support import ASAP, GOLDEN, SOURCE, TINY, main

NAN, INFINITY = b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f"
UP = "model.layers.1.mlp.experts.2.up_proj.weight"
SHARD = "model-00002-of-00002.safetensors"


def read_parts(path):
    """(header, data) of a safetensors file."""
    data = path.read_bytes()
    size, = struct.unpack_from("<Q", data)
    return json.loads(data[8:8 + size]), bytearray(data[8 + size:])


def head_bytes(header):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def fill(name, pattern):
    def edit(header, data):
        begin, end = header[name]["data_offsets"]
        data[begin:end] = pattern * ((end - begin) // len(pattern))
    return edit


def replace(name, key, value):
    def edit(header, _):
        header[name][key] = value
    return edit


def rename(old, new):
    def edit(header, _):
        header[new] = header.pop(old)
    return edit


# name, golden, exit code, words of the message, change of (header, data) or of the folder
PARTS = [
    ("overlapping", "qwen3_moe", 2, "overlap", replace(UP, "data_offsets", [0, 1920])),
    ("wrong shape", "qwen3_moe", 2, UP, replace(UP, "shape", [48, 10])),
    ("wrong dtype", "qwen3_moe", 4, "stored as I32", replace(UP, "dtype", "I32")),
    ("missing tensor", "qwen3_moe", 3, "lacks the tensor " + UP, rename(UP, "model.layers.9.spare")),
    ("extra tensor", "qwen3_moe", 4, "model.extra", lambda header, _: header.update(
        {"model.extra": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})),
    ("NaN-filled", "qwen3_moe", 2, UP + " [10, 48] holds NaN", fill(UP, NAN)),
    ("Inf-filled", "qwen3_moe", 2, UP + " [10, 48] holds infinity", fill(UP, INFINITY)),
    ("scale missing", "deepseek_v3_fp8", 3, "block scales", rename(
        "model.layers.1.self_attn.q_a_proj.weight_scale_inv", "model.layers.9.spare")),
]
FOLDERS = [
    ("truncated", "qwen3_moe", 2, "truncated",
     lambda folder: os.truncate(folder / "model.safetensors", 5000)),
    ("huge header", "qwen3_moe", 2, "header claims",
     lambda folder: (folder / "model.safetensors").write_bytes(b"\xff" * 8 + b"{}" * 100)),
    ("missing shard", "deepseek_v3_mtp_shards", 3, SHARD, lambda folder: (folder / SHARD).unlink()),
    ("absent file in the index", "deepseek_v3_mtp_shards", 3, "elsewhere.safetensors",
     lambda folder: (folder / "model.safetensors.index.json").write_text(
         (folder / "model.safetensors.index.json").read_text().replace(SHARD, "elsewhere.safetensors"))),
]


def commands(folder):
    return (["run", folder, "--tokens", "1"], ["run", folder, "--tokens", "1", "--in-process"],
            ["serve", folder, "--port", "0", "--tp", "2", "--num-moe-ranks", "2"], ["inspect", folder])


def expect_refusal(arguments, code, words, name):
    begin = time.monotonic()
    done = subprocess.run([ASAP, *map(str, arguments)], capture_output=True, text=True, timeout=30)
    seconds = time.monotonic() - begin
    lines = done.stderr.splitlines()
    assert done.returncode == code, (name, arguments, done.returncode, done.stderr)
    assert len(lines) == 1 and lines[0].startswith("asap: ") and words in lines[0], (name, lines)
    # A second for the load and some for a busy machine to start a process.
    assert seconds < 2, (name, arguments, seconds)
    return seconds


def test_every_damage_has_one_message():
    slowest = 0
    for name, golden, code, words, edit in PARTS + FOLDERS:
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(shutil.copytree(GOLDEN / golden, pathlib.Path(scratch) / "model"))
            shutil.copy(TINY / "tokenizer.json", folder)  # serve reads it first
            if (name, golden, code, words, edit) in PARTS:
                header, data = read_parts(folder / "model.safetensors")
                edit(header, data)
                (folder / "model.safetensors").write_bytes(head_bytes(header) + data)
            else:
                edit(folder)
            for arguments in commands(folder):
                slowest = max(slowest, expect_refusal(arguments, code, words, name))
    print(f"  {len(PARTS + FOLDERS)} kinds of damage, {len(commands(''))} commands each; "
          f"slowest {slowest * 1e3:.0f} ms")


def make_large(folder, golden="qwen3_moe", width=1 << 20):
    """A checkpoint of 20 GB of holes: the golden with wide experts. Returns its header."""
    config = json.loads((GOLDEN / golden / "config.json").read_text())
    narrow = config["moe_intermediate_size"]
    (folder / "config.json").write_text(json.dumps({**config, "moe_intermediate_size": width}))
    shutil.copy(TINY / "tokenizer.json", folder)
    header, _ = read_parts(GOLDEN / golden / "model.safetensors")
    at = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if ".experts." in name:
            entry["shape"] = [width if size == narrow else size for size in entry["shape"]]
        count = 4
        for size in entry["shape"]:
            count *= size
        entry["data_offsets"] = [at, at + count]
        at += count
    head = head_bytes(header)
    (folder / "model.safetensors").write_bytes(head)
    os.truncate(folder / "model.safetensors", len(head) + at)
    assert at > 20e9, at
    return header, len(head)


def test_large_files_are_not_read():
    """inspect of a sound 20 GB file, and the refusal of a damaged one, take a moment and little memory."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        header, data_at = make_large(folder)
        begin = time.monotonic()
        done = subprocess.run([ASAP, "inspect", folder], capture_output=True, text=True, timeout=30)
        seconds = time.monotonic() - begin
        assert done.returncode == 0 and "supported   yes" in done.stdout, done
        assert seconds < 2, seconds
        with open(folder / "model.safetensors", "r+b") as file:
            file.seek(data_at + header[UP]["data_offsets"][0])
            file.write(NAN)
        for arguments in commands(folder)[1:]:
            # The plan of such a model is small: its KV cache and windows do not depend on experts.
            expect_refusal(arguments, 2, UP, "large and damaged")
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        print(f"  inspect {seconds * 1e3:.0f} ms, largest process {peak / 1024:.0f} MB")
        assert peak < 400 * 1024, peak  # KB


def test_too_little_memory_is_said_before_it_is_taken():
    """A model beyond this machine is refused with sizes and remedies; inspect has the same arithmetic."""
    model = ["--preset", "deepseek-v3.2", "--load-format", "dummy"]
    for arguments in (["run", *model, "--tokens", "1"], ["run", *model, "--tokens", "1", "--in-process"],
                      ["serve", *model, "--port", "0", "--max-model-len", "4096", "--kv-cache-tokens", "8192"],
                      ["bench", "load", *model], ["bench", "prefill", *model, "--num-hidden-layers", "5"]):
        begin = time.monotonic()
        done = subprocess.run([ASAP, *arguments], capture_output=True, text=True, timeout=60)
        line = done.stderr.splitlines()[-1]
        assert done.returncode == 2 and "not enough memory" in line, done
        for words in ("expert rank of ", " GB", "available", "--quantization int8"):
            assert words in line, (words, line)
        assert time.monotonic() - begin < 10
    sizes = {}
    for kind in ("none", "int8"):
        done = subprocess.run([ASAP, "inspect", "--preset", "deepseek-v3.2", "-q", kind], capture_output=True, text=True, timeout=60)
        sizes[kind] = float(done.stdout.split("expert rank of ")[1].split(" GB")[0])
    assert 0.49 < sizes["int8"] / sizes["none"] < 0.55, sizes


def test_an_address_space_that_ends_is_one_error():
    """Where the plan fits but the system gives no more (ulimit -v), a worker's last word is the start's error: no restarts."""
    limit = 3 << 29
    begin = time.monotonic()
    done = subprocess.run([ASAP, "serve", "--preset", "qwen3-30b-a3b", "--num-hidden-layers", "3", "--load-format", "dummy",
                           "--max-model-len", "2048", "--port", "0", "--threads-per-device", "1"],
                          capture_output=True, text=True, timeout=60,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == 2, done
    last = done.stderr.splitlines()[-1]
    assert last.startswith("asap: ") and "no more memory" in last and " GB" in last and "ulimit -v" in last, done.stderr
    assert "epoch" not in done.stderr and "CHECK" not in done.stderr, done.stderr
    assert time.monotonic() - begin < 30


def test_what_is_wrong_beside_the_model_shows_before_it_is_loaded():
    with tempfile.TemporaryDirectory() as scratch, socket.create_server(("127.0.0.1", 0)) as taken:
        nowhere = pathlib.Path(scratch, "no", "such")
        serve = ["serve", TINY, "--port", "0"]
        cases = [
            (["serve", TINY, "--port", taken.getsockname()[1]], 6, "address in use"),
            ([*serve, "--ssl-certfile", nowhere, "--ssl-keyfile", nowhere], 2, "--ssl-certfile"),
            ([*serve, "--ssl-certfile", TINY / "config.json", "--ssl-keyfile", TINY / "config.json"], 2, "--ssl-certfile"),
            ([*serve, "--api-key-file", nowhere], 3, "--api-key-file"),
            ([*serve, "--trace", nowhere], 2, "--trace"),
            ([*serve, "--trace", scratch], 2, "it is a folder"),
            ([*serve, "--port-file", nowhere], 2, "--port-file"),
            ([*serve, "--max-body-mib", "8", "--max-body-mib-total", "4"], 2, "--max-body-mib-total 4"),
            ([*serve, "--max-model-len", "2000"], 2, "max_position_embeddings"),
            ([*serve, "--max-model-len", "1"], 2, "--max-model-len is 1"),
            ([*serve, "--check-config", "--max-model-len", "2000"], 2, "1024 positions"),
            ([*serve, "--api-key", ""], 2, "--api-key"),
            ([*serve, "--preset", ""], 2, "--preset"),
            (["serve", ""], 2, "it is empty"),
            (["serve", nowhere], 3, "no such model directory"),
            (["run", TINY, "--tokens", "1", "--dump-logits", nowhere], 2, "--dump-logits"),
            (["bench", "serve", "--output-file", nowhere], 2, "--output-file"),
            (["simulate", "--trace-file", nowhere], 2, "--trace-file"),
            (["reproduce", "--output", TINY / "config.json" / "x"], 2, "--output"),
        ]
        for arguments, code, words in cases:
            done = subprocess.run([ASAP, *map(str, arguments)], capture_output=True, text=True, timeout=30)
            assert done.returncode == code and words in done.stderr, (arguments, done)
            assert "loading" not in done.stderr and "ready after" not in done.stderr, (arguments, done)
        assert not list(pathlib.Path(scratch).iterdir())
        for name in ("ASAP_API_KEY", "ASAP_ADMIN_API_KEY"):
            done = subprocess.run([ASAP, *map(str, serve)], capture_output=True, text=True, timeout=30, env={**os.environ, name: ""})
            assert done.returncode == 2 and f"{name} is set but empty" in done.stderr, done
        done = subprocess.run([ASAP, *map(str, serve)], capture_output=True, text=True, timeout=30,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
        assert done.returncode == 2 and "ulimit -n" in done.stderr, done


TLS = SOURCE / "tests/tls"


def test_check_config_finds_what_serve_would_find():
    """Each fault twice: serve refuses to start, --check-config says the same; a sound line passes."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        nowhere = scratch / "no" / "such"
        (scratch / "keys").write_text("secret\n")
        (scratch / "keys").chmod(0o644)
        (scratch / "open.jinja").write_text("{% if %}")
        (scratch / "model").mkdir()
        for name in ("config.json", "model.safetensors"):
            os.symlink(TINY / name, scratch / "model" / name)
        sound = ["--ssl-certfile", TLS / "cert.pem", "--ssl-keyfile", TLS / "key.pem", "--crash-dir", scratch / "crash"]
        cases = [
            ([TINY, "--api-key-file", nowhere], 3, f"--api-key-file {nowhere}: No such file or directory; name a file"),
            ([TINY, "--api-key-file", scratch / "keys"], 2, "chmod 600"),
            ([TINY, "--ssl-certfile", TLS / "cert.pem"], 2, "--ssl-keyfile"),
            ([TINY, "--ssl-certfile", nowhere, "--ssl-keyfile", TLS / "key.pem"], 2, f"--ssl-certfile {nowhere}"),
            ([TINY, "--ssl-certfile", TLS / "cert.pem", "--ssl-keyfile", nowhere], 2, f"--ssl-keyfile {nowhere}"),
            ([TINY, "--ssl-certfile", TLS / "cert.pem", "--ssl-keyfile", TLS / "other-key.pem"], 2, "must be the certificate's key"),
            ([TINY, "--crash-dir", "/proc/none"], 2, "--crash-dir"),
            ([TINY, "--trace", nowhere], 2, f"cannot write {nowhere}"),
            ([TINY, "--port-file", nowhere], 2, "--port-file"),
            ([TINY, "--chat-template", nowhere], 2, f"--chat-template: cannot read {nowhere}: No such file or directory; name"),
            ([TINY, "--chat-template", scratch], 2, "it is a folder"),
            ([TINY, "--chat-template", scratch / "open.jinja"], 2, "open.jinja"),
            ([TINY, "--queue-timeout-s", "-1"], 2, "--queue-timeout-s"),
            ([TINY, "--max-body-mib", "8", "--max-body-mib-total", "4"], 2, "--max-body-mib-total 4"),
            ([scratch / "model"], 3, "tokenizer.json"),
        ]
        for flags, code, words in cases:
            for more in ([], ["--check-config"]):
                done = subprocess.run([ASAP, "serve", *map(str, flags), "--port", "0", *more],
                                      capture_output=True, text=True, timeout=30)
                assert done.returncode == code and words in done.stderr, (flags, more, done)
                assert "loading" not in done.stderr and done.stdout == "", (flags, more, done)
        (scratch / "keys").chmod(0o600)
        done = subprocess.run([ASAP, "serve", TINY, "--check-config", "--api-key-file", scratch / "keys", *sound],
                              capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "expert rank" in done.stdout, done
        assert (scratch / "crash").is_dir()  # where reports will go
        with socket.create_server(("127.0.0.1", 0)) as taken:  # the server whose flags are checked may run
            done = subprocess.run([ASAP, "serve", TINY, "--check-config", "--port", str(taken.getsockname()[1])],
                                  capture_output=True, text=True, timeout=30)
            assert done.returncode == 0, done


def test_values_of_the_wrong_kind_are_told_what_is_expected():
    cases = [
        (["serve", "--port", "abc"], "--port: Value abc not in range 0 to 65535"),
        (["serve", "--port", "70000"], "--port: Value 70000 not in range 0 to 65535"),
        (["serve", "--tp", "x"], '--tensor-parallel-size is "x"; it must be a whole number of at most 2147483647 (T: ranks'),
        (["run", "--max-num-seqs", "99999999999"], '--max-num-seqs is "99999999999"; it must be a whole number of at most'),
        (["serve", "--time-scale", "fast"], '--time-scale is "fast"; it must be a number (--ops priced'),
        (["serve", "--stages"], "--stages needs a whole number"),
        (["serve", "--nonsense"], "not expected: --nonsense; asap serve --help"),
        (["bench", "serve", "--nonsense"], "asap bench serve --help"),
        (["serve", "--max-connections", "0"], "0 not in range 1 to"),
        (["serve", "--num-hidden-layers", "99"], "has 5 layers; keep 1 to 5 of them"),
    ]
    for arguments, words in cases:
        expect_refusal(arguments, 2, words, "flags")
    done = subprocess.run([ASAP, "serve", "--help"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and "--port" in done.stdout and done.stderr == "", done


def test_run_checks_its_request_before_the_model_is_loaded():
    """In the names of its flags; the damaged weights would be found first if it loaded them."""
    cases = [
        (["--max-tokens", "0"], "--max-tokens is 0; it must be at least 1"),
        (["--max-tokens", "1024"], "--max-tokens is 1024; behind the prompt's 1 there is room for 1023"),
        (["--max-tokens", "16", "--max-model-len", "16"], "there is room for 15 (--max-model-len 16)"),
        (["--temperature", "-1"], "--temperature is -1; it must be a number of at least 0"),
        (["--temperature", "nan"], "--temperature is nan"),
        (["--tokens", "4096"], "--tokens: 4096 is no token of this model; ids are from 0 to 4095"),
        (["--tokens", ",".join(["7"] * 1024)], "the prompt has 1024 tokens; at most 1023"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(shutil.copytree(TINY, pathlib.Path(scratch) / "model"))
        os.truncate(folder / "model.safetensors", 5000)
        for flags, words in cases:
            tokens = [] if "--tokens" in flags else ["--tokens", "1"]
            expect_refusal(["run", folder, *tokens, *flags], 2, words, "run")


def test_bench_says_how_to_reach_a_server():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    for more in ([], ["--model", "m"]):
        expect_refusal(["bench", "serve", "--base-url", url, *more], 6, "start one (asap serve), or name another with --base-url", "bench")


def test_inspect_reads_the_tokenizer():
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(shutil.copytree(TINY, pathlib.Path(scratch) / "model"))
        done = subprocess.run([ASAP, "inspect", folder], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0 and "tokenizer   4096 tokens" in done.stdout, done
        (folder / "tokenizer.json").write_text('{"model": {"type": "WordPiece"}}')
        done = subprocess.run([ASAP, "inspect", folder], capture_output=True, text=True, timeout=30)
        assert done.returncode in (2, 4) and "tokenizer.json" in done.stderr and "supported   yes" not in done.stdout, done


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
