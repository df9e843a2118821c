"""Generation by language models with random weights in bfloat16, by transformers: the peer of decode.ts.

  python3 decode_peer.py [--models half,large,seven] [--texts 1,32] [--caches plain,static] [--prompt 16] [--tokens 100] [--layers N]
      [--vocabulary N] [--device cuda]

plain: `generate` with its default cache. static: with a static cache, for which `generate` compiles the forward pass by itself.
"""

import argparse
import time

import torch
import transformers
from transformers import Qwen2Config, Qwen2ForCausalLM

ap = argparse.ArgumentParser()
ap.add_argument("--models", default="half,large,seven")
ap.add_argument("--texts", default="1,32")
ap.add_argument("--prompt", type=int, default=16)
ap.add_argument("--tokens", type=int, default=100)
ap.add_argument("--layers", type=int)
ap.add_argument("--vocabulary", type=int, default=151936)
ap.add_argument("--caches", default="plain,static")
ap.add_argument("--device", default="cuda")
args = ap.parse_args()

sizes = {
    "half": {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14},
    "large": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12},
    "seven": {
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
        "tie_word_embeddings": False,
    },
}
torch.set_float32_matmul_precision("high")


def sync():
    if args.device == "cuda":
        torch.cuda.synchronize()


for name in args.models.split(","):
    config = Qwen2Config(
        vocab_size=args.vocabulary, max_position_embeddings=32768, rms_norm_eps=1e-6, attn_implementation="sdpa",
        **{"num_key_value_heads": 2, "tie_word_embeddings": True, **sizes[name], **({"num_hidden_layers": args.layers} if args.layers else {})},
    )
    torch.manual_seed(42)
    with torch.device(args.device):
        torch.set_default_dtype(torch.bfloat16)
        model = Qwen2ForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    runs = [(int(texts), cache) for texts in args.texts.split(",") for cache in args.caches.split(",")]
    for texts, cache in runs:
        row = [(index * 7919 + 1) % args.vocabulary for index in range(args.prompt)]
        ids = torch.tensor([row] * texts, device=args.device)
        options = {"max_new_tokens": args.tokens, "do_sample": False}
        if cache == "static":
            options["cache_implementation"] = "static"

        def generate():
            sync()
            begun = time.perf_counter()
            with torch.no_grad():
                result = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
            sync()
            made = result.shape[0] * (result.shape[1] - args.prompt)
            return made / (time.perf_counter() - begun)

        begun = time.perf_counter()
        generate()
        first = time.perf_counter() - begun
        rate = max(generate(), generate())
        kind = "static cache, compiled" if cache == "static" else "generate"
        print(
            f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {kind}, {name}, {texts} texts: {rate:.0f} tokens/s, "
            f"{1e3 * texts / rate:.3f} ms per step, first call {first:.1f} s",
            flush=True,
        )
    del model
