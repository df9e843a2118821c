"""Writes elementwise.json: PyTorch's results of elementwise functions, in float32 and float64, with gradients. Run it with torch 1.13."""

import math
import torch
from oracle_cases import Cases

inf, nan = math.inf, math.nan
EXTREMES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-30, 1e-42, -1e-42, 3.0, -7.5, 1e4, -1e4, 1e30, -1e30, inf, -inf, nan]
ENDS = [0.0, -0.0, 1.0, -0.5, 1e30, inf, -inf, nan]
# digamma and lgamma differ at −0 and at negative whole numbers from one library to the next.
NO_POLES = [0.5, 1.0, 2.0, 3.0, 0.001, 100.0, 1e4, 1e30, inf, nan]

cases = Cases()


def functions(names, values, special):
    for name in names.split():
        cases.add(name, [values])
        cases.add(name, [special], grads=False, what="extremes")


functions("round trunc frac floor ceil", [0.5, 1.5, -0.5, -2.5, 2.3, -1.7], EXTREMES)
functions("tan sinh cosh asinh atan sinc exp2 erfc deg2rad rad2deg", [-1.4, -0.3, 0.2, 0.9, 2.6], EXTREMES)
functions("asin acos atanh erfinv", [-0.95, -0.3, 0.2, 0.9], EXTREMES)
functions("log2 log10 acosh", [1.2, 2.7, 5.0], EXTREMES)
functions("lgamma", [0.3, 1.2, 2.7, 5.0, 12.5, -0.4, -3.7], NO_POLES)
# The gradient of digamma has ten digits in PyTorch, too few for the comparison.
cases.add("digamma", [[0.3, 1.2, 2.7, 5.0, 12.5, -0.4, -3.7] + NO_POLES], grads=False)
functions("signbit isposinf isneginf", [0.3], EXTREMES)
functions("i0", [-2.7, -0.3, 0.2, 7.3, 9.5, 12.5, -19.7, 25.5], [0.0, -0.0, 1e-30, 3.0, -7.5, 80.0, 1e4, -1e4, nan])
cases.add("i0", [[150.0, -600.0]], dtypes=["f64"])
cases.add("logit", [[0.1, 0.4, 0.8]])
cases.add("logit", [[0.01, 0.4, 0.995]], [{"eps": 0.1}], torch=lambda x: torch.logit(x, eps=0.1))
cases.add("round", [[1.2345, -6.789]], [{"decimals": 2}], torch=lambda x: torch.round(x, decimals=2), grads=False)
cases.add("round", [[1234.5, -6789.0]], [{"decimals": -2}], torch=lambda x: torch.round(x, decimals=-2), grads=False)
cases.add("mvlgamma", [[2.5, 4.0]], [3], torch=lambda x: torch.mvlgamma(x, 3))
cases.add("nanToNum", [EXTREMES], grads=False)
cases.add("nanToNum", [[nan, inf, 2.0]], [{"nan": 1, "posinf": 5}], torch=lambda x: torch.nan_to_num(x, nan=1, posinf=5))

A = [[2.0, -3.5, 0.7, 5.5, -0.9, 7.25]]
B = [[1.5, 2.0, -0.4, -2.25, 0.35, 3.0]]
for name in "atan2 hypot copysign fmod remainder fmax fmin logaddexp logaddexp2".split():
    cases.add(name, [A, B])
    ends = [x for x in ENDS if name[0] != "f" or x != 0 or math.copysign(1, x) > 0]
    pairs = [(a, b) for a in ends for b in ends]
    cases.add(name, [[a for a, _ in pairs], [b for _, b in pairs]], ["$1"], grads=False, what="extremes")
cases.add("floorDivide", [A, B], grads=False)
cases.add("floorDivide", [A], [-1.75], torch=lambda x: torch.floor_divide(x, -1.75), grads=False)
cases.add("heaviside", [[-1.0, 0.0, 2.0, nan], [0.5, 0.25, 1.0, 2.0]], grads=False)
cases.add("xlogy", [[0.0, 1.5, 2.0, 0.0], [1.5, 2.0, 0.3, 2.0]])
cases.add("ldexp", [[1.5, -2.0], [3.0, -1.0]], grads=False)
cases.add("floatPower", [[1.5, 2.0]], [-1.5], torch=lambda x: torch.float_power(x, -1.5))
cases.add("lerp", [A, B], ["$1", 0.3], torch=lambda a, b: torch.lerp(a, b, 0.3))
cases.add("lerp", [A, B, [[0.1, 0.9, 0.5, -1.0, 2.0, 0.4]]])
cases.add("addcmul", [A, B, [[1.0], [2.0]]], ["$1", "$2", {"value": -0.5}], torch=lambda x, a, b: torch.addcmul(x, a, b, value=-0.5))
cases.add("addcdiv", [A, B, [[1.0], [2.0]]], ["$1", "$2", {"value": 3}], torch=lambda x, a, b: torch.addcdiv(x, a, b, value=3))
cases.add("clampMin", [A], [0.7], torch=lambda x: torch.clamp_min(x, 0.7))
cases.add("clampMax", [A], [0.5], torch=lambda x: torch.clamp_max(x, 0.5))
cases.add("isclose", [[1.0, 2.0, inf, nan, -inf], [1.000001, 2.1, inf, nan, inf]], grads=False)
cases.add("isclose", [[1.0, nan], [1.5, nan]], ["$1", {"rtol": 0.4, "equalNan": True}], torch=lambda a, b: torch.isclose(a, b, rtol=0.4, equal_nan=True), grads=False)

INTS = [12, -7, 5, 0, 2**31 - 1, -(2**31), -1]
OTHERS = [5, 3, -2, 7, 16, 9, 1]
for name in "bitwiseAnd bitwiseOr bitwiseXor remainder fmod floorDivide fmax fmin".split():
    cases.add(name, [INTS, OTHERS], dtypes=["i32"])
for name in "bitwiseLeftShift bitwiseRightShift".split():
    cases.add(name, [INTS, [5, 3, 0, 7, 1, 9, 31]], dtypes=["i32"])
for name in "gcd lcm".split():
    ints = [12, -7, 5, 0, 2**31 - 1, 1836311903, -1, 0, 270, 6]
    cases.add(name, [ints, [8, 3, -25, 7, 46341, 1134903170, 1, 0, 192, 4]], dtypes=["i32"])
    cases.add(name, [[[12, 18, 255]], [[8], [9]]], dtypes=["u8"])
cases.add("bitwiseNot", [INTS], dtypes=["i32"])
cases.add("bitwiseXor", [[1, 0, 1], [1, 1, 0]], dtypes=["bool"])
cases.add("bitwiseNot", [[1, 0]], dtypes=["bool"])
for mode in ("trunc", "floor"):
    cases.add("div", [A, B], ["$1", {"roundingMode": mode}], torch=lambda a, b: torch.div(a, b, rounding_mode=mode))
    cases.add("div", [A], [-1.75, {"roundingMode": mode}], torch=lambda a: torch.div(a, -1.75, rounding_mode=mode))
    cases.add("div", [INTS, OTHERS], ["$1", {"roundingMode": mode}], torch=lambda a, b: torch.div(a, b, rounding_mode=mode), dtypes=["i32"])
    cases.add("div", [INTS], [-4, {"roundingMode": mode}], torch=lambda a: torch.div(a, -4, rounding_mode=mode), dtypes=["i32"])
LOW, HIGH = [[1.0, -3.5, 0.9, -2.0, 0.1, 7.5]], [[1.5, 2.0, 0.95, 2.25, 1.35, 8.0]]
cases.add("clamp", [A, LOW, HIGH], torch=torch.clamp)
cases.add("clamp", [A, LOW], ["$1"], torch=lambda x, low: torch.clamp(x, low))
cases.add("clamp", [A, HIGH], [None, "$1"], torch=lambda x, high: torch.clamp(x, None, high))
cases.add("clampMin", [A, LOW], torch=torch.clamp_min)
cases.add("clamp", [A], [None, 0.7], torch=lambda x: torch.clamp(x, max=0.7))
cases.write("elementwise.json")
