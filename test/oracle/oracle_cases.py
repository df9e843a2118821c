"""Cases of tensor methods as JSON: the method, its inputs and arguments, and what PyTorch returns for them.

A case holds `method` or `function` (a name of Holdfast), `inputs`, `args` ("$n" is input n), `outputs` and `grads`. Arrays are
{dtype, shape, values}; numbers that JSON lacks are strings. The upstream gradient of element i of an output is cos(i + 1).
"""

import json
import math
import os
import re
import torch

TYPES = {"f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "bool": torch.bool, "u8": torch.uint8}
NAMES = {**{v: k for k, v in TYPES.items()}, torch.int64: "i32"}


def snake(name):
    return re.sub(r"(?<!^)([A-Z])", lambda m: "_" + m.group(1).lower(), name)


def number(x):
    if isinstance(x, float) and (math.isnan(x) or math.isinf(x) or (x == 0 and math.copysign(1, x) < 0)):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(x), "-0")
    return int(x) if isinstance(x, bool) or float(x).is_integer() and abs(x) < 2**53 else x


def array(t):
    values = t.detach().flatten().tolist()
    return {"dtype": NAMES[t.dtype], "shape": list(t.shape), "values": [number(x) for x in values]}


class Cases:
    def __init__(self):
        self.cases = []

    def add(self, name, inputs, args=None, torch=None, grads=True, what="", dtypes=("f64", "f32"), kind="method", mixed=None):
        """`torch` computes the result of the inputs; default: the function of that name. `mixed`: the dtype of each input, None for the float."""
        import torch as T

        call = torch or getattr(T, snake(name), None) or (lambda x, *rest: getattr(x, snake(name))(*rest))
        for dtype in dtypes:
            tensors = []
            for index, value in enumerate(inputs):
                own = mixed[index] if mixed and mixed[index] else dtype
                tensors.append(T.tensor(value, dtype=TYPES[own]))
            differentiable = [t.is_floating_point() for t in tensors] if grads and dtype[0] == "f" else []
            for t, wanted in zip(tensors, differentiable):
                t.requires_grad_(wanted)
            result = call(*tensors)
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            case = {"name": (name + " " + what).strip(), kind: name, "inputs": [array(t) for t in tensors]}
            case["args"] = args if args is not None else [f"${i}" for i in range(0 if kind == "function" else 1, len(tensors))]
            case["outputs"] = [array(t) for t in outputs]
            if any(differentiable):
                roots = [o for o in outputs if o.requires_grad]
                if roots:
                    ups = [T.cos(T.arange(1, o.numel() + 1, dtype=T.float64)).reshape(o.shape).to(o.dtype) for o in roots]
                    T.autograd.backward(roots, ups)
                    case["grads"] = [array(t.grad) if t.grad is not None else None for t in tensors]
            self.cases.append(case)

    def write(self, file):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), file)
        with open(path, "w") as out:
            out.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in self.cases) + "\n]\n")
