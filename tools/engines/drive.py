"""One engine for tools/compare_engines.py, run by the Python of that engine's virtual environment: loads the model, then
answers lines of JSON on standard input, {"tokens": N} with the seconds of one prompt of N tokens up to the logits of its
last token, and {"check": N} with the logits or the most likely token.

    drive.py llama.cpp|ik_llama.cpp|transformers|vllm FOLDER --threads 2 --context 2048 --setting KEY=VALUE ...
"""

import argparse
import ctypes
import json
import os
import pathlib
import sys
import time

VOCABULARY = 4096


def prompt_of(tokens, seed):
    """Pseudorandom ids, another prompt for each seed: nothing is to be had from a prefix cache."""
    return [(7919 * i * (i + seed) + 104729 * i + 31 * seed) % (VOCABULARY - 2) + 2 for i in range(tokens)]


class LlamaCpp:
    """The C interface, which llama.cpp and its fork share but for some names."""

    def __init__(self, args, setting):
        self.forked = args.engine != "llama.cpp"
        if self.forked:
            import ik_llama_cpp._ctypes_api as c
        else:
            import llama_cpp as c
        self.c = c
        c.llama_backend_init()
        model_params = c.llama_model_default_params()
        if self.forked:
            model_params.repack_tensors = setting.get("repack") == "1"
            model_params.merge_qkv = setting.get("merge") == "1"
            model_params.merge_up_gate_exps = setting.get("merge") == "1"
        if not self.forked or setting.get("repack") == "1":
            model_params.use_mmap = False  # so that weights may be repacked
        path = pathlib.Path(args.folder) / f"{setting.get('weights', 'bf16')}.gguf"
        self.model = c.llama_model_load_from_file(str(path).encode(), model_params)
        params = c.llama_context_default_params()
        params.n_ctx = params.n_batch = args.context
        params.n_ubatch = min(args.context, int(setting.get("ubatch", 512)))
        params.n_threads = params.n_threads_batch = args.threads
        flash = setting.get("flash", "1") == "1"
        if self.forked:
            params.flash_attn = flash
        else:
            params.flash_attn_type = 1 if flash else 0
        self.context = c.llama_init_from_model(self.model, params)
        if not self.model or not self.context:
            raise RuntimeError(f"{path} cannot be loaded")

    def clear(self):
        if self.forked:
            self.c.llama_kv_cache_clear(self.context)
        else:
            self.c.llama_memory_clear(self.c.llama_get_memory(self.context), True)

    def run(self, ids):
        self.clear()
        batch = self.c.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, i, 1
            batch.seq_id[i][0], batch.logits[i] = 0, i == len(ids) - 1
        begin = time.perf_counter()
        if self.c.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")
        logits = self.c.llama_get_logits_ith(self.context, len(ids) - 1)  # waits for the computation
        seconds = time.perf_counter() - begin
        out = ctypes.cast(logits, ctypes.POINTER(ctypes.c_float))[:VOCABULARY]
        self.c.llama_batch_free(batch)
        return seconds, out


class Transformers:
    def __init__(self, args, setting):
        import torch
        import transformers
        torch.set_num_threads(args.threads)
        self.torch = torch
        kwargs = {"experts_implementation": setting["experts"]} if "experts" in setting else {}
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            pathlib.Path(args.folder) / "hf", dtype=getattr(torch, setting.get("dtype", "bfloat16")),
            attn_implementation="sdpa", **kwargs).eval()

    def run(self, ids):
        with self.torch.inference_mode():
            x = self.torch.tensor([ids])
            begin = time.perf_counter()
            logits = self.model(x, use_cache=True, logits_to_keep=1).logits[0, -1]
            seconds = time.perf_counter() - begin
        return seconds, logits.float().tolist()


class Vllm:
    def __init__(self, args, setting):
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = setting.get("bind", f"0-{args.threads - 1}")
        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        import vllm
        self.vllm = vllm
        self.engine = vllm.LLM(
            model=str(pathlib.Path(args.folder) / "hf"), skip_tokenizer_init=True, dtype=setting.get("dtype", "bfloat16"),
            max_model_len=args.context + 8, max_num_seqs=1, enable_prefix_caching=False,
            max_num_batched_tokens=max(args.context, int(setting.get("batched", 2048))),
            enforce_eager=setting.get("eager", "1") == "1", disable_log_stats=True)

    def run(self, ids):
        sampling = self.vllm.SamplingParams(max_tokens=1, temperature=0, detokenize=False, ignore_eos=True)
        begin = time.perf_counter()
        out = self.engine.generate([{"prompt_token_ids": ids}], sampling, use_tqdm=False)
        return time.perf_counter() - begin, list(out[0].outputs[0].token_ids)


ENGINES = {"llama.cpp": LlamaCpp, "ik_llama.cpp": LlamaCpp, "transformers": Transformers, "vllm": Vllm}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--setting", nargs="*", default=[])
    args = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w")  # engines print what they like
    os.dup2(2, 1)
    engine = ENGINES[args.engine](args, dict(pair.split("=") for pair in args.setting))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for seed, line in enumerate(sys.stdin):
        order = json.loads(line)
        if "check" in order:
            answer = {"logits": engine.run(prompt_of(order["check"], 0))[1]}
        else:
            answer = {"seconds": engine.run(prompt_of(order["tokens"], seed + 1))[0]}
        print(json.dumps(answer), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # some engines take their time to shut down, or crash doing it


if __name__ == "__main__":
    main()
