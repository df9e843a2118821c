/** The common models with a batch and a loss, in two sizes. */

import { type Device, type Dtype, fromTyped, nn, type Tensor } from "holdfast";
import { Convnet, Gpt, type GptSizes, Gru, Mlp, Recommender } from "./models.js";

/** A model on a device, and the loss of one batch. */
export interface CommonWorkload {
  readonly model: nn.Module;
  loss(): Tensor;
}

export interface WorkloadOptions {
  /**
   * "tiny": to compute with; odd where a size may be. "wide": the widths of real models, but few layers and rows, to
   * select kernels by. Default: "tiny".
   */
  readonly size?: "tiny" | "wide";
  /** Of weights and data. Default: "f32". */
  readonly dtype?: Extract<Dtype, "f32" | "f64">;
  /** True if the weights are only planned with: then they are 0. */
  readonly isPlannedOnly?: boolean;
}

type MakeWorkload = (device: Device, options?: WorkloadOptions) => CommonWorkload;

const { functional } = nn;

/** Uniform in [0, 1), the same on every machine. */
function randomNumbers(seed: number): () => number {
  let state = seed;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

const countOf = (shape: readonly number[]): number => shape.reduce((all, size) => all * size, 1);

/** Draws data and weights, and rounds them to f32, so that every dtype and device starts from the same numbers. */
class Source {
  readonly #device: Device;
  readonly #options: WorkloadOptions;
  readonly #random = randomNumbers(20_240_611);

  constructor(device: Device, options: WorkloadOptions) {
    this.#device = device;
    this.#options = options;
  }

  /** Near normal numbers: sums of four uniform ones. */
  #normal(): number {
    const random = this.#random;
    return Math.sqrt(3) * (random() + random() + random() + random() - 2);
  }

  numbers(...shape: number[]): Tensor {
    const values = Float32Array.from({ length: countOf(shape) }, () => this.#normal());
    return this.#put(this.#options.dtype === "f64" ? Float64Array.from(values) : values, shape);
  }

  /** Zeros and ones. */
  clicks(...shape: number[]): Tensor {
    const values = Float32Array.from({ length: countOf(shape) }, () => Math.round(this.#random()));
    return this.#put(this.#options.dtype === "f64" ? Float64Array.from(values) : values, shape);
  }

  indices(below: number, ...shape: number[]): Tensor {
    const draw = (): number => Math.floor(this.#random() * below);
    return this.#put(Int32Array.from({ length: countOf(shape) }, draw), shape);
  }

  #put(values: Float32Array | Float64Array | Int32Array, shape: readonly number[]): Tensor {
    return this.#device.keep(fromTyped(values, shape, { device: this.#device }));
  }

  /** Places a model. Matrices have the standard deviation of their fan-in, vectors are near their usual start. */
  place<Model extends nn.Module>(model: Model): Model {
    const { dtype = "f32", isPlannedOnly = false } = this.#options;
    for (const [path, parameter] of model.namedParameters()) {
      const { shape } = parameter;
      const fanIn = countOf(shape.slice(1));
      const isNorm = path.includes("norm") && path.endsWith("weight");
      const [mean, deviation] = shape.length > 1 ? [0, 1 / Math.sqrt(fanIn)] : [isNorm ? 1 : 0, 0.1];
      parameter.initialize(
        isPlannedOnly
          ? nn.init.zeros()
          : () => Float32Array.from({ length: countOf(shape) }, () => mean + deviation * this.#normal()),
      );
    }
    return model.to(this.#device, dtype);
  }
}

function classLoss(model: { forward(x: Tensor): Tensor }, x: Tensor, labels: Tensor): () => Tensor {
  return () => {
    const logits = model.forward(x);
    return functional.crossEntropy(logits.reshape([-1, logits.shape.at(-1) ?? 1]), labels.reshape([-1]));
  };
}

function gptOf(
  sizes: Readonly<Record<"tiny" | "wide", GptSizes & { readonly batch: number }>>,
): MakeWorkload {
  return (device, options = {}) => {
    const { batch, ...size } = sizes[options.size ?? "tiny"];
    const source = new Source(device, options);
    const model = source.place(new Gpt(size));
    const [text, next] = [0, 1].map(() => source.indices(size.vocabulary, batch, size.context));
    return { model, loss: classLoss(model, text as Tensor, next as Tensor) };
  };
}

const gpt = gptOf({
  tiny: {
    ...{ vocabulary: 67, context: 20, width: 24, layers: 2, heads: 3, batch: 2 },
    ...{ dropout: 0, bias: true, gelu: "tanh" },
  },
  wide: {
    ...{ vocabulary: 50_304, context: 1024, width: 128, layers: 1, heads: 2, batch: 8 },
    ...{ dropout: 0, bias: true, gelu: "tanh" },
  },
});

const gptWithDropout = gptOf({
  tiny: {
    ...{ vocabulary: 37, context: 16, width: 32, layers: 2, heads: 2, batch: 3 },
    ...{ dropout: 0.2, bias: false, gelu: "none" },
  },
  wide: {
    ...{ vocabulary: 65, context: 256, width: 384, layers: 1, heads: 6, batch: 16 },
    ...{ dropout: 0.2, bias: false, gelu: "none" },
  },
});

const mlp: MakeWorkload = (device, options = {}) => {
  const { batch, sizes } = {
    tiny: { batch: 33, sizes: [20, 48, 40, 10] },
    wide: { batch: 1024, sizes: [784, 1024, 1024, 10] },
  }[options.size ?? "tiny"];
  const source = new Source(device, options);
  const model = source.place(new Mlp(sizes));
  const [features = 1, classes = 1] = [sizes[0], sizes.at(-1)];
  return {
    model,
    loss: classLoss(model, source.numbers(batch, features), source.indices(classes, batch)),
  };
};

const convnet: MakeWorkload = (device, options = {}) => {
  const { batch, image, channels } = {
    tiny: { batch: 3, image: 8, channels: [3, 8, 16] },
    wide: { batch: 64, image: 32, channels: [3, 64, 128, 256] },
  }[options.size ?? "tiny"];
  const classes = 10;
  const source = new Source(device, options);
  const model = source.place(new Convnet(channels, classes));
  const images = source.numbers(batch, channels[0] ?? 1, image, image);
  return { model, loss: classLoss(model, images, source.indices(classes, batch)) };
};

const gru: MakeWorkload = (device, options = {}) => {
  const { batch, rows, ...sizes } = {
    tiny: { batch: 5, rows: 4, features: 12, width: 16, classes: 7 },
    wide: { batch: 128, rows: 3, features: 256, width: 256, classes: 10 },
  }[options.size ?? "tiny"];
  const source = new Source(device, options);
  const model = source.place(new Gru(sizes));
  const x = source.numbers(batch, rows, sizes.features);
  return { model, loss: classLoss(model, x, source.indices(sizes.classes, batch)) };
};

const recommender: MakeWorkload = (device, options = {}) => {
  const { batch, tables, entries, embedding, hidden } = {
    tiny: { batch: 16, tables: 3, entries: 30, embedding: 8, hidden: 20 },
    wide: { batch: 4096, tables: 2, entries: 20_000, embedding: 64, hidden: 256 },
  }[options.size ?? "tiny"];
  const source = new Source(device, options);
  const model = source.place(new Recommender(tables, entries, embedding, hidden));
  const [ids, clicks] = [source.indices(entries, batch, tables), source.clicks(batch, 1)];
  return { model, loss: () => functional.binaryCrossEntropyWithLogits(model.forward(ids), clicks) };
};

export const commonWorkloads = {
  gpt,
  "gpt with dropout": gptWithDropout,
  mlp,
  convnet,
  gru,
  recommender,
} as const satisfies Record<string, MakeWorkload>;

export type CommonWorkloadName = keyof typeof commonWorkloads;
