/** RNNCell, LSTMCell and GRUCell: one time step of a recurrent layer, for your own loop. */

import { checkOptions, HoldfastError, type OptionNames } from "../../../errors/index.js";
import type { Cell } from "../../../ops/index.js";
import { type Tensor, zeros } from "../../../tensor/index.js";
import { Module } from "../../module.js";
import type { Parameter } from "../../parameter.js";
import { requireSizes } from "../checks.js";
import { makeWeights, runDirection } from "./direction.js";

/** Options of `LSTMCell` and `GRUCell`. */
export interface CellOptions {
  /** Default: true. */
  readonly bias?: boolean;
}

const cellOptionNames: OptionNames<CellOptions> = { bias: true };

/** Options of an `RNNCell`. */
export interface RNNCellOptions extends CellOptions {
  /** Default: "tanh". */
  readonly nonlinearity?: "tanh" | "relu";
}

abstract class RecurrentCell extends Module {
  readonly inputSize: number;
  readonly hiddenSize: number;
  /** [gates · hidden, input] */
  readonly weightIh: Parameter;
  /** [gates · hidden, hidden] */
  readonly weightHh: Parameter;
  /** [gates · hidden] */
  readonly biasIh: Parameter | null;
  /** [gates · hidden] */
  readonly biasHh: Parameter | null;
  readonly #cell: Cell;

  constructor(cell: Cell, inputSize: number, hiddenSize: number, { bias = true }: CellOptions) {
    super();
    requireSizes(this.constructor.name, { inputSize, hiddenSize });
    this.inputSize = inputSize;
    this.hiddenSize = hiddenSize;
    const { weightIh, weightHh, biasIh, biasHh } = makeWeights(cell, inputSize, hiddenSize, bias);
    this.weightIh = weightIh;
    this.weightHh = weightHh;
    this.biasIh = biasIh;
    this.biasHh = biasHh;
    this.#cell = cell;
  }

  /** One step. The states have the batch of the input, or none if it has none. */
  protected step(x: Tensor, states: readonly Tensor[] | undefined): readonly Tensor[] {
    const { device, dtype, shape } = x;
    const isBatched = shape.length === 2;
    const size = [...shape.slice(0, -1), this.hiddenSize];
    const hasCell = this.#cell === "lstm";
    const initial = states ?? new Array<Tensor>(hasCell ? 2 : 1).fill(zeros(size, { device, dtype }));
    const isFitting = initial.every((state) => String(state.shape) === String(size));
    if ((!isBatched && shape.length !== 1) || shape.at(-1) !== this.inputSize || !isFitting) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `${this.constructor.name}: the input has the shape [${shape.join(", ")}], and the states have ` +
          `${initial.map((state) => `[${state.shape.join(", ")}]`).join(" and ")}; pass [batch, ${this.inputSize}] and ` +
          `[batch, ${this.hiddenSize}], or both without a batch.`,
      );
    }
    const withBatch = (tensor: Tensor): Tensor => (isBatched ? tensor : tensor.unsqueeze(0));
    const [state, cell] = initial.map(withBatch) as [Tensor, Tensor | undefined];
    const options = { cell: this.#cell, isReversed: false, isBatchFirst: false, mask: undefined };
    const result = runDirection(withBatch(x).unsqueeze(0), this, { state, cell }, options);
    return [result.state, ...(result.cell ? [result.cell] : [])].map((tensor) =>
      isBatched ? tensor : tensor.squeeze(0),
    );
  }

  protected override describe(): string {
    return `inputSize=${this.inputSize}, hiddenSize=${this.hiddenSize}, bias=${this.biasIh !== null}`;
  }
}

/**
 * A time step of `RNN`: the next state from the input [batch, input] and the state [batch, hidden].
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const cell = new nn.RNNCell(4, 3).to(cpu);
 * let state = cell.forward(randn([2, 4]));
 * state = cell.forward(randn([2, 4]), state);
 * console.log(state.shape); // → [ 2, 3 ]
 * cpu.close();
 * ```
 */
export class RNNCell extends RecurrentCell {
  constructor(inputSize: number, hiddenSize: number, given: RNNCellOptions = {}) {
    const { nonlinearity = "tanh", ...options } = checkOptions("nn.RNNCell", given, {
      nonlinearity: true,
      bias: true,
    });
    super(nonlinearity === "relu" ? "relu" : "tanh", inputSize, hiddenSize, options);
  }

  /** The next state. The previous one is 0 by default. */
  forward(x: Tensor, state?: Tensor): Tensor {
    return this.step(x, state && [state])[0] as Tensor;
  }
}

/**
 * A time step of `LSTM`: the next state and cell state from the input [batch, input] and the previous ones [batch, hidden].
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const cell = new nn.LSTMCell(4, 3).to(cpu);
 * const [state, memory] = cell.forward(randn([2, 4]));
 * console.log(state.shape, memory.shape); // → [ 2, 3 ] [ 2, 3 ]
 * cpu.close();
 * ```
 */
export class LSTMCell extends RecurrentCell {
  constructor(inputSize: number, hiddenSize: number, options: CellOptions = {}) {
    checkOptions("nn.LSTMCell", options, cellOptionNames);
    super("lstm", inputSize, hiddenSize, options);
  }

  /** The next state and the next cell state. The previous ones are 0 by default. */
  forward(x: Tensor, states?: readonly [state: Tensor, cell: Tensor]): [state: Tensor, cell: Tensor] {
    return this.step(x, states) as [Tensor, Tensor];
  }
}

/**
 * A time step of `GRU`: the next state from the input [batch, input] and the state [batch, hidden].
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const cell = new nn.GRUCell(4, 3).to(cpu);
 * console.log(cell.forward(randn([4])).shape); // → [ 3 ]
 * cpu.close();
 * ```
 */
export class GRUCell extends RecurrentCell {
  constructor(inputSize: number, hiddenSize: number, options: CellOptions = {}) {
    checkOptions("nn.GRUCell", options, cellOptionNames);
    super("gru", inputSize, hiddenSize, options);
  }

  /** The next state. The previous one is 0 by default. */
  forward(x: Tensor, state?: Tensor): Tensor {
    return this.step(x, state && [state])[0] as Tensor;
  }
}
