"""`asap bench kernels`, `asap bench comm` and `asap calibrate` of the real binary: what they print and
write has the promised form, and relations hold that no noise of the machine can turn around."""

import json
import os
import pathlib
import subprocess
import tempfile

from support import ASAP, GOLDEN, TINY, main, run_asap


def run_with_json(*arguments):
    """(stdout, the JSON of --output-file)."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        code, out, err = run_asap(*arguments, "--output-file", path)
        assert code == 0, err
        return out, json.loads(pathlib.Path(path).read_text())


def test_kernels():
    out, result = run_with_json("bench", "kernels", "--quick", "--threads-per-device", 1,
                                "--rounds", 1, "--hf-overrides", '{"num_experts": 32}')
    for word in ("attention of one layer", "1 of 4 expert ranks", "knee at", "FMA loop"):
        assert word in out, out
    assert result["model"] == "qwen3-30b-a3b" and result["clock"] == "CPU time"
    assert result["fma_gflops"] > 0.1
    attention = {row["tokens"]: row for row in result["attention"]}
    assert sorted(attention) == [16, 64, 256]
    # 16 times the tokens: more work, whatever else runs.
    assert attention[256]["median_ms"] > 2 * attention[16]["median_ms"], attention
    for row in result["attention"] + result["experts"]["rows"]:
        assert row["low_ms"] <= row["median_ms"] <= row["high_ms"], row
        assert 0 < row["share"] < 2, row  # of a ceiling, give or take a change of clock
    experts = {row["tokens"]: row for row in result["experts"]["rows"]}
    assert experts[256]["rows"] > 256 and experts[256]["median_ms"] > experts[1]["median_ms"]
    assert 1 <= result["experts"]["knee_tokens"] <= 256
    batches = [(row["sequences"], row["tokens_each"]) for row in result["composition"]]
    assert batches == [(n, 256 // n) for n in (1, 2, 4, 8, 16, 32, 64)], batches
    assert min(row["ratio"] for row in result["composition"]) == 1


def test_gemm_table():
    out, result = run_with_json("bench", "kernels", TINY, "--quick", "--rounds", 1,
                                "--threads-per-device", 1)
    assert "GEMM of bf16 weights" in out, out
    rows = {row["rows"]: row for row in result["gemm"]}
    assert sorted(rows) == [1, 32] and rows[1]["n"] == 768 and rows[1]["k"] == 2048, rows
    # 32 rows share what one row pays for alone.
    assert 0 < rows[1]["share"] < rows[32]["share"] < 2, rows


def test_prefill():
    common = ("bench", "prefill", TINY, "-p", "256,32", "-t", 1, "--rounds", 2)
    out, result = run_with_json(*common)
    assert "tokens/s" in out and "FMA loop" in out, out
    assert result["mode"] == "in process" and result["threads"] == 1
    assert [row["tokens"] for row in result["rows"]] == [32, 256]
    for row in result["rows"]:
        assert row["low_ms"] <= row["median_ms"] <= row["high_ms"], row
        assert 0 < row["share"] < 2 and row["tokens_per_second"] > 0, row
        # All that the agents do is one op or another; the rest is polling.
        assert 0.3 < sum(row["parts"].values()) < 1.05, row
        for op in ("attention", "experts", "router", "dispatch", "combine"):
            assert row["parts"][op] > 0, row
    out, result = run_with_json(*common, "--processes", "--data-parallel-size", 2,
                                "--num-moe-ranks", 2, "--prompts", 4)
    assert result["mode"] == "processes D2 T1 E2" and result["prompts"] == 4
    for row in result["rows"]:
        assert row["parts"]["attention"] > 0 and row["parts"]["experts"] > 0, row


def test_kernels_of_other_models():
    # Latent attention with an indexer, after a dense layer; int8; flags that name sizes.
    _, result = run_with_json("bench", "kernels", GOLDEN / "deepseek_v32", "--lengths", "40,8",
                              "--tokens", "8,16,32", "--batch-tokens", 32, "--rounds", 1,
                              "--num-moe-ranks", 2)
    assert [row["tokens"] for row in result["attention"]] == [8, 40]
    _, result = run_with_json("bench", "kernels", TINY, "--quick", "--quantization", "int8")
    assert result["quantization"] == "int8" and result["attention"][0]["median_ms"] > 0


def test_comm():
    out, result = run_with_json("bench", "comm", "--preset", "qwen3-30b-a3b", "--quick",
                                "--busy-us", 3000)
    assert "dispatch, to 1 expert rank(s), receiver idle" in out, out
    assert len(result["rows"]) == 8
    for row in result["rows"]:
        for link in ("one_sided", "p2p"):
            assert 0 < row[link]["low_us"] <= row[link]["median_us"] <= row[link]["high_us"], row
        # Blocking costs at least the handshake; a busy receiver half of what it computes on average.
        if row["busy_us"] and row["tokens"] == 16:
            assert row["p2p"]["median_us"] > row["one_sided"]["median_us"], row
            assert row["p2p"]["median_us"] > 300, row


def test_calibrate():
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([ASAP, "calibrate", str(TINY), "--quick", "--threads-per-device", "1"],
                              capture_output=True, text=True, timeout=120,
                              env={**os.environ, "XDG_CACHE_HOME": cache})
        assert done.returncode == 0, done.stderr
        assert "measured | fitted" in done.stdout and "100 %" in done.stderr
        files = list(pathlib.Path(cache, "asap/profiles").glob("asap-tiny-moe-*-1t-*.toml"))
        assert len(files) == 1, list(pathlib.Path(cache).rglob("*"))
        text = files[0].read_text()
        for key in ("[attention]", "[experts]", "tau = ", "latency = ", "tensor_parallel_size = 1"):
            assert key in text, text
        values = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
        assert float(values["b"]) > 0 and float(values["m"]) > 0 and float(values["batch"]) > 0
        assert float(values["request"]) > 0 and float(values["launch"]) > 0
        path = os.path.join(cache, "mine.toml")
        code, out, err = run_asap("calibrate", GOLDEN / "qwen3_moe", "--quick", "-q", "int8",
                                  "--output", path)
        assert code == 0 and path in out, err
        assert "-int8" in pathlib.Path(path).read_text()


def test_errors():
    cases = [
        (["bench", "kernels", "--lengths", "1,x"], 2, "--lengths 1,x"),
        (["bench", "kernels", "--tokens", "0"], 2, "--tokens 0"),
        (["bench", "kernels", "--preset", "nothing"], 3, "nothing"),
        (["bench", "kernels", "--hf-overrides", "[]"], 2, "--hf-overrides"),
        (["bench", "comm", "--num-moe-ranks", "99"], 2, "99"),
        (["bench", "comm", "--busy-us", "0"], 2, "busy-us"),
        (["calibrate", TINY, "--quick", "--output", "/proc/none/x.toml"], 1, "/proc/none/x.toml"),
        (["calibrate", "/nowhere"], 3, "/nowhere"),
    ]
    for arguments, code, words in cases:
        got, out, err = run_asap(*arguments)
        assert got == code and words in out + err, (arguments, got, out, err)


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
