#!/usr/bin/env python3
"""What a server does under more load than it can take: goodput, refusals and TTFT at multiples of its peak.

Finds the request rate at which goodput (requests whose first token comes within --ttft-ms) is highest, by doubling from
--start-rate, then offers multiples of it. The server is the real binary with kernels that only take their time (--ops
priced), so the figures say what admission and scheduling do, not how fast this machine computes.

  tools/overload.py --asap build/release/asap [--ttft-ms 2000] [--factors 1,2,3] [-- FLAGS OF asap serve]
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(SOURCE / "tests"))

PRICED = ["--preset", "deepseek-v3.2", "--num-hidden-layers", "4", "--load-format", "dummy", "--ops", "priced",
          "--profile", "cm384-deepseek-v3.2", "--dp", "2", "--tp", "1", "--max-model-len", "32768"]


def measure(asap, port, rate, args, folder):
    out = pathlib.Path(folder, "figures.json")
    subprocess.run([asap, "bench", "serve", "--base-url", f"http://127.0.0.1:{port}", "--request-rate", str(rate),
                    "--duration", str(args.seconds), "--lengths", args.lengths, "--max-tokens", "1", "--token-ids", "1:200",
                    "--goodput-ttft-ms", str(args.ttft_ms), "--output-file", str(out), "--max-connections", "20000"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(out.read_text())


def show(name, rate, f):
    refusal = f.get("refusal_ms", {})
    print(f"{name:<8}{rate:>9.1f}{f['goodput']['request_rate']:>9.1f}{f['finished']:>9}{f['refused']:>9}"
          f"{f['failed'] + f['unfinished']:>7}{f['ttft_ms']['p50']:>10.0f}{f['ttft_ms']['p99']:>10.0f}"
          f"{refusal.get('p50', 0):>10.2f}{refusal.get('p99', 0):>10.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asap", default=str(SOURCE / "build/release/asap"))
    parser.add_argument("--ttft-ms", type=float, default=2000)
    parser.add_argument("--factors", default="1,2,3")
    parser.add_argument("--start-rate", type=float, default=4)
    parser.add_argument("--seconds", type=float, default=15, help="of arrivals, per rate")
    parser.add_argument("--lengths", default="lognormal:7.6:1.2:32:30000")
    parser.add_argument("flags", nargs="*", help="of asap serve, after --; default: a priced DeepSeek instance")
    args = parser.parse_args()
    os.environ["ASAP_BINARY"] = args.asap
    from support import Server  # reads ASAP_BINARY
    admission = ["--max-queued-s", str(0.7e-3 * args.ttft_ms)]
    with Server(*(args.flags or PRICED), *admission) as server, tempfile.TemporaryDirectory() as folder:
        print(f"goodput: first token within {args.ttft_ms:.0f} ms; admission {' '.join(admission)}")
        print(f"{'load':<8}{'offered':>9}{'goodput':>9}{'finished':>9}{'refused':>9}{'lost':>7}{'TTFT p50':>10}"
              f"{'p99 ms':>10}{'refusal':>10}{'p99 ms':>10}")
        rate, peak, at = args.start_rate, 0.0, 0.0
        while True:
            figures = measure(args.asap, server.port, rate, args, folder)
            show("search", rate, figures)
            if figures["goodput"]["request_rate"] < 1.05 * peak:
                break
            peak, at = figures["goodput"]["request_rate"], rate
            rate *= 1.5
        peak = max(peak, figures["goodput"]["request_rate"])
        worst = 1.0
        for factor in map(float, args.factors.split(",")):
            figures = measure(args.asap, server.port, factor * peak, args, folder)
            show(f"{factor:g}x", factor * peak, figures)
            if factor > 1:
                worst = min(worst, figures["goodput"]["request_rate"] / peak)
        print(f"peak goodput {peak:.1f} requests/s; under overload at least {100 * worst:.0f} % of it")


if __name__ == "__main__":
    main()
