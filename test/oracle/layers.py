"""Writes layers.json: functions of torch.nn.functional, with values and gradients in float64. Run it with PyTorch 1.13 on the CPU.

A case has the function's name, its operands, and `attrs`: the other arguments by Holdfast's names. `inputs` are tensors, null, or lists of
integers. `updated` has the operands that the function wrote to, by index.
"""

import json
import os
import torch
import torch.nn.functional as F

torch.manual_seed(7)
here = os.path.dirname(os.path.abspath(__file__))
cases = []


def rounded(*shape, low=None, high=None):
    values = torch.randn(*shape) if low is None else torch.empty(*shape).uniform_(low, high)
    return values.float().double()


def integers(*shape, low=0, high=2):
    return torch.randint(low, high, shape)


def listed(tensor):
    if tensor is None:
        return None
    kind = "float" if tensor.is_floating_point() else "bool" if tensor.dtype == torch.bool else "i32"
    values = tensor.detach().reshape(-1)
    numbers = [float(f"{v:.12g}") for v in values.tolist()] if kind == "float" else [int(v) for v in values.tolist()]
    return {"shape": list(tensor.shape), "dtype": kind, "values": numbers}


def case(name, function, inputs, attrs=None, constants=(), updated=()):
    """`constants`: indices of float operands without a gradient. `updated`: of operands that the function overwrites."""
    before = [None if x is None else x.clone() for x in inputs]
    operands = [None if x is None else x.clone() for x in inputs]
    for index, operand in enumerate(operands):
        if operand is not None and operand.is_floating_point() and index not in constants and index not in updated:
            operand.requires_grad_(True)
    output = function(*operands)
    upstream = None
    grads = [None for _ in operands]
    if output.requires_grad:
        upstream = rounded(*output.shape)
        output.backward(upstream)
        grads = [None if x is None else listed(x.grad) if x.grad is not None else None for x in operands]
    cases.append({
        "op": name, "attrs": attrs or {}, "inputs": [listed(x) for x in before], "output": listed(output),
        "upstream": listed(upstream), "grads": grads,
        "updated": {str(index): listed(operands[index]) for index in updated},
    })


def norms():
    w, b = rounded(4), rounded(4)
    for shape in [(5, 4), (3, 4, 6), (2, 4, 3, 5), (2, 4, 2, 3, 2)]:
        x = rounded(*shape) * 2 + 3
        case("batchNorm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, True, 0.3, 1e-3),
             [x.float().double(), rounded(4), rounded(4, low=0.5, high=2), w, b],
             {"training": True, "momentum": 0.3, "eps": 1e-3}, updated=(1, 2))
    case("batchNorm", lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, False, 0.1, 1e-5),
         [rounded(3, 4, 5), rounded(4), rounded(4, low=0.5, high=2), w, b], {"training": False}, constants=(1, 2))
    case("batchNorm", lambda x, m, v: F.batch_norm(x, m, v, None, None, True, 0.1, 1e-5),
         [rounded(6, 3), None, None], {"training": True})
    case("groupNorm", lambda x, w, b: F.group_norm(x, 2, w, b, 1e-4), [rounded(3, 4, 5), w, b], {"groups": 2, "eps": 1e-4})
    case("groupNorm", lambda x: F.group_norm(x, 3), [rounded(2, 6, 2, 2)], {"groups": 3})
    case("instanceNorm", lambda x, m, v, w, b: F.instance_norm(x, m, v, w, b, True, 0.2, 1e-5),
         [rounded(3, 4, 5), rounded(4), rounded(4, low=0.5, high=2), w, b], {"momentum": 0.2}, updated=(1, 2))
    case("instanceNorm", lambda x: F.instance_norm(x), [rounded(2, 3, 2, 4)])
    case("localResponseNorm", lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 2.0), [rounded(2, 5, 2, 2)],
         {"size": 3, "alpha": 0.5, "beta": 0.75, "k": 2})
    case("localResponseNorm", lambda x: F.local_response_norm(x, 4), [rounded(2, 5, 3)], {"size": 4})


def activations():
    # Corners, too: the derivative there is a convention.
    x = torch.cat([rounded(8) * 2, torch.tensor([0.0, 1.0, -1.0, 3.0, -3.0, 6.0, 0.5, -0.5, 30.0, -30.0]).double()])
    simple = {"selu": F.selu, "mish": F.mish, "logsigmoid": F.logsigmoid, "softsign": F.softsign, "tanhshrink": F.tanhshrink,
              "relu6": F.relu6, "hardswish": F.hardswish, 
              # PyTorch's own gradient has 1/6 in float32 only.
              "hardsigmoid": lambda x: F.relu6(x + 3) / 6}
    for name, function in simple.items():
        case(name, function, [x])
    case("elu", lambda x: F.elu(x, 1.5), [x], {"alpha": 1.5})
    case("celu", lambda x: F.celu(x, 2.0), [x], {"alpha": 2})
    case("hardtanh", lambda x: F.hardtanh(x, -1, 0.5), [x], {"min": -1, "max": 0.5})
    case("hardshrink", lambda x: F.hardshrink(x, 0.5), [x], {"lambda": 0.5})
    case("softshrink", lambda x: F.softshrink(x, 0.5), [x], {"lambda": 0.5})
    case("threshold", lambda x: F.threshold(x, 0.5, -2), [x], {"threshold": 0.5, "value": -2})
    case("softplus", lambda x: F.softplus(x, 2, 6), [x], {"beta": 2, "threshold": 6})
    case("rrelu", lambda x: F.rrelu(x, 0.1, 0.3), [x], {"lower": 0.1, "upper": 0.3})
    case("softmin", lambda x: F.softmin(x, 0), [rounded(3, 2)], {"axis": 0})
    case("glu", lambda x: F.glu(x, 1), [rounded(2, 4, 3)], {"axis": 1})
    case("prelu", F.prelu, [rounded(2, 3, 4), rounded(3)])
    case("prelu", F.prelu, [rounded(2, 3), rounded(1)])


norms()
activations()
with open(os.path.join(here, "layers.json"), "w") as file:
    file.write('{"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]}\n")
print(len(cases), "cases")
