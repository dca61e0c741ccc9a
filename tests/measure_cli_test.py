"""The commands that measure: load from shipped traces on a real server, and their refusals. Standard library only."""

import json
import pathlib
import tempfile
import xml.dom.minidom

from support import Server, main, run_asap


def test_a_shipped_trace_by_its_name():
    """W0, its lengths divided for a small model, sent to a real server."""
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        output = pathlib.Path(folder) / "out.json"
        code, out, err = run_asap(
            "bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}", "--trace", "W0",
            "--length-divisor", 64, "--request-rate", 20, "--num-prompts", 12, "--output-file", output)
        assert code == 0, err
        result = json.loads(output.read_text())
        assert result["trace"].endswith("traces/asap_lognormal_le32k.csv"), result["trace"]
        assert result["finished"] == result["requests"] == 12, out
        assert 0 < result["ttft_ms"]["mean"] <= result["ttft_ms"]["max"], out


def test_a_report_of_what_was_measured():
    """From a real server's load to a page: numbers, a chart, nothing that has to be fetched."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with Server() as server:
            code, out, err = run_asap(
                "bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}", "--trace", "W0",
                "--length-divisor", 64, "--request-rate", 20, "--num-prompts", 8,
                "--output-file", folder / "here.json")
            assert code == 0, err
        code, out, err = run_asap("reproduce", "--only", "measured", "--measured", folder / "here.json",
                                  "--output", folder / "report")
        assert code == 0, err
        page = (folder / "report/report.html").read_text()
        mean = json.loads((folder / "here.json").read_text())["ttft_ms"]["mean"]
        assert f"{mean:,.1f}" in page and "measured here" in page, page
        assert "<script" not in page and "src=" not in page
        xml.dom.minidom.parse(str(folder / "report/measured.svg"))
        xml.dom.minidom.parseString(page)
        report = json.loads((folder / "report/report.json").read_text())
        assert [section["id"] for section in report["sections"]] == ["measured"], report


def test_a_report_refuses_what_is_not_there():
    code, _, err = run_asap("reproduce", "--only", "measured", "--measured", "/nonexistent.json")
    assert code == 3 and "/nonexistent.json" in err, err
    code, _, err = run_asap("reproduce", "--only", "everything")
    assert code == 2 and "headline" in err, err


def test_a_trace_that_is_nowhere():
    code, _, err = run_asap("bench", "serve", "--trace", "W7")
    assert code == 3, err
    assert "W7" in err and "W0 (asap_lognormal_le32k.csv)" in err, err


if __name__ == "__main__":
    main({name[5:]: value for name, value in list(globals().items()) if name.startswith("test_")})
