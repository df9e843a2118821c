"""Writes functional.json: results of torch.autograd.functional in float64, and per-sample gradients by a loop. The functions are in
../autograd-functional.test.ts too."""

import json
import os

import torch
import torch.autograd.functional as A

torch.manual_seed(20261119)
torch.set_default_dtype(torch.float64)


def numbers(*shape):
    return torch.randn(*shape).float().double()


def layer(x, w):
    return (x @ w).tanh()


def two(x, w):
    return layer(x, w), (w * w).sum(0)


def energy(x, w):
    return (layer(x, w) ** 2).sum() * x.exp().mean()


def softmax(x):
    return torch.softmax(x, -1)


x, w, v = numbers(2, 3), numbers(3, 2), numbers(2, 2)
vx, vw = numbers(2, 3), numbers(3, 2)


def per_sample():
    rows = []
    for row in x:
        leaf = w.clone().requires_grad_()
        rows.append(torch.autograd.grad(energy(row, leaf), leaf)[0])
    return torch.stack(rows)


cases = {
    "jacobian": A.jacobian(layer, (x, w)),
    "jacobianOfOne": A.jacobian(softmax, x),
    "jacobianOfTwo": [t for row in A.jacobian(two, (x, w)) for t in row],
    "hessian": [t for row in A.hessian(energy, (x, w)) for t in row],
    "vjp": A.vjp(layer, (x, w), v),
    "jvp": A.jvp(layer, (x, w), (vx, vw)),
    "hvp": A.hvp(energy, (x, w), (vx, vw)),
    "vhp": A.vhp(energy, (x, w), (vx, vw)),
    "perSample": per_sample(),
}


def flat(items):
    if isinstance(items, torch.Tensor):
        return [{"shape": list(items.shape), "values": items.flatten().tolist()}]
    return [array for item in items for array in flat(item)]


result = {
    "torch": torch.__version__,
    "inputs": {name: flat(t)[0] for name, t in {"x": x, "w": w, "v": v, "vx": vx, "vw": vw}.items()},
    "cases": {name: flat(items) for name, items in cases.items()},
}
with open(os.path.join(os.path.dirname(__file__), "functional.json"), "w") as file:
    json.dump(result, file)
    file.write("\n")
