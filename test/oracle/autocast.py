"""Writes autocast.json: three steps of SGD by PyTorch 1.13 on the CPU, in autocast with bf16 and without. Run it: python3 autocast.py"""

import json
import pathlib

import torch
from torch import nn

torch.manual_seed(11)
x = torch.randn(8, 6)
y = torch.randn(8, 2)
WEIGHTS = {
    "0.weight": torch.randn(16, 6) / 3,
    "0.bias": torch.randn(16) / 3,
    "2.weight": torch.randn(2, 16) / 4,
    "2.bias": torch.randn(2) / 4,
}


def train(enabled):
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2))
    model.load_state_dict(WEIGHTS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            output = model(x)
            loss = nn.functional.mse_loss(output, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    gradients = {name: value.grad.tolist() for name, value in model.named_parameters()}
    return {"dtype": str(output.dtype), "losses": losses, "gradients": gradients}


record = {
    "x": x.tolist(),
    "y": y.tolist(),
    "weights": {name: value.tolist() for name, value in WEIGHTS.items()},
    "bf16": train(True),
    "f32": train(False),
}
path = pathlib.Path(__file__).with_name("autocast.json")
path.write_text(json.dumps(record) + "\n")
