"""PyTorch's CrossAsset training step, eager, two threads. Needs Debian's python3-torch or a later version."""
import torch
import torch.nn.functional as F

from workload import BATCH, BATCHES, CLASSES, HEADS, LAYERS, GEMM, SOURCES, WIDTH, batch, report, values, weights

torch.set_num_threads(2)
HAS_FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")

p = {name: torch.nn.Parameter(torch.from_numpy(array)) for name, array in weights().items()}
optimizer = torch.optim.AdamW(p.values(), lr=1e-3, weight_decay=0.01)
batches = [tuple(torch.from_numpy(part) for part in batch(index)) for index in range(BATCHES)]


def attend(q, k, v):
    if HAS_FUSED_ATTENTION:
        return F.scaled_dot_product_attention(q, k, v)
    scores = (q * (WIDTH // HEADS) ** -0.5) @ k.transpose(-2, -1)
    return torch.softmax(scores, -1) @ v


def forward(x):  # [B, S, F] → [B·S, C]
    h = torch.baddbmm(p["bin"], x.transpose(0, 1), p["win"]).transpose(0, 1).reshape(BATCH * SOURCES, WIDTH)
    for layer in range(LAYERS):
        w = lambda name: p[f"{layer}.{name}"]
        q, k, v = (
            (h @ w(name)).view(BATCH, SOURCES, HEADS, WIDTH // HEADS).transpose(1, 2) for name in ("wq", "wk", "wv")
        )
        attended = attend(q, k, v).transpose(1, 2).reshape(BATCH * SOURCES, WIDTH)
        n = F.layer_norm(h + attended @ w("wo"), (WIDTH,), w("g1"), w("s1"))
        hidden = F.gelu(torch.addmm(w("b1"), n, w("w1")), approximate="tanh")
        h = F.layer_norm(n + torch.addmm(w("b2"), hidden, w("w2")), (WIDTH,), w("g2"), w("s2"))
    return torch.addmm(p["bout"], h, p["wout"])


def step(index):
    x, labels = batches[index]
    loss = F.cross_entropy(forward(x), labels.reshape(-1))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def prepare_gemm():
    m, n, k = GEMM
    a, b = torch.from_numpy(values(1, (m, k))), torch.from_numpy(values(2, (k, n)))
    return lambda: torch.mm(a, b)


report("PyTorch", torch.__version__, step, prepare_gemm)
