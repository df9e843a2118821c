"""PyTorch's scaled_dot_product_attention by each of its backends: microseconds forward and backward, one JSON line for each shape.

  python3 attention_peer.py '[{"batch": 8, "heads": 16, "rows": 1024, "width": 64, "isCausal": true}]'

A time is that of many calls in a row, so that the device waits for no launch; the best of several groups counts."""

import json
import sys

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
CALLS, GROUPS = 30, 5


def microseconds(call):
    times = []
    for _ in range(GROUPS + 1):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1000 / CALLS)
    return min(times[1:])


for shape in json.loads(sys.argv[1]):
    size = (shape["batch"], shape["heads"], shape["rows"], shape["width"])
    q, k, v = (torch.randn(size, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    gradient = torch.randn(size, device="cuda", dtype=torch.bfloat16)
    for name, backend in BACKENDS.items():
        try:
            with sdpa_kernel(backend):
                attend = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=shape["isCausal"])
                with torch.no_grad():
                    forward = microseconds(attend)
                out = attend()
                backward = microseconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True))
            print(json.dumps({**shape, "backend": name, "forward": forward, "backward": backward}), flush=True)
        except Exception as error:
            print(json.dumps({**shape, "backend": name, "failure": str(error).split("\n")[0][:100]}), flush=True)
