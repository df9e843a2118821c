"""Writes selections.json: PyTorch's results of sorting, order statistics, scatters and searches. Run it with torch 1.13."""

import torch as T
from oracle_cases import Cases

nan, inf = float("nan"), float("inf")
cases = Cases()
F = ("f64",)
M = [[3.0, -1.0, 4.0, 1.5, -5.0, 9.0, 2.5], [2.0, 7.0, 1.0, 8.0, -2.5, -8.0, 0.5]]
N = [[3.0, nan, 1.0, inf, -inf, 1.0, 0.0, -0.0, nan, 2.0, 2.0], [1.0, 1.0, 1.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0, -1.0, 7.0]]
GAPS = [[3.0, nan, 1.0, 4.0, 6.0], [nan, nan, nan, 2.0, nan]]


def method(name, x, args, call, **options):
    cases.add(name, [x], args, torch=call, dtypes=options.pop("dtypes", F), **options)


for axis in (0, 1):
    method("sort", M, [axis], lambda x: x.sort(stable=True, dim=axis))
    method("sort", M, [axis, {"descending": True}], lambda x: x.sort(stable=True, dim=axis, descending=True))
for down in (False, True):
    method("sort", N, [-1, {"descending": down}], lambda x: x.sort(stable=True, dim=-1, descending=down), grads=False)
    method("argsort", N, [1, {"descending": down}], lambda x: x.sort(stable=True, dim=1, descending=down).indices, grads=False)
    method("sort", [3, -1, 3, 0, 2147483647, -2147483648, 3], [0, {"descending": down}], lambda x: x.sort(stable=True, descending=down), dtypes=["i32"])
method("msort", M, [], T.msort)
method("topk", M, [3], lambda x: T.topk(x, 3))
method("topk", M, [1, 0, {"largest": False}], lambda x: T.topk(x, 1, 0, largest=False))
method("kthvalue", M, [4], lambda x: T.kthvalue(x, 4))
method("kthvalue", M, [2, 0, {"keepdim": True}], lambda x: T.kthvalue(x, 2, 0, True))
method("median", M, [], T.median)
method("median", M, [1], lambda x: T.median(x, 1))
method("median", M, [0, {"keepdim": True}], lambda x: T.median(x, 0, True))
method("median", [[1.0, nan, 2.0, nan], [4.0, 3.0, 2.0, 1.0]], [1], lambda x: T.median(x, 1), grads=False)
method("median", [1.0, nan], [], T.median, grads=False)
method("nanmedian", GAPS, [1], lambda x: T.nanmedian(x, 1), grads=False)
method("nanmedian", GAPS, [], T.nanmedian, grads=False)
for q in (0.3, [0.0, 0.25, 1.0]):
    for how in ("linear", "lower", "higher", "midpoint", "nearest"):
        tq = q if isinstance(q, float) else T.tensor(q, dtype=T.float64)
        method("quantile", M, [q, 1, {"interpolation": how}], lambda x: T.quantile(x, tq, 1, interpolation=how))
method("quantile", M, [0.5], lambda x: T.quantile(x, 0.5))
method("quantile", GAPS, [0.5, 1, {"keepdim": True}], lambda x: T.quantile(x, 0.5, 1, keepdim=True), grads=False)
method("nanquantile", GAPS, [0.4, 1], lambda x: T.nanquantile(x, 0.4, 1), grads=False)

I = [[0, 2, 2], [1, 1, 0]]
S = [[1.5, -2.0, 3.0], [0.5, 4.0, -6.0]]


def indexed(name, inputs, args, call, mixed, **options):
    """Index inputs are i64 for PyTorch."""
    longs = lambda *x: call(*[t.long() if t.dtype == T.int32 else t for t in x])
    cases.add(name, inputs, args, torch=longs, dtypes=F, mixed=mixed, **options)


X = [[1.0, -2.0, 3.0, 4.0], [5.0, 6.0, -7.0, 8.0], [0.5, 2.0, 3.0, 1.0]]
D = [[0, 2, 1, 0], [1, 0, 2, 2]]
V = [[1.5, -2.0, 3.0, 9.0], [0.5, 4.0, -6.0, 7.0]]
indexed("scatter", [X, D, V], [0, "$1", "$2"], lambda x, i, s: x.scatter(0, i, s), [None, "i32", None])
indexed("scatter", [X, [[3], [0], [1]], [[9.0], [8.0], [7.0]]], [1, "$1", "$2"], lambda x, i, s: x.scatter(1, i, s), [None, "i32", None])
indexed("scatter", [X, D], [0, "$1", 2.5], lambda x, i: x.scatter(0, i, 2.5), [None, "i32"])
for reduce in ("sum", "prod", "mean", "amax", "amin"):
    for include in (True, False):
        indexed("scatterReduce", [X, [[0, 2, 2, 1], [0, 1, 0, 1], [0, 0, 2, 1]], [[2.5, 4.0, -1.0, 3.0], [1.5, 2.0, 5.0, -4.0], [-3.0, 0.25, 6.0, 2.0]]],
                [0, "$1", "$2", reduce, {"includeSelf": include}],
                lambda x, i, s: x.scatter_reduce(0, i, s, reduce, include_self=include), [None, "i32", None], grads=reduce != "prod")
indexed("indexAdd", [X, [2, 0, 2], X], [0, "$1", "$2", {"alpha": 0.5}], lambda x, i, s: x.index_add(0, i, s, alpha=0.5), [None, "i32", None])
indexed("indexCopy", [X, [2, 0], [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]], [1, "$1", "$2"], lambda x, i, s: x.index_copy(1, i, s), [None, "i32", None])
indexed("indexFill", [X, [2, 0]], [1, "$1", 7.5], lambda x, i: x.index_fill(1, i, 7.5), [None, "i32"])
cases.add("maskedScatter", [S, [[1, 0, 1], [0, 1, 1]], [9.0, 8.0, 7.0, 6.0, 5.0]], torch=lambda x, m, s: x.masked_scatter(m, s), dtypes=F, mixed=[None, "bool", None])
cases.add("maskedSelect", [S, [[1, 0, 1], [0, 1, 1]]], torch=T.masked_select, dtypes=F, mixed=[None, "bool"])
indexed("take", [X, [[0, 5], [-1, 5]]], ["$1"], lambda x, i: T.take(x, i), [None, "i32"])
indexed("put", [X, [1, -2, 5], [9.0, 8.0, 7.0]], ["$1", "$2"], lambda x, i, s: x.put(i, s), [None, "i32", None])
indexed("put", [X, [1, 1, 5], [9.0, 8.0, 7.0]], ["$1", "$2", {"accumulate": True}], lambda x, i, s: x.put(i, s, accumulate=True), [None, "i32", None])
indexed("takeAlongDim", [X, [[3, 0]]], ["$1", 1], lambda x, i: T.take_along_dim(x, i, 1), [None, "i32"])
cases.add("selectScatter", [X, [9.0, 8.0, 7.0]], ["$1", 1, -2], torch=lambda x, s: x.select_scatter(s, 1, -2), dtypes=F)
cases.add("sliceScatter", [X, [[9.0, 8.0], [7.0, 6.0], [5.0, 4.0]]], ["$1", 1, {"start": 1, "step": 2}], torch=lambda x, s: x.slice_scatter(s, 1, 1, None, 2), dtypes=F)
method("nonzero", [[0.0, 1.5, 0.0], [2.0, 0.0, -1.0]], [], T.nonzero, grads=False)
method("argwhere", [0, 3, 0, 5], [], T.argwhere, dtypes=["i32"])
for x in ([[0.0, 1.5, 0.0], [2.0, 0.0, -1.0]], [0.0, 0.0], 2.0, 0.0, [[[0.0, nan]], [[-0.0, 1.0]]]):
    cases.add("where", [x], ["$0"], torch=T.where, dtypes=F, grads=False, kind="function")
for x in ([3.0, 1.0, 3.0, 2.0, 2.0, 3.0], [[1.0, 1.0], [0.5, 1.0]]):
    method("unique", x, [], lambda x: T.unique(x, return_inverse=True, return_counts=True), grads=False)
    method("uniqueConsecutive", x, [], lambda x: T.unique_consecutive(x, return_inverse=True, return_counts=True), grads=False)
method("bincount", [3, 1, 3, 0], [{"minLength": 6}], lambda x: T.bincount(x, minlength=6), dtypes=["i32"])
cases.add("bincount", [[3, 1, 3, 0], [0.5, 1.5, 2.0, 1.0]], [{"weights": "$1"}], torch=lambda x, w: T.bincount(x, w), dtypes=F, mixed=["i32", None], grads=False)
method("histc", [1.0, 2.0, 1.5, 4.0, 9.0, -1.0], [4, 0, 4], lambda x: T.histc(x, 4, 0, 4), grads=False)
method("histc", [1.0, 2.0, 1.5, 4.0], [5], lambda x: T.histc(x, 5), grads=False)
for bins, rest in ((4, {}), (5, {"range": (0.0, 4.0)}), (3, {"density": True, "range": (1.0, 4.0)}), (2, {"range": (2.0, 2.0)})):
    method("histogram", [1.0, 2.0, 1.5, 4.0, 9.0, -1.0, 2.0], [bins, {k: list(v) if isinstance(v, tuple) else v for k, v in rest.items()}], lambda x: T.histogram(x, bins, **rest), grads=False)
cases.add("histogram", [[0.5, 1.0, 2.0, 3.0, 3.5, 7.0], [0.0, 1.0, 3.0, 3.5], [1.0, 2.0, 0.5, 4.0, 8.0, 16.0]], ["$1", {"weight": "$2"}], torch=lambda x, b, w: T.histogram(x, b, weight=w), dtypes=F, grads=False)
indexed("indexPut", [X, [0, 2, 0], [1, -1, 3], [9.0, 8.0, 7.0]], [["$1", "$2"], "$3"], lambda x, i, j, v: x.index_put((i, j), v), [None, "i32", "i32", None])
indexed("indexPut", [X, [[0], [2]], [1, 3], [9.0, 8.0]], [["$1", "$2"], "$3", {"accumulate": True}], lambda x, i, j, v: x.index_put((i, j), v, accumulate=True), [None, "i32", "i32", None])
indexed("indexPut", [X, [1, -1, 1], [9.0, 8.0, 7.0, 6.0]], [["$1"], "$2", {"accumulate": True}], lambda x, i, v: x.index_put((i,), v, accumulate=True), [None, "i32", None])
cases.add("indexPut", [X, [1, 0, 1], [9.0, 8.0, 7.0, 6.0]], [["$1"], "$2"], torch=lambda x, m, v: x.index_put((m,), v), dtypes=F, mixed=[None, "bool", None])
SORTED = [1.0, 3.0, 3.0, 5.0, 9.0]
for right in (False, True):
    for name, inputs, call in (("searchsorted", [SORTED, [[0.0, 1.0, 3.0], [4.0, 9.0, 10.0]]], lambda s, v: T.searchsorted(s, v, right=right)),
                               ("searchsorted", [[SORTED, [2.0, 2.5, 3.0, 4.0, 4.0]], [[3.0, 1.0], [4.0, 5.0]]], lambda s, v: T.searchsorted(s, v, right=right)),
                               ("bucketize", [[[0.0, 1.0, 3.0], [4.0, 9.0, 10.0]], SORTED], lambda v, b: T.bucketize(v, b, right=right))):
        cases.add(name, inputs, ["$0", "$1", {"right": right}], torch=call, dtypes=F, grads=False, kind="function")
for invert in (False, True):
    cases.add("isin", [M, [4.0, -8.0, 100.0]], ["$0", "$1", {"invert": invert}], torch=lambda x, t: T.isin(x, t, invert=invert), dtypes=F, grads=False, kind="function")
P = [[3.0, -1.0, 3.0, -1.0, 0.5]]
method("sort", P, [1, {"stable": True}], lambda x: x.sort(dim=1, stable=True))
indexed("scatter", [X, D, V], [0, "$1", "$2", {"reduce": "add"}], lambda x, i, s: x.scatter(0, i, s, reduce="add"), [None, "i32", None], grads=False)
indexed("scatter", [X, D, V], [0, "$1", "$2", {"reduce": "multiply"}], lambda x, i, s: x.scatter(0, i, s, reduce="multiply"), [None, "i32", None], grads=False)
method("repeatInterleave", M, [[2, 0], 0], lambda x: x.repeat_interleave(T.tensor([2, 0]), 0))
method("repeatInterleave", [1.5, 2.5, 3.5], [[1, 0, 3]], lambda x: x.repeat_interleave(T.tensor([1, 0, 3])))
indexed("repeatInterleave", [M, [1, 2, 0, 1, 1, 3, 0]], ["$1", 1], lambda x, r: x.repeat_interleave(r, 1), [None, "i32"])
method("median", [[2.0, 3.0, 3.0], [3.0, 1.0, 5.0]], [], T.median)
method("nanmedian", [2.0, nan, 3.0, 2.0, 2.0, 7.0], [], T.nanmedian)
for offset in (0, 1, -1):
    for x, first, second in ((X, 0, 1), (X, 1, 0), ([X, V + D[:1]], 1, -1), ([X, V + D[:1]], -1, 0)):
        size = T.diagonal(T.tensor(x), offset, first, second).shape
        source = (T.arange(size.numel()).reshape(size) + 0.5).tolist()
        cases.add("diagonalScatter", [x, source], ["$1", offset, first, second], torch=lambda a, b: a.diagonal_scatter(b, offset, first, second), dtypes=F)
# The edge of the last interval is computed, and must not lose the largest element.
method("histogram", [0.1, 0.2, 0.30000000000000004, 2.3, 4.1], [7], lambda x: T.histogram(x, 7), grads=False)
method("histogram", [-0.3, 0.2, 0.7, 1.1, 2.9], [3, {"range": [-0.3, 2.9]}], lambda x: T.histogram(x, 3, range=(-0.3, 2.9)), grads=False)
cases.write("selections.json")
