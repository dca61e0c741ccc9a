"""`asap plan` of the real binary: the table, the JSON, --validate on real processes, and what it refuses."""

import json
import pathlib
import tempfile

from support import TINY, main, run_asap

SMALL = ("--lengths", "constant:1024", "--duration", 4, "--keep", 2, "--num-hidden-layers", 4, "--preset",
         "deepseek-v3.2", "--slo-tolerance", 0.2)


def plan(*flags):
    """(JSON, stdout)."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out.json"
        code, out, err = run_asap("plan", *SMALL, *flags, "--output-file", output)
        assert code == 0, err
        return json.loads(output.read_text()), out


def test_a_plan():
    found, out = plan("--num-devices", 6, "--request-rate", 20, "--engines", "asap,paper", "--stages", "2,3")
    best = found["best"][0]
    assert found["meets_slo"] and best["meets_slo"], out
    assert f"best for mean TTFT <= 5000 ms at 20 requests/s: {best['name']}" in out, out
    assert "best" in found and len(found["paper_geometry"]) == 2, found
    assert best["slo_request_rate"] >= 20 and best["at_demand"]["finished"] > 20, best
    for row in found["best"] + found["paper_geometry"]:
        assert row["name"] in out, out


def test_a_goal_out_of_reach():
    found, out = plan("--num-devices", 4, "--request-rate", 20, "--slo-ttft-ms", 1,
                      "--engines", "asap", "--stages", 3)
    assert not found["meets_slo"], found
    assert "no plan of 4 devices meets mean TTFT <= 1 ms at 20 requests/s, nor at any lower rate; nearest" in out, out
    found, out = plan("--num-devices", 4, "--request-rate", 2000, "--slo-ttft-ms", 300, "--engines",
                      "asap", "--stages", 3)
    assert "nearest: asap" in out and "which meets it up to" in out, out
    assert 0 < found["best"][0]["slo_request_rate"] < 2000, out


def test_validation_runs_the_plan_for_real():
    """The profile is of another machine: what counts is that the plan runs and both columns are there."""
    found, out = plan("--num-devices", 3, "--request-rate", 5, "--length-divisor", 8, "--max-num-batched-tokens", 512,
                      "--max-num-seqs", 16, "--engines", "asap", "--validate", TINY)
    measured = found["validation"]
    assert measured["finished"] == measured["requests"] > 5, out
    assert measured["ttft_ms"]["mean"] > 0 and "mean" in measured["error_percent"], measured
    assert "predicted     measured" in out, out


def test_refusals():
    cases = [
        (("--num-devices", 1), 2, "between 2 and 256"),
        (("--stages", "2,9"), 2, "--stages 9"),
        (("--engines", "asap,vllm"), 2, "--engines vllm"),
        (("--native-rate",), 2, "--request-rate"),
        (("--request-rate", "nan"), 2, "nan is not a number"),
        (("--slo-ttft-ms", 0), 2, "--slo-ttft-ms"),
        (("--device-memory-gb", 1), 2, "no instance of 32 devices fits"),
        (("--profile", "nowhere"), 3, "cm384-deepseek-v3.2"),
        (("--validate", TINY, "--validate-layers", 2), 2, "--validate-layers"),
    ]
    for flags, code, words in cases:
        got, out, err = run_asap("plan", "--duration", 2, *flags)
        assert got == code and words in out + err, (flags, got, out, err)


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
