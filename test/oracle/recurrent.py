"""Writes recurrent.json: PyTorch's recurrent layers in float64, with their outputs, final states and all gradients.

Needs PyTorch 1.13 or later: apt-get install python3-torch.
"""

import json
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
torch.manual_seed(20)

STEPS, BATCH, INPUT, HIDDEN = 4, 3, 2, 3

CASES = [
    ("RNN", {}, None, False),
    ("RNN", {"nonlinearity": "relu", "num_layers": 2, "bias": False}, None, True),
    ("RNN", {"bidirectional": True}, [4, 1, 3], True),
    ("LSTM", {}, None, False),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}, None, True),
    ("LSTM", {"num_layers": 2, "bidirectional": True}, [2, 4, 1], True),
    ("LSTM", {"bias": False, "batch_first": True}, [3, 4, 2], False),
    ("GRU", {}, None, False),
    ("GRU", {"num_layers": 2, "bidirectional": True, "batch_first": True}, None, True),
    ("GRU", {"bidirectional": True}, [1, 2, 4], True),
    ("GRU", {"bias": False}, None, True),
    ("RNNCell", {}, None, True),
    ("RNNCell", {"nonlinearity": "relu", "bias": False}, None, True),
    ("LSTMCell", {}, None, True),
    ("GRUCell", {}, None, True),
]


def rounded(shape, scale=1.0):
    return (torch.randn(shape) * scale).float().double()


def run(kind, options, lengths, has_initial):
    is_cell = kind.endswith("Cell")
    module = getattr(nn, kind)(INPUT, HIDDEN, **options)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(rounded(parameter.shape, 0.6))
    batch_first = options.get("batch_first", False)
    shape = [BATCH, STEPS, INPUT] if batch_first else [STEPS, BATCH, INPUT]
    x = rounded(shape[1:] if is_cell and not batch_first else shape).requires_grad_()
    is_lstm = kind.startswith("LSTM")
    initial = []
    if has_initial:
        rows = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
        size = [BATCH, HIDDEN] if is_cell else [rows, BATCH, HIDDEN]
        initial = [rounded(size).requires_grad_() for _ in range(2 if is_lstm else 1)]
    state = None if not initial else tuple(initial) if is_lstm else initial[0]
    if lengths:
        packed = pack_padded_sequence(x, torch.tensor(lengths), batch_first=batch_first, enforce_sorted=False)
        output, final = module(packed, state)
        output, _ = pad_packed_sequence(output, batch_first=batch_first, total_length=STEPS)
        results = [output, *(final if is_lstm else [final])]
    elif is_cell:
        final = module(x, state)
        results = list(final) if is_lstm else [final]
    else:
        output, final = module(x, state)
        results = [output, *(final if is_lstm else [final])]
    upstream = [rounded(result.shape) for result in results]
    sum((result * up).sum() for result, up in zip(results, upstream)).backward()
    listed = lambda tensor: (tensor * 1e13).round().div(1e13).tolist()
    tensors = lambda many: [listed(tensor) for tensor in many]
    return {
        "kind": kind,
        "options": options,
        "lengths": lengths,
        "parameters": {name: parameter.tolist() for name, parameter in module.named_parameters()},
        "x": x.tolist(),
        "initial": tensors(initial),
        "results": tensors(results),
        "upstream": tensors(upstream),
        "gradients": {
            "x": listed(x.grad),
            "initial": tensors(tensor.grad for tensor in initial),
            "parameters": {name: listed(parameter.grad) for name, parameter in module.named_parameters()},
        },
    }


with open(Path(__file__).with_name("recurrent.json"), "w") as file:
    json.dump({"torch": torch.__version__, "cases": [run(*case) for case in CASES]}, file, separators=(",", ":"))
    file.write("\n")
