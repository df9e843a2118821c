"""Writes the cases of optimizers other than SGD, Adam and AdamW into optimizers.json. Run it with PyTorch 1.13: python3 optimizers.py

PyTorch 1.13 multiplies NAdam's product of momenta by one momentum twice; later versions do not, and neither does this script.
"""

import inspect
import json
import pathlib

import torch
import torch.optim.nadam as nadam

# PyTorch keeps some numbers in tensors of the default dtype: NAdam's product, the rates of ASGD.
torch.set_default_dtype(torch.float64)

source = inspect.getsource(nadam._single_tensor_nadam)
assert "mu_product * mu * mu_next" in source
exec(source.replace("mu_product * mu * mu_next", "mu_product * mu_next"), nadam.__dict__)

SHAPES = [[2, 2], [3]]
STEPS = 8
ABSENT = {"0": [1], "3": [0]}

CASES = [
    ("amsgrad", "Adam", {"lr": 0.02, "betas": [0.8, 0.7], "amsgrad": True, "weight_decay": 0.1}),
    ("amsgrad, maximizing", "AdamW", {"lr": 0.02, "betas": [0.8, 0.7], "amsgrad": True, "maximize": True}),
    ("defaults", "RMSprop", {}),
    ("weight decay and momentum", "RMSprop", {"lr": 0.02, "alpha": 0.8, "weight_decay": 0.1, "momentum": 0.7}),
    ("centered", "RMSprop", {"lr": 0.02, "alpha": 0.9, "eps": 1e-6, "centered": True}),
    ("centered with momentum, maximizing", "RMSprop",
     {"lr": 0.02, "alpha": 0.9, "momentum": 0.5, "centered": True, "maximize": True}),
    ("defaults", "Adagrad", {}),
    ("all options", "Adagrad",
     {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "initial_accumulator_value": 0.3, "eps": 1e-6, "maximize": True}),
    ("defaults", "Adadelta", {}),
    ("all options", "Adadelta", {"lr": 3.0, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("defaults", "Adamax", {}),
    ("all options", "Adamax", {"lr": 0.05, "betas": [0.8, 0.7], "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
    ("defaults", "NAdam", {}),
    ("all options", "NAdam", {"lr": 0.05, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.1, "momentum_decay": 0.1}),
    ("steps are counted for each parameter", "NAdam", {"lr": 0.05}, ABSENT),
    ("defaults", "RAdam", {}),
    ("all options", "RAdam", {"lr": 0.05, "betas": [0.8, 0.9], "eps": 1e-4, "weight_decay": 0.1}),
    ("defaults", "Rprop", {}),
    ("all options", "Rprop", {"lr": 0.1, "etas": [0.3, 1.7], "step_sizes": [0.05, 0.2], "maximize": True}),
    ("steps are counted for each parameter", "Rprop", {"lr": 0.1}, ABSENT),
    ("defaults", "ASGD", {}),
    ("all options", "ASGD", {"lr": 0.1, "lambd": 0.3, "alpha": 0.6, "t0": 2, "weight_decay": 0.1, "maximize": True}),
]

# The state that is compared after the last step, by PyTorch's name and Holdfast's.
STATES = {"ASGD": {"ax": "average"}, "NAdam": {"mu_product": "momentumProduct"}}


def exact(*shape):
    return torch.randn(*shape).float().double()


def run(optimizer, options, absent, initial, gradients, dtype):
    parameters = [value.to(dtype).clone().requires_grad_() for value in initial]
    kwargs = {"foreach": False, **options}
    stepper = getattr(torch.optim, optimizer)(parameters, **kwargs)
    trajectory = []
    for step in range(STEPS):
        for index, parameter in enumerate(parameters):
            missing = index in absent.get(str(step), [])
            parameter.grad = None if missing else gradients[step][index].to(dtype)
        stepper.step()
        trajectory.append([parameter.detach().flatten().tolist() for parameter in parameters])
    state = {
        f"{index}.{here}": stepper.state[parameter][name].flatten().tolist()
        for name, here in STATES.get(optimizer, {}).items()
        for index, parameter in enumerate(parameters)
    }
    return trajectory, state


def make(name, optimizer, options, absent={}):
    initial = [exact(*shape) for shape in SHAPES]
    gradients = [[exact(*shape) for shape in SHAPES] for _ in range(STEPS)]
    trajectories = {
        key: run(optimizer, options, absent, initial, gradients, dtype)
        for key, dtype in (("f64", torch.float64), ("f32", torch.float32))
    }
    return {
        "name": name,
        "optimizer": optimizer,
        "options": options,
        "groups": None,
        "absent": absent or None,
        "shapes": SHAPES,
        "initial": [value.flatten().tolist() for value in initial],
        "gradients": [[value.flatten().tolist() for value in step] for step in gradients],
        "trajectory": {key: trajectory for key, (trajectory, _) in trajectories.items()},
        "state": trajectories["f64"][1] or None,
    }


LBFGS_CASES = [
    ("fixed steps", {"lr": 0.5, "max_iter": 4}),
    ("strong Wolfe conditions", {"max_iter": 6, "history_size": 3, "line_search_fn": "strong_wolfe"}),
    ("few evaluations", {"max_iter": 9, "max_eval": 4, "line_search_fn": "strong_wolfe"}),
]


def make_lbfgs(name, options):
    """Five steps on a quartic: the sum of (x_(i+1) - x_i^2)^2 + (1 - x_i)^2."""
    parameters = [exact(*shape).requires_grad_() for shape in SHAPES]
    initial = [parameter.detach().flatten().tolist() for parameter in parameters]
    stepper = torch.optim.LBFGS(parameters, **options)

    def closure():
        stepper.zero_grad()
        x = torch.cat([parameter.flatten() for parameter in parameters])
        loss = ((x[1:] - x[:-1] ** 2) ** 2).sum() + ((1 - x) ** 2).sum()
        loss.backward()
        return loss

    steps = []
    for _ in range(5):
        loss = stepper.step(closure).item()
        steps.append({"loss": loss, "parameters": [parameter.detach().flatten().tolist() for parameter in parameters]})
    return {"name": name, "options": options, "shapes": SHAPES, "initial": initial, "steps": steps}


torch.manual_seed(11)
path = pathlib.Path(__file__).parent / "optimizers.json"
data = json.loads(path.read_text())
cases = [make(*case) for case in CASES]
made = {(case["optimizer"], case["name"]) for case in cases}
kept = [case for case in data["cases"] if (case["optimizer"], case["name"]) not in made]
torch.manual_seed(12)
lbfgs = [make_lbfgs(*case) for case in LBFGS_CASES]
path.write_text(json.dumps({**data, "cases": kept + cases, "lbfgs": lbfgs}, separators=(",", ":")))
