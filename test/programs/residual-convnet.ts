/** A residual convnet with batch normalisation. It tells the direction of noisy stripes, and is evaluated with running statistics. */

import {
  DataLoader,
  device,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  type Tensor,
  TensorDataset,
} from "holdfast";

const side = 16;
const classes = 4;

export class Residual extends nn.Module {
  readonly conv1: nn.Conv2d;
  readonly norm1: nn.BatchNorm2d;
  readonly conv2: nn.Conv2d;
  readonly norm2: nn.BatchNorm2d;
  readonly shortcut: nn.Identity | nn.Sequential;

  constructor(channels: number, outChannels: number, stride: number) {
    super();
    this.conv1 = new nn.Conv2d(channels, outChannels, 3, { stride, padding: 1, bias: false });
    this.norm1 = new nn.BatchNorm2d(outChannels);
    this.conv2 = new nn.Conv2d(outChannels, outChannels, 3, { padding: 1, bias: false });
    this.norm2 = new nn.BatchNorm2d(outChannels);
    this.shortcut =
      stride === 1 && channels === outChannels
        ? new nn.Identity()
        : new nn.Sequential(
            new nn.Conv2d(channels, outChannels, 1, { stride, bias: false }),
            new nn.BatchNorm2d(outChannels),
          );
  }

  forward(x: Tensor): Tensor {
    const h = this.norm1.forward(this.conv1.forward(x)).relu();
    return this.norm2.forward(this.conv2.forward(h)).add(this.shortcut.forward(x)).relu();
  }
}

/** Stripes at one of four angles, with a random phase and noise: images [count, 1, side, side] and classes. */
function drawStripes(count: number, noise: Float32Array): [images: Float32Array, labels: Int32Array] {
  const labels = Int32Array.from({ length: count }, (_, image) => image % classes);
  const images = noise.map((value, index) => {
    const [image, y, x] = [Math.floor(index / side ** 2), Math.floor(index / side) % side, index % side];
    const angle = ((labels[image] ?? 0) * Math.PI) / classes;
    return Math.sin((x * Math.cos(angle) + y * Math.sin(angle)) * 1.2 + image * 2.4) + 0.5 * value;
  });
  return [images, labels];
}

/** Images [B, 1, side, side] to logits of classes. */
export function makeConvnet(): nn.Sequential {
  return new nn.Sequential(
    new nn.Conv2d(1, 8, 3, { padding: 1, bias: false }),
    new nn.BatchNorm2d(8),
    new nn.ReLU(),
    new Residual(8, 8, 1),
    new Residual(8, 16, 2),
    new nn.AdaptiveAvgPool2d(1),
    new nn.Flatten(),
    new nn.Linear(16, classes),
  );
}

export async function main(epochs = 2): Promise<{ heldOutAccuracy: number }> {
  const cpu = await device("cpu");
  manualSeed(3);
  const noise = (count: number) => cpu.step(() => Float32Array.from(randn([count * side ** 2]).dataSync()));
  const [[images, labels], [heldOutImages, heldOutLabels]] = [
    drawStripes(256, noise(256)),
    drawStripes(64, noise(64)),
  ];
  const data = new TensorDataset({ values: images, shape: [256, 1, side, side] }, labels);

  const model = makeConvnet().to(cpu);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1, momentum: 0.9, weightDecay: 5e-4 });

  const step = cpu.compile((x: Tensor, y: Tensor) => {
    const loss = nn.functional.crossEntropy(model.forward(x), y);
    loss.backward();
    optimizer.step();
    optimizer.zeroGrad();
    return loss;
  });
  for (let epoch = 0; epoch < epochs; epoch++)
    for (const [x, y] of new DataLoader(data, { batchSize: 32, shuffle: true })) step(x, y);

  model.eval();
  const heldOutAccuracy = cpu.step(() =>
    noGrad(() => {
      const x = cpu.fromHost(heldOutImages, [64, 1, side, side], "f32");
      return model
        .forward(x)
        .argmax(-1)
        .eq(cpu.fromHost(heldOutLabels, [64], "i32"))
        .to("f32")
        .mean()
        .item();
    }),
  );
  cpu.close();
  return { heldOutAccuracy };
}
