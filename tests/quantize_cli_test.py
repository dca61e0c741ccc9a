"""`asap quantize` and --quantization of the real binary: what is written runs, in worker processes
and in one, and gives the tokens and logits of quantising at load."""

import json
import os
import pathlib
import tempfile

from support import GOLDEN, TINY, Server, main, run_asap


def run_tokens(model, *flags):
    """(greedy token ids, bytes of the logits)."""
    with tempfile.TemporaryDirectory() as folder:
        logits = os.path.join(folder, "logits")
        code, out, err = run_asap("run", model, "--tokens", "5,9,2,77,31,4", "--max-tokens", 8,
                                  "--ignore-eos", "--json", "--dump-logits", logits, *flags)
        assert code == 0, err
        return json.loads(out.splitlines()[-1])["token_ids"], pathlib.Path(logits).read_bytes()


def test_what_is_written_runs_like_quantising_at_load():
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "int8")
        code, out, err = run_asap("quantize", TINY, "--output", output)
        assert code == 0, err
        assert "matrices in int8" in out and "100 %" in err, (out, err)
        print("  " + out.strip())
        before = (TINY / "model.safetensors").stat().st_size
        after = sum(f.stat().st_size for f in pathlib.Path(output).glob("*.safetensors"))
        assert after < 0.75 * before, (before, after)
        code, out, err = run_asap("inspect", output)
        assert code == 0 and "supported   yes" in out, (out, err)

        stored = run_tokens(output, "--in-process", "--num-moe-ranks", 2)
        at_load = run_tokens(TINY, "--in-process", "--num-moe-ranks", 2, "--quantization", "int8")
        assert stored == at_load, (stored[0], at_load[0])
        # The flag reaches workers.
        assert run_tokens(TINY, "--num-moe-ranks", 2, "--quantization", "int8") == stored
        assert run_tokens(TINY, "--num-moe-ranks", 2)[1] != stored[1]
        with Server("--num-moe-ranks", 2, model=output) as server:
            status, body = server.complete("Once upon a time", max_tokens=5)
            assert status == 200 and len(body["choices"][0]["token_ids"]) == 5, body


def test_fused_and_fp8_sources():
    for name in ("qwen3_moe_tied_v5", "deepseek_v3_fp8"):
        with tempfile.TemporaryDirectory() as folder:
            code, _, err = run_asap("quantize", GOLDEN / name, "-o", folder)  # it is empty
            assert code == 0, err
            flags = ("--in-process", "--dtype", "bfloat16")
            assert run_tokens(folder, *flags) == run_tokens(GOLDEN / name, *flags,
                                                            "--quantization", "int8"), name


def test_errors():
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "mine").write_text("x")
        fresh = os.path.join(folder, "new")
        cases = [
            (["quantize", TINY], 2, "--output"),
            (["quantize", TINY, "--output", folder], 2, "holds files"),
            (["quantize", TINY, "--output", TINY], 2, "is the model itself"),
            (["quantize", TINY, "--output", fresh, "--quantization", "int3"], 2, "int3"),
            (["quantize", "/nowhere", "--output", fresh], 3, "/nowhere"),
            (["quantize", GOLDEN / "gpt_oss", "--output", fresh], 4, "--quantization int8"),
            (["run", TINY, "--tokens", "1", "--quantization", "awq"], 2, "awq"),
        ]
        for arguments, code, words in cases:
            got, out, err = run_asap(*arguments)
            assert got == code and words in out + err, (arguments, got, out, err)
        assert os.listdir(folder) == ["mine"]


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
