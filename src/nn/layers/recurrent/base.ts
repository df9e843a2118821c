/** RecurrentLayer: the base of RNN, LSTM and GRU, with their parameters, stacked layers and directions. */

import { HoldfastError, type OptionNames } from "../../../errors/index.js";
import type { Cell } from "../../../ops/index.js";
import { arange, cat, stack, Tensor, tensor, zeros } from "../../../tensor/index.js";
import { dropout } from "../../functional.js";
import { Module } from "../../module.js";
import { requireProbability, requireSizes } from "../checks.js";
import { type DirectionWeights, makeWeights, runDirection } from "./direction.js";

/** Options of `LSTM` and `GRU`. */
export interface RecurrentOptions {
  /** The number of stacked layers. Default: 1. */
  readonly numLayers?: number;
  /** Default: true. */
  readonly bias?: boolean;
  /** True: inputs and outputs are [batch, time steps, width]. False: [time steps, batch, width]. Default: false. */
  readonly batchFirst?: boolean;
  /** The dropout probability of the output of each layer except the last one, in training mode. Default: 0. */
  readonly dropout?: number;
  /** Add a direction from the last time step to the first. Its outputs are concatenated after those of the first direction. Default: false. */
  readonly bidirectional?: boolean;
}

export const recurrentOptionNames: OptionNames<RecurrentOptions> = {
  numLayers: true,
  bias: true,
  batchFirst: true,
  dropout: true,
  bidirectional: true,
};

/** Options of a call of a recurrent layer. */
export interface SequenceOptions {
  /**
   * The number of time steps of each sequence of the batch, in any order: a list, or a tensor [batch], whose values are not checked. Later time
   * steps change no state, and their outputs are 0, as with PyTorch's `pack_padded_sequence`. A compiled step keeps a list as a constant, so
   * pass a tensor. Default: all time steps.
   */
  readonly lengths?: Tensor | readonly number[];
}

export const sequenceOptionNames: OptionNames<SequenceOptions> = { lengths: true };

/** The final or the initial states of all layers and directions, [layers · directions, batch, hidden]. */
export interface LayerStates {
  readonly state: Tensor;
  /** The cell state; only an LSTM has one. */
  readonly cell: Tensor | undefined;
}

export abstract class RecurrentLayer extends Module {
  readonly inputSize: number;
  readonly hiddenSize: number;
  readonly numLayers: number;
  readonly batchFirst: boolean;
  readonly dropout: number;
  readonly bidirectional: boolean;
  readonly #cell: Cell;
  /** By layer, then by direction. */
  readonly #weights: readonly (readonly DirectionWeights[])[];

  constructor(cell: Cell, inputSize: number, hiddenSize: number, options: RecurrentOptions) {
    super();
    const { numLayers = 1, bias = true, batchFirst = false, bidirectional = false } = options;
    const name = this.constructor.name;
    requireSizes(name, { inputSize, hiddenSize, numLayers });
    requireProbability(name, options.dropout ?? 0);
    this.#cell = cell;
    this.inputSize = inputSize;
    this.hiddenSize = hiddenSize;
    this.numLayers = numLayers;
    this.batchFirst = batchFirst;
    this.dropout = options.dropout ?? 0;
    this.bidirectional = bidirectional;
    const directions = bidirectional ? ["", "Reverse"] : [""];
    this.#weights = Array.from({ length: numLayers }, (_, layer) =>
      directions.map((direction) => {
        const width = layer === 0 ? inputSize : directions.length * hiddenSize;
        const weights = makeWeights(cell, width, hiddenSize, bias);
        for (const [part, parameter] of Object.entries(weights))
          if (parameter) this.registerParameter(`${part}L${layer}${direction}`, parameter);
        return weights;
      }),
    );
  }

  /** Runs all layers over a batch. `input` is [steps, batch, input], or [batch, steps, input] if batchFirst is set. */
  protected run(
    input: Tensor,
    initial: LayerStates | undefined,
    options: SequenceOptions,
  ): { readonly output: Tensor } & LayerStates {
    const isBatched = input.shape.length === 3;
    const x = isBatched ? input : input.unsqueeze(this.batchFirst ? 0 : 1);
    const [steps, batch] = this.#sizesOf(input, x);
    const first = this.#statesOf(x, batch, initial, isBatched);
    const mask = maskOf(x, steps, batch, options.lengths);
    const padding = mask?.logicalNot().unsqueeze(-1);
    const [states, cells]: [Tensor[], Tensor[]] = [[], []];
    let values = x;
    for (const [layer, directions] of this.#weights.entries()) {
      const outputs = directions.map((weights, direction) => {
        const index = states.length;
        const { output, state, cell } = runDirection(
          values,
          weights,
          { state: first.state.select(0, index), cell: first.cell?.select(0, index) },
          {
            cell: this.#cell,
            isReversed: direction === 1,
            isBatchFirst: this.batchFirst && layer === 0,
            mask,
          },
        );
        states.push(state);
        if (cell) cells.push(cell);
        return output;
      });
      const output = outputs.length === 1 ? (outputs[0] as Tensor) : cat(outputs, -1);
      const padded = padding ? output.maskedFill(padding, 0) : output;
      const isLast = layer === this.numLayers - 1;
      values = isLast ? padded : dropout(padded, this.dropout, this.isTraining);
    }
    const ofBatch = this.batchFirst ? values.transpose(0, 1) : values;
    const withoutBatch = (states: Tensor): Tensor => (isBatched ? states : states.squeeze(1));
    return {
      output: isBatched ? ofBatch : ofBatch.squeeze(this.batchFirst ? 0 : 1),
      state: withoutBatch(stack(states)),
      cell: cells.length > 0 ? withoutBatch(stack(cells)) : undefined,
    };
  }

  #sizesOf(input: Tensor, { shape }: Tensor): readonly [steps: number, batch: number] {
    const [steps = 0, batch = 0, width] = this.batchFirst ? [shape[1], shape[0], shape[2]] : shape;
    if ((input.shape.length === 2 || input.shape.length === 3) && width === this.inputSize && steps > 0)
      return [steps, batch];
    const axes = this.batchFirst ? "[batch, steps, input]" : "[steps, batch, input]";
    throw new HoldfastError(
      "BAD_SHAPE",
      `${this.constructor.name}: the input has the shape [${input.shape.join(", ")}]; it must be ${axes} or [steps, input], with at least ` +
        `one time step and an input width of ${this.inputSize}.`,
    );
  }

  /** The initial states with a batch; zeros by default. */
  #statesOf(
    { device, dtype }: Tensor,
    batch: number,
    initial: LayerStates | undefined,
    isBatched: boolean,
  ): LayerStates {
    const shape = [this.numLayers * (this.bidirectional ? 2 : 1), batch, this.hiddenSize];
    const hasCell = this.#cell === "lstm";
    if (!initial) {
      const state = zeros(shape, { device, dtype });
      return { state, cell: hasCell ? state : undefined };
    }
    const withBatch = (state: Tensor, what: string): Tensor => {
      const batched = isBatched ? state : state.unsqueeze(1);
      if (String(batched.shape) === String(shape)) return batched;
      const expected = isBatched ? shape : [shape[0], shape[2]];
      throw new HoldfastError(
        "BAD_SHAPE",
        `${this.constructor.name}: the initial ${what} has the shape [${state.shape.join(", ")}]; it must be [${expected.join(", ")}]: ` +
          "[layers · directions, batch, hidden].",
      );
    };
    const { state, cell } = initial;
    return { state: withBatch(state, "state"), cell: cell && withBatch(cell, "cell") };
  }

  protected override describe(): string {
    const { inputSize, hiddenSize, numLayers, batchFirst, bidirectional } = this;
    return `inputSize=${inputSize}, hiddenSize=${hiddenSize}, numLayers=${numLayers}, batchFirst=${batchFirst}, bidirectional=${bidirectional}`;
  }
}

/** [steps, batch]: true before the end of each sequence; undefined if all sequences have all time steps. */
function maskOf(
  { device }: Tensor,
  steps: number,
  batch: number,
  lengths: SequenceOptions["lengths"],
): Tensor | undefined {
  if (lengths === undefined) return undefined;
  const given = lengths instanceof Tensor ? lengths : lengthsOnDevice(device, steps, lengths);
  if (given.shape.length !== 1 || given.shape[0] !== batch) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `The lengths have the shape [${given.shape.join(", ")}]; pass one length for each of the ${batch} sequences of the batch.`,
    );
  }
  return arange(0, steps, 1, { device }).unsqueeze(1).lt(given);
}

function lengthsOnDevice(device: Tensor["device"], steps: number, lengths: readonly number[]): Tensor {
  const bad = lengths.find((length) => !Number.isInteger(length) || length < 1 || length > steps);
  if (bad === undefined) return tensor(lengths as number[], { device, dtype: "i32" });
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `A length is ${bad}, but the input has ${steps} time steps. Pass whole numbers from 1 to ${steps}.`,
    { numbers: { length: bad, steps } },
  );
}
