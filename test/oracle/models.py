"""Writes models.json: small language models, encoders and image classifiers in plain PyTorch, in float64.

This is an implementation of its own, from the papers and from the definitions of Hugging Face's configs. `transformers_models.py` writes the
same cases with the package transformers, where that is installed. Needs PyTorch 1.13 or later: apt-get install python3-torch.
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F

import model_cases as given

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


class Weights:
    """Parameters by Hugging Face's names, made when they are first read."""

    def __init__(self):
        self.named = {}

    def __call__(self, name, *shape):
        if name not in self.named:
            self.named[name] = given.weight(name, shape).requires_grad_()
        return self.named[name]

    def linear(self, x, name, outputs, bias=True):
        weight = self(f"{name}.weight", outputs, x.shape[-1])
        return F.linear(x, weight, self(f"{name}.bias", outputs) if bias else None)

    def transposed(self, x, name, outputs):
        return x @ self(f"{name}.weight", x.shape[-1], outputs) + self(f"{name}.bias", outputs)

    def layer_norm(self, x, name, eps):
        width = x.shape[-1]
        return F.layer_norm(x, (width,), self(f"{name}.weight", width), self(f"{name}.bias", width), eps)

    def rms_norm(self, x, name, eps):
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self(f"{name}.weight", x.shape[-1])


ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": F.relu,
    "silu": F.silu,
}


def attend(q, k, v, mask, scale=None):
    """[B, T, H, d] with fewer heads of keys; the mask is true where a column counts."""
    repeats = q.shape[2] // k.shape[2]
    k, v = (x.repeat_interleave(repeats, dim=2) for x in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) * (scale or 1 / math.sqrt(q.shape[-1]))
    shares = scores.masked_fill(~mask, -math.inf).softmax(-1)
    return torch.einsum("bhts,bshd->bthd", shares, v).flatten(2)


def causal(length, window=None):
    row, column = torch.arange(length)[:, None], torch.arange(length)[None]
    mask = column <= row
    return mask if window is None else mask & (row - column < window)


def gpt2(weights, config, ids):
    width, heads, eps = config["n_embd"], config["n_head"], 1e-5
    activation = ACTIVATIONS[config.get("activation_function", "gelu_new")]
    table = weights("transformer.wte.weight", config["vocab_size"], width)
    x = table[ids] + weights("transformer.wpe.weight", config["n_positions"], width)[: ids.shape[1]]
    for layer in range(config["n_layer"]):
        name = f"transformer.h.{layer}"
        h = weights.layer_norm(x, f"{name}.ln_1", eps)
        q, k, v = weights.transposed(h, f"{name}.attn.c_attn", 3 * width).split(width, dim=-1)
        q, k, v = (part.unflatten(-1, (heads, width // heads)) for part in (q, k, v))
        scale = 1 / math.sqrt(width // heads)
        if config.get("scale_attn_by_inverse_layer_idx"):
            scale /= layer + 1
        x = x + weights.transposed(attend(q, k, v, causal(ids.shape[1]), scale), f"{name}.attn.c_proj", width)
        h = weights.layer_norm(x, f"{name}.ln_2", eps)
        h = activation(weights.transposed(h, f"{name}.mlp.c_fc", config.get("n_inner", 4 * width)))
        x = x + weights.transposed(h, f"{name}.mlp.c_proj", width)
    return weights.layer_norm(x, "transformer.ln_f", eps) @ table.T


def frequencies(config, width):
    """Frequencies and the attention factor; in float32, as transformers computes them."""
    base, scaling = config.get("rope_theta", 10000.0), config.get("rope_scaling") or {"rope_type": "default"}
    plain = 1.0 / (base ** (torch.arange(0, width, 2).float() / width))
    kind = scaling["rope_type"]
    if kind == "linear":
        return plain / scaling["factor"], 1.0
    if kind == "llama3":
        old = scaling["original_max_position_embeddings"]
        low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
        wavelengths = 2 * math.pi / plain
        smooth = (old / wavelengths - low) / (high - low)
        medium = (1 - smooth) * plain / factor + smooth * plain
        is_long, is_short = wavelengths > old / low, wavelengths < old / high
        return torch.where(is_long, plain / factor, torch.where(is_short, plain, medium)), 1.0
    if kind == "yarn":
        old, factor = scaling["original_max_position_embeddings"], scaling["factor"]

        def dimension(rotations):
            return width * math.log(old / (rotations * 2 * math.pi)) / (2 * math.log(base))

        low, high = max(math.floor(dimension(32)), 0), min(math.ceil(dimension(1)), width - 1)
        ramp = ((torch.arange(width // 2).float() - low) / ((high - low) or 0.001)).clamp(0, 1)
        return plain / factor * ramp + plain * (1 - ramp), 0.1 * math.log(factor) + 1
    return plain, 1.0


def llama(weights, config, ids):
    width, heads, eps = config["hidden_size"], config["num_attention_heads"], config.get("rms_norm_eps", 1e-6)
    kind, key_heads = config["model_type"], config["num_key_value_heads"]
    head = config.get("head_dim", width // heads)
    bias = kind == "qwen2" or config.get("attention_bias", False)
    table = weights("model.embed_tokens.weight", config["vocab_size"], width)
    rates, factor = frequencies(config, head)
    angles = (torch.arange(ids.shape[1]).float()[:, None] * rates[None].float()).double()[:, None]  # [T, 1, d / 2]
    cos, sin = angles.cos() * factor, angles.sin() * factor

    def rotate(x):
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)

    x = table[ids]
    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        window = config.get("sliding_window")
        if kind == "qwen2" and layer < config["max_window_layers"]:
            window = None
        h = weights.rms_norm(x, f"{name}.input_layernorm", eps)
        q = weights.linear(h, f"{name}.self_attn.q_proj", heads * head, bias).unflatten(-1, (heads, head))
        k = weights.linear(h, f"{name}.self_attn.k_proj", key_heads * head, bias).unflatten(-1, (key_heads, head))
        v = weights.linear(h, f"{name}.self_attn.v_proj", key_heads * head, bias).unflatten(-1, (key_heads, head))
        if kind == "qwen3":
            q = weights.rms_norm(q, f"{name}.self_attn.q_norm", eps)
            k = weights.rms_norm(k, f"{name}.self_attn.k_norm", eps)
        attended = attend(rotate(q), rotate(k), v, causal(ids.shape[1], window))
        x = x + weights.linear(attended, f"{name}.self_attn.o_proj", width, bias and kind != "qwen2")
        h = weights.rms_norm(x, f"{name}.post_attention_layernorm", eps)
        mlp_bias, hidden = config.get("mlp_bias", False), config["intermediate_size"]
        gate = F.silu(weights.linear(h, f"{name}.mlp.gate_proj", hidden, mlp_bias))
        up = weights.linear(h, f"{name}.mlp.up_proj", hidden, mlp_bias)
        x = x + weights.linear(gate * up, f"{name}.mlp.down_proj", width, mlp_bias)
    x = weights.rms_norm(x, "model.norm", eps)
    if config.get("tie_word_embeddings"):
        return x @ table.T
    return weights.linear(x, "lm_head", config["vocab_size"], bias=False)


def encoder(weights, x, name, config, mask, norm_first):
    """The layers that BERT and ViT share, but for the places of their norms."""
    width, heads, eps = config["hidden_size"], config["num_attention_heads"], 1e-12
    names = (
        ("layernorm_before", "attention.attention", "layernorm_after")
        if norm_first
        else ("attention.output.LayerNorm", "attention.self", "output.LayerNorm")
    )
    for layer in range(config["num_hidden_layers"]):
        here = f"{name}.encoder.layer.{layer}"
        first, attention, second = (f"{here}.{part}" for part in names)
        h = weights.layer_norm(x, first, eps) if norm_first else x
        q, k, v = (
            weights.linear(h, f"{attention}.{part}", width).unflatten(-1, (heads, width // heads))
            for part in ("query", "key", "value")
        )
        x = x + weights.linear(attend(q, k, v, mask), f"{here}.attention.output.dense", width)
        x = x if norm_first else weights.layer_norm(x, first, eps)
        h = weights.layer_norm(x, second, eps) if norm_first else x
        h = F.gelu(weights.linear(h, f"{here}.intermediate.dense", config["intermediate_size"]))
        x = x + weights.linear(h, f"{here}.output.dense", width)
        x = x if norm_first else weights.layer_norm(x, second, eps)
    return x


def bert(weights, config, ids):
    width, eps = config["hidden_size"], 1e-12
    words = weights("bert.embeddings.word_embeddings.weight", config["vocab_size"], width)
    positions = weights("bert.embeddings.position_embeddings.weight", config["max_position_embeddings"], width)
    types = weights("bert.embeddings.token_type_embeddings.weight", config["type_vocab_size"], width)
    x = words[ids] + positions[: ids.shape[1]] + types[torch.tensor(given.TOKEN_TYPES)]
    x = weights.layer_norm(x, "bert.embeddings.LayerNorm", eps)
    mask = torch.tensor(given.ATTENTION_MASK).bool()[:, None, None]
    x = encoder(weights, x, "bert", config, mask, norm_first=False)
    if config["architectures"] == ["BertForMaskedLM"]:
        h = F.gelu(weights.linear(x, "cls.predictions.transform.dense", width))
        h = weights.layer_norm(h, "cls.predictions.transform.LayerNorm", eps)
        return h @ words.T + weights("cls.predictions.bias", config["vocab_size"])
    pooled = torch.tanh(weights.linear(x[:, 0], "bert.pooler.dense", width))
    return weights.linear(pooled, "classifier", len(config["id2label"]))


def vit(weights, config, images):
    width, patch, eps = config["hidden_size"], config["patch_size"], 1e-12
    kernel = weights("vit.embeddings.patch_embeddings.projection.weight", width, config["num_channels"], patch, patch)
    bias = weights("vit.embeddings.patch_embeddings.projection.bias", width)
    x = F.conv2d(images, kernel, bias, stride=patch).flatten(2).transpose(1, 2)
    x = torch.cat([weights("vit.embeddings.cls_token", 1, 1, width).expand(x.shape[0], -1, -1), x], dim=1)
    x = x + weights("vit.embeddings.position_embeddings", 1, x.shape[1], width)
    x = encoder(weights, x, "vit", config, torch.ones(1, 1, 1, x.shape[1]).bool(), norm_first=True)
    return weights.linear(weights.layer_norm(x, "vit.layernorm", eps)[:, 0], "classifier", len(config["id2label"]))


MODELS = {"gpt2": gpt2, "llama": llama, "mistral": llama, "qwen2": llama, "qwen3": llama, "bert": bert, "vit": vit}


def run(name, config):
    weights, kind = Weights(), config["model_type"]
    model = MODELS[kind]
    is_decoder = kind not in ("bert", "vit")
    images = given.numbers("images", (2, 3, 8, 8))
    inputs = images if kind == "vit" else torch.tensor(given.IDS)

    def loss_of(logits):
        if is_decoder:
            labels = torch.tensor(given.LABELS)
            return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        if logits.dim() == 3:
            return F.cross_entropy(logits.flatten(0, 1), torch.tensor(given.MASKED_LABELS).flatten())
        return F.cross_entropy(logits, torch.tensor(given.CLASSES))

    logits = model(weights, config, inputs)
    loss_of(logits).backward()
    record = {
        "name": name,
        "config": config,
        "logits": given.rounded(logits.detach().flatten().tolist()),
        "gradients": {name: given.rounded(given.summary(name, weight.grad)) for name, weight in weights.named.items()},
    }
    if is_decoder:
        tokens, margin = list(given.PROMPT), math.inf
        with torch.no_grad():
            for _ in range(given.GREEDY_TOKENS):
                row = model(weights, config, torch.tensor([tokens]))[0, -1]
                first, second = row.topk(2).values.tolist()
                margin = min(margin, first - second)
                tokens.append(int(row.argmax()))
        record["greedy"] = tokens[len(given.PROMPT) :]
        record["margin"] = given.rounded(margin)
    optimizer = torch.optim.AdamW(weights.named.values(), lr=given.LEARNING_RATE)
    losses = []
    for _ in range(given.STEPS):
        optimizer.zero_grad()
        loss = loss_of(model(weights, config, inputs))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    record["losses"] = given.rounded(losses)
    return record


def main():
    cases = [run(name, config) for name, config in given.CASES.items()]
    path = Path(__file__).with_name("models.json")
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"inputs": {json.dumps(given.inputs())},\n"cases": [\n{lines}\n]}}\n')
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
