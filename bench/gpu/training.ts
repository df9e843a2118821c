/**
 * CrossAsset in training, as in the peers: B rows a step, gathered on the device, clip at 1 and AdamW in the
 * step.
 */

import {
  crossasset,
  DataLoader,
  type Device,
  manualSeed,
  nn,
  optim,
  type Tensor,
  TensorDataset,
} from "holdfast";

/** S sources of F features each, C classes. */
export const [S, F, C] = [12, 193, 3];

export interface Rows {
  readonly count: number;
  readonly x: Float32Array<ArrayBuffer>; // [rows, S, F]
  readonly labels: Int32Array<ArrayBuffer>; // [rows, S]
}

/**
 * Normal numbers with mean 0 and deviation 1. Labels are random, or those of a fixed linear teacher, which
 * can be learned.
 */
export function makeRows(count: number, labels: "random" | "taught"): Rows {
  const random = randomNumbers(1);
  const x = new Float32Array(count * S * F);
  for (let at = 0; at < x.length; at++) x[at] = (random() - 0.5) * Math.sqrt(12);
  const taught = new Int32Array(count * S);
  if (labels === "random") {
    for (let at = 0; at < taught.length; at++) taught[at] = Math.floor(random() * C);
    return { count, x, labels: taught };
  }
  const teacher = Float32Array.from({ length: S * F * C }, () => random() - 0.5); // [S, F, C]
  const scores = new Float64Array(C);
  for (let row = 0; row < taught.length; row++) {
    const source = row % S;
    scores.fill(0);
    for (let feature = 0; feature < F; feature++) {
      const value = x[row * F + feature]!;
      const weights = (source * F + feature) * C;
      for (let label = 0; label < C; label++)
        scores[label] = scores[label]! + value * teacher[weights + label]!;
    }
    taught[row] = scores.indexOf(Math.max(...scores));
  }
  return { count, x, labels: taught };
}

/** A fast generator of numbers from 0 to 1, good enough for benchmark data. */
export function randomNumbers(seed: number): () => number {
  let state = seed | 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

/** Rows and their labels. */
type Pair = readonly [Tensor, Tensor];

export interface TrainingOptions {
  readonly batch: number;
  readonly model?: crossasset.CrossAssetOptions;
}

export class Training {
  readonly device: Device;
  readonly model: crossasset.CrossAsset;
  readonly #parameters: readonly Tensor[];
  readonly #optimizer: optim.AdamW;
  readonly #batches: Iterator<Pair, never>;

  constructor(device: Device, rows: Rows, { batch, model = {} }: TrainingOptions) {
    this.device = device;
    manualSeed(42);
    this.model = new crossasset.CrossAsset(model).to(device);
    this.#parameters = this.model.parameters();
    this.#optimizer = new optim.AdamW(this.#parameters, { lr: 1e-3 });
    const { count, x, labels } = rows;
    const data = new TensorDataset(
      { values: x, shape: [count, S, F] },
      { values: labels, shape: [count, S], dtype: "i32" },
    );
    const loader = new DataLoader(data, { batchSize: batch, shuffle: true, seed: 7, dropLast: true, device });
    this.#batches = repeat(loader);
  }

  /** Runs a step; returns the loss only on request, because reading it waits for the device. */
  step(wantsLoss = false): number {
    const [x, y] = this.#batches.next().value; // [B, S, F], [B, S]
    return this.device.step(() => {
      const logits = this.model.forward(x).reshape([-1, C]);
      const loss = nn.functional.crossEntropy(logits, y.reshape([-1]));
      loss.backward();
      // As in the peers: no check for a non-finite norm, because it would wait for the device.
      optim.clipGradNorm(this.#parameters, 1, { errorIfNonfinite: false });
      this.#optimizer.step();
      this.#optimizer.zeroGrad();
      return wantsLoss ? loss.item() : Number.NaN;
    });
  }

  steps(count: number): void {
    for (let step = 0; step < count; step++) this.step();
    this.device.runtime.synchronize();
  }
}

/** Epoch by epoch. */
function* repeat(loader: Iterable<Pair>): Generator<Pair, never> {
  for (;;) yield* loader;
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const { length } = sorted;
  return length === 0 ? Number.NaN : (sorted[(length - 1) >> 1]! + sorted[length >> 1]!) / 2;
}
