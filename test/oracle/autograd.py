"""Writes autograd.json: gradients of gradients, computed by PyTorch on the CPU in float64. The cases are in ../oracle-autograd.test.ts too."""

import json
import os

import torch
import torch.nn.functional as F

torch.manual_seed(20261119)
torch.set_default_dtype(torch.float64)


def numbers(*shape):
    return torch.randn(*shape).float().double()


def critic(x, w1, b1, gain, w2):
    hidden = F.layer_norm(F.gelu(F.linear(x, w1, b1)), gain.shape, gain)
    return F.linear(hidden, w2)


def gradient_penalty(real, fake, mix, w1, b1, gain, w2):
    """The critic's loss of WGAN-GP."""
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    weights = (w1, b1, gain, w2)
    (slope,) = torch.autograd.grad(critic(between, *weights).sum(), between, create_graph=True)
    penalty = ((slope.norm(dim=1) - 1) ** 2).mean()
    return critic(fake, *weights).mean() - critic(real, *weights).mean() + 10 * penalty


def attention(q, k, v):
    out = F.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ v
    return slopes_squared(out.tanh().sum(), (q, k, v))


def convolution(x, w, b):
    y = F.max_pool2d(F.silu(F.conv2d(x, w, b, stride=1, padding=1)), 2)
    return slopes_squared((y * y).sum(), (x, w, b))


def classes(x, w):
    labels = torch.tensor([1, 0, 2, -100])
    loss = F.cross_entropy(x @ w, labels, label_smoothing=0.1)
    return slopes_squared(loss, (x, w))


def third(x):
    """The third derivative of x · sigmoid(x)²."""
    y = (x * torch.sigmoid(x) ** 2).sum()
    for _ in range(2):
        (y,) = (g.sum() for g in torch.autograd.grad(y, x, create_graph=True))
    return y


def recurrent(call):
    """The states of a layer over time, and an LSTM's final cell."""

    def run(x, state, cell, wih, whh, bih, bhh):
        states = (state[None], cell[None]) if call is torch._VF.lstm else state[None]
        results = call(x, states, [wih, whh, bih, bhh], True, 1, 0.0, True, False, False)
        out = sum((result ** 3).sum() for result in results)
        inputs = (x, state, *((cell,) if call is torch._VF.lstm else ()), wih, whh, bih, bhh)
        return slopes_squared(out, inputs) + (cell * cell).sum()

    return run


def recurrent_shapes(gates):
    return [(4, 2, 3), (2, 2), (2, 2), (gates * 2, 3), (gates * 2, 2), (gates * 2,), (gates * 2,)]


def values(a, b):
    """Eigenvalues and singular values."""
    out = (torch.linalg.eigvalsh(a + a.mT) ** 3).sum() + (torch.linalg.svdvals(b) ** 3).sum()
    return slopes_squared(out, (a, b))


def slopes_squared(y, inputs):
    return sum((g * g).sum() for g in torch.autograd.grad(y, inputs, create_graph=True))


cases = {
    "gradientPenalty": (gradient_penalty, [(4, 3), (4, 3), (4, 1), (5, 3), (5,), (5,), (1, 5)], 3),
    "attention": (attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4)], 0),
    "convolution": (convolution, [(1, 2, 4, 4), (3, 2, 3, 3), (3,)], 0),
    "classes": (classes, [(4, 5), (5, 3)], 0),
    "lstm": (recurrent(torch._VF.lstm), recurrent_shapes(4), 0),
    "gru": (recurrent(torch._VF.gru), recurrent_shapes(3), 0),
    "rnnTanh": (recurrent(torch._VF.rnn_tanh), recurrent_shapes(1), 0),
    "rnnRelu": (recurrent(torch._VF.rnn_relu), recurrent_shapes(1), 0),
    "values": (values, [(2, 3, 3), (2, 4, 3)], 0),
    "third": (third, [(6,)], 0),
}

result = {"torch": torch.__version__, "cases": {}}
for name, (function, shapes, first) in cases.items():
    inputs = [numbers(*shape) for shape in shapes]
    for tensor in inputs[first:]:
        tensor.requires_grad_()
    value = function(*inputs)
    gradients = torch.autograd.grad(value, inputs[first:])
    result["cases"][name] = {
        "first": first,
        "inputs": [tensor.tolist() for tensor in inputs],
        "value": value.item(),
        "gradients": [gradient.tolist() for gradient in gradients],
    }

with open(os.path.join(os.path.dirname(__file__), "autograd.json"), "w") as file:
    json.dump(result, file)
    file.write("\n")
