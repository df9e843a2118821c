"""The cases of models.json and transformers.json: configs, inputs, and weights that are functions of their names.

A weight's elements come from a linear congruential generator whose seed is the CRC-32 of its name, so that the files need no weights.
"""

import zlib

import torch

VOCABULARY = 37

_SHARED = {"vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
_DECODER = {**_SHARED, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
_BERT = {
    **_SHARED,
    "num_attention_heads": 2,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
}

CASES = {
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_positions": 128,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 2,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "gpt2 scaled by layer": {
        "model_type": "gpt2",
        "vocab_size": VOCABULARY,
        "n_positions": 128,
        "n_embd": 16,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 24,
        "activation_function": "relu",
        "scale_attn_by_inverse_layer_idx": True,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
    },
    "llama": {"model_type": "llama", **_DECODER, "rms_norm_eps": 1e-5},
    "llama 3": {
        "model_type": "llama",
        **_DECODER,
        "attention_bias": True,
        "mlp_bias": True,
        "head_dim": 8,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        "tie_word_embeddings": True,
    },
    "smollm": {
        "model_type": "llama",
        **_DECODER,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "hidden_size": 24,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        "tie_word_embeddings": True,
    },
    "mistral": {"model_type": "mistral", **_DECODER, "sliding_window": 3},
    "qwen2": {
        "model_type": "qwen2",
        **_DECODER,
        "rope_theta": 1000000.0,
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        "model_type": "qwen3",
        **_DECODER,
        "head_dim": 6,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "bert": {"model_type": "bert", **_BERT, "architectures": ["BertForMaskedLM"]},
    "bert classifier": {
        "model_type": "bert",
        **_BERT,
        "architectures": ["BertForSequenceClassification"],
        "id2label": {"0": "a", "1": "b", "2": "c"},
        "label2id": {"a": 0, "b": 1, "c": 2},
    },
    "vit": {
        "model_type": "vit",
        "architectures": ["ViTForImageClassification"],
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 8,
        "patch_size": 4,
        "num_channels": 3,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "id2label": {"0": "a", "1": "b", "2": "c"},
        "label2id": {"a": 0, "b": 1, "c": 2},
    },
}

# Cases that only transformers computes: the other scalings of rotary embeddings, and other activations and heads.
TRANSFORMERS_CASES = {
    **CASES,
    "gpt2 with a head": {
        **CASES["gpt2"],
        "activation_function": "gelu",
        "layer_norm_epsilon": 1e-3,
        "scale_attn_weights": False,
        "tie_word_embeddings": False,
    },
    "llama dynamic": {
        "model_type": "llama",
        **_DECODER,
        "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
    },
    "llama yarn": {
        "model_type": "llama",
        **_DECODER,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 8.0,
            "original_max_position_embeddings": 16,
            "beta_fast": 4.0,
            "beta_slow": 0.5,
            "mscale": 1.0,
            "mscale_all_dim": 0.5,
            "truncate": False,
        },
    },
    "llama yarn with a factor": {
        "model_type": "llama",
        **_DECODER,
        "rope_scaling": {
            "rope_type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 64,
            "attention_factor": 1.25,
        },
    },
    "llama of newer files": {
        "model_type": "llama",
        **_DECODER,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 300.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
    },
    "mistral with all columns": {
        "model_type": "mistral",
        **_DECODER,
        "sliding_window": None,
        "head_dim": 6,
        "tie_word_embeddings": True,
    },
    "qwen3 with windows": {
        "model_type": "qwen3",
        **_DECODER,
        "head_dim": 4,
        "attention_bias": True,
        "use_sliding_window": True,
        "sliding_window": 3,
        "layer_types": ["sliding_attention", "full_attention"],
        "tie_word_embeddings": True,
    },
}

IDS = [[3, 14, 15, 9, 26, 5, 35], [8, 9, 7, 9, 3, 23, 8]]
LABELS = [[-100, -100, 15, 9, 26, 5, 35], [8, 9, 7, 9, -100, 23, 8]]
MASKED_LABELS = [[-100, 14, -100, -100, 26, -100, 35], [8, -100, -100, 9, -100, -100, -100]]
# The second sequence is padded on its right.
ATTENTION_MASK = [[1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 0, 0]]
TOKEN_TYPES = [[0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0]]
CLASSES = [2, 0]
PROMPT = [3, 1, 4]
GREEDY_TOKENS = 64
STEPS = 10
LEARNING_RATE = 1e-2


def inputs():
    """The inputs of the cases, as the JSON files have them."""
    return {
        **{"ids": IDS, "labels": LABELS, "maskedLabels": MASKED_LABELS, "classes": CLASSES},
        **{"attentionMask": ATTENTION_MASK, "tokenTypes": TOKEN_TYPES, "prompt": PROMPT},
        **{"learningRate": LEARNING_RATE, "images": "the numbers of the name images, [2, 3, 8, 8]"},
    }


def numbers(name, shape):
    """Numbers from -1 to 1, exact in float32 and bfloat16, that depend on the name."""
    state = zlib.crc32(name.encode())
    count = 1
    for size in shape:
        count *= size
    values = []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append((state >> 25) / 64 - 1)
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def weight(name, shape):
    """The elements of a parameter: weights of norms are around 1."""
    is_norm = len(shape) == 1 and name.endswith("weight")
    return numbers(name, shape) * (0.25 if len(shape) > 1 else 0.125) + (1 if is_norm else 0)


def summary(name, gradient):
    """A gradient's norm, and its product with fixed numbers."""
    flat = gradient.detach().double().cpu()
    return [flat.norm().item(), (flat * numbers("gradient of " + name, flat.shape)).sum().item()]


def rounded(values, digits=7):
    if isinstance(values, list):
        return [rounded(value, digits) for value in values]
    return float(f"{values:.{digits}g}")
