/** The models of `everyday-models.ts`, each with its batch and its loss. */

import "../source-modules.js";
import { cat, type Device, fromTyped, nn, type Tensor } from "holdfast";

const { functional } = nn;

export interface Workload {
  readonly model: nn.Module;
  loss(): Tensor;
}
/** `scaled`: a batch or a length, smaller in a trial without a GPU. */
export type Make = (device: Device, scaled: (size: number) => number) => Workload;

let state = 1;
const nextNumber = (): number => {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return state / 2 ** 32;
};
const nextNormal = (): number =>
  Math.sqrt(-2 * Math.log(1 - nextNumber())) * Math.cos(2 * Math.PI * nextNumber());
const sizeOf = (shape: readonly number[]): number => shape.reduce((size, length) => size * length, 1);
const normal = (device: Device, ...shape: readonly number[]): Tensor =>
  device.keep(fromTyped(Float32Array.from({ length: sizeOf(shape) }, nextNormal), shape, { device }));
const indices = (device: Device, below: number, ...shape: readonly number[]): Tensor => {
  const values = Int32Array.from({ length: sizeOf(shape) }, () => Math.floor(nextNumber() * below));
  return device.keep(fromTyped(values, shape, { device }));
};

/** A convolution without a bias, and its norm. */
const normed = (
  channels: number,
  outChannels: number,
  size: number,
  convolution: nn.ConvolutionLayerOptions,
): readonly (nn.Conv2d | nn.BatchNorm2d)[] => [
  new nn.Conv2d(channels, outChannels, size, { ...convolution, bias: false }),
  new nn.BatchNorm2d(outChannels),
];

/** Two convolutions and a shortcut, as in ResNet-18. */
class Residual extends nn.Module {
  readonly body: nn.Sequential;
  readonly shortcut: nn.Sequential;

  constructor(channels: number, outChannels: number, stride: number) {
    super();
    this.body = new nn.Sequential(
      ...normed(channels, outChannels, 3, { stride, padding: 1 }),
      new nn.ReLU(),
      ...normed(outChannels, outChannels, 3, { padding: 1 }),
    );
    const isSame = stride === 1 && channels === outChannels;
    this.shortcut = new nn.Sequential(...(isSame ? [] : normed(channels, outChannels, 1, { stride })));
  }

  forward(x: Tensor): Tensor {
    return this.body.forward(x).add(this.shortcut.forward(x)).relu();
  }
}

/** A depthwise convolution between two pointwise ones, as in MobileNetV2. */
class InvertedResidual extends nn.Module {
  readonly body: nn.Sequential;
  readonly isResidual: boolean;

  constructor(channels: number, outChannels: number, stride: number) {
    super();
    const wide = 6 * channels;
    this.isResidual = stride === 1 && channels === outChannels;
    this.body = new nn.Sequential(
      ...normed(channels, wide, 1, {}),
      new nn.ReLU6(),
      ...normed(wide, wide, 3, { stride, padding: 1, groups: wide }),
      new nn.ReLU6(),
      ...normed(wide, outChannels, 1, {}),
    );
  }

  forward(x: Tensor): Tensor {
    const y = this.body.forward(x);
    return this.isResidual ? x.add(y) : y;
  }
}

/** A block of a diffusion model's U-Net. */
class UNetBlock extends nn.Module {
  readonly body: nn.Sequential;
  readonly shortcut: nn.Module & { forward(x: Tensor): Tensor };

  constructor(channels: number, outChannels: number) {
    super();
    this.body = new nn.Sequential(
      new nn.GroupNorm(8, channels),
      new nn.SiLU(),
      new nn.Conv2d(channels, outChannels, 3, { padding: 1 }),
      new nn.GroupNorm(8, outChannels),
      new nn.SiLU(),
      new nn.Conv2d(outChannels, outChannels, 3, { padding: 1 }),
    );
    this.shortcut = channels === outChannels ? new nn.Identity() : new nn.Conv2d(channels, outChannels, 1);
  }

  forward(x: Tensor): Tensor {
    return this.body.forward(x).add(this.shortcut.forward(x));
  }
}

class UNet extends nn.Module {
  readonly input = new nn.Conv2d(3, 64, 3, { padding: 1 });
  readonly down = new nn.ModuleList([new UNetBlock(64, 64), new UNetBlock(64, 128), new UNetBlock(128, 256)]);
  readonly middle = new UNetBlock(256, 256);
  readonly up = new nn.ModuleList([new UNetBlock(512, 128), new UNetBlock(256, 64), new UNetBlock(128, 64)]);
  readonly output = new nn.Conv2d(64, 3, 3, { padding: 1 });

  forward(x: Tensor): Tensor {
    let h = this.input.forward(x);
    const kept: Tensor[] = [];
    for (const block of this.down) {
      h = block.forward(h);
      kept.push(h);
      h = functional.avgPool2d(h, 2);
    }
    h = this.middle.forward(h);
    for (const block of this.up) {
      const skip = kept.pop() ?? h;
      h = block.forward(cat([functional.interpolate(h, { scaleFactor: 2 }), skip], 1));
    }
    return this.output.forward(h);
  }
}

class TextLstm extends nn.Module {
  readonly words = new nn.Embedding(5000, 256);
  readonly lstm = new nn.LSTM(256, 512, { numLayers: 2, batchFirst: true });
  readonly head = new nn.Linear(512, 5000);

  forward(ids: Tensor): Tensor {
    const [hidden] = this.lstm.forward(this.words.forward(ids));
    return this.head.forward(hidden);
  }
}

class PaddedEncoder extends nn.Module {
  readonly words = new nn.Embedding(8000, 512);
  readonly encoder = new nn.TransformerEncoder(
    () => new nn.TransformerEncoderLayer(512, 8, { activation: "gelu", dropout: 0.1 }),
    6,
  );
  readonly head = new nn.Linear(512, 8);

  forward(ids: Tensor, keyPaddingMask: Tensor): Tensor {
    return this.head.forward(this.encoder.forward(this.words.forward(ids), { keyPaddingMask }).mean(1));
  }
}

class Translator extends nn.Module {
  readonly words = new nn.Embedding(8000, 512);
  readonly transformer = new nn.Transformer(512, {
    ...{ heads: 8, numEncoderLayers: 3, numDecoderLayers: 3, activation: "gelu", dropout: 0.1 },
  });
  readonly head = new nn.Linear(512, 8000);

  forward(source: Tensor, target: Tensor): Tensor {
    const [from, to] = [this.words.forward(source), this.words.forward(target)];
    return this.head.forward(this.transformer.forward(from, to, { tgtIsCausal: true }));
  }
}

const classify =
  (model: nn.Sequential, size: number, side: number, classes: number): Make =>
  (device, scaled) => {
    const [images, labels] = [
      normal(device, scaled(size), 3, side, side),
      indices(device, classes, scaled(size)),
    ];
    return {
      model,
      loss: () => functional.crossEntropy(model.forward(images), labels),
    };
  };

export const everydayModels: Readonly<Record<string, Make>> = {
  resnet: (device, scaled) =>
    classify(
      new nn.Sequential(
        ...normed(3, 64, 3, { padding: 1 }),
        new nn.ReLU(),
        ...[64, 128, 256, 512].flatMap((channels, stage) => [
          new Residual(stage === 0 ? 64 : channels / 2, channels, stage === 0 ? 1 : 2),
          new Residual(channels, channels, 1),
        ]),
        new nn.AdaptiveAvgPool2d(1),
        new nn.Flatten(),
        new nn.Linear(512, 100),
      ),
      ...([256, 32, 100] as const),
    )(device, scaled),
  mobilenet: (device, scaled) =>
    classify(
      new nn.Sequential(
        ...normed(3, 32, 3, { stride: 2, padding: 1 }),
        new nn.ReLU6(),
        new InvertedResidual(32, 24, 1),
        new InvertedResidual(24, 24, 1),
        new InvertedResidual(24, 48, 2),
        new InvertedResidual(48, 48, 1),
        new InvertedResidual(48, 96, 2),
        new InvertedResidual(96, 96, 1),
        new nn.AdaptiveAvgPool2d(1),
        new nn.Flatten(),
        new nn.Linear(96, 100),
      ),
      ...([128, 96, 100] as const),
    )(device, scaled),
  unet: (device, scaled) => {
    const model = new UNet();
    const [noisy, noise] = [normal(device, scaled(64), 3, 32, 32), normal(device, scaled(64), 3, 32, 32)];
    return { model, loss: () => functional.mseLoss(model.forward(noisy), noise) };
  },
  autoencoder: (device, scaled) => {
    const model = new nn.Sequential(
      new nn.Conv2d(3, 64, 4, { stride: 2, padding: 1 }),
      new nn.ReLU(),
      new nn.Conv2d(64, 128, 4, { stride: 2, padding: 1 }),
      new nn.ReLU(),
      new nn.Conv2d(128, 256, 4, { stride: 2, padding: 1 }),
      new nn.ReLU(),
      new nn.ConvTranspose2d(256, 128, 4, { stride: 2, padding: 1 }),
      new nn.ReLU(),
      new nn.ConvTranspose2d(128, 64, 4, { stride: 2, padding: 1 }),
      new nn.ReLU(),
      new nn.ConvTranspose2d(64, 3, 4, { stride: 2, padding: 1 }),
    );
    const images = normal(device, scaled(256), 3, 64, 64);
    return { model, loss: () => functional.mseLoss(model.forward(images), images) };
  },
  lstm: (device, scaled) => {
    const model = new TextLstm();
    const text = () => indices(device, 5000, scaled(64), scaled(128));
    const [ids, labels] = [text(), text()];
    const loss = () => functional.crossEntropy(model.forward(ids).reshape([-1, 5000]), labels.reshape([-1]));
    return { model, loss };
  },
  encoder: (device, scaled) => {
    const model = new PaddedEncoder();
    const [rows, columns] = [scaled(64), scaled(256)];
    const [ids, labels] = [indices(device, 8000, rows, columns), indices(device, 8, rows)];
    const isPadding = Float32Array.from({ length: rows * columns }, (_, at) =>
      at % columns >= columns - (Math.floor(at / columns) % columns) / 2 ? Number.NEGATIVE_INFINITY : 0,
    );
    const mask = device.keep(fromTyped(isPadding, [rows, columns], { device }));
    return {
      model,
      loss: () => functional.crossEntropy(model.forward(ids, mask), labels),
    };
  },
  translator: (device, scaled) => {
    const model = new Translator();
    const text = () => indices(device, 8000, scaled(64), scaled(128));
    const [source, target, labels] = [text(), text(), text()];
    const loss = () =>
      functional.crossEntropy(model.forward(source, target).reshape([-1, 8000]), labels.reshape([-1]));
    return { model, loss };
  },
};
