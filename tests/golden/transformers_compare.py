#!/usr/bin/env python3
"""Compares the engine with Hugging Face's `transformers` on checkpoints that this library itself made.

    make test-transformers                                       # installs the pinned library, then runs this
    tests/golden/transformers_compare.py [--asap BINARY] [--out FOLDER] [--document FILE] [CASE...]

For every class: a tiny model with random weights is built and saved by the library, so names, dtypes, shards and
config keys are its own; loaded again in float64; and run. What it computed is written beside the checkpoint as a
golden (README.md has the format), and `asap verify` compares the engine with all of them. Before that, each golden of
this folder is loaded into its class: the library then has to give the expected results of that golden.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import math
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

import numpy
import safetensors.torch
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

VOCAB = 128
PADDED_ROWS = 8  # zero rows at the end of the vocabulary, as released models have them
PROMPT_LENGTHS = (1, 7, 48)
GREEDY_STEPS = 8
CANDIDATES = 24  # of each prompt token; the one whose decisions are least close is taken
TRIES = 20  # to find a prompt with
MIN_GAP = 2e-3  # between a chosen and a rejected expert, group or key, on any of its rows,
MIN_GENERATED_GAP = 2e-4  # and on generated rows,
MIN_GREEDY_MARGIN = 1e-3  # and between the best and the second token, relative to the largest logit


@dataclasses.dataclass
class Case:
    family: str  # transformers' <family>Config and <family>ForCausalLM
    config: dict
    covers: str
    storage: torch.dtype = torch.float32
    shard_size: str = "5GB"
    edit: dict = dataclasses.field(default_factory=dict)  # of the saved config.json
    seed: int = 1
    correction_bias: tuple = (2.0, 0.3)  # mean and deviation
    gain: dict = dataclasses.field(default_factory=dict)  # end of a parameter's name -> factor on its deviation


COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-3,  # large, so that an eps taken from elsewhere shows
    "initializer_range": 0.02,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}
MLA = COMMON | {
    "num_key_value_heads": 4,
    "kv_lora_rank": 20,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 12,
    "qk_rope_head_dim": 16,
    "v_head_dim": 10,
    "n_routed_experts": 16,
    "num_experts_per_tok": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 10,
    "first_k_dense_replace": 1,
}
# With few index heads it happens that none of them likes a key. All such keys have a score of exactly 0, and which of
# them is chosen is undefined.
DSA = MLA | {"index_n_heads": 8, "index_head_dim": 128, "index_topk": 8}
GQA = COMMON | {"num_key_value_heads": 2, "num_experts_per_tok": 3}


def rope(theta, **more):
    return {"rope_type": "default", "rope_theta": theta} | more


def yarn(theta, factor=4.0, original=32, **more):
    return {"rope_type": "yarn", "rope_theta": theta, "factor": factor,
            "original_max_position_embeddings": original, "beta_fast": 32.0, "beta_slow": 1.0} | more


BF16 = torch.bfloat16
CASES = {
    "deepseek_v2_greedy": Case("DeepseekV2", MLA | {
        "q_lora_rank": None, "topk_method": "greedy", "n_shared_experts": 2,
        "rope_parameters": yarn(1e4, mscale=0.707, mscale_all_dim=0.707)},
        "no q_lora, greedy, two shared experts, mscale 0.707"),
    # Groups that lose are masked with 0 here; softmax scores are positive, so that equals -inf.
    "deepseek_v2_group": Case("DeepseekV2", MLA | {
        "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2, "routed_scaling_factor": 16.0,
        "attention_bias": True,
        "rope_parameters": yarn(1e4, mscale=1.0, mscale_all_dim=1.0)},
        "group_limited_greedy, scaling 16, biases", BF16),
    "deepseek_v3": Case("DeepseekV3", MLA | {
        "n_group": 4, "topk_group": 2, "attention_bias": True,
        "rope_parameters": yarn(1e4, mscale=1.0, mscale_all_dim=0.707)},
        "q_lora, groups, biases, mscale other than mscale_all_dim, many shards", shard_size="100KB", seed=2),
    "deepseek_v3_noqlora": Case("DeepseekV3", MLA | {
        "q_lora_rank": None, "n_group": 1, "topk_group": 1, "n_shared_experts": 2, "norm_topk_prob": False,
        "rope_interleave": False, "rope_parameters": rope(1e4)},
        "no q_lora, half-split rotation, no groups, no normalisation", BF16),
    "deepseek_v32": Case("DeepseekV32", DSA | {
        "n_group": 4, "topk_group": 2, "rope_parameters": yarn(1e4, mscale=1.0, mscale_all_dim=1.0)},
        "sparse attention, half-split indexer"),
    "deepseek_v32_negbias": Case("DeepseekV32", DSA | {
        "n_group": 4, "topk_group": 2, "rope_parameters": yarn(1e4, mscale=1.0, mscale_all_dim=1.0)},
        "negative correction bias: losing groups are masked with -inf", BF16, correction_bias=(-1.3, 0.3)),
    # The library has no class of that name: Kimi-K2 is DeepSeek-V3's under another model_type.
    "kimi_k2": Case("DeepseekV3", MLA | {
        "n_routed_experts": 24, "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 6,
        "routed_scaling_factor": 2.827, "max_position_embeddings": 4096,
        "rope_parameters": yarn(5e4, factor=8.0, original=512, beta_fast=1.0, mscale=1.0, mscale_all_dim=1.0)},
        "24 experts in one group, beta_fast = beta_slow", BF16, edit={"model_type": "kimi_k2"}),
    "glm4_moe": Case("Glm4Moe", GQA | {
        "head_dim": 16, "use_qk_norm": True, "attention_bias": True, "first_k_dense_replace": 1,
        "n_routed_experts": 12, "moe_intermediate_size": 10, "n_group": 2, "topk_group": 1,
        "routed_scaling_factor": 2.5, "rope_parameters": rope(1e6, partial_rotary_factor=0.5)},
        "q/k norm, biases, half rotary, two groups"),
    "glm4_moe_air": Case("Glm4Moe", GQA | {
        "head_dim": 16, "use_qk_norm": False, "attention_bias": True, "first_k_dense_replace": 1,
        "n_routed_experts": 12, "moe_intermediate_size": 10, "rope_parameters": rope(1e6, partial_rotary_factor=0.5)},
        "no q/k norm, one group", BF16),
    # The class always rotates the indexer in pairs; released config.json files say so.
    "glm_moe_dsa": Case("GlmMoeDsa", DSA | {
        "num_hidden_layers": 5, "indexer_types": ["full", "shared", "full", "shared", "shared"],
        "rope_parameters": rope(8e6), "indexer_rope_interleave": True},
        "layers that share the selection of an earlier one, indexer rotated in pairs"),
    "glm_moe_dsa_freq": Case("GlmMoeDsa", DSA | {
        "num_hidden_layers": 5, "index_topk_freq": 2, "rope_parameters": rope(8e6)},
        "sharing given as a frequency, nothing said of the indexer's rotation", BF16, edit={"indexer_types": None}),
    "qwen2_moe": Case("Qwen2Moe", GQA | {
        "num_experts": 8, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24,
        "rope_parameters": rope(1e6)},
        "q/k/v biases, gated shared expert, no normalisation"),
    "qwen2_moe_dense": Case("Qwen2Moe", GQA | {
        "num_experts": 8, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 24, "qkv_bias": False,
        "norm_topk_prob": True, "mlp_only_layers": [0], "use_sliding_window": True, "sliding_window": 6,
        "rope_parameters": rope(1e6)},
        "a dense layer, no biases, normalisation, sliding windows by layer_types", BF16),
    "qwen3_moe": Case("Qwen3Moe", GQA | {
        "head_dim": 16, "num_experts": 8, "moe_intermediate_size": 20, "norm_topk_prob": True,
        "rope_parameters": rope(1e6)},
        "heads x head_dim other than hidden, normalisation"),
    "qwen3_moe_sparse_step": Case("Qwen3Moe", GQA | {
        "num_hidden_layers": 4, "head_dim": 16, "num_experts": 8, "moe_intermediate_size": 20,
        "decoder_sparse_step": 2, "mlp_only_layers": [1], "tie_word_embeddings": True,
        "rope_parameters": yarn(1e6)},
        "dense layers by step and by list, no normalisation, tied embeddings, YaRN", BF16),
    "qwen3_moe_window": Case("Qwen3Moe", GQA | {
        "head_dim": 12, "num_experts": 8, "moe_intermediate_size": 20, "attention_bias": True,
        "use_sliding_window": True, "sliding_window": 6, "rope_parameters": rope(1e6)},
        "biases, all windows sliding"),
    "mixtral": Case("Mixtral", GQA | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "rope_parameters": rope(1e6)},
        "w1/w2/w3, two of four experts"),
    "mixtral_window": Case("Mixtral", GQA | {
        "num_local_experts": 6, "num_experts_per_tok": 2, "head_dim": 16, "sliding_window": 6,
        "rope_parameters": rope(1e6)},
        "all windows sliding, head_dim given", BF16),
    "olmoe": Case("Olmoe", GQA | {
        "num_experts": 8, "intermediate_size": 20, "rope_parameters": rope(1e4)},
        "norm over the whole q and k, no normalisation"),
    "olmoe_clip": Case("Olmoe", GQA | {
        "num_key_value_heads": 4, "num_experts": 8, "intermediate_size": 20, "clip_qkv": 1.5, "norm_topk_prob": True,
        "attention_bias": True,
        "rope_parameters": rope(1e4)},
        "clipped q, k and v, biases, normalisation", BF16),
    "gpt_oss": Case("GptOss", GQA | {
        "hidden_size": 32, "intermediate_size": 32, "head_dim": 16, "num_local_experts": 8, "sliding_window": 6,
        "max_position_embeddings": 16384, "rope_parameters": yarn(1.5e5, factor=32.0, original=512, truncate=False)},
        "sinks, sliding window, clamped gate and up, transposed experts", gain={"experts.gate_up_proj": 2.0}),
    "gpt_oss_bf16": Case("GptOss", GQA | {
        "num_hidden_layers": 4, "hidden_size": 32, "intermediate_size": 32, "head_dim": 16, "num_local_experts": 8,
        "sliding_window": 6, "num_key_value_heads": 1, "swiglu_limit": 3.0, "swiglu_alpha": 1.2,
        "max_position_embeddings": 16384, "rope_parameters": yarn(1.5e5, factor=32.0, original=512)},
        "one key/value head, other clamp, truncated YaRN", BF16, gain={"experts.gate_up_proj": 2.0}),
    "minimax_m2": Case("MiniMaxM2", GQA | {
        "head_dim": 16, "num_local_experts": 8, "intermediate_size": 20,
        "rope_parameters": rope(5e6, partial_rotary_factor=0.5)},
        "norm over the whole q and k, half rotary, sigmoid router with bias"),
    # Released checkpoints say rotary_dim.
    "minimax_m2_bf16": Case("MiniMaxM2", GQA | {
        "head_dim": 16, "num_local_experts": 8, "intermediate_size": 20, "rotary_dim": 8,
        "rope_parameters": rope(5e6)},
        "rotary_dim", BF16),
}


class Float64(torch.overrides.TorchFunctionMode):
    """Computes in float64 whatever the library asks to be float32, also the frequencies of a model that is being
    loaded; and notes how close each choice of experts, groups or keys was."""

    def __init__(self):
        super().__init__()
        self.gaps = []  # per choice: [rows]

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function in (torch.topk, torch.Tensor.topk):
            self._note(*args, **kwargs)
        if function is torch.Tensor.float:
            function = torch.Tensor.double
        wide = lambda value: torch.float64 if value is torch.float32 else value
        return function(*map(wide, args), **{key: wide(value) for key, value in kwargs.items()})

    def _note(self, values, k, dim=-1, **_):
        # A key selection has [batch, rows, keys]. So has the sum of the two best of each group, which decides nothing.
        is_sum_of_two = values.dim() == 3 and k == 2
        if k >= values.shape[-1] or is_sum_of_two:
            return
        values = values.masked_fill(values < -1e30, -math.inf)
        best = values.sort(dim=-1, descending=True).values
        gap = (best[..., k - 1] - best[..., k]).nan_to_num(nan=math.inf)
        if values.dim() == 3:
            gap = gap / values.masked_fill(values.isinf(), 0).abs().amax(dim=-1).clamp(min=1)
        self.gaps.append(gap.flatten())

    def take_gaps(self):
        """Per row the smallest gap since the last call."""
        gaps, self.gaps = self.gaps, []
        return torch.stack(gaps).amin(dim=0)


@dataclasses.dataclass
class Result:
    logits: numpy.ndarray  # [vocab] of the last row
    router: dict  # layer -> (ids [rows, k], weights [rows, k])
    dsa: dict  # layer -> per row the selected keys, ascending
    gap: float


class Model:
    """A checkpoint in one of the library's classes, computing in one type."""

    def __init__(self, folder, dtype):
        self.mode = Float64() if dtype is torch.float64 else contextlib.nullcontext()
        config_json = json.loads((folder / "config.json").read_text())
        config_json.pop("auto_map", None)
        if config_json["model_type"] == "kimi_k2":
            config_json["model_type"] = "deepseek_v3"
        more = {}
        if config_json.get("quantization_config", {}).get("quant_method") == "mxfp4":
            more["quantization_config"] = transformers.Mxfp4Config(dequantize=True)
        config = transformers.AutoConfig.for_model(**config_json)
        with self.mode:
            self.model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, config=config, dtype=dtype, attn_implementation="eager", experts_implementation="eager", **more)
        self.model.eval().requires_grad_(False)
        if dtype is torch.float64:
            self.model.double()
        self.router, self.dsa = {}, {}
        for name, module in self.model.named_modules():
            kind = type(module).__name__
            layer = next((int(part) for part in name.split(".") if part.isdigit()), None)
            if kind.lower().endswith("topkrouter"):
                module.register_forward_hook(lambda _, __, out, layer=layer: self.router.update({layer: out[1:]}))
            elif kind.endswith("Indexer"):
                module.register_forward_hook(lambda _, __, out, layer=layer: self.dsa.update({layer: out}))

    def run(self, tokens):
        with torch.no_grad(), self.mode:
            logits = self.model(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        assert len(logits) == self.model.config.vocab_size
        router = {layer: (ids.reshape(len(tokens), -1).numpy(), weights.reshape(len(tokens), -1).double().numpy())
                  for layer, (weights, ids) in self.router.items()}
        # The indexer returns hidden keys too where fewer than index_topk are visible.
        dsa = {layer: [sorted(key for key in row.tolist() if key <= at) for at, row in enumerate(keys[0])]
               for layer, keys in self.dsa.items()}
        gap = float(self.mode.take_gaps().min()) if isinstance(self.mode, Float64) else math.nan
        return Result(logits.double().numpy(), router, dsa, gap)

    def greedy(self, prompt, first):
        """Tokens that follow, how far each was ahead of the second best, and the smallest gap of their rows."""
        tokens, margins, logits, gap = [], [], first.logits, math.inf
        while True:
            second, best = numpy.sort(logits)[-2:]
            tokens.append(int(logits.argmax()))
            margins.append(float((best - second) / numpy.abs(logits).max()))
            if len(tokens) == GREEDY_STEPS:
                return tokens, margins, gap
            result = self.run(list(prompt) + tokens)
            logits, gap = result.logits, min(gap, result.gap)

    def step(self, tokens, cache):
        """Appends one token to each sequence of the cache: the cache, and what was chosen, comparable per sequence."""
        with torch.no_grad(), self.mode:
            cache = self.model(tokens, cache=cache, use_cache=True).cache
        ids = [ids for _, ids in self.router.values()] + [keys[:, 0] for keys in self.dsa.values()]
        return cache, torch.cat([part.sort(dim=-1).values for part in ids], dim=-1)


def make_prompt(exact, narrow, length, generator):
    """Random tokens, each the one of CANDIDATES whose experts and keys are chosen most clearly, and equally by the
    narrower type. All are run at once, as so many continuations of what there is so far."""
    prompt, caches = [], [None, None]
    while len(prompt) < length:
        tokens = torch.randint(0, VOCAB - PADDED_ROWS, (CANDIDATES, 1), generator=generator)
        (caches[0], choice), (caches[1], other) = exact.step(tokens, caches[0]), narrow.step(tokens, caches[1])
        gap = exact.mode.take_gaps().masked_fill((choice != other).any(dim=-1), -1)
        best = int(gap.argmax())
        for cache in caches:
            cache.reorder_cache(torch.full((CANDIDATES,), best))
        prompt.append(int(tokens[best]))
    return prompt


def randomise(model, case, generator):
    """Gives every parameter a value that matters: the library's start values leave norms at 1, biases at 0 and every
    softmax flat."""
    def normal(tensor, deviation, mean=0.0):
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * deviation + mean)

    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                mean, deviation = case.correction_bias
                normal(buffer, deviation, mean)
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                normal(parameter, 0.2, 1.0)
            elif name.endswith("bias"):
                normal(parameter, 0.3)
            elif name.endswith(("sinks", "embed_tokens.weight")):
                normal(parameter, 1.0)
            else:
                transposed = case.family == "GptOss" and ".experts." in name
                fan_in = parameter.shape[-2 if transposed else -1]
                gain = next((g for end, g in case.gain.items() if name.endswith(end)), 1.0)
                normal(parameter, 1.75 * gain / math.sqrt(fan_in))
            if name.endswith(("embed_tokens.weight", "lm_head.weight")):
                parameter[-PADDED_ROWS:] = 0


def make_checkpoint(case, folder):
    config = getattr(transformers, case.family + "Config")(**case.config)
    model = getattr(transformers, case.family + "ForCausalLM")(config)
    randomise(model, case, torch.Generator().manual_seed(case.seed))
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=case.shard_size)
    if case.storage != torch.float32:
        # Loaded in that type, the library keeps what it wants in float32.
        narrow = type(model).from_pretrained(folder, dtype=case.storage)
        shutil.rmtree(folder)
        narrow.save_pretrained(folder, max_shard_size=case.shard_size)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | case.edit, indent=2) + "\n")


def relative(got, expected):
    return float(numpy.abs(got - expected).max() / numpy.abs(expected).max())


def as_weights(ids, weights):
    return dict(zip(ids.tolist(), weights.tolist()))


def chose_the_same(a, b):
    return a.dsa == b.dsa and all(numpy.array_equal(numpy.sort(ids), numpy.sort(b.router[layer][0]))
                                  for layer, (ids, _) in a.router.items())


@dataclasses.dataclass
class Drift:
    """How far a narrower type is from float64 over the prompts of a case, whose experts and keys it chooses equally."""
    logits: float = 0
    logits_rms: float = 0
    router_weight: float = 0
    greedy_steps: list = dataclasses.field(default_factory=lambda: [0, 0])  # equal, all

    def add(self, exact, exact_greedy, other, other_greedy):
        self.logits = max(self.logits, relative(other.logits, exact.logits))
        delta = other.logits - exact.logits
        self.logits_rms = max(self.logits_rms, float(numpy.sqrt((delta**2).sum() / (exact.logits**2).sum())))
        for layer, (ids, weights) in exact.router.items():
            for row in range(len(ids)):
                expected = as_weights(ids[row], weights[row])
                got = as_weights(*(part[row] for part in other.router[layer]))
                off = max(abs(got[expert] - expected[expert]) for expert in expected)
                self.router_weight = max(self.router_weight, off / max(expected.values()))
        self.greedy_steps[0] += sum(a == b for a, b in zip(exact_greedy, other_greedy))
        self.greedy_steps[1] += len(exact_greedy)


def round_up(value):
    """To one significant digit."""
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.0e}")


def tolerance(f32, bf16):
    exact = bf16.greedy_steps[0] == bf16.greedy_steps[1]
    return {
        "fp32": {
            "logits_rel": round_up(max(2e-5, 20 * f32.logits)),
            "router_weight_rel": round_up(max(2e-5, 20 * f32.router_weight)),
            "router_ids": "exact",
            "dsa_selection": "exact",
            "greedy": "exact",
        },
        "bf16": {
            "logits_rel": round_up(2 * bf16.logits),
            "logits_rms_rel": round_up(2 * bf16.logits_rms),
            "router_weight_rel": round_up(2 * bf16.router_weight),
            "router_ids_min_row_match": 0.95,
            "dsa_min_key_match": 0.97,
            "greedy": "exact expected" if exact else "informative",
        },
    }


def compute(name, case, folder):
    """Prompts with their results in float64, none of whose decisions is too close to be a test; and the drift of
    float32 and bfloat16."""
    exact, single, narrow = (Model(folder, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16))
    generator = torch.Generator().manual_seed(case.seed)
    cases, drifts = [], (Drift(), Drift())
    for length in PROMPT_LENGTHS:
        for _ in range(TRIES):
            prompt = make_prompt(exact, narrow, length, generator)
            result = exact.run(prompt)
            tokens, margins, generated_gap = exact.greedy(prompt, result)
            others = [model.run(prompt) for model in (single, narrow)]
            if (result.gap >= MIN_GAP and generated_gap >= MIN_GENERATED_GAP and min(margins) >= MIN_GREEDY_MARGIN
                    and all(chose_the_same(result, other) for other in others)):
                break
        else:
            sys.exit(f"{name}: each of {TRIES} prompts has decisions too close to be a test")
        cases.append((prompt, result, tokens, margins))
        for model, other, drift in zip((single, narrow), others, drifts):
            drift.add(result, tokens, other, model.greedy(prompt, other)[0])
    return cases, *drifts


def write_golden(name, case, folder, cases, f32, bf16):
    data = []

    def store(values):
        array = numpy.ascontiguousarray(values, dtype="<f4")
        offset = sum(map(numpy.size, data))
        data.append(array)
        return {"offset": offset, "shape": list(array.shape)}

    config = json.loads((folder / "config.json").read_text())
    golden = {
        "format": "golden-1",
        "name": name,
        "model_type": config["model_type"],
        "covers": case.covers,
        "storage": "F32" if case.storage == torch.float32 else "BF16",
        "reference": {"arithmetic": "float64", "indexer_fp8": False, "indexer_hadamard": False, "kv_latent_fp8": False,
                      "mla_norm_eps": 1e-6, "transformers": transformers.__version__, "torch": torch.__version__},
        "alt_configs": [],
        "data_file": "golden.f32",
        "num_layers": config["num_hidden_layers"],
        "vocab_size": VOCAB,
        "padded_vocab_rows": PADDED_ROWS,
        "moe_layers": sorted(cases[0][1].router),
        "min_margin": float(f"{min(result.gap for _, result, _, _ in cases):.3g}"),
        "tolerance": tolerance(f32, bf16),
        "measured": {"f32": dataclasses.asdict(f32), "bf16": dataclasses.asdict(bf16)},
        "cases": [],
    }
    for prompt, result, tokens, margins in cases:
        item = {"prompt": prompt, "greedy": tokens, "greedy_margin": [float(f"{m:.3g}") for m in margins],
                "logits": store(result.logits),
                "router": {str(layer): {"ids": ids.tolist(), "weights": store(weights)}
                           for layer, (ids, weights) in sorted(result.router.items())}}
        if result.dsa:
            item["dsa"] = {str(layer): {"selected": rows} for layer, rows in sorted(result.dsa.items())}
        golden["cases"].append(item)
    (folder / "golden.json").write_text(json.dumps(golden) + "\n")
    numpy.concatenate([array.ravel() for array in data]).tofile(folder / "golden.f32")


def make_case(name, case, folder):
    make_checkpoint(case, folder)
    cases, f32, bf16 = compute(name, case, folder)
    write_golden(name, case, folder, cases, f32, bf16)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    print(f"{name:22} {size / 1e3:4.0f} kB, gap {min(result.gap for _, result, _, _ in cases):.1e}, "
          f"float32 {f32.logits:.1e}, bfloat16 {bf16.logits:.1e}", flush=True)


def multiply_out(source, target):
    """Copies a checkpoint whose fp8 weights have block scales as float64: the library's own way needs a GPU."""
    config = json.loads((source / "config.json").read_text())
    rows, columns = config.pop("quantization_config")["weight_block_size"]
    (target / "config.json").write_text(json.dumps(config))
    stored = {}
    for path in source.glob("*.safetensors"):
        stored.update(safetensors.torch.load_file(path))
    out = {}
    for name, weight in stored.items():
        weight = weight.double()
        scale = stored.get(name + "_scale_inv")
        if scale is not None:
            spread = scale.double().repeat_interleave(rows, 0).repeat_interleave(columns, 1)
            weight = weight * spread[:weight.shape[0], :weight.shape[1]]
        out[name] = weight
    safetensors.torch.save_file(out, target / "model.safetensors", metadata={"format": "pt"})
    return target


def check_golden(folder):
    """Class, largest relative deviation of the library from that golden, whether experts, keys, tokens are equal."""
    golden = json.loads((folder / "golden.json").read_text())
    data = numpy.fromfile(folder / "golden.f32", dtype="<f4")
    array = lambda of: data[of["offset"]:of["offset"] + math.prod(of["shape"])].reshape(of["shape"])
    with tempfile.TemporaryDirectory() as scratch:
        config = json.loads((folder / "config.json").read_text())
        is_fp8 = config.get("quantization_config", {}).get("quant_method") == "fp8"
        model = Model(multiply_out(folder, pathlib.Path(scratch)) if is_fp8 else folder, torch.float64)
    worst, is_equal = 0.0, True
    for case in golden["cases"]:
        result = model.run(case["prompt"])
        worst = max(worst, relative(result.logits, array(case["logits"])))
        is_equal &= model.greedy(case["prompt"], result)[0] == case["greedy"]
        for layer, expected in case["router"].items():
            ids, weights = result.router[int(layer)]
            worst = max(worst, relative(numpy.sort(weights), numpy.sort(array(expected["weights"]))))
            is_equal &= numpy.array_equal(numpy.sort(ids), numpy.sort(expected["ids"]))
        for layer, expected in case.get("dsa", {}).items():
            is_equal &= result.dsa[int(layer)] == expected["selected"]
    return type(model.model).__name__, worst, is_equal


def check_goldens():
    """The table of all goldens of this folder, and whether the library gives what each expects."""
    lines = ["| golden | class | largest relative difference | experts, keys, tokens |", "|---|---|---|---|"]
    ok = True
    for path in sorted(HERE.glob("*/golden.json")):
        kind, worst, is_equal = check_golden(path.parent)
        ok &= worst <= 1e-5 and is_equal
        lines.append(f"| `{path.parent.name}` | `{kind}` | {worst:.1e} | {'equal' if is_equal else '**differ**'} |")
        print(lines[-1], flush=True)
    return "\n".join(lines), ok


def run_verify(asap, folder):
    """Rows of `asap verify`: one for each engine (kernels, type, geometry) on each checkpoint."""
    command = [asap, "verify", str(folder), "--format", "json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.startswith("["):
        sys.exit(f"{' '.join(map(str, command))}: exit status {done.returncode}, no report")
    return json.loads(done.stdout)


def engine_table(rows, folder):
    """A line for each checkpoint: the worst of its engines beside the library itself in that type."""
    headings = ["checkpoint", "class", "stored", "covers", "float32: engine", "library", "bfloat16: engine", "library",
                "tokens", "verdict"]
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    for name, case in CASES.items():
        mine = [row for row in rows if row["checkpoint"] == name]
        if not mine:
            continue
        golden = json.loads((folder / name / "golden.json").read_text())
        narrow = [row for row in mine if row["dtype"] == "bfloat16"]
        wide = [row for row in mine if row["dtype"] != "bfloat16"]
        failed = [f"{row['ops']} {row['dtype']}, {row['geometry']}: {row['problem']}"
                  for row in mine if not row["passed"]]
        errors = lambda some: [row["logits_error"] for row in some if row["logits_error"] is not None] or [math.nan]
        worst = lambda some: f"{max(errors(some)):.1e}"
        library = lambda kind: f"{golden['measured'][kind]['logits']:.1e}"
        lines.append("| " + " | ".join([
            f"`{name}`", f"`{case.family}ForCausalLM`", golden["storage"], case.covers,
            worst(wide), library("f32"), worst(narrow), library("bf16"),
            f"{min(row['greedy_equal'] for row in wide)}/{wide[0]['greedy_total']}",
            "; ".join(failed) or f"{len(mine)} engines pass"]) + " |")
    return "\n".join(lines)


def replace_block(text, name, body):
    """Puts body between the marks of that name."""
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
    head, _, rest = text.partition(begin)
    _, mark, tail = rest.partition(end)
    if not mark:
        sys.exit(f"the document has no block {begin.strip()} ... {end}")
    return head + begin + body + "\n" + mark + tail


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--asap", default=ROOT / "build/release/asap", type=pathlib.Path)
    parser.add_argument("--out", default=ROOT / "build/transformers", type=pathlib.Path)
    parser.add_argument("--document", type=pathlib.Path, help="write the tables into this file, between its marks")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="only these; the goldens are not checked then")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the matrices are too small to share
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    names = args.cases or list(CASES)
    shutil.rmtree(args.out, ignore_errors=True)
    for name in names:
        make_case(name, CASES[name], args.out / name)
    goldens, goldens_ok = check_goldens() if not args.cases else ("", True)
    rows = run_verify(args.asap, args.out)
    engine_ok = all(row["passed"] for row in rows)
    table = engine_table(rows, args.out)
    print(table)
    if args.document:
        versions = (f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, Python "
                    f"{platform.python_version()}; {datetime.date.today()}.")
        text = args.document.read_text()
        for name, body in (("versions", versions), ("transformers", table), ("goldens", goldens)):
            text = replace_block(text, name, body)
        args.document.write_text(text)
    if not (goldens_ok and engine_ok):
        sys.exit("the library and " + ("the engine" if goldens_ok else "a golden") + " disagree; see the table")


if __name__ == "__main__":
    main()
