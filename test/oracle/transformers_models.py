"""Writes transformers.json: the cases of models.json, and others, by the package transformers, in float32 and bfloat16 on the CPU.

    python3 transformers_models.py              writes transformers.json
    python3 transformers_models.py logits F...  prints the logits of the models in these folders, as a JSON list of lists

A model is first saved with random weights, which gives the names and shapes of its files. The weights of these names then replace them, and
the folder is loaded: so the names are those that transformers reads. Written with transformers 5.17 and PyTorch 2.13.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

import model_cases as given

torch.set_num_threads(1)
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def class_of(config):
    is_decoder = config["model_type"] not in ("bert", "vit")
    if is_decoder:
        return transformers.AutoModelForCausalLM
    return getattr(transformers, config["architectures"][0])


def open_folder(folder, dtype):
    config = json.loads((folder / "config.json").read_text())
    model, report = class_of(config).from_pretrained(
        folder, dtype=dtype, attn_implementation="eager", output_loading_info=True
    )
    problems = {name: keys for name, keys in report.items() if keys}
    if problems:
        raise ValueError(f"{folder}: {problems}")
    return model.eval()


def write_folder(folder, config):
    """Returns the weights by their names in files."""
    kind = class_of(config)
    make = kind.from_config if kind is transformers.AutoModelForCausalLM else kind._from_config
    make(transformers.AutoConfig.for_model(**config)).save_pretrained(folder)
    path = folder / "model.safetensors"
    weights = {name: given.weight(name, tuple(t.shape)).float() for name, t in load_file(path).items()}
    save_file(weights, path, {"format": "pt"})
    # The case's own fields: transformers 5 writes others.
    (folder / "config.json").write_text(json.dumps(config))
    return weights


def call(model, dtype=torch.float32):
    """Logits of the inputs of a case."""
    kind = model.config.model_type
    if kind == "vit":
        return model(pixel_values=given.numbers("images", (2, 3, 8, 8)).to(dtype)).logits
    if kind == "bert":
        mask, types = torch.tensor(given.ATTENTION_MASK), torch.tensor(given.TOKEN_TYPES)
        return model(torch.tensor(given.IDS), attention_mask=mask, token_type_ids=types).logits
    return model(torch.tensor(given.IDS)).logits


def loss_of(model, logits):
    kind = model.config.model_type
    if kind not in ("bert", "vit"):
        labels = torch.tensor(given.LABELS)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    if logits.dim() == 3:
        return F.cross_entropy(logits.flatten(0, 1), torch.tensor(given.MASKED_LABELS).flatten())
    return F.cross_entropy(logits, torch.tensor(given.CLASSES))


def greedy(model):
    """The most likely tokens with a cache, and the smallest lead of one over the next."""
    ids, cache, tokens, margin = torch.tensor([given.PROMPT]), None, [], math.inf
    with torch.no_grad():
        for _ in range(given.GREEDY_TOKENS):
            result = model(ids, past_key_values=cache, use_cache=True)
            cache = result.past_key_values
            first, second = result.logits[0, -1].topk(2).values.tolist()
            margin = min(margin, first - second)
            tokens.append(int(result.logits[0, -1].argmax()))
            ids = torch.tensor([tokens[-1:]])
    return tokens, margin


def file_name(weights, parameter):
    """The name in files of a parameter: weights of two names differ."""
    return next(name for name, weight in weights.items() if torch.equal(weight, parameter.detach()))


def run(name, config, root):
    folder = root / name.replace(" ", "-")
    weights = write_folder(folder, config)
    with torch.no_grad():
        half = call(open_folder(folder, torch.bfloat16), torch.bfloat16).float()
    model = open_folder(folder, torch.float32)
    # Weights change in training, so that names are found first.
    names = {file_name(weights, parameter): parameter for parameter in model.parameters()}
    if names.keys() != weights.keys():
        raise ValueError(f"{name}: {names.keys() ^ weights.keys()}")
    logits = call(model)
    loss_of(model, logits).backward()
    record = {
        "name": name,
        "config": config,
        "logits": given.rounded(logits.detach().flatten().tolist(), 6),
        "bf16Logits": given.rounded(half.flatten().tolist(), 4),
        "gradients": {key: given.rounded(given.summary(key, names[key].grad), 6) for key in sorted(names)},
    }
    if config["model_type"] not in ("bert", "vit"):
        record["greedy"], margin = greedy(model)
        record["margin"] = given.rounded(margin)
    optimizer = torch.optim.AdamW(model.parameters(), lr=given.LEARNING_RATE)
    losses = []
    for _ in range(given.STEPS):
        optimizer.zero_grad()
        loss = loss_of(model, call(model))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    record["losses"] = given.rounded(losses)
    return record


def main():
    if sys.argv[1:2] == ["logits"]:
        with torch.no_grad():
            found = [call(open_folder(Path(folder), torch.float32)).flatten().tolist() for folder in sys.argv[2:]]
        print(json.dumps(found))
        return
    with tempfile.TemporaryDirectory() as root:
        cases = [run(name, config, Path(root)) for name, config in given.TRANSFORMERS_CASES.items()]
    path = Path(__file__).with_name("transformers.json")
    lines = ",\n".join(json.dumps(case) for case in cases)
    path.write_text(f'{{"inputs": {json.dumps(given.inputs())},\n"cases": [\n{lines}\n]}}\n')
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
