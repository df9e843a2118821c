"""Writes algebra.json: cases of products, distances and linear algebra, computed by PyTorch on the CPU in float64.

    python3 test/oracle/algebra.py
"""

import json
from pathlib import Path

import torch

torch.manual_seed(20240611)
torch.set_default_dtype(torch.float64)


def rounded(*shape):
    """Normal numbers with six binary places: exact in float32, and short."""
    return (torch.randn(shape) * 64).round() / 64


def listed(x):
    return {"shape": list(x.shape), "values": x.double().reshape(-1).tolist()}


cases = []


def case(op, function, inputs, args=()):
    """`function` takes the inputs, then the arguments. Float outputs get a random upstream gradient."""
    inputs = [x if torch.is_tensor(x) else rounded(*x) for x in inputs]
    leaves = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    outputs = function(*leaves, *args)
    outputs = list(outputs) if isinstance(outputs, (tuple, list)) else [outputs]
    upstreams = [rounded(*y.shape) if y.requires_grad else None for y in outputs]
    total = sum((y * up).sum() for y, up in zip(outputs, upstreams) if up is not None)
    grads = torch.autograd.grad(total, leaves, allow_unused=True) if torch.is_tensor(total) else [None] * len(leaves)
    cases.append({
        "op": op,
        "args": list(args),
        "inputs": [listed(x) for x in inputs],
        "outputs": [listed(y.detach()) for y in outputs],
        "upstreams": [None if up is None else listed(up) for up in upstreams],
        "grads": [None if grad is None or not grad.any() else listed(grad) for grad in grads],
    })


def einsum(*operands):
    *tensors, equation = operands
    return torch.einsum(equation, *tensors)


for equation, *shapes in [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba,ca", (2, 3), (4, 3)),
    ("bij,bjk->bik", (2, 2, 3), (2, 3, 2)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (3, 3, 2)),
    ("i...,i...->...", (3, 2), (3, 1)),
    ("b...d,dk", (2, 3, 2), (2, 2)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iji->j", (2, 3, 2)),
    ("...ii->...i", (2, 3, 3)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("i,i->", (3,), (3,)),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ij,kj->k", (2, 3), (4, 3)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 4)),
    ("bhqd,bhkd,bhkv->bhqv", (1, 2, 2, 3), (1, 2, 3, 3), (1, 2, 3, 2)),
    ("bn,anm,bm->ba", (2, 3), (2, 3, 2), (2, 2)),
    ("Ab,bA->bA", (2, 3), (3, 2)),
    ("aab,b->a", (2, 2, 3), (3,)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("ij,,j->i", (2, 3), (), (3,)),
]:
    case("einsum", einsum, shapes, [equation])

case("tensordot", lambda a, b, axes: torch.tensordot(a, b, axes), [(2, 3, 4), (3, 4, 2)], [2])
case("tensordot", lambda a, b, axes: torch.tensordot(a, b, axes), [(2, 3), (4, 2)], [0])
case("tensordot", lambda a, b, axes: torch.tensordot(a, b, axes), [(3, 4, 2), (4, 3, 2)], [[[1, 0], [0, -2]]])
case("mv", torch.mv, [(2, 3), (3,)])
case("dot", torch.dot, [(4,), (4,)])
case("vdot", torch.vdot, [(4,), (4,)])
case("inner", torch.inner, [(2, 3), (4, 2, 3)])
case("inner", torch.inner, [(2, 3), ()])
case("outer", torch.outer, [(2,), (3,)])
case("kron", torch.kron, [(2, 3), (2, 2)])
case("kron", torch.kron, [(2,), (2, 1, 2)])
case("cross", lambda a, b: torch.cross(a, b), [(2, 3), (2, 3)])
case("cross", lambda a, b, dim: torch.cross(a, b, dim=dim), [(3, 3), (3, 3)], [1])
case("trace", torch.trace, [(3, 4)])
# PyTorch 1.13 gives the trace of a matrix with more rows than columns a wrong gradient.
for name, x, a, b in [
    ("addmm", (2, 4), (2, 3), (3, 4)),
    ("addmm", (4,), (2, 3), (3, 4)),
    ("addmv", (2,), (2, 3), (3,)),
    ("addr", (2, 3), (2,), (3,)),
    ("baddbmm", (2, 1, 3), (2, 2, 2), (2, 2, 3)),
    ("addbmm", (2, 3), (2, 2, 2), (2, 2, 3)),
]:
    case(name, lambda x, a, b, beta, alpha, name=name: getattr(torch, name)(x, a, b, beta=beta, alpha=alpha), [x, a, b], [0.5, 2])
for p in [2, 1, 3, float("inf")]:
    case("cdist", lambda a, b, p: torch.cdist(a, b, p=float(p)), [(2, 2, 3), (3, 3)], ["inf" if p == float("inf") else p])
    case("pdist", lambda x, p: torch.pdist(x, p=float(p)), [(4, 2)], ["inf" if p == float("inf") else p])
case("dist", lambda a, b, p: torch.dist(a, b, p), [(2, 3), (3,)], [2])
case("dist", lambda a, b, p: torch.dist(a, b, p), [(2, 3), (2, 3)], [1])
case("renorm", lambda x, p, dim, limit: torch.renorm(x, p, dim, limit), [(3, 4)], [2, 0, 1.5])
case("renorm", lambda x, p, dim, limit: torch.renorm(x, p, dim, limit), [(2, 3, 2)], [1, 1, 2])
case("block_diag", lambda *blocks: torch.block_diag(*blocks), [(2, 3), (2,), (), (1, 2)])

linalg = torch.linalg


def regular(*shape):
    """Far from singular, with distinct singular values."""
    m, n = shape[-2:]
    return (rounded(*shape) + torch.eye(m, n) * torch.arange(1.0, n + 1) * 2).float().double()


def symmetric(x):
    return (x + x.mT) / 2


def positive(x):
    return x @ x.mT + torch.eye(x.shape[-1])


case("linalg.solve", linalg.solve, [regular(3, 3), (3, 2)])
case("linalg.solve", linalg.solve, [regular(2, 3, 3), (3,)])
case("linalg.solve", linalg.solve, [regular(2, 3, 3), (2, 3)])
case("linalg.solve", linalg.solve, [regular(2, 1, 2, 2), (3, 2, 1)])
case("linalg.solve_right", lambda a, b: linalg.solve(a, b, left=False), [regular(3, 3), (2, 3)])
for upper in [True, False]:
    for left in [True, False]:
        case("linalg.solve_triangular",
             lambda a, b, upper, left, unit: linalg.solve_triangular(a, b, upper=upper, left=left, unitriangular=unit),
             [regular(2, 3, 3), (3, 3)], [upper, left, upper != left])
case("linalg.inv", linalg.inv, [regular(2, 3, 3)])
case("linalg.pinv", linalg.pinv, [regular(4, 2)])
case("linalg.pinv", linalg.pinv, [regular(2, 2, 3)])
case("linalg.pinv", lambda x: linalg.pinv(x @ x.mT), [(3, 2)])
case("linalg.matrix_rank", linalg.matrix_rank, [torch.tensor([[[1., 2], [2, 4]], [[1, 0], [0, 1]], [[0, 0], [0, 0]]])])
case("linalg.lstsq", lambda a, b: linalg.lstsq(a, b, driver="gelsd")[:1], [regular(4, 2), (4, 3)])
case("linalg.lstsq", lambda a, b: linalg.lstsq(a, b, driver="gelsd")[:1], [regular(2, 2, 4), (2, 2, 1)])
case("linalg.det", linalg.det, [regular(2, 3, 3)])
case("linalg.det", lambda x: linalg.det(x @ x.mT), [(3, 2)])
case("linalg.slogdet", lambda a: tuple(linalg.slogdet(a)), [torch.stack([regular(3, 3), -regular(3, 3)])])
case("linalg.logdet", torch.logdet, [regular(3, 3)])
case("linalg.cholesky", lambda a, upper: linalg.cholesky(positive(a), upper=upper), [(2, 3, 3)], [False])
case("linalg.cholesky", lambda a, upper: linalg.cholesky(positive(a), upper=upper), [(3, 3)], [True])
case("linalg.cholesky_solve", lambda b, a: torch.cholesky_solve(b, linalg.cholesky(positive(a))), [(3, 2), (3, 3)])
case("linalg.cholesky_inverse", lambda a: torch.cholesky_inverse(linalg.cholesky(positive(a))), [(3, 3)])
for shape in [(2, 3, 3), (3, 5), (4, 2)]:
    case("linalg.lu", lambda a: tuple(linalg.lu(a)), [rounded(*shape)])
    case("linalg.lu_factor", lambda a: tuple(linalg.lu_factor(a)), [rounded(*shape)])
case("linalg.lu_solve", lambda a, b: linalg.lu_solve(*linalg.lu_factor(a), b), [rounded(2, 3, 3), (3, 2)])
for shape in [(2, 4, 3), (3, 3), (2, 4)]:
    case("linalg.qr", lambda a: tuple(linalg.qr(a)), [rounded(*shape)])
# Vectors are unique up to their signs, so their squares are compared.
case("linalg.eigh", lambda a: (lambda w, v: (w, v.square()))(*linalg.eigh(symmetric(a))), [regular(2, 3, 3)])
case("linalg.eigvalsh", lambda a: linalg.eigvalsh(symmetric(a)), [regular(3, 3)])
for shape in [(2, 3, 3), (4, 2), (2, 3)]:
    case("linalg.svd", lambda a: (lambda u, s, v: (u.square(), s, v.square()))(*linalg.svd(a, full_matrices=False)), [regular(*shape)])
case("linalg.svdvals", linalg.svdvals, [regular(2, 3, 2)])
case("linalg.cond", lambda a, p: linalg.cond(a, p), [regular(3, 2)], [2])
# PyTorch 1.13 has no gradient of cond for other orders.
case("linalg.cond", lambda a, p: linalg.matrix_norm(a, p) * linalg.matrix_norm(linalg.inv(a), p), [regular(3, 3)], ["fro"])
for order in ["fro", "nuc", 1, -1, 2, -2, "inf", "-inf"]:
    case("linalg.matrix_norm", lambda a, p: linalg.matrix_norm(a, float(p) if "inf" in str(p) else p), [regular(2, 3, 2)], [order])
for order in [0, 1, 2, 3, "inf", "-inf"]:
    case("linalg.vector_norm", lambda a, p, dim: linalg.vector_norm(a, float(p), dim=dim), [(2, 3)], [order, 1])
case("linalg.norm", lambda a: linalg.norm(a), [(2, 3)])
case("linalg.multi_dot", lambda *x: linalg.multi_dot(x), [(2, 5), (5, 1), (1, 4), (4, 3)])
case("linalg.multi_dot", lambda *x: linalg.multi_dot(x), [(3,), (3, 2), (2,)])
for n in [0, 1, 2, 5, -3]:
    case("linalg.matrix_power", lambda a, n: linalg.matrix_power(a, n), [regular(2, 2, 2)], [n])
case("linalg.matrix_exp", linalg.matrix_exp, [(2, 3, 3)])
case("linalg.matrix_exp", lambda a: linalg.matrix_exp(a), [regular(4, 4)])
case("linalg.vecdot", lambda x, y: linalg.vecdot(x, y), [(2, 3), (3,)])
case("linalg.vander", lambda x, n: linalg.vander(x, N=n), [(2, 3)], [4])
case("linalg.tensorinv", lambda a, ind: linalg.tensorinv(a, ind), [regular(6, 6).reshape(6, 2, 3)], [1])
case("linalg.tensorsolve", lambda a, b: linalg.tensorsolve(a, b), [regular(6, 6).reshape(2, 3, 6), (2, 3)])

Path(__file__).with_name("algebra.json").write_text(
    '{\n"about": "PyTorch %s on the CPU, in float64",\n"cases": [\n%s\n]\n}\n'
    % (torch.__version__.split("+")[0], ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases))
)
print(len(cases), "cases")
