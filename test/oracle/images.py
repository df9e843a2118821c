"""Writes images.json: bilinear resizing with antialiasing, by PyTorch in float64."""

import json
import pathlib

import torch
import torch.nn.functional as F

torch.manual_seed(0)
cases = []
for shape, size in [((1, 5, 7), (3, 3)), ((2, 4, 3), (9, 5)), ((1, 6, 6), (2, 11)), ((3, 1, 8), (2, 3))]:
    image = torch.randint(0, 256, shape).double()
    output = F.interpolate(image[None], size=size, mode="bilinear", antialias=True, align_corners=False)[0]
    cases.append({"shape": shape, "size": size, "image": image.flatten().tolist(), "output": [round(v, 9) for v in output.flatten().tolist()]})
pathlib.Path(__file__).with_name("images.json").write_text(json.dumps(cases) + "\n")
