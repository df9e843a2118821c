"""Training steps of a language model of the size of Qwen2.5-0.5B in PyTorch with transformers, compiled: the peer of language-models.ts.

  python3 language_models_peer.py [--task full|lora] [--batch 8] [--tokens 1024] [--layers 24] [--seconds 8] [--mode default]

The weights are float32 and the step runs in autocast to bfloat16; with --task lora the frozen base is stored in bfloat16 and the adapters
(rank 16, all projections) in float32. The adapters are those of PEFT; with --plain, or without PEFT, those of a small module below.
"""

import argparse
import math
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--task", default="full", choices=["full", "lora"])
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--tokens", type=int, default=1024)
ap.add_argument("--layers", type=int, default=24)
ap.add_argument("--seconds", type=float, default=8)
ap.add_argument("--mode", default="default")
ap.add_argument("--device", default="cuda")
ap.add_argument("--plain", action="store_true")
args = ap.parse_args()

from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402
import transformers  # noqa: E402

torch.manual_seed(42)
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
config = Qwen2Config(
    vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=args.layers, num_attention_heads=14,
    num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True, use_cache=False,
    attn_implementation="sdpa",
)


class Lora(nn.Module):
    """A frozen linear layer and its adapter, as PEFT computes it."""

    def __init__(self, base, rank=16, alpha=32):
        super().__init__()
        self.base = base
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.a.weight, a=math.sqrt(5))
        nn.init.zeros_(self.b.weight)
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.b(self.a(x)) * self.scale


try:
    import peft
except ImportError:
    peft = None

model = Qwen2ForCausalLM(config)
task = args.task
if args.task == "lora" and peft and not args.plain:
    task = f"lora by peft {peft.__version__}"
    model.to(torch.bfloat16)
    model = peft.get_peft_model(model, peft.LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"))
elif args.task == "lora":
    task = "lora, plain"
    model.requires_grad_(False)
    model.to(torch.bfloat16)
    for layer in model.model.layers:
        for owner, names in ((layer.self_attn, ["q_proj", "k_proj", "v_proj", "o_proj"]), (layer.mlp, ["gate_proj", "up_proj", "down_proj"])):
            for name in names:
                setattr(owner, name, Lora(getattr(owner, name)))
model.to(args.device).train()
params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=1e-5, weight_decay=0.01, fused=args.device == "cuda")
ids = torch.randint(0, config.vocab_size, (args.batch, args.tokens), device=args.device)


def loss_fn(x):
    with torch.autocast(args.device, torch.bfloat16):
        return model(input_ids=x, labels=x).loss


forward = torch.compile(loss_fn, mode=None if args.mode == "default" else args.mode)


def step():
    opt.zero_grad(set_to_none=True)
    loss = forward(ids)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    return loss.detach()


def sync():
    if args.device == "cuda":
        torch.cuda.synchronize()


begun = time.perf_counter()
first = step().item()
first_s = time.perf_counter() - begun
if args.device == "cuda":
    torch.cuda.reset_peak_memory_stats()


def timed(count):
    begun = time.perf_counter()
    for _ in range(count):
        step()
    sync()
    return 1e3 * (time.perf_counter() - begun) / count


for _ in range(10):
    one = timed(1)
groups = 8
each = max(1, int(1e3 * args.seconds / one / groups))
times = sorted(timed(each) for _ in range(groups))
last = step().item()
peak = torch.cuda.max_memory_allocated() / 2**20 if args.device == "cuda" else 0
print(
    f"PyTorch {torch.__version__}, transformers {transformers.__version__}, {task}, bf16, {args.batch} × {args.tokens} tokens: "
    f"{times[groups // 2]:.2f} ms, best {times[0]:.2f} ms, {1e3 * args.batch * args.tokens / times[groups // 2]:.0f} tokens/s, "
    f"first call {first_s:.1f} s, peak {peak:.0f} MiB, loss {first:.3f} → {last:.3f}, {sum(p.numel() for p in model.parameters())} parameters"
)
