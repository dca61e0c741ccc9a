#!/usr/bin/env python3
"""Simulated against real: the same engines, geometry and requests through `asap simulate` and through a real server of
this machine, side by side. The error of the simulator is the last column; the real column compares the engines.

    tools/compare_simulation.py --calibrate --rates 2,4,6 --repeats 3       # kernels of this machine, measured around each run
    tools/compare_simulation.py --profile here.toml --rates 3,6,9           # the same by a profile; see asap calibrate
    tools/compare_simulation.py --profile cm384-deepseek-v3.2 --time-scale 10 --engines paper --rates 1,8 \\
        --shape 4,4,16 --seconds 60 --length-divisor 1                    # priced kernels, 32 devices, slowed down

Rates, times and --seconds are those of the model that is simulated: a slowed run lasts --time-scale times longer.

The speed of a shared machine changes within minutes by as much as an error worth finding. So --calibrate measures a profile
before and after each real run, in a few seconds, and what is simulated is the mean of the two.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

# OLMoE's structure, small enough for a request to take a tenth of a second on two cores.
MODEL = {"hidden_size": 512, "intermediate_size": 256, "num_experts": 16, "num_experts_per_tok": 4,
         "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 8}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/asap"))
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--profile", help="cost profile: a built-in's name or a file")
    source.add_argument("--calibrate", action="store_true", help="measure profiles around each run; one device beside, "
                        "one thread per device")
    parser.add_argument("--preset", default="olmoe-1b-7b", help="of --calibrate")
    parser.add_argument("--hf-overrides", default=json.dumps(MODEL), help="of --calibrate")
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


class Profiles:
    """The cost profiles around a real run: one that is given, or two that are measured before and after it."""

    def __init__(self, args, folder):
        self.args, self.folder, self.count = args, pathlib.Path(folder), 0
        self.last = self.measure() if args.calibrate else self.given(args.profile)

    @staticmethod
    def given(name):
        return os.path.abspath(name) if os.path.exists(name) else name

    def measure(self):
        self.count += 1
        path = self.folder / f"{self.count}.toml"
        done = subprocess.run([self.args.binary, "calibrate", "--preset", self.args.preset, "--hf-overrides",
                               self.args.hf_overrides, "--company", "1", "--threads-per-device", "1",
                               "--max-num-batched-tokens", "2048", "--output", path], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return str(path)

    def around(self, run):
        before = self.last
        result = run()
        if self.args.calibrate:
            self.last = self.measure()
        return result, [before, self.last]

    def model(self):
        path = pathlib.Path(self.last)
        if not path.exists():
            path = ROOT / f"profiles/{self.last}.toml"
        return tomllib.loads(path.read_text())["model"]


def mean_of(runs):
    return {key: statistics.mean(run[key] for run in runs) for key in ("mean", "p99")}


def compare(args, profiles, server, flags, rate, repeat):
    """TTFT of the same requests, (simulated, real), each with mean and p99 in milliseconds."""
    scale = args.time_scale or 1

    def serve():
        return run_json(args, "bench", "serve", "--base-url", f"http://127.0.0.1:{server.port}", "--token-ids", "1:250",
                        *workload(args, rate, repeat, scale), "--grace", 60 * scale)

    def simulate(profile):
        batch = [] if args.time_scale or "--max-num-batched-tokens" in flags else ["--max-num-batched-tokens", 2048]
        return run_json(args, "simulate", "--profile", profile, *flags, *batch, "--max-num-seqs", 256, "--kv-cache-tokens",
                        64 * longest(args), *workload(args, rate, repeat, 1))["ttft_ms"]

    real, around = profiles.around(serve)
    assert real["finished"] == real["requests"], real
    return mean_of([simulate(profile) for profile in around]), {k: v / scale for k, v in mean_of([real["ttft_ms"]]).items()}


def longest(args):
    return args.max_model_len or int(32768 / args.length_divisor) + 64


def serve_flags(args, profiles):
    model = profiles.model()
    flags = ["--preset", model["preset"], "--hf-overrides", model.get("hf_overrides", "{}"), "--load-format", "dummy",
             "--profile", profiles.last, "--max-model-len", longest(args), "--max-num-seqs", 256,
             "--threads-per-device", 1, "--kv-cache-tokens", 64 * longest(args)]
    return flags + (["--ops", "priced", "--time-scale", args.time_scale] if args.time_scale else [])


def main():
    args = arguments()
    os.environ["ASAP_BINARY"] = os.path.abspath(args.binary)
    from support import Server  # reads the variable

    rows = []
    print(f"{'engine':9} {'rate/s':>7} {'simulated':>10} {'real':>10} {'p99 sim':>9} {'p99 real':>9} {'error':>7} "
          f"{'of each repeat':>18}   mean TTFT, ms", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        profiles = Profiles(args, folder)
        for engine in args.engines.split(","):
            flags = engine_flags(args, engine)
            with Server("--served-model-name", "m", *serve_flags(args, profiles), *flags) as server:
                for rate in (float(r) for r in args.rates.split(",")):
                    pairs = [compare(args, profiles, server, flags, rate, repeat) for repeat in range(args.repeats)]
                    simulated, real = mean_of([p[0] for p in pairs]), mean_of([p[1] for p in pairs])
                    errors = [100 * (a["mean"] / b["mean"] - 1) for a, b in pairs]
                    error = simulated["mean"] / real["mean"] - 1
                    print(f"{engine:9} {rate:7.2f} {simulated['mean']:10.1f} {real['mean']:10.1f} {simulated['p99']:9.1f} "
                          f"{real['p99']:9.1f} {100 * error:6.1f}% {' '.join(f'{e:.0f}' for e in errors):>18}", flush=True)
                    rows.append({"engine": engine, "rate": rate, "simulated_ms": simulated["mean"],
                                 "real_ms": real["mean"], "simulated_p99_ms": simulated["p99"],
                                 "real_p99_ms": real["p99"], "error": error,
                                 "repeats": [{"simulated": a, "real": b} for a, b in pairs]})
    if args.output:
        pathlib.Path(args.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
