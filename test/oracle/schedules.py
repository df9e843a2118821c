"""Writes schedules.json: learning rates of PyTorch 1.13's schedules, at the start and after each step. Run it: python3 schedules.py"""

import json
import pathlib
import warnings

import torch
from torch.optim import lr_scheduler as lr
from torch.optim.swa_utils import SWALR

warnings.simplefilter("ignore")


def cycle_scale(x):
    return 1 / (x + 1)


CASES = {
    "ExponentialLR": lambda o: lr.ExponentialLR(o, 0.7),
    "PolynomialLR": lambda o: lr.PolynomialLR(o, total_iters=4, power=2),
    "PolynomialLR, defaults": lambda o: lr.PolynomialLR(o),
    "MultiplicativeLR": lambda o: lr.MultiplicativeLR(o, lambda steps: 1 - 0.1 * steps),
    "LinearLR": lambda o: lr.LinearLR(o, start_factor=0.25, end_factor=0.75, total_iters=4),
    "LinearLR, defaults": lambda o: lr.LinearLR(o),
    "CyclicLR, triangular": lambda o: lr.CyclicLR(o, 0.01, 0.2, step_size_up=3, step_size_down=2, cycle_momentum=False),
    "CyclicLR, triangular2": lambda o: lr.CyclicLR(o, 0.01, 0.2, step_size_up=2, mode="triangular2", cycle_momentum=False),
    "CyclicLR, exp_range": lambda o: lr.CyclicLR(
        o, 0.01, 0.2, step_size_up=2, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "CyclicLR, a function of the iteration": lambda o: lr.CyclicLR(
        o, 0.01, 0.2, step_size_up=2, scale_fn=cycle_scale, scale_mode="iterations", cycle_momentum=False),
    "CosineAnnealingWarmRestarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 3),
    "CosineAnnealingWarmRestarts, longer each time": lambda o: lr.CosineAnnealingWarmRestarts(o, 2, 2, 0.01),
    "SequentialLR": lambda o: lr.SequentialLR(
        o, [lr.ConstantLR(o, 0.1, 2), lr.ExponentialLR(o, 0.9), lr.StepLR(o, 2, 0.5)], [3, 6]),
    "ChainedScheduler": lambda o: lr.ChainedScheduler([lr.LinearLR(o, 0.1, 1, 4), lr.ExponentialLR(o, 0.9)]),
    "SWALR, cos": lambda o: SWALR(o, 0.05, 4, "cos"),
    "SWALR, linear": lambda o: SWALR(o, 0.5, 3, "linear"),
    "SWALR at once": lambda o: SWALR(o, 0.05, 0),
}
STEPS = 11


def rates(make):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    schedule = make(optimizer)
    found = [optimizer.param_groups[0]["lr"]]
    for _ in range(STEPS):
        optimizer.step()
        schedule.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found


path = pathlib.Path(__file__).parent / "schedules.json"
tables = {name: rates(make) for name, make in CASES.items()}
path.write_text(json.dumps({"about": "PyTorch 1.13, initial rate 0.1", "cases": tables}, indent=1) + "\n")
