/** Runs a model on every row of a data set and returns the outputs batch by batch. */

import { noGrad } from "../autograd/index.js";
import { type ColumnSource, TensorDataset } from "../data/index.js";
import type { Module } from "../nn/index.js";
import type { CompiledStep, Device, NumberArray, Tensor } from "../tensor/index.js";
import { EpochRows } from "./epoch-rows.js";

/** Options of a `Predictor`. */
export interface PredictorOptions {
  readonly device: Device;
  readonly model: Module;
  /** The model's input rows. */
  readonly inputs: ColumnSource;
  readonly batchSize: number;
  /** Maps an input tensor to an output tensor, [rows, …]. */
  readonly forward: (inputs: Tensor) => Tensor;
}

/** The outputs of consecutive rows. */
export interface PredictedBatch {
  /** Row-major. */
  readonly outputs: NumberArray;
  /** The index of the first row. */
  readonly firstRow: number;
}

/**
 * Runs a model on rows in device memory. It can run repeatedly, for example after each epoch. It releases its memory in `close`.
 *
 * @example
 * ```ts
 * import { device, manualSeed, nn, Predictor } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(1);
 * const model = new nn.Linear(2, 1).to(cpu);
 * const forward = (x: Parameters<typeof model.forward>[0]) => model.forward(x);
 * const predictor = new Predictor({ device: cpu, model, inputs: [[1, 2], [3, 4], [5, 6]], batchSize: 2, forward });
 * const counts: number[] = [];
 * predictor.run((outputs) => counts.push(outputs.length));
 * console.log(counts); // → [ 2, 1 ]
 * predictor.close();
 * cpu.close();
 * ```
 */
export class Predictor {
  readonly #options: PredictorOptions;
  readonly #data: TensorDataset<[ColumnSource]>;
  readonly #rows: EpochRows<[ColumnSource]>;
  readonly #compiled: CompiledStep<[Tensor], Tensor>;

  constructor(options: PredictorOptions) {
    const { device, inputs, batchSize, forward } = options;
    this.#options = options;
    this.#data = new TensorDataset(inputs);
    this.#rows = new EpochRows(device, this.#data, batchSize, undefined);
    this.#compiled = device.compile(
      (rows: Tensor) => {
        const [batch] = this.#rows.gather(rows);
        return noGrad(() => forward(batch));
      },
      { name: "predict" },
    );
  }

  /**
   * Calls `take` with the row-major outputs of each batch and the index of its first row. Dropout is off meanwhile.
   *
   * @example
   * ```ts
   * import { device, nn, Predictor } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Sequential(new nn.ReLU());
   * const options = { device: cpu, model, inputs: [[-1], [2]], batchSize: 1 };
   * const predictor = new Predictor({ ...options, forward: (x) => model.forward(x) });
   * predictor.run(([output], row) => console.log(row, output));
   * // → 0 0
   * // → 1 2
   * predictor.close();
   * cpu.close();
   * ```
   */
  run(take: (outputs: NumberArray, firstRow: number) => void): void {
    for (const { outputs, firstRow } of this.batches()) take(outputs, firstRow);
  }

  /**
   * Yields the outputs batch by batch, for programs that do other work between batches or stop early.
   *
   * @example
   * ```ts
   * import { device, nn, Predictor } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Sequential(new nn.ReLU());
   * const options = { device: cpu, model, inputs: [[-1], [2], [3]], batchSize: 1 };
   * const predictor = new Predictor({ ...options, forward: (x) => model.forward(x) });
   * for (const { outputs, firstRow } of predictor.batches()) {
   *   console.log(firstRow, outputs[0]);
   *   if (firstRow === 1) break;
   * }
   * // → 0 0
   * // → 1 2
   * predictor.close();
   * cpu.close();
   * ```
   */
  *batches(): Generator<PredictedBatch, void, undefined> {
    const { model, batchSize } = this.#options;
    const wasTraining = model.isTraining;
    model.eval();
    try {
      for (let batch = 0; batch < this.#rows.batches; batch++) {
        const outputs = this.#compiled(this.#rows.rowsOf(0, batch));
        yield { outputs: outputs.dataSync(), firstRow: batch * batchSize };
      }
    } finally {
      model.train(wasTraining);
    }
  }

  /**
   * Releases its device memory.
   *
   * @example
   * ```ts
   * import { device, nn, Predictor } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Sequential(new nn.ReLU());
   * const options = { device: cpu, model, inputs: [[-1], [2]], batchSize: 1 };
   * const predictor = new Predictor({ ...options, forward: (x) => model.forward(x) });
   * predictor.close();
   * console.log(cpu.diagnostics().budget.usedByLabel["data set"]); // → 0
   * cpu.close();
   * ```
   */
  close(): void {
    this.#compiled.close();
    this.#rows.close();
    this.#data.release(this.#options.device);
  }
}
