#!/usr/bin/env python3
"""What asynchrony buys on this machine: real engines on the same cores, the same requests for each, interleaved.

    tools/compare_schedulers.py --traces W0,W4 --rates 2,4,6,8,10 --repeats 3 --output-folder runs
    asap reproduce --measured runs/W0-asap.json --measured runs/W0-default.json      # draws the curves

All servers are up at the same time; an idle one sleeps. For each repeat (other rows of the trace), trace and rate the
engines take turns. Printed: mean TTFT, the median of the repeats with their range; and the highest rate with a mean TTFT
within --slo-ttft-ms, between the measured rates by interpolation (log TTFT over rate), per repeat.

An engine is NAME=FLAGS of asap serve; by default each has two groups and all cores of the machine.
"""

import argparse
import contextlib
import json
import math
import os
import pathlib
import statistics
import sys

from compare_simulation import MODEL, run_json

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def default_engines(divisor):
    chunk, batch = max(64, round(8192 / divisor)), max(64, round(3072 / divisor))
    return {
        "asap": "--scheduler asap --dp 2 --tp 1 --num-moe-ranks 2",
        "default": f"--scheduler default --dp 2 --tp 1 --max-num-batched-tokens {batch}",
        "chunked": f"--scheduler chunked --dp 2 --tp 1 --chunked-prefill-size {chunk}",
    }


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/asap"))
    parser.add_argument("--preset", default="olmoe-1b-7b")
    parser.add_argument("--hf-overrides", default=json.dumps(MODEL))
    parser.add_argument("--engine", action="append", metavar="NAME=FLAGS", help="repeat for several; see above")
    parser.add_argument("--traces", default="W0,W4")
    parser.add_argument("--length-divisor", type=float, default=32)
    parser.add_argument("--rates", default="2,4,6,8,10", help="requests per second, ascending; or TRACE:R,R;TRACE:R,R")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--slo-ttft-ms", type=float, default=1000)
    parser.add_argument("--output-folder", help="for one JSON file per trace and engine, as asap bench serve writes them")
    return parser.parse_args()


def rates_of(args, trace):
    chosen = args.rates
    if ":" in chosen:
        chosen = dict(part.split(":") for part in chosen.split(";"))[trace]
    return [float(rate) for rate in chosen.split(",")]


def bench(args, port, trace, rate, repeat):
    run = run_json(args, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--token-ids", "1:250",
                   "--trace", trace, "--length-divisor", args.length_divisor, "--request-rate", rate,
                   "--duration", args.seconds, "--row-offset", 2000 * repeat, "--grace", 120)
    assert run["finished"] == run["requests"], run
    return run


def slo_rate(rates, means, limit):
    """Where the curve crosses the limit; the last rate if it never does, 0 if the first is above it."""
    if means[0] > limit:
        return 0.0
    for low, high in zip(range(len(rates)), range(1, len(rates))):
        if means[high] > limit:
            share = math.log(limit / means[low]) / math.log(means[high] / means[low])
            return rates[low] + share * (rates[high] - rates[low])
    return rates[-1]


def spread(values, digits=0):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def report(args, trace, engines, runs):
    rates = rates_of(args, trace)
    print(f"\n{trace}, lengths / {args.length_divisor:g}: mean TTFT in ms, median of {args.repeats} (range)")
    print(f"{'requests/s':>10} " + " ".join(f"{name:>20}" for name in engines))
    for rate in rates:
        cells = [spread([run["ttft_ms"]["mean"] for run in runs[trace, name, rate]]) for name in engines]
        print(f"{rate:10g} " + " ".join(f"{cell:>20}" for cell in cells))
    limits = {}
    for name in engines:
        per_repeat = [slo_rate(rates, [runs[trace, name, rate][i]["ttft_ms"]["mean"] for rate in rates], args.slo_ttft_ms)
                      for i in range(args.repeats)]
        limits[name] = statistics.median(per_repeat)
        at_end = " at least" if limits[name] >= rates[-1] else ""
        print(f"mean TTFT <= {args.slo_ttft_ms:g} ms, {name}:{at_end} {spread(per_repeat, 2)} requests/s")
    if args.output_folder:
        folder = pathlib.Path(args.output_folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in engines:
            middle = [sorted(runs[trace, name, rate], key=lambda run: run["ttft_ms"]["mean"])[args.repeats // 2]
                      for rate in rates]
            document = {"slo_request_rate": limits[name], "runs": middle,
                        "repeats": [runs[trace, name, rate] for rate in rates]}
            (folder / f"{trace}-{name}.json").write_text(json.dumps(document, indent=1) + "\n")


def main():
    args = arguments()
    os.environ["ASAP_BINARY"] = os.path.abspath(args.binary)
    from support import Server  # reads the variable
    engines = dict(e.split("=", 1) for e in args.engine) if args.engine else default_engines(args.length_divisor)
    longest = int(32768 / args.length_divisor) + 64
    common = ["--served-model-name", "m", "--preset", args.preset, "--hf-overrides", args.hf_overrides, "--load-format", "dummy",
              "--max-model-len", longest, "--max-num-seqs", 256, "--kv-cache-tokens", 64 * longest]
    traces = args.traces.split(",")
    runs = {}
    with contextlib.ExitStack() as stack:
        servers = {name: stack.enter_context(Server(*common, *flags.split())) for name, flags in engines.items()}
        for repeat in range(args.repeats):
            for trace in traces:
                for rate in rates_of(args, trace):
                    for name, server in servers.items():
                        run = bench(args, server.port, trace, rate, repeat)
                        runs.setdefault((trace, name, rate), []).append(run)
                        print(f"repeat {repeat} {trace} {rate:g}/s {name}: mean {run['ttft_ms']['mean']:.0f} ms",
                              file=sys.stderr, flush=True)
    for trace in traces:
        report(args, trace, engines, runs)


if __name__ == "__main__":
    main()
