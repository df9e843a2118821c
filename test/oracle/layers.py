"""Writes layers.json: functions of torch.nn.functional, with values and gradients in float64. Run it with PyTorch 1.13 on the CPU.

A case has the function's name, its operands, and `attrs`: the other arguments by Holdfast's names. `inputs` are tensors, null, or lists of
integers. `updated` has the operands that the function wrote to, by index.
"""

import json
import math
import os
import torch
import torch.nn.functional as F

torch.manual_seed(7)
here = os.path.dirname(os.path.abspath(__file__))
cases = []


def rounded(*shape, low=None, high=None):
    values = torch.randn(shape) if low is None else torch.empty(shape).uniform_(low, high)
    # Multiples of 1/64 are exact in float32, and short.
    return torch.round(values * 64).double() / 64


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


def losses():
    x, t = rounded(4, 3), rounded(4, 3)
    signs = torch.tensor([1.0, -1, 1, 1, -1, -1, 1, -1, 1, -1, 1, 1]).double().reshape(4, 3)
    p, q = rounded(4, 3, low=0.05, high=0.95), rounded(4, 3, low=0.05, high=0.95)
    w = rounded(3, low=0.5, high=2)
    case("binaryCrossEntropy", lambda x, t, w: F.binary_cross_entropy(x, t, w), [p, q, w], constants=(1, 2))
    case("klDiv", lambda x, t: F.kl_div(x, t, reduction="batchmean"), [x, q], {"reduction": "batchmean"})
    case("klDiv", lambda x, t: F.kl_div(x, t, reduction="none", log_target=True), [x, t], {"reduction": "none", "logTarget": True})
    counts = torch.tensor([0.0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5]).double().reshape(4, 3)
    case("poissonNllLoss", lambda x, t: F.poisson_nll_loss(x, t, full=True), [x, counts], {"full": True}, constants=(1,))
    case("poissonNllLoss", lambda x, t: F.poisson_nll_loss(x, t, log_input=False, reduction="sum"), [p, counts],
         {"logInput": False, "reduction": "sum"}, constants=(1,))
    case("gaussianNllLoss", lambda x, t, v: F.gaussian_nll_loss(x, t, v, full=True), [x, t, p], {"full": True})
    case("softMarginLoss", F.soft_margin_loss, [x, signs], constants=(1,))
    case("multilabelSoftMarginLoss", lambda x, t: F.multilabel_soft_margin_loss(x, t), [x, (signs + 1) / 2], constants=(1,))
    case("hingeEmbeddingLoss", lambda x, t: F.hinge_embedding_loss(x, t, 0.7), [x, signs], {"margin": 0.7}, constants=(1,))
    case("marginRankingLoss", lambda x, y, t: F.margin_ranking_loss(x, y, t, 0.3), [x, t, signs], {"margin": 0.3}, constants=(2,))
    case("cosineSimilarity", lambda x, y: F.cosine_similarity(x, y, 0), [x, t], {"axis": 0})
    case("pairwiseDistance", lambda x, y: F.pairwise_distance(x, y, 3.0), [x, t], {"p": 3})
    case("pdist", lambda x: F.pdist(x), [x])
    case("cosineEmbeddingLoss", lambda x, y, t: F.cosine_embedding_loss(x, y, t, 0.1), [x, t, signs[:, 0].contiguous()],
         {"margin": 0.1}, constants=(2,))
    case("tripletMarginLoss", lambda a, p, n: F.triplet_margin_loss(a, p, n, 0.5, 2.0, 1e-6, True),
         [x, t, rounded(4, 3)], {"margin": 0.5, "swap": True})
    case("tripletMarginWithDistanceLoss", lambda a, p, n: F.triplet_margin_with_distance_loss(a, p, n, margin=2.0),
         [x, t, rounded(4, 3)], {"margin": 2})
    labels = torch.tensor([0, 2, 1, 1])
    case("multiMarginLoss", lambda x, t, w: F.multi_margin_loss(x, t, 2, 0.8, w), [x, labels, w], {"p": 2, "margin": 0.8}, constants=(2,))
    case("multilabelMarginLoss", lambda x, t: F.multilabel_margin_loss(x, t),
         [x, torch.tensor([[0, 2, -1], [1, -1, 0], [-1, 0, 0], [2, 1, 0]])])
    sizes = [torch.tensor([6, 5, 3]), torch.tensor([3, 2, 0])]
    targets = torch.tensor([[1, 1, 2], [3, 1, 2], [1, 2, 2]])
    for options in [{}, {"reduction": "sum", "blank": 3, "zeroInfinity": True}]:
        blank = options.get("blank", 0)
        case("ctcLoss", lambda x, t, i, l: F.ctc_loss(x.log_softmax(-1), t, i, l, blank, options.get("reduction", "mean"), "zeroInfinity" in options),
             [rounded(6, 3, 4), targets if blank == 0 else targets - 1, *sizes], options)
    # A target that is too long for its input.
    case("ctcLoss", lambda x, t, i, l: F.ctc_loss(x.log_softmax(-1), t, i, l, 0, "none", True),
         [rounded(3, 2, 4), torch.tensor([[1, 1, 2], [1, 2, 3]]), torch.tensor([3, 3]), torch.tensor([3, 3])],
         {"reduction": "none", "zeroInfinity": True})


def images():
    conv = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
    for rank, sizes in [(1, [4]), (2, [3, 2]), (3, [2, 2, 1])]:
        case(f"convTranspose{rank}d", lambda x, w, b: conv[rank](x, w, b, 2, 1, 1, 2, 2),
             [rounded(2, 4, *sizes), rounded(4, 3, *[2] * rank), rounded(6)],
             {"stride": 2, "padding": 1, "outputPadding": 1, "groups": 2, "dilation": 2})
    case("conv3d", lambda x, w, b: F.conv3d(x, w, b, (2, 1, 1), (1, 0, 1)), [rounded(2, 2, 3, 3, 3), rounded(3, 2, 2, 2, 2), rounded(3)],
         {"stride": [2, 1, 1], "padding": [1, 0, 1]})
    x3 = torch.randperm(2 * 3 * 4 * 4).double().reshape(1, 2, 3, 4, 4) / 8
    case("maxPool3d", lambda x: F.max_pool3d(x, 2, 1, 1), [x3], {"kernel": 2, "stride": 1, "padding": 1})
    case("avgPool3d", lambda x: F.avg_pool3d(x, (1, 2, 3), (1, 2, 1)), [x3], {"kernel": [1, 2, 3], "stride": [1, 2, 1]})
    x1, x2 = x3[0, :, 0, :, 0].contiguous(), x3[:, :, 0]
    adaptive = [("1d", x1, 3), ("2d", x2, [3, 2]), ("3d", x3, [2, 4, 3])]
    for name, x, size in adaptive:
        for kind in ["avg", "max"]:
            function = getattr(F, f"adaptive_{kind}_pool{name}")
            case(f"adaptive{kind.capitalize()}Pool{name}", lambda x: function(x, size), [x], {"size": size})
    case("lpPool1d", lambda x: F.lp_pool1d(x, 3, 2), [rounded(1, 2, 5, low=0.1, high=2)], {"p": 3, "kernel": 2})
    case("lpPool2d", lambda x: F.lp_pool2d(x, 2, 2, 1), [rounded(1, 2, 3, 3)], {"p": 2, "kernel": 2, "stride": 1})
    small = rounded(1, 2, 3, 4)
    for options in [{"scaleFactor": 2}, {"size": [4, 3]}, {"size": [5, 7], "mode": "bilinear"},
                    {"scaleFactor": 1.7, "mode": "bilinear"}, {"size": [5, 2], "mode": "bilinear", "alignCorners": True},
                    {"size": [4, 7], "mode": "bicubic"}, {"scaleFactor": 2, "mode": "bicubic", "alignCorners": True},
                    {"size": [2, 3], "mode": "area"}]:
        names = {"scaleFactor": "scale_factor", "alignCorners": "align_corners"}
        case("interpolate", lambda x: F.interpolate(x, **{names.get(k, k): v for k, v in options.items()}), [small], options)
    case("interpolate", lambda x: F.interpolate(x, size=[2, 3, 3], mode="trilinear"), [rounded(1, 1, 3, 2, 2)],
         {"size": [2, 3, 3], "mode": "trilinear"})
    case("interpolate", lambda x: F.interpolate(x, size=5, mode="linear"), [rounded(2, 1, 3)], {"size": 5, "mode": "linear"})
    case("pixelShuffle", lambda x: F.pixel_shuffle(x, 2), [rounded(2, 8, 2, 3)], {"factor": 2})
    case("pixelUnshuffle", lambda x: F.pixel_unshuffle(x, 2), [rounded(2, 2, 4, 6)], {"factor": 2})
    case("channelShuffle", lambda x: F.channel_shuffle(x, 3), [rounded(2, 6, 2)], {"groups": 3}, constants=(0,))
    case("unfold", lambda x: F.unfold(x, (2, 3), 1, (1, 2), 2), [rounded(2, 2, 3, 4)],
         {"kernel": [2, 3], "dilation": 1, "padding": [1, 2], "stride": 2})
    case("fold", lambda x: F.fold(x, (3, 4), (2, 3), 1, (1, 2), 2), [rounded(2, 12, 6)],
         {"size": [3, 4], "kernel": [2, 3], "dilation": 1, "padding": [1, 2], "stride": 2})
    for mode in ["reflect", "replicate", "circular"]:
        case("pad", lambda x: F.pad(x, [2, 1, 0, 2], mode), [rounded(1, 2, 3, 4)], {"pads": [2, 1, 0, 2], "mode": mode})
    case("bilinear", F.bilinear, [rounded(3, 2), rounded(3, 4), rounded(5, 2, 4), rounded(5)])
    words = torch.tensor([[0, 3, 1], [2, 2, 0]])
    weight = rounded(4, 3)
    for mode in ["sum", "mean", "max"]:
        case("embeddingBag", lambda i, w: F.embedding_bag(i, w, mode=mode), [words, weight], {"mode": mode})
    case("embeddingBag", lambda i, w, o: F.embedding_bag(i, w, o, mode="mean"),
         [words.reshape(-1), weight, torch.tensor([0, 2, 2])], {"mode": "mean"})
    case("embeddingBag", lambda i, w, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
         [words.reshape(-1), weight, torch.tensor([0, 4]), rounded(6)], {"mode": "sum"})


modules = []


def module_case(name, module, inputs, attrs, call):
    """`call` takes the module and the inputs. The parameters are in PyTorch's order."""
    module = module.double().eval()
    for parameter in module.parameters():
        parameter.data = rounded(*parameter.shape) / 2
    operands = [x.clone().requires_grad_(True) if x.is_floating_point() else x for x in inputs]
    outputs = call(module, *operands)
    upstream = rounded(*outputs[0].shape)
    outputs[0].backward(upstream)
    modules.append({
        "op": name, "attrs": attrs, "inputs": [listed(x) for x in inputs], "parameters": [listed(p) for p in module.parameters()],
        "outputs": [listed(x) for x in outputs], "upstream": listed(upstream),
        "grads": [listed(x.grad) if x.is_floating_point() else None for x in operands],
        "gradientSums": [float(f"{p.grad.sum().item():.12g}") for p in module.parameters()],
    })


def transformers():
    x, memory = rounded(2, 3, 4), rounded(2, 5, 4)
    padding = torch.tensor([[False, False, False, True, True], [False, True, False, False, False]])
    module_case("MultiheadAttention", torch.nn.MultiheadAttention(4, 2, batch_first=True), [x, memory, padding], {},
                lambda m, x, y, p: m(x, y, y, key_padding_mask=p))
    future = torch.triu(torch.ones(3, 3), 1).bool()
    options = {"dim_feedforward": 3, "batch_first": True, "activation": "gelu"}
    for first in [True, False]:
        module_case("TransformerDecoderLayer", torch.nn.TransformerDecoderLayer(4, 2, norm_first=first, **options), [x, memory, padding],
                    {"normFirst": first},
                    lambda m, x, y, p: [m(x, y, tgt_mask=future, memory_key_padding_mask=p)])
    module_case("Transformer", torch.nn.Transformer(4, 2, 1, 1, **options), [memory, x, padding], {},
                lambda m, s, t, p: [m(s, t, tgt_mask=future, src_key_padding_mask=p, memory_key_padding_mask=p)])


def pools():
    """Options of pools, the indices of maxima, and the inverse of max pooling."""
    spaces = {1: [2, 2, 7], 2: [1, 2, 5, 6], 3: [1, 2, 3, 4, 5]}
    geometries = [{"kernel": 2, "ceilMode": True}, {"kernel": 3, "stride": 2, "padding": 1, "ceilMode": True},
                  {"kernel": 2, "stride": 3, "padding": 1, "ceilMode": True}, {"kernel": 2, "stride": 2, "dilation": 2, "ceilMode": True},
                  {"kernel": 3, "stride": 1, "padding": 1}]
    snake = {"kernel": "kernel_size", "ceilMode": "ceil_mode", "countIncludePad": "count_include_pad", "divisorOverride": "divisor_override"}
    named = lambda options: {snake.get(k, k): v for k, v in options.items()}
    for rank, shape in spaces.items():
        x = torch.randperm(math.prod(shape)).double().reshape(shape) / 8
        pool = getattr(F, f"max_pool{rank}d")
        for options in geometries:
            case(f"maxPool{rank}d", lambda x: pool(x, **named(options)), [x], options)
            case(f"maxPool{rank}dIndices", lambda x: pool(x, **named(options), return_indices=True)[1], [x], options, constants=(0,))
        average = getattr(F, f"avg_pool{rank}d")
        for options in [{"kernel": 2, "ceilMode": True}, {"kernel": 3, "stride": 2, "padding": 1, "ceilMode": True},
                        {"kernel": 3, "stride": 2, "padding": 1, "countIncludePad": False},
                        {"kernel": 2, "stride": 3, "padding": 1, "ceilMode": True, "countIncludePad": False}]:
            case(f"avgPool{rank}d", lambda x: average(x, **named(options)), [x], options)
        if rank > 1:
            case(f"avgPool{rank}d", lambda x: average(x, 2, padding=1, divisor_override=3), [x],
                 {"kernel": 2, "padding": 1, "divisorOverride": 3})
        adaptive = getattr(F, f"adaptive_max_pool{rank}d")
        for size in [3, 2]:
            case(f"adaptiveMaxPool{rank}dIndices", lambda x: adaptive(x, size, return_indices=True)[1], [x], {"size": size}, constants=(0,))
        unpool = getattr(F, f"max_unpool{rank}d")
        even = x[(..., *[slice(0, size // 2 * 2) for size in shape[-rank:]])].contiguous()
        case(f"maxUnpool{rank}d", lambda v, i: unpool(v, i, 2), list(pool(even, 2, return_indices=True)), {"kernel": 2})
        values, indices = pool(x, 2, return_indices=True)
        case(f"maxUnpool{rank}d", lambda v, i: unpool(v, i, 2, output_size=shape), [values, indices], {"kernel": 2, "outputSize": shape})
        # Overlapping windows: several values have one place.
        values, indices = pool(x, 3, 1, 1, return_indices=True)
        case(f"maxUnpool{rank}d", lambda v, i: unpool(v, i, 3, 1, 1), [values, indices], {"kernel": 3, "stride": 1, "padding": 1})
    case("lpPool1d", lambda x: F.lp_pool1d(x, 2, 2, ceil_mode=True), [rounded(1, 2, 5, low=0.1, high=2)], {"p": 2, "kernel": 2, "ceilMode": True})


def grids():
    """Positions inside and outside of images, at pixels, at borders and between them."""
    snake = {"mode": "mode", "paddingMode": "padding_mode", "alignCorners": "align_corners"}
    for mode in ["bilinear", "nearest", "bicubic"]:
        for padding in ["zeros", "border", "reflection"]:
            for align in [False, True]:
                options = {"mode": mode, "paddingMode": padding, "alignCorners": align}
                inputs = [rounded(2, 2, 3, 4), rounded(2, 3, 5, 2, low=-2.6, high=2.6)]
                inputs[1][0, 0] = torch.tensor([[-1, -1], [1, 1], [0, 0.5], [-0.75, 2 / 3], [1, -1]])
                # PyTorch's gradient of the grid is 0; Holdfast has none.
                case("gridSample", lambda x, g: F.grid_sample(x, g, **{snake[k]: v for k, v in options.items()}), inputs, options,
                     constants=(1,) if mode == "nearest" else ())
    one = {"mode": "bilinear", "paddingMode": "reflection", "alignCorners": True}
    case("gridSample", lambda x, g: F.grid_sample(x, g, "bilinear", "reflection", True), [rounded(1, 2, 1, 3), rounded(1, 2, 2, 2)], one)
    for size, align in [([2, 5, 3, 4], False), ([2, 1, 2, 3], True), ([2, 1, 1, 3], True), ([2, 1, 1, 3], False)]:
        case("affineGrid", lambda t: F.affine_grid(t, size, align_corners=align), [rounded(2, 2, 3)], {"size": size, "alignCorners": align})


def embeddings():
    words = torch.tensor([[0, 3, 1], [3, 3, 0]])
    for options in [{"maxNorm": 1.5}, {"maxNorm": 1, "normType": 1}, {"maxNorm": 0.75, "normType": math.inf}, {"maxNorm": 1, "normType": 3}]:
        case("embedding", lambda i, w: F.embedding(i, w, max_norm=options["maxNorm"], norm_type=options.get("normType", 2.0)),
             [words, rounded(5, 4)], {k: "Infinity" if v == math.inf else v for k, v in options.items()}, updated=(1,))
    case("embedding", lambda i, w: F.embedding(i, w, padding_idx=-2), [words, rounded(5, 4)], {"paddingIdx": -2})


def options_added_later():
    """At the end, so that the cases above keep their random numbers."""
    for rank, kernel, dilation in [(1, [4], 1), (2, [3, 2], [1, 3]), (3, [2, 1, 3], 1)]:
        conv = getattr(F, f"conv{rank}d")
        inputs = [rounded(2, 2, *[6, 5, 4][:rank]), rounded(3, 2, *kernel), rounded(3)]
        for padding in ["same", "valid"]:
            case(f"conv{rank}d", lambda x, w, b: conv(x, w, b, 1, padding, dilation), inputs, {"padding": padding, "dilation": dilation})
    names = {"scaleFactor": "scale_factor", "alignCorners": "align_corners", "recomputeScaleFactor": "recompute_scale_factor"}
    for options in [{"size": [2, 3], "mode": "nearest-exact"}, {"scaleFactor": 1.6, "mode": "nearest-exact"}, {"scaleFactor": 3, "mode": "nearest-exact"},
                    {"scaleFactor": 1.7, "mode": "bilinear", "recomputeScaleFactor": True},
                    {"size": [2, 3], "mode": "bilinear", "antialias": True}, {"size": [7, 2], "mode": "bicubic", "antialias": True},
                    {"scaleFactor": 0.6, "mode": "bilinear", "antialias": True, "alignCorners": True}]:
        case("interpolate", lambda x: F.interpolate(x, **{names.get(k, k): v for k, v in options.items()}), [rounded(1, 2, 5, 6)], options)
    bags = torch.tensor([[0, 3, 1], [3, 3, 0]])
    for options in [{"maxNorm": 1.5, "mode": "sum"}, {"maxNorm": 1, "normType": 1, "mode": "max"}]:
        case("embeddingBag", lambda i, w: F.embedding_bag(i, w, max_norm=options["maxNorm"], norm_type=options.get("normType", 2.0), mode=options["mode"]),
             [bags, rounded(5, 4)], options, updated=(1,))
    # Scores at the margin.
    ties = torch.tensor([[1.0, 2.0, 2.0, 0.0], [3.0, 3.0, 4.0, 2.0]]).double()
    case("multiMarginLoss", lambda x, t: F.multi_margin_loss(x, t), [ties, torch.tensor([1, 2])])
    case("multilabelMarginLoss", lambda x, t: F.multilabel_margin_loss(x, t), [ties, torch.tensor([[1, -1, 0, 0], [2, 0, -1, 0]])])
    utils = torch.nn.utils
    for axis in [0, 1, None]:
        module_case("weightNorm", utils.weight_norm(torch.nn.Linear(4, 3), dim=axis), [rounded(2, 4)], {"axis": axis}, lambda m, x: [m(x)])
    image = rounded(1, 3, 4, 4)
    module_case("weightNorm", utils.weight_norm(torch.nn.ConvTranspose2d(3, 2, 2), dim=1), [image], {"axis": 1, "isImage": True}, lambda m, x: [m(x)])

    def thrice(m, x):
        """Three passes in training mode, then one in evaluation mode. The first vectors are fixed."""
        for name in ["weight_u", "weight_v"]:
            vector = getattr(m, name)
            vector.copy_(F.normalize(torch.arange(1, vector.numel() + 1).double(), dim=0))
        outputs = [m.train()(x) for _ in range(3)]
        return [outputs[2] + outputs[0] + m.eval()(x), m.weight_u, m.weight_v]

    module_case("spectralNorm", utils.spectral_norm(torch.nn.Linear(4, 3)), [rounded(2, 4)], {}, thrice)
    module_case("spectralNorm", utils.spectral_norm(torch.nn.ConvTranspose2d(3, 2, 2), n_power_iterations=2), [image],
                {"isImage": True, "nPowerIterations": 2}, thrice)


norms()
activations()
losses()
images()
transformers()
pools()
grids()
embeddings()
options_added_later()
with open(os.path.join(here, "layers.json"), "w") as file:
    file.write('{"cases":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + '\n],"modules":[\n' + ",\n".join(json.dumps(c, separators=(",", ":")) for c in modules) + "\n]}\n")
print(len(cases), "cases")
