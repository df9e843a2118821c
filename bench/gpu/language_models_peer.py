"""Training steps of a language model of the size of Qwen2.5-0.5B in PyTorch with transformers, compiled: the peer of language-models.ts.

  python3 language_models_peer.py [--task full|lora] [--targets all|attention] [--rank 16] [--dropout 0] [--batch 8] [--tokens 1024]
    [--layers 24] [--vocabulary 151936] [--seconds 8] [--mode default] [--whole] [--plain]

The weights are float32 and the step runs in autocast to bfloat16; with --task lora the frozen base is stored in bfloat16 and the adapters in
float32. The adapters are those of PEFT; with --plain, or without PEFT, those of a small module below. The model and its loss are compiled;
with --whole, so are the clipping and the update.
"""

import argparse
import math
import time

import torch
from torch import nn

ap = argparse.ArgumentParser()
ap.add_argument("--task", default="full", choices=["full", "lora"])
ap.add_argument("--targets", default="all", choices=["all", "attention"])
ap.add_argument("--rank", type=int, default=16)
ap.add_argument("--dropout", type=float, default=0)
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--tokens", type=int, default=1024)
ap.add_argument("--layers", type=int, default=24)
ap.add_argument("--seconds", type=float, default=8)
ap.add_argument("--mode", default="default")
ap.add_argument("--device", default="cuda")
ap.add_argument("--plain", action="store_true")
ap.add_argument("--whole", action="store_true")
ap.add_argument("--vocabulary", type=int, default=151936)
args = ap.parse_args()

from transformers import Qwen2Config, Qwen2ForCausalLM  # noqa: E402
import transformers  # noqa: E402

torch.manual_seed(42)
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
config = Qwen2Config(
    vocab_size=args.vocabulary, hidden_size=896, intermediate_size=4864, num_hidden_layers=args.layers, num_attention_heads=14,
    num_key_value_heads=2, max_position_embeddings=32768, rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True, use_cache=False,
    attn_implementation="sdpa",
)


class Lora(nn.Module):
    """A frozen linear layer and its adapter, as PEFT computes it."""

    def __init__(self, base, rank, dropout):
        super().__init__()
        self.base = base
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()
        self.a = nn.Linear(base.in_features, rank, bias=False)
        self.b = nn.Linear(rank, base.out_features, bias=False)
        nn.init.kaiming_uniform_(self.a.weight, a=math.sqrt(5))
        nn.init.zeros_(self.b.weight)
        self.scale = 2.0

    def forward(self, x):
        return self.base(x) + self.b(self.a(self.dropout(x.to(self.a.weight.dtype)))) * self.scale


try:
    import peft
except ImportError:
    peft = None

attention = ["q_proj", "k_proj", "v_proj", "o_proj"]
targets = attention + ([] if args.targets == "attention" else ["gate_proj", "up_proj", "down_proj"])
model = Qwen2ForCausalLM(config)
task = args.task
if args.task == "lora" and peft and not args.plain:
    task = f"lora of rank {args.rank} in {args.targets} layers by peft {peft.__version__}"
    model.to(torch.bfloat16)
    lora = peft.LoraConfig(
        r=args.rank, lora_alpha=2 * args.rank, lora_dropout=args.dropout, target_modules=targets, task_type="CAUSAL_LM"
    )
    model = peft.get_peft_model(model, lora)
elif args.task == "lora":
    task = f"lora of rank {args.rank} in {args.targets} layers, plain"
    model.requires_grad_(False)
    model.to(torch.bfloat16)
    for layer in model.model.layers:
        for name in targets:
            owner = layer.self_attn if name in attention else layer.mlp
            setattr(owner, name, Lora(getattr(owner, name), args.rank, args.dropout))
model.to(args.device).train()
params = [p for p in model.parameters() if p.requires_grad]
opt = torch.optim.AdamW(params, lr=1e-5, weight_decay=0.01, fused=args.device == "cuda")
ids = torch.randint(0, config.vocab_size, (args.batch, args.tokens), device=args.device)


def loss_fn(x):
    with torch.autocast(args.device, torch.bfloat16):
        return model(input_ids=x, labels=x).loss


mode = None if args.mode == "default" else args.mode
forward = torch.compile(loss_fn, mode=mode)


def update():
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()


if args.whole:
    update = torch.compile(update, mode=mode)


def step():
    opt.zero_grad(set_to_none=True)
    loss = forward(ids)
    loss.backward()
    update()
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
    f"first call {first_s:.1f} s, peak {peak:.0f} MiB, loss {first:.3f} → {last:.3f}, {sum(p.numel() for p in model.parameters())} parameters, "
    f"{sum(p.numel() for p in params)} of them trained"
)
