/**
 * The training under test: CrossAsset with dropout, gradient clipping, AdamW and a learning rate that changes at each step. The
 * changing inputs are in device memory, so that a step can be replayed.
 */

import type { CrossAsset } from "../../crossasset/index.js";
import { functional } from "../../nn/index.js";
import { AdamW, clipGradNorm } from "../../optim/index.js";
import type { Storage } from "../../runtime/index.js";
import type { Device, Tensor } from "../../tensor/index.js";
import { classes, type DeviceRows, features } from "./data-set.js";
import { CheckFailed } from "./phase-log.js";
import { randomWords } from "./random.js";
import { readState, restoreState, type TrainingState } from "./training-state.js";

/** S: the time scales that CrossAsset reads at once. */
const sources = 12;
const lossBytes = 4;
const indexBytes = 4;
const learningRateBytes = 8;

const maxNorm = 1;
const firstLearningRate = 3e-4;

/** A state that training can be restored to. */
export interface SavedPoint {
  readonly state: TrainingState;
  readonly lr: number;
}

export class TrialTraining {
  readonly device: Device;
  readonly model: CrossAsset;
  readonly #data: DeviceRows;
  readonly #optimizer: AdamW;
  readonly #batch: number;
  readonly #index: Storage; // i32 [B · S]: the rows of the batch
  readonly #loss: Storage; // f32 []

  /** The model must be on the device. */
  constructor(device: Device, model: CrossAsset, data: DeviceRows, batch: number) {
    this.device = device;
    this.model = model;
    this.#data = data;
    this.#batch = batch;
    this.#optimizer = new AdamW(model.parameters(), { lr: firstLearningRate });
    const { storages } = device.runtime.persistent.place("data set", "batch", [
      { name: "row numbers", size: batch * sources * indexBytes },
      { name: "loss", size: lossBytes },
    ]);
    const [index, loss] = storages;
    if (!index || !loss) throw new CheckFailed("The batch has no memory.");
    this.#index = index;
    this.#loss = loss;
  }

  /** The exact bytes that a step copies to the device and back. */
  get declaredBytes(): { readonly up: number; readonly down: number } {
    return { up: this.#index.span.size + learningRateBytes, down: lossBytes };
  }

  /** Writes the inputs of a step, the batch rows and the learning rate. Runs outside the capture. */
  prepare(step: number): void {
    this.chooseBatch(step);
    this.#optimizer.lr = firstLearningRate / (1 + (step + 1) / 10);
  }

  chooseBatch(step: number): void {
    const next = randomWords(2 + step);
    const rows = this.#data.labels.numel;
    const index = Int32Array.from({ length: this.#batch * sources }, () =>
      Math.floor((next() / 2 ** 32) * rows),
    );
    this.device.runtime.upload([{ source: index, target: this.#index }]);
  }

  /** The loss of the batch. */
  forward(): Tensor {
    const cells = this.#batch * sources;
    const index = this.device.fromStorage(this.#index, [cells], "i32", "row numbers");
    const x = this.#data.rows.indexSelect(0, index).reshape([this.#batch, sources, features]); // [B, S, F]
    const labels = this.#data.labels.indexSelect(0, index); // [B · S]
    return functional.crossEntropy(this.model.forward(x).reshape([cells, classes]), labels);
  }

  backward(loss: Tensor): void {
    this.model.zeroGrad();
    loss.backward();
  }

  /** Does no read-back, so that it can be captured. */
  update(): void {
    clipGradNorm(this.model.parameters(), maxNorm, { errorIfNonfinite: false });
    this.#optimizer.step();
  }

  /** A complete step. It stores its loss for `readLoss`. */
  step(): void {
    const loss = this.forward();
    this.backward(loss);
    this.update();
    if (loss.array.storage) this.device.runtime.copy(this.#loss, loss.array.storage);
  }

  readLoss(): number {
    const [loss = Number.NaN] = new Float32Array(this.device.runtime.read(this.#loss).buffer);
    return loss;
  }

  save(): SavedPoint {
    return { state: readState(this.device.runtime), lr: this.#optimizer.lr };
  }

  restore({ state, lr }: SavedPoint): void {
    restoreState(this.device.runtime, state);
    // The optimizer writes the rate only when it changes, so it must know the restored value.
    this.#optimizer.lr = lr;
  }
}
