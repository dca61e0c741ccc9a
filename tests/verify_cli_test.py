"""asap verify: every golden passes, in one process and as worker processes; what is wrong with a golden or an engine is
seen and said. Standard library only."""

import json
import os
import pathlib
import shutil
import struct
import tempfile

from support import GOLDEN, main, run_asap


def verify(directory, *flags, timeout=280):
    """(exit code, rows, stderr) of one asap verify."""
    code, out, err = run_asap("verify", directory, "--format", "json", *flags, timeout=timeout)
    return code, json.loads(out) if out else None, err


def copy_of(name, folder):
    return pathlib.Path(shutil.copytree(GOLDEN / name, pathlib.Path(folder) / name))


def test_all_goldens():
    code, rows, err = verify(GOLDEN)
    names = {path.name for path in GOLDEN.iterdir() if (path / "golden.json").exists()}
    failed = [row for row in rows if not row["passed"]]
    assert code == 0 and not failed, (failed, err)
    assert {row["checkpoint"] for row in rows} == names
    for name in names:
        mine = [row for row in rows if row["checkpoint"] == name]
        kinds = {(row["ops"], row["dtype"], row["geometry"].split()[0]) for row in mine}
        assert len(kinds) == 6, (name, kinds)
        assert {row["config"] for row in mine} > {"config.json"}, (name, "no alternative configuration")
    print(f"  {len(rows)} engines on {len(names)} goldens")


def test_errors_are_what_another_program_computes():
    """The logits of asap run, compared with golden.f32 here, are as far off as verify says."""
    name = "qwen3_moe"
    golden = json.loads((GOLDEN / name / "golden.json").read_text())
    data = (GOLDEN / name / "golden.f32").read_bytes()
    worst = 0
    for case in golden["cases"]:
        count, = case["logits"]["shape"]
        expected = struct.unpack_from(f"<{count}f", data, 4 * case["logits"]["offset"])
        with tempfile.NamedTemporaryFile() as file:
            code, _, err = run_asap("run", GOLDEN / name, "--tokens", ",".join(map(str, case["prompt"])),
                                    "--max-tokens", 1, "--dtype", "bfloat16", "--in-process",
                                    "--dump-logits", file.name)
            assert code == 0, err
            got = struct.unpack(f"<{count}f", file.read())
        worst = max(worst, max(abs(a - b) for a, b in zip(got, expected)) / max(map(abs, expected)))
    _, rows, _ = verify(GOLDEN / name)
    row, = [r for r in rows if (r["ops"], r["dtype"]) == ("cpu", "bfloat16")
            and r["geometry"].startswith("in process")]
    assert abs(row["logits_error"] - worst) < 1e-6, (row["logits_error"], worst)


def test_wrong_expectations_fail():
    """A golden whose logits, tokens or configuration do not belong to its weights does not pass."""
    with tempfile.TemporaryDirectory() as folder:
        logits = copy_of("qwen3_moe_tied_v5", folder)
        golden = json.loads((logits / "golden.json").read_text())
        data = bytearray((logits / "golden.f32").read_bytes())
        at = 4 * golden["cases"][1]["logits"]["offset"]
        struct.pack_into("<f", data, at, struct.unpack_from("<f", data, at)[0] + 1)
        (logits / "golden.f32").write_bytes(data)
        code, rows, _ = verify(logits)
        assert code == 1 and not any(row["passed"] for row in rows), rows
        assert all("logits error" in row["problem"] for row in rows), rows

        tokens = copy_of("qwen3_moe", folder)
        golden = json.loads((tokens / "golden.json").read_text())
        golden["cases"][2]["greedy"][3] ^= 1
        (tokens / "golden.json").write_text(json.dumps(golden))
        config = json.loads((tokens / "config_v5.json").read_text())
        config["norm_topk_prob"] = not config["norm_topk_prob"]
        (tokens / "config_v5.json").write_text(json.dumps(config))
        code, rows, _ = verify(tokens)
        assert code == 1
        assert not any(row["passed"] for row in rows if row["dtype"] == "float32"), rows
        for row in rows:
            if row["passed"]:  # this token's margin is below what bfloat16 resolves
                assert row["greedy_required"] < row["greedy_total"], row
                continue
            word = "logits error" if row["config"] == "config_v5.json" else "generated token 3 is"
            assert word in row.get("problem", ""), row
            assert row["greedy_equal"] < row["greedy_total"], row


def test_reports_and_filter():
    code, out, err = run_asap("verify", GOLDEN, "--filter", "tied", "--format", "markdown")
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].startswith("| checkpoint | family |") and lines[-1] == "10 of 10 passed", out
    assert all(line.count("|") == 10 for line in lines[:12]), out
    assert "qwen3_moe_tied_v5 config_v4.json" in out and "qwen3_moe_tied_v5" in err
    code, out, err = run_asap("verify", GOLDEN / "qwen3_moe_tied_v5")
    assert code == 0 and "24/24" in out and "processes D2 T5 E2" not in out, out


def test_what_cannot_be_verified_is_said():
    with tempfile.TemporaryDirectory() as folder:
        broken = copy_of("qwen3_moe", folder)
        (broken / "golden.json").write_text('{"format": "golden-1"}')
        truncated = copy_of("qwen3_moe_tied_v5", folder)
        os.truncate(truncated / "golden.f32", 64)
        cases = [
            ([folder + "/nowhere"], 3, "no such folder"),
            ([GOLDEN / "tokenizers"], 3, "golden.json"),
            ([GOLDEN, "--filter", "nothing-like-it"], 3, "nothing-like-it"),
            ([broken], 2, "golden.json"),
            ([truncated], 2, "golden.f32 holds 16"),
            ([GOLDEN, "--format", "xml"], 2, "xml"),
            ([], 2, "directory"),
        ]
        for arguments, expected, words in cases:
            code, out, err = run_asap("verify", *arguments)
            assert (code, out) == (expected, "") and words in err, (arguments, code, err)
            assert len(err.splitlines()) <= 3, err
        # A model that cannot be loaded makes a line like any other.
        model = copy_of("qwen3_moe_sparse_step", folder)
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps({**config, "model_type": "gpt9"}))
        code, rows, _ = verify(model)
        assert code == 1 and len(rows) == 1 and "gpt9" in rows[0]["problem"], rows


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
