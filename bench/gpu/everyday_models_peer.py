"""Training steps of everyday models in PyTorch: the peer of everyday-models.ts.

  python3 everyday_models_peer.py [--models resnet,unet] [--precision bf16] [--seconds 4] [--mode default] [--scale 1] [--device cuda]

Forward and loss are compiled, and the whole step is one captured CUDA graph; AdamW is fused. Convolutions are channels-last. The LSTM is
cuDNN's, which torch.compile leaves alone.
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--models", default="all")
ap.add_argument("--precision", default="bf16", choices=["f32", "tf32", "bf16"])
ap.add_argument("--seconds", type=float, default=4)
ap.add_argument("--mode", default="default")
ap.add_argument("--scale", type=int, default=1)
ap.add_argument("--device", default="cuda")
args = ap.parse_args()
IS_CUDA = args.device == "cuda"
if args.precision != "f32":
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
else:
    torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.benchmark = True


def scaled(size):
    return max(2, size // args.scale)


def normed(channels, out, size, **convolution):
    return [nn.Conv2d(channels, out, size, bias=False, **convolution), nn.BatchNorm2d(out)]


class Residual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.body = nn.Sequential(
            *normed(channels, out, 3, stride=stride, padding=1), nn.ReLU(), *normed(out, out, 3, padding=1)
        )
        self.shortcut = nn.Sequential(*([] if stride == 1 and channels == out else normed(channels, out, 1, stride=stride)))

    def forward(self, x):
        return (self.body(x) + self.shortcut(x)).relu()


class InvertedResidual(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        wide = 6 * channels
        self.same = stride == 1 and channels == out
        self.body = nn.Sequential(
            *normed(channels, wide, 1), nn.ReLU6(), *normed(wide, wide, 3, stride=stride, padding=1, groups=wide), nn.ReLU6(), *normed(wide, out, 1)
        )

    def forward(self, x):
        return x + self.body(x) if self.same else self.body(x)


class UNetBlock(nn.Module):
    def __init__(self, channels, out):
        super().__init__()
        self.body = nn.Sequential(
            nn.GroupNorm(8, channels), nn.SiLU(), nn.Conv2d(channels, out, 3, padding=1),
            nn.GroupNorm(8, out), nn.SiLU(), nn.Conv2d(out, out, 3, padding=1),
        )
        self.shortcut = nn.Identity() if channels == out else nn.Conv2d(channels, out, 1)

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Conv2d(3, 64, 3, padding=1)
        self.down = nn.ModuleList([UNetBlock(64, 64), UNetBlock(64, 128), UNetBlock(128, 256)])
        self.middle = UNetBlock(256, 256)
        self.up = nn.ModuleList([UNetBlock(512, 128), UNetBlock(256, 64), UNetBlock(128, 64)])
        self.output = nn.Conv2d(64, 3, 3, padding=1)

    def forward(self, x):
        h, kept = self.input(x), []
        for block in self.down:
            h = block(h)
            kept.append(h)
            h = F.avg_pool2d(h, 2)
        h = self.middle(h)
        for block in self.up:
            h = block(torch.cat([F.interpolate(h, scale_factor=2), kept.pop()], 1))
        return self.output(h)


class TextLstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.lstm, self.head = nn.Embedding(5000, 256), nn.LSTM(256, 512, 2, batch_first=True), nn.Linear(512, 5000)

    def forward(self, ids):
        return self.head(self.lstm(self.words(ids))[0])


class PaddedEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(8000, 512)
        layer = nn.TransformerEncoderLayer(512, 8, activation="gelu", dropout=0.1, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(512, 8)

    def forward(self, ids, mask):
        return self.head(self.encoder(self.words(ids), src_key_padding_mask=mask).mean(1))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(8000, 512), nn.Linear(512, 8000)
        self.transformer = nn.Transformer(512, 8, 3, 3, activation="gelu", dropout=0.1, batch_first=True)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.head(self.transformer(self.words(source), self.words(target), tgt_mask=mask, tgt_is_causal=True))


def images(size, side):
    made = torch.randn(scaled(size), 3, side, side, device=args.device)
    return made.to(memory_format=torch.channels_last)


def ints(below, *shape):
    return torch.randint(0, below, shape, device=args.device)


def classify(layers, size, side, classes):
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512 if size == 256 else 96, classes))
    x, y = images(size, side), ints(classes, scaled(size))
    return model, lambda: F.cross_entropy(model(x), y)


def resnet():
    layers = [*normed(3, 64, 3, padding=1), nn.ReLU()]
    for stage, channels in enumerate([64, 128, 256, 512]):
        layers += [Residual(64 if stage == 0 else channels // 2, channels, 1 if stage == 0 else 2), Residual(channels, channels, 1)]
    return classify(layers, 256, 32, 100)


def mobilenet():
    layers = [*normed(3, 32, 3, stride=2, padding=1), nn.ReLU6()]
    layers += [InvertedResidual(*sizes) for sizes in [(32, 24, 1), (24, 24, 1), (24, 48, 2), (48, 48, 1), (48, 96, 2), (96, 96, 1)]]
    return classify(layers, 128, 96, 100)


def unet():
    model, noisy, noise = UNet(), images(64, 32), images(64, 32)
    return model, lambda: F.mse_loss(model(noisy), noise)


def autoencoder():
    sizes = dict(stride=2, padding=1)
    model = nn.Sequential(
        nn.Conv2d(3, 64, 4, **sizes), nn.ReLU(), nn.Conv2d(64, 128, 4, **sizes), nn.ReLU(), nn.Conv2d(128, 256, 4, **sizes), nn.ReLU(),
        nn.ConvTranspose2d(256, 128, 4, **sizes), nn.ReLU(), nn.ConvTranspose2d(128, 64, 4, **sizes), nn.ReLU(), nn.ConvTranspose2d(64, 3, 4, **sizes),
    )
    x = images(256, 64)
    return model, lambda: F.mse_loss(model(x), x)


def lstm():
    model, ids, labels = TextLstm(), ints(5000, scaled(64), scaled(128)), ints(5000, scaled(64) * scaled(128))
    return model, lambda: F.cross_entropy(model(ids).view(-1, 5000), labels)


def encoder():
    rows, columns = scaled(64), scaled(256)
    model, ids, labels = PaddedEncoder(), ints(8000, rows, columns), ints(8, rows)
    mask = torch.arange(columns, device=args.device)[None] >= columns - (torch.arange(rows, device=args.device)[:, None] % columns) / 2
    return model, lambda: F.cross_entropy(model(ids, mask), labels)


def translator():
    rows, columns = scaled(64), scaled(128)
    model, labels = Translator(), ints(8000, rows * columns)
    source, target = ints(8000, rows, columns), ints(8000, rows, columns)
    return model, lambda: F.cross_entropy(model(source, target).view(-1, 8000), labels)


MAKERS = dict(resnet=resnet, mobilenet=mobilenet, unet=unet, autoencoder=autoencoder, lstm=lstm, encoder=encoder, translator=translator)


def sync():
    if IS_CUDA:
        torch.cuda.synchronize()


def measure(name):
    torch.manual_seed(42)
    model, loss_of = MAKERS[name]()
    model.to(args.device)
    if name in ("resnet", "mobilenet", "unet", "autoencoder"):
        model.to(memory_format=torch.channels_last)
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01, **(dict(fused=True, capturable=True) if IS_CUDA else {}))

    def forward():
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            return loss_of()

    if IS_CUDA:
        forward = torch.compile(forward, mode=None if args.mode == "default" else args.mode)

    def step():
        opt.zero_grad(set_to_none=True)
        loss = forward()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        return loss.detach()

    begun = time.perf_counter()
    first = step().item()
    first_s = time.perf_counter() - begun
    run, held, how = step, None, "compiled" if IS_CUDA else "eager"
    if IS_CUDA:
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                held = step()
            run, how = graph.replay, "compiled, graph"
        except Exception as error:  # cuDNN's LSTM, say
            torch.cuda.synchronize()
            how = f"compiled; no graph: {str(error)[:60]}"

    def timed(count):
        begun = time.perf_counter()
        for _ in range(count):
            run()
        sync()
        return 1e3 * (time.perf_counter() - begun) / count

    for _ in range(10):
        one = timed(1)
    groups = 9
    each = max(1, int(1e3 * args.seconds / one / groups))
    times = sorted(timed(each) for _ in range(groups))
    last = (run(), held)[1].item() if held is not None else run().item()
    peak = torch.cuda.max_memory_allocated() / 2**20 if IS_CUDA else 0
    print(
        f"PyTorch {torch.__version__} {name} {args.precision}: {times[groups // 2]:.3f} ms, best {times[0]:.3f} ms, first call {first_s:.1f} s, "
        f"peak {peak:.0f} MiB, loss {first:.3f} → {last:.3f}, {sum(p.numel() for p in params)} parameters, {how}",
        flush=True,
    )


for name in MAKERS if args.models == "all" else args.models.split(","):
    try:
        measure(name)
    except Exception as error:
        print(f"PyTorch {name} {args.precision}: failed: {str(error)[:300]}", flush=True)
    if IS_CUDA:
        torch.compiler.reset()
        torch.cuda.empty_cache()
