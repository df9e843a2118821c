"""Runs model programs with PyTorch in float64: one JSON line in, one JSON line out.

A line has the program (test/support/random-models/program.ts), the initial parameters, and for each call its inputs and
the rates of the optimizer's groups. Dropout is left out: its random numbers are not PyTorch's.
Needs PyTorch 1.13 or later: apt-get install python3-torch.
"""

import base64
import json
import math
import sys

import torch
from torch import nn

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)


def number(value):
    """NaN, the infinities and -0 are strings that begin with #."""
    return float(value[1:]) if isinstance(value, str) else value


def decode(tensor):
    dtype = {"float": torch.float64, "i32": torch.int64, "bool": torch.bool}[tensor["dtype"]]
    values = torch.frombuffer(bytearray(base64.b64decode(tensor["data"])), dtype=torch.float64) if tensor["data"] else torch.empty(0)
    return values.to(dtype).reshape(tensor["shape"])


def encode(tensor):
    return base64.b64encode(tensor.detach().to(torch.float64).contiguous().numpy().tobytes()).decode()


class RMSNorm(nn.Module):
    def __init__(self, shape, eps, affine):
        super().__init__()
        self.shape, self.eps = shape, eps
        self.weight = nn.Parameter(torch.ones(shape)) if affine else None

    def forward(self, x):
        axes = tuple(range(-len(self.shape), 0))
        y = x * torch.rsqrt(x.square().mean(axes, keepdim=True) + self.eps)
        return y if self.weight is None else y * self.weight


class LayerNorm(nn.Module):
    """nn.LayerNorm of PyTorch 1.13 has no option to omit only the bias."""

    def __init__(self, shape, eps, affine, bias):
        super().__init__()
        self.shape, self.eps = shape, eps
        self.weight = nn.Parameter(torch.ones(shape)) if affine else None
        self.bias = nn.Parameter(torch.zeros(shape)) if affine and bias else None

    def forward(self, x):
        return nn.functional.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


def shape_of(args):
    return [args] if isinstance(args, int) else list(args)


def windows(options):
    return {name: options[name] for name in ("stride", "padding", "dilation") if name in options}


def build_layer(name, args):
    options = args[-1] if args and isinstance(args[-1], dict) else {}
    if name == "Linear":
        return nn.Linear(args[0], args[1], bias=options.get("bias", True))
    if name == "LayerNorm":
        return LayerNorm(shape_of(args[0]), options.get("eps", 1e-5), options.get("elementwiseAffine", True), options.get("bias", True))
    if name == "RMSNorm":
        return RMSNorm(shape_of(args[0]), options["eps"], options.get("elementwiseAffine", True))
    if name in ("ReLU", "Tanh", "Sigmoid", "SiLU"):
        return getattr(nn, name)()
    if name == "Softplus":
        return nn.Softplus(threshold=200)
    if name == "LeakyReLU":
        return nn.LeakyReLU(*args)
    if name == "GELU":
        return nn.GELU(approximate=options.get("approximate", "none"))
    if name in ("Softmax", "LogSoftmax"):
        return getattr(nn, name)(dim=args[0])
    if name == "Dropout":
        return nn.Identity()
    if name == "Flatten":
        return nn.Flatten(*args)
    if name == "Embedding":
        return nn.Embedding(args[0], args[1], padding_idx=options.get("paddingIdx"))
    if name == "MultiheadAttention":
        return nn.MultiheadAttention(args[0], args[1], bias=options.get("bias", True), batch_first=options.get("batchFirst", True))
    if name == "TransformerEncoderLayer":
        layer = nn.TransformerEncoderLayer(
            args[0], args[1], dim_feedforward=options["dimFeedforward"], dropout=0.0,
            activation=options.get("activation", "relu"), layer_norm_eps=options["layerNormEps"],
            batch_first=options.get("batchFirst", True), norm_first=options.get("normFirst", False))
        if not options.get("bias", True):
            layer.self_attn = nn.MultiheadAttention(args[0], args[1], bias=False, batch_first=options.get("batchFirst", True))
            for one in (layer.linear1, layer.linear2, layer.norm1, layer.norm2):
                one.bias = None
        return layer
    if name in ("Conv1d", "Conv2d"):
        return getattr(nn, name)(args[0], args[1], tuple(args[2]), bias=options.get("bias", True), groups=options["groups"], **windows(options))
    if name in ("MaxPool1d", "MaxPool2d", "AvgPool1d", "AvgPool2d"):
        return getattr(nn, name)(tuple(args[0]), **windows(options))
    raise ValueError(name)


class Layer(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step
        self.layer = build_layer(step["layer"], step["args"])

    def mask(self, x, columns, inputs):
        if "mask" in self.step:
            mask = inputs[self.step["mask"]]
            return ~mask if mask.dtype == torch.bool else mask
        if self.step.get("isCausal"):
            return torch.ones(x.shape[1], columns, dtype=torch.bool).triu(1)
        return None

    def forward(self, x, inputs, note):
        if isinstance(self.layer, nn.MultiheadAttention):
            key = inputs[self.step["keys"]] if "keys" in self.step else x
            return self.layer(x, key, key, attn_mask=self.mask(x, key.shape[1], inputs), need_weights=False)[0]
        if isinstance(self.layer, nn.TransformerEncoderLayer):
            return self.layer(x, src_mask=self.mask(x, x.shape[1], inputs))
        return self.layer(x)


class Repeat(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.is_residual = step["isResidual"]
        self.list = nn.ModuleList([Model(step["steps"]) for _ in range(step["count"])])

    def forward(self, x, inputs, note):
        for layer in self.list:
            made = layer(x, inputs, note)
            x = x + made if self.is_residual else made
        return x


class Join(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.how, self.input = step["how"], step["input"]
        self.through = Model(step["steps"])

    def forward(self, x, inputs, note):
        note(self.input, x)
        other = self.through(inputs[self.input], inputs, note)
        if self.how == "cat":
            return torch.cat([x, other], -1)
        return x + other if self.how == "add" else x * other


class Op(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def forward(self, x, inputs, note):
        step = self.step
        if step["kind"] == "reshape":
            return x.reshape([x.shape[0], *step["sizes"]])
        if step["kind"] == "mean":
            return x.mean(step["axis"])
        value = number(step["value"])
        if step["op"] in ("maximum", "minimum"):
            return getattr(torch, step["op"])(x, torch.tensor(value))
        return getattr(torch, step["op"])(x, value)


class Model(nn.Module):
    def __init__(self, steps):
        super().__init__()
        kinds = {"layer": Layer, "repeat": Repeat, "join": Join}
        self.steps = nn.ModuleList([kinds.get(step["kind"], Op)(step) for step in steps])

    def forward(self, x, inputs, note):
        for step in self.steps:
            x = step(x, inputs, note)
        return x


def loss_of(program, output, inputs):
    loss = program["loss"]
    names = {"labelSmoothing": "label_smoothing", "ignoreIndex": "ignore_index"}
    options = {names.get(name, name): value for name, value in loss["options"].items()}
    for name, source in loss["tensors"].items():
        options[{"posWeight": "pos_weight"}.get(name, name)] = inputs[source]
    value = getattr(nn, loss["loss"])(**options)(output, inputs[loss["target"]])
    return value if value.dim() == 0 else value.mean()


def optimizer_of(program, parameters):
    spec = program["optimizer"]
    names = {"weightDecay": "weight_decay"}
    options = {names.get(name, name): value for name, value in spec["options"].items()}
    first = spec.get("secondFrom", len(parameters))
    groups = [{"params": parameters[:first]}]
    if parameters[first:]:
        groups.append({"params": parameters[first:]})
    if "betas" in options:
        options["betas"] = tuple(float(beta) for beta in options["betas"])  # 0 comes as an integer, which PyTorch 2 rejects
    return getattr(torch.optim, spec["name"])(groups, **options)


class Run:
    def __init__(self, line):
        self.program, self.line = line["program"], line
        self.model = Model(self.program["steps"])
        self.parameters = list(self.model.parameters())
        args = line["parameters"]
        if [list(one.shape) for one in self.parameters] != [one["shape"] for one in args]:
            raise ValueError("the parameters differ in their shapes")
        with torch.no_grad():
            for own, one in zip(self.parameters, args):
                own.copy_(decode(one))
        self.optimizer = optimizer_of(self.program, self.parameters) if self.parameters else None
        self.stash = {}
        self.kept = {}

    def freeze(self, places, wanted):
        """A frozen parameter keeps its gradient where the optimizer does not see it."""
        for place in places:
            own = self.parameters[place]
            if own.requires_grad == wanted:
                continue
            own.requires_grad_(wanted)
            if wanted:
                own.grad = self.stash.pop(place, None)
            else:
                self.stash[place] = own.grad
                own.grad = None

    def zero(self):
        for own in self.parameters:
            own.grad = None
        self.stash = {}

    def apply(self, event):
        if event["kind"] == "freeze":
            self.freeze(event["parameters"], event["requiresGrad"])
        elif event["kind"] == "write":
            with torch.no_grad():
                self.parameters[event["parameter"]].mul_(event["factor"])
        elif event["kind"] == "zeroGrad":
            self.zero()

    def call(self, place, call):
        for event in call["events"]:
            self.apply(event)
        inputs = {name: decode(one) for name, one in call["inputs"].items()}
        for feed in self.program["calls"][place]["feeds"]:
            inputs[feed["input"]] = self.kept[feed["call"], feed["result"]]
        step = self.program["calls"][place]["step"]
        wanted = self.program["results"]
        results = {}

        def note(name, value):
            if "joined" in wanted:
                results.setdefault(f"at {name}", value)

        with torch.set_grad_enabled(step != "evaluate"):
            output = self.model(inputs[self.program["inputs"][0]["name"]], inputs, note)
            if "output" in wanted:
                results["output"] = output
            results["loss"] = loss_of(self.program, output, inputs)
        if step != "evaluate":
            results["loss"].backward()
        if step == "train" and self.optimizer:
            self.update(results, wanted, call["rates"])
        for keep in self.program["calls"][place]["keeps"]:
            if keep["result"] in results:
                self.kept[place, keep["result"]] = results[keep["result"]].detach().clone()
        record = {f"result {name}": encode(value) for name, value in results.items()}
        for own, one in zip(self.parameters, self.line["parameters"]):
            record[one["name"]] = encode(own)
            if own.requires_grad and own.grad is not None:
                record[f"gradient of {one['name']}"] = encode(own.grad)
        return record

    def update(self, results, wanted, rates):
        clip = self.program.get("clip")
        if clip and clip["kind"] == "value":
            nn.utils.clip_grad_value_(self.parameters, clip["limit"])
        if clip and clip["kind"] == "norm":
            kind = number(clip["normType"])
            grads = [own.grad.clone() for own in self.parameters if own.grad is not None]
            norm = nn.utils.clip_grad_norm_(self.parameters, clip["maxNorm"], kind)
            if not math.isfinite(norm):
                for own, grad in zip([own for own in self.parameters if own.grad is not None], grads):
                    own.grad = grad
            if "norm" in wanted:
                results["norm"] = torch.as_tensor(norm)
        for group, (lr, decay) in zip(self.optimizer.param_groups, rates):
            group["lr"], group["weight_decay"] = lr, decay
        if self.program["optimizer"]["name"] == "SparseAdam":
            for own in self.parameters:
                if own.grad is not None:
                    own.grad = own.grad.to_sparse(1)  # the rows that are not all zeros
        self.optimizer.step()
        self.zero()

    def calls(self):
        records = []
        for place, call in enumerate(self.line["calls"]):
            try:
                records.append(self.call(place, call))
            except RuntimeError as error:
                if "does not require grad" not in str(error):
                    raise
                break
        return records


for text in sys.stdin:
    try:
        answer = {"calls": Run(json.loads(text)).calls()}
    except Exception as error:  # The parent process names the program.
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
