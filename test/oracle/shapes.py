"""Writes shapes.json: PyTorch's results of methods and functions that rearrange, split, join, scan and summarise. Run it with torch 1.13."""

import torch as T
from oracle_cases import Cases

nan, inf = float("nan"), float("inf")
cases = Cases()
V = [1.5, -2.0, 0.5, 3.0, -1.0]
M = [[1.0, 2.0, -3.0], [4.0, 0.5, 6.0]]
S = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 10.0]]
C = [[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[7.0, 8.0], [9.0, 10.0], [11.0, 12.0]]]
F = ("f64",)


def method(name, x, args, call, **options):
    cases.add(name, [x], args, torch=call, dtypes=options.pop("dtypes", F), **options)


for axis in (0, 1):
    method("unbind", M, [axis], lambda x: T.unbind(x, axis))
method("roll", M, [2], lambda x: T.roll(x, 2))
method("roll", M, [-1, 1], lambda x: T.roll(x, -1, 1))
method("roll", C, [[1, 4], [0, 1]], lambda x: T.roll(x, (1, 4), (0, 1)))
for k in (-1, 0, 1, 2, 3):
    method("rot90", C, [k, [0, 2]], lambda x: T.rot90(x, k, [0, 2]))
method("fliplr", M, [], T.fliplr)
method("flipud", M, [], T.flipud)
method("repeat", M, [[2, 1, 3]], lambda x: x.repeat(2, 1, 3))
method("unfold", V, [0, 3, 2], lambda x: x.unfold(0, 3, 2))
method("unfold", C, [1, 2, 1], lambda x: x.unfold(1, 2, 1))
method("swapaxes", C, [0, -1], lambda x: T.swapaxes(x, 0, -1))
method("broadcastTo", V, [[2, 5]], lambda x: T.broadcast_to(x, (2, 5)))
method("sumToSize", C, [[3, 1]], lambda x: x.sum_to_size(3, 1))
method("unsqueeze", V, [[0, -1]], lambda x: x.unsqueeze(0).unsqueeze(-1))
method("tensorSplit", V, [3], lambda x: T.tensor_split(x, 3))
method("tensorSplit", V, [[1, -1]], lambda x: T.tensor_split(x, (1, -1)))
method("tensorSplit", M, [4, 1], lambda x: T.tensor_split(x, 4, 1))
method("tensorSplit", V, [[3, 1, 9]], lambda x: T.tensor_split(x, (3, 1, 9)))
method("hsplit", M, [3], lambda x: T.hsplit(x, 3))
method("vsplit", M, [[1]], lambda x: T.vsplit(x, [1]))
method("dsplit", C, [2], lambda x: T.dsplit(x, 2))
for k in (-2, -1, 0, 1, 4):
    method("diagonal", M, [k], lambda x: T.diagonal(x, k))
    method("tril", S, [k], lambda x: T.tril(x, k))
    method("triu", C, [k], lambda x: T.triu(x, k))
    method("diagEmbed", M, [k], lambda x: T.diag_embed(x, k))
method("diagonal", C, [1, 2, 1], lambda x: T.diagonal(x, 1, 2, 1))
method("diagEmbed", M, [1, 0, 2], lambda x: T.diag_embed(x, 1, 0, 2))
method("diag", V, [1], lambda x: T.diag(x, 1))
method("diag", M, [1], lambda x: T.diag(x, 1))
method("diagflat", M, [-1], lambda x: T.diagflat(x, -1))
for axis in (0, -1):
    method("cumprod", [[1.5, 0.0, 2.0, -3.0, 0.5], [0.2, 3.0, 0.0, 0.0, 1.0]], [axis], lambda x: T.cumprod(x, axis))
    method("logcumsumexp", S, [axis], lambda x: T.logcumsumexp(x, axis))
    for name in ("cummax", "cummin"):
        method(name, [[1.0, 3.0, 3.0, -2.0, nan, 5.0, nan, 1.0], [2.0, 2.0, 9.0, 1.0, 0.0, 0.0, 1.0, -inf]], [axis], lambda x: getattr(T, name)(x, axis), grads=False)
        method(name, [[1.0, 4.0, 3.0, -2.0], [2.0, 2.5, 9.0, 1.0]], [axis], lambda x: getattr(T, name)(x, axis))
method("cumprod", [1, 2, -3, 4], [0], lambda x: T.cumprod(x, 0, dtype=T.int32), dtypes=["i32"])
method("diff", S, [], T.diff)
method("diff", S, [2, 0], lambda x: T.diff(x, n=2, dim=0))
method("diff", [1, 0, 0, 1], [], T.diff, dtypes=["bool"])
cases.add("diff", [M, S], [1, 0, {"prepend": "$1"}], torch=lambda x, y: T.diff(x, dim=0, prepend=y), dtypes=F)
method("trapezoid", S, [], T.trapezoid)
method("trapezoid", S, [{"dx": 0.5, "axis": 0}], lambda x: T.trapezoid(x, dx=0.5, dim=0))
cases.add("trapezoid", [S, [1.0, 2.5, 3.0]], [{"x": "$1"}], torch=lambda y, x: T.trapezoid(y, x), dtypes=F)
method("cumulativeTrapezoid", S, [], T.cumulative_trapezoid)
N = [[1.0, nan, 3.0], [nan, nan, 2.0]]
for args, kw in (([], {}), ([1], {"dim": 1}), ([0, {"keepdim": True}], {"dim": 0, "keepdim": True})):
    method("nansum", N, args, lambda x: T.nansum(x, **kw))
    method("nanmean", N, args, lambda x: T.nanmean(x, **kw), grads=False)
    method("aminmax", M, args, lambda x: T.aminmax(x, **kw), grads=False)
method("countNonzero", [[1.0, 0.0], [0.0, 0.0]], [1], lambda x: T.count_nonzero(x, 1))
method("stdMean", M, [1], lambda x: T.std_mean(x, 1))
method("varMean", M, [1, {"correction": 0}], lambda x: T.var_mean(x, 1, correction=0))
method("cov", S, [], T.cov)
method("cov", V, [{"correction": 0}], lambda x: T.cov(x, correction=0))
cases.add("cov", [S, [1, 2, 3], [0.5, 0.25, 1.0]], [{"fweights": "$1", "aweights": "$2"}], torch=lambda x, f, a: T.cov(x, fweights=f, aweights=a), dtypes=F, grads=False, mixed=[None, "i32", None])
method("corrcoef", [[1.0, 2.0, 4.0], [4.0, 5.5, 6.0], [7.0, 1.0, 10.0]], [], T.corrcoef)


def function(name, inputs, args=None, call=None, **options):
    cases.add(name, inputs, args, torch=call, kind="function", dtypes=F, **options)


T2, T3 = lambda *x: list(x), None
for name, inputs in (("hstack", [V, V]), ("hstack", [M, S[:2]]), ("vstack", [V, [V]]), ("dstack", [V, V]), ("dstack", [M, M]), ("columnStack", [M, [7.0, 8.0]])):
    torch_name = {"columnStack": "column_stack"}.get(name, name)
    function(name, inputs, [["$0", "$1"]], lambda *x: getattr(T, torch_name)(x))
function("broadcastTensors", [[[1.0], [2.0]], V], call=T.broadcast_tensors)
function("atleast1d", [3.0], call=T.atleast_1d)
function("atleast2d", [V], call=T.atleast_2d)
function("atleast3d", [M], call=T.atleast_3d)
for indexing in ("ij", "xy"):
    function("meshgrid", [V, [1.0, 2.0], [5.0, 6.0, 7.0]], [["$0", "$1", "$2"], {"indexing": indexing}], lambda *x: T.meshgrid(*x, indexing=indexing))
function("cartesianProd", [V, [1.0, 2.0]], call=T.cartesian_prod)
function("combinations", [V], ["$0", 3], lambda x: T.combinations(x, 3))
function("combinations", [V], ["$0", 2, {"withReplacement": True}], lambda x: T.combinations(x, 2, True))
function("vander", [V], ["$0", 4], lambda x: T.vander(x, 4), grads=False)
function("vander", [V], ["$0", 3, {"increasing": True}], lambda x: T.vander(x, 3, True), grads=False)
D = {"dtype": "f64"}
for name, torch_name in (("hannWindow", "hann"), ("hammingWindow", "hamming"), ("blackmanWindow", "blackman"), ("bartlettWindow", "bartlett"), ("kaiserWindow", "kaiser")):
    for length, periodic in ((1, True), (5, True), (6, False)):
        function(name, [], [length, {"periodic": periodic, **D}], lambda: getattr(T, torch_name + "_window")(length, periodic, dtype=T.float64))
function("logspace", [], [-1, 2, 5, {"base": 2, **D}], lambda: T.logspace(-1, 2, 5, base=2, dtype=T.float64))
for name in ("trilIndices", "triuIndices"):
    function(name, [], [3, 4, {"offset": 1}], lambda: getattr(T, name[:4] + "_indices")(3, 4, 1))
U = [[1.0, 2.0, 4.0, 8.5], [10.0, 20.0, 45.0, 80.0], [3.0, -1.0, 0.5, 2.0]]
function("gradient", [U], call=T.gradient)
function("gradient", [U], ["$0", {"spacing": 2, "edgeOrder": 2}], lambda x: T.gradient(x, spacing=2.0, edge_order=2))
function("gradient", [U], ["$0", {"spacing": [0.5], "axes": 1}], lambda x: T.gradient(x, spacing=[0.5], dim=1))
for order in (1, 2):
    function("gradient", [U, [0.0, 1.0, 4.0], [-1.0, 0.5, 1.0, 3.0]], ["$0", {"spacing": ["$1", "$2"], "edgeOrder": order}], lambda x, a, b: T.gradient(x, spacing=(a.detach(), b.detach()), edge_order=order))
function("gradient", [U], ["$0", {"axes": [-1]}], lambda x: T.gradient(x[:, :], dim=[-1]))
cases.write("shapes.json")
