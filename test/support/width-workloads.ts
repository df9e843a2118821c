/** Models of any even width, in training: small versions of common models. */

import { arange, crossasset, type Device, nn, optim, type Tensor, tensor } from "holdfast";

/** A model on a device, with the step that trains it on one batch. */
export interface TrainedWorkload {
  readonly model: nn.Module;
  step(): { readonly loss: Tensor };
}

export interface WorkloadSizes {
  readonly width: number;
  /** Rows of the batch: of samples, texts or images. */
  readonly batch: number;
  /** True if the weights are only planned with. Then they are 0, because random ones take as long as planning. */
  readonly isPlannedOnly?: boolean;
}

type MakeWorkload = (device: Device, sizes: WorkloadSizes) => TrainedWorkload;

const { functional } = nn;
const heads = 2;

function trainingOf(
  model: nn.Module,
  device: Device,
  [x, y]: readonly [Tensor, Tensor],
  forward: (x: Tensor) => Tensor,
  { isPlannedOnly = false }: WorkloadSizes,
): TrainedWorkload {
  if (isPlannedOnly) for (const parameter of model.parameters()) parameter.initialize(nn.init.zeros());
  model.to(device);
  for (const tensor of [x, y]) device.keep(tensor);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const step = (): { readonly loss: Tensor } => {
    optimizer.zeroGrad();
    const logits = forward(x);
    const loss = functional.crossEntropy(logits.reshape([-1, logits.shape.at(-1) ?? 1]), y);
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false });
    optimizer.step();
    return { loss };
  };
  return { model, step };
}

const countOf = (shape: readonly number[]): number => shape.reduce((all, size) => all * size, 1);

/** Cheap numbers that look random. */
function numbers(device: Device, shape: readonly number[]): Tensor {
  const values = Float32Array.from({ length: countOf(shape) }, (_, index) => Math.sin(index * 12.9898));
  return tensor(values, { device }).reshape(shape);
}

function labels(device: Device, below: number, shape: readonly number[]): Tensor {
  const values = Int32Array.from({ length: countOf(shape) }, (_, index) => (index * 7) % below);
  return tensor(values, { device }).reshape(shape);
}

/** CrossAsset with fewer features. */
const crossAsset: MakeWorkload = (device, sizes) => {
  const { width, batch } = sizes;
  const [sources, features] = [12, 33];
  const model = new crossasset.CrossAsset({ width, heads, sources, features, layers: 2 });
  const data = [numbers(device, [batch, sources, features]), labels(device, 3, [batch * sources])] as const;
  return trainingOf(model, device, data, (input) => model.forward(input), sizes);
};

/** The character transformer of the examples. */
class Characters extends nn.Module {
  readonly letters: nn.Embedding;
  readonly positions: nn.Embedding;
  readonly layers: nn.ModuleList<nn.TransformerEncoderLayer>;
  readonly head: nn.Linear;

  constructor(alphabet: number, context: number, width: number) {
    super();
    this.letters = new nn.Embedding(alphabet, width);
    this.positions = new nn.Embedding(context, width);
    const options = { dimFeedforward: 4 * width, dropout: 0, normFirst: true, activation: "gelu" } as const;
    const layer = () => new nn.TransformerEncoderLayer(width, heads, options);
    this.layers = new nn.ModuleList([layer(), layer()]);
    this.head = new nn.Linear(width, alphabet);
  }

  forward(text: Tensor): Tensor {
    const positions = arange(text.shape[1] ?? 0, undefined, 1, { device: text.device });
    let h = this.letters.forward(text).add(this.positions.forward(positions)); // [B, T, d]
    for (const layer of this.layers) h = layer.forward(h, { isCausal: true });
    return this.head.forward(h);
  }
}

const characters: MakeWorkload = (device, sizes) => {
  const { width, batch } = sizes;
  const [alphabet, context] = [27, 16];
  const model = new Characters(alphabet, context, width);
  const data = [
    labels(device, alphabet, [batch, context]),
    labels(device, alphabet, [batch * context]),
  ] as const;
  return trainingOf(model, device, data, (text) => model.forward(text), sizes);
};

/** A block of a small GPT: no biases, one projection for queries, keys and values, dropout. */
class Block extends nn.Module {
  readonly norm1: nn.LayerNorm;
  readonly qkv: nn.Linear;
  readonly projection: nn.Linear;
  readonly norm2: nn.LayerNorm;
  readonly up: nn.Linear;
  readonly down: nn.Linear;

  constructor(width: number) {
    super();
    const bias = false;
    this.norm1 = new nn.LayerNorm(width, { bias });
    this.qkv = new nn.Linear(width, 3 * width, { bias });
    this.projection = new nn.Linear(width, width, { bias });
    this.norm2 = new nn.LayerNorm(width, { bias });
    this.up = new nn.Linear(width, 4 * width, { bias });
    this.down = new nn.Linear(4 * width, width, { bias });
  }

  forward(x: Tensor): Tensor {
    const [batch = 1, rows = 1, width = 1] = x.shape;
    const drop = (value: Tensor): Tensor => functional.dropout(value, 0.1, this.isTraining);
    const qkv = this.qkv.forward(this.norm1.forward(x)).reshape([batch, rows, 3, heads, width / heads]);
    const attended = functional.packedAttention(qkv, { isCausal: true }).reshape([batch, rows, width]);
    const h = x.add(drop(this.projection.forward(attended)));
    const inner = this.up.forward(this.norm2.forward(h)).gelu();
    return h.add(drop(this.down.forward(inner)));
  }
}

/** A GPT whose head is its embedding table. */
class Gpt extends nn.Module {
  readonly words: nn.Embedding;
  readonly positions: nn.Parameter;
  readonly blocks: nn.ModuleList<Block>;
  readonly norm: nn.LayerNorm;

  constructor(vocabulary: number, context: number, width: number) {
    super();
    this.words = new nn.Embedding(vocabulary, width);
    this.positions = new nn.Parameter([context, width], nn.init.zeros());
    this.blocks = new nn.ModuleList([new Block(width), new Block(width), new Block(width)]);
    this.norm = new nn.LayerNorm(width, { bias: false });
  }

  forward(text: Tensor): Tensor {
    let h = this.words.forward(text).add(this.positions); // [B, T, d]
    for (const block of this.blocks) h = block.forward(h);
    return functional.linear(this.norm.forward(h), this.words.weight);
  }
}

const gpt: MakeWorkload = (device, sizes) => {
  const { width, batch } = sizes;
  const [vocabulary, context] = [65, 16];
  const model = new Gpt(vocabulary, context, width);
  const data = [
    labels(device, vocabulary, [batch, context]),
    labels(device, vocabulary, [batch * context]),
  ] as const;
  return trainingOf(model, device, data, (text) => model.forward(text), sizes);
};

/** Convolutions with pools between them, with the model's width as channels; their means go to a linear layer. */
const convnet: MakeWorkload = (device, sizes) => {
  const { width, batch } = sizes;
  const [image, classes] = [8, 10];
  const model = new nn.Sequential(
    new nn.Conv2d(3, width, 3, { padding: 1 }),
    new nn.ReLU(),
    new nn.MaxPool2d(2),
    new nn.Conv2d(width, width, 3, { padding: 1 }),
    new nn.ReLU(),
    new nn.Flatten(2),
  );
  const head = new nn.Linear(width, classes);
  const whole = new nn.ModuleList([model, head]);
  const data = [numbers(device, [batch, 3, image, image]), labels(device, classes, [batch])] as const;
  return trainingOf(whole, device, data, (images) => head.forward(model.forward(images).mean(-1)), sizes);
};

export const widthWorkloads = { crossAsset, characters, gpt, convnet } as const satisfies Record<
  string,
  MakeWorkload
>;

export type WorkloadName = keyof typeof widthWorkloads;
