/** One direction of a recurrent layer: its parameters, and its steps over a sequence. */

import { type Cell, recurrent } from "../../../ops/index.js";
import { type Tensor, zeros } from "../../../tensor/index.js";
import { linear } from "../../functional.js";
import { uniform } from "../../init.js";
import { Parameter } from "../../parameter.js";

/** The gates of each cell, in PyTorch's order: i, f, g, o of an LSTM, and r, z, n of a GRU. */
export const gateCounts: Readonly<Record<Cell, number>> = { lstm: 4, gru: 3, tanh: 1, relu: 1 };

export interface DirectionWeights {
  /** [gates · hidden, input] */
  readonly weightIh: Parameter;
  /** [gates · hidden, hidden] */
  readonly weightHh: Parameter;
  /** [gates · hidden] */
  readonly biasIh: Parameter | null;
  /** [gates · hidden] */
  readonly biasHh: Parameter | null;
}

/** New parameters, uniform within ±1/√hidden as in PyTorch. */
export function makeWeights(
  cell: Cell,
  inputSize: number,
  hiddenSize: number,
  hasBias: boolean,
): DirectionWeights {
  const bound = 1 / Math.sqrt(hiddenSize);
  const width = gateCounts[cell] * hiddenSize;
  const make = (...shape: number[]): Parameter => new Parameter(shape, uniform(-bound, bound));
  return {
    weightIh: make(width, inputSize),
    weightHh: make(width, hiddenSize),
    biasIh: hasBias ? make(width) : null,
    biasHh: hasBias ? make(width) : null,
  };
}

export interface DirectionOptions {
  readonly cell: Cell;
  readonly isReversed: boolean;
  /** True if x is [batch, steps, input], and not [steps, batch, input]. */
  readonly isBatchFirst: boolean;
  /** [steps, batch]: false after the end of a sequence. */
  readonly mask: Tensor | undefined;
}

export interface DirectionResult {
  /** [steps, batch, hidden] */
  readonly output: Tensor;
  /** [batch, hidden] */
  readonly state: Tensor;
  /** [batch, hidden], of an LSTM. */
  readonly cell: Tensor | undefined;
}

/** Runs all steps. The initial states are [batch, hidden]. */
export function runDirection(
  x: Tensor,
  { weightIh, weightHh, biasIh, biasHh }: DirectionWeights,
  initial: { readonly state: Tensor; readonly cell: Tensor | undefined },
  { cell, isReversed, isBatchFirst, mask }: DirectionOptions,
): DirectionResult {
  // A GRU adds the bias of the state inside its reset gate. The other cells add the two biases.
  const isGru = cell === "gru";
  const bias = biasIh && biasHh && !isGru ? biasIh.add(biasHh) : biasIh;
  const projected = linear(x, weightIh, bias);
  const gates = isBatchFirst ? projected.transpose(0, 1) : projected;
  const { dtype, device } = gates;
  const ofState = isGru ? [(biasHh ?? zeros(weightHh.shape.slice(0, 1), { dtype, device })).to(dtype)] : [];
  const states = device.apply(
    recurrent,
    [
      ...[gates, initial.state.to(dtype), weightHh.to(dtype)],
      ...(initial.cell ? [initial.cell.to(dtype)] : []),
      ...[...ofState, ...(mask ? [mask] : [])],
    ],
    { cell, isReversed },
  );
  const [steps = 0] = gates.shape;
  return {
    output: states.narrow(0, isReversed ? 0 : 1, steps),
    state: states.select(0, isReversed ? 0 : steps),
    cell: initial.cell && states.select(0, steps + 1),
  };
}
