"""A checkpoint of random bfloat16 weights with the layer shapes of Qwen3-30B-A3B, for tools/compare_engines.py: safetensors,
and the same values as GGUF: bfloat16, float16 (but for the smallest, exact) and Q8_0. Needs the packages `gguf`, `numpy`.

    make_model.py FOLDER --layers 2 --tokenizer TOKENIZER.JSON
"""

import argparse
import json
import pathlib
import shutil
import struct

import gguf
import numpy as np

VOCABULARY = 4096
HEAD_DIM = 128
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16",
    "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": HEAD_DIM,
    "num_experts": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 768, "intermediate_size": 6144,
    "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [], "hidden_act": "silu", "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0, "max_position_embeddings": 40960, "vocab_size": VOCABULARY, "tie_word_embeddings": False,
    "attention_bias": False, "use_sliding_window": False, "bos_token_id": 0, "eos_token_id": 1,
}


def shapes_of(config):
    """Name -> shape, of one tensor after another."""
    hidden, width = config["hidden_size"], config["moe_intermediate_size"]
    q, kv = (config[key] * HEAD_DIM for key in ("num_attention_heads", "num_key_value_heads"))
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{layer}self_attn.{name}_proj.weight", (rows, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, q)
        yield layer + "self_attn.q_norm.weight", (HEAD_DIM,)
        yield layer + "self_attn.k_norm.weight", (HEAD_DIM,)
        yield layer + "mlp.gate.weight", (config["num_experts"], hidden)
        for kind, shape in (("gate", (width, hidden)), ("up", (width, hidden)), ("down", (hidden, width))):
            for expert in range(config["num_experts"]):
                yield f"{layer}mlp.experts.{expert}.{kind}_proj.weight", shape
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (VOCABULARY, hidden)


def random_bf16(rng, shape):
    """Uniform with a deviation of 1/sqrt(columns), as bits; norms are 1."""
    if len(shape) == 1:
        return np.full(shape, 0x3F80, np.uint16)
    bound = np.float32(3 ** 0.5 / shape[1] ** 0.5)
    values = rng.random(shape, np.float32) * (2 * bound) - bound
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def write_checkpoint(folder, config, tokenizer):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    shutil.copy(tokenizer, folder / "tokenizer.json")
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes_of(config):
        begin, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = np.random.default_rng(1)
    with open(folder / "model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, shape in shapes_of(config):
            out.write(random_bf16(rng, shape).tobytes())
    return 8 + len(text), header


def stacked(folder, config, data_begin, header):
    """(name in the tensor map, bits): a layer's experts of one kind are one tensor in GGUF."""
    data = np.memmap(folder / "model.safetensors", np.uint16, "r", offset=data_begin)

    def bits(name):
        begin, end = (offset // 2 for offset in header[name]["data_offsets"])
        return data[begin:end].reshape(header[name]["shape"])

    for name, _ in shapes_of(config):
        if ".mlp.experts." not in name:
            yield name, bits(name)
        elif ".mlp.experts.0." in name:
            before, after = name.split(".experts.0.")
            yield (f"{before}.experts.{after}",
                   np.stack([bits(f"{before}.experts.{i}.{after}") for i in range(config["num_experts"])]))


def gguf_header(writer, config, file_type):
    writer.add_file_type(file_type)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_count(config["num_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(VOCABULARY)
    writer.add_tokenizer_model("no_vocab")  # prompts are token ids


def write_gguf(path, kind, folder, config, data_begin, header):
    types = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(path, "qwen3moe")
    gguf_header(writer, config, gguf.LlamaFileType[f"MOSTLY_{kind}"])
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3MOE, config["num_hidden_layers"])
    for name, bits in stacked(folder, config, data_begin, header):
        target = names.get_name(name, try_suffixes=(".weight",))
        if kind == "BF16" and bits.ndim > 1 and not name.endswith(".mlp.gate.weight"):
            writer.add_tensor(target, np.ascontiguousarray(bits).view(np.uint8), raw_dtype=types.BF16)
            continue
        values = (bits.astype(np.uint32) << 16).view(np.float32)
        if bits.ndim == 1 or name.endswith(".mlp.gate.weight"):  # norms and routers are float32 in every GGUF
            writer.add_tensor(target, values)
        elif kind == "F16":
            writer.add_tensor(target, values.astype(np.float16))
        else:
            writer.add_tensor(target, gguf.quants.quantize(values, types[kind]), raw_dtype=types[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True,
                        help=f"of {VOCABULARY} ids; engines want one beside the weights")
    args = parser.parse_args()
    config = CONFIG | {"num_hidden_layers": args.layers}
    checkpoint = args.folder / "hf"
    data_begin, header = write_checkpoint(checkpoint, config, args.tokenizer)
    for kind in ("BF16", "F16", "Q8_0"):
        write_gguf(args.folder / f"{kind.lower()}.gguf", kind, checkpoint, config, data_begin, header)


if __name__ == "__main__":
    main()
