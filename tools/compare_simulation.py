#!/usr/bin/env python3
"""Simulated against real: the same engines, geometry and requests through `asap simulate` and through a real server of
this machine, side by side. The error of the simulator is the last column; the real column compares the engines.

    tools/compare_simulation.py --profile here.toml --rates 3,6,9            # kernels of this machine; see asap calibrate
    tools/compare_simulation.py --profile cm384-deepseek-v3.2 --time-scale 10 --engines paper --rates 1,8 \\
        --shape 4,4,16 --seconds 60 --length-divisor 1                    # priced kernels, 32 devices, slowed down

Rates, times and --seconds are those of the model that is simulated: a slowed run lasts --time-scale times longer.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/asap"))
    parser.add_argument("--profile", required=True, help="cost profile: a built-in's name or a file")
    parser.add_argument("--engines", default="asap,default,chunked")
    parser.add_argument("--shape", default="1,1,1", help="D,T,E of the asynchronous engines")
    parser.add_argument("--lockstep-shape", help="D,T of the synchronous ones; default: 2,1 for 1,1,1, else twice D")
    parser.add_argument("--rates", default="1,2,4", help="requests per second")
    parser.add_argument("--trace", default="W0")
    parser.add_argument("--length-divisor", type=float, default=32)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--repeats", type=int, default=1, help="on other rows of the trace")
    parser.add_argument("--time-scale", type=float, default=0, help="priced kernels, slowed down so many times")
    parser.add_argument("--max-num-batched-tokens", type=int, default=0, help="S of asap; 0: the engine's own")
    parser.add_argument("--chunk", type=int, default=0, help="--chunked-prefill-size; 0: 8192 / --length-divisor")
    parser.add_argument("--max-model-len", type=int, default=0, help="0: 32768 / --length-divisor, and a little")
    parser.add_argument("--output", help="JSON with all figures")
    return parser.parse_args()


def engine_flags(args, engine):
    """Flags that simulate and serve share."""
    d, t, e = (int(x) for x in args.shape.split(","))
    flags = ["--scheduler", engine]
    if engine in ("default", "chunked"):
        d, t = (int(x) for x in (args.lockstep_shape or f"{2 * d},{t}").split(","))
        flags += ["--dp", d, "--tp", t]
        if engine == "chunked":
            flags += ["--chunked-prefill-size", args.chunk or max(64, round(8192 / args.length_divisor))]
        flags += ["--max-num-batched-tokens", max(64, round(3072 / args.length_divisor))]
    else:
        flags += ["--dp", d, "--tp", t, "--num-moe-ranks", e]
        if args.max_num_batched_tokens:
            flags += ["--max-num-batched-tokens", args.max_num_batched_tokens]
        if len(os.sched_getaffinity(0)) < d * t + 3 * e + 1 and not args.time_scale:
            flags += ["--no-overlap"]  # as the real engine does where cores are short
    return [str(flag) for flag in flags]


def run_json(args, *command):
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "out.json"
        done = subprocess.run([args.binary, *map(str, command), "--output-file", output], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(output.read_text())


def workload(args, rate, repeat, scale):
    return ["--trace", args.trace, "--length-divisor", args.length_divisor, "--request-rate", rate / scale,
            "--duration", args.seconds * scale, "--row-offset", 2000 * repeat]


def main():
    args = arguments()
    os.environ["ASAP_BINARY"] = os.path.abspath(args.binary)
    from support import Server  # reads the variable

    profile = args.profile if not os.path.exists(args.profile) else os.path.abspath(args.profile)
    scale = args.time_scale or 1
    longest = args.max_model_len or int(32768 / args.length_divisor) + 64
    import tomllib
    if os.path.exists(profile):
        model = tomllib.loads(pathlib.Path(profile).read_text())["model"]
    else:
        model = tomllib.loads((ROOT / f"profiles/{profile}.toml").read_text())["model"]
    serve = ["--preset", model["preset"], "--hf-overrides", model.get("hf_overrides", "{}"), "--load-format", "dummy",
             "--profile", profile, "--max-model-len", longest, "--max-num-seqs", 256, "--threads-per-device", 1,
             "--kv-cache-tokens", 64 * longest]
    if args.time_scale:
        serve += ["--ops", "priced", "--time-scale", scale]
    rows = []
    print(f"{'engine':9} {'rate/s':>7} {'simulated':>10} {'real':>10} {'p99 sim':>9} {'p99 real':>9} {'error':>7}   mean TTFT, ms",
          flush=True)
    for engine in args.engines.split(","):
        flags = engine_flags(args, engine)
        with Server("--served-model-name", "m", *serve, *flags) as server:
            for rate in (float(r) for r in args.rates.split(",")):
                pairs = []
                for repeat in range(args.repeats):
                    simulated = run_json(args, "simulate", "--profile", profile, *flags, "--max-num-seqs", 256,
                                         "--kv-cache-tokens", 64 * longest, *workload(args, rate, repeat, 1),
                                         *([] if args.time_scale or "--max-num-batched-tokens" in flags
                                           else ["--max-num-batched-tokens", 2048]))
                    real = run_json(args, "bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}",
                                    "--token-ids", "1:250", *workload(args, rate, repeat, scale),
                                    "--grace", 60 * scale)
                    assert real["finished"] == real["requests"], real
                    pairs.append((simulated["ttft_ms"], {k: v / scale for k, v in real["ttft_ms"].items()}))
                mean = [statistics.mean(p[i]["mean"] for p in pairs) for i in (0, 1)]
                p99 = [statistics.mean(p[i]["p99"] for p in pairs) for i in (0, 1)]
                error = mean[0] / mean[1] - 1
                print(f"{engine:9} {rate:7.2f} {mean[0]:10.1f} {mean[1]:10.1f} {p99[0]:9.1f} {p99[1]:9.1f} {100 * error:6.1f}%",
                      flush=True)
                rows.append({"engine": engine, "rate": rate, "simulated_ms": mean[0], "real_ms": mean[1],
                             "simulated_p99_ms": p99[0], "real_p99_ms": p99[1], "error": error,
                             "repeats": [{"simulated": a, "real": b} for a, b in pairs]})
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
