/** The sizes and the operands of a recurrent layer. */

import type { Dtype } from "../../ir/index.js";
import { type OperandType, typeAt, type ValueType } from "../op.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, isSameShape } from "../shape.js";
import { type Cell, cellShapes } from "./cells.js";

export type RecurrentAttributes = {
  readonly cell: Cell;
  /** True if the steps run from the last row of time to the first. */
  readonly isReversed: boolean;
};

export interface Sizes {
  readonly steps: number;
  readonly batch: number;
  readonly hidden: number;
  /** The gates of one step: `gates · hidden`. */
  readonly width: number;
  readonly dtype: Dtype;
}

/** The position of each operand; undefined if the cell does not have it. */
export interface Positions {
  readonly gates: number;
  readonly state: number;
  readonly weight: number;
  readonly cell: number | undefined;
  readonly bias: number | undefined;
  readonly mask: number | undefined;
}

/**
 * Operands: the projected input [steps, batch, gates · hidden], the initial state [batch, hidden], the weight [gates · hidden, hidden], for an
 * LSTM the initial cell [batch, hidden], for a GRU the bias of the previous state [gates · hidden], and an optional mask [steps, batch] that is
 * false at steps beyond a row's length.
 */
export function positionsOf(cell: Cell, count: number): Positions {
  const isPlain = cell !== "lstm" && cell !== "gru";
  const mask = isPlain ? 3 : 4;
  return {
    ...{ gates: 0, state: 1, weight: 2 },
    cell: cell === "lstm" ? 3 : undefined,
    bias: cell === "gru" ? 3 : undefined,
    mask: count > mask ? mask : undefined,
  };
}

/** The sizes, validated. */
export function sizesOf(name: string, operands: readonly OperandType[], cell: Cell): Sizes {
  const { gates: gateCount } = cellShapes[cell];
  const positions = positionsOf(cell, operands.length);
  const { shape, dtype } = typeAt(name, operands, 0);
  requireFloat(name, dtype);
  const [steps = 0, batch = 0, width = 0] = shape;
  const hidden = width / gateCount;
  if (shape.length !== 3 || steps < 1 || !Number.isInteger(hidden)) {
    throw badShape(
      name,
      `the projected input is ${formatShape(shape)}; it must be [steps, batch, ${gateCount} · hidden], with at least one step.`,
    );
  }
  const expected: readonly (readonly [number | undefined, string, ValueType])[] = [
    [positions.state, "the initial state", { shape: [batch, hidden], dtype }],
    [positions.weight, "the weight", { shape: [width, hidden], dtype }],
    [positions.cell, "the initial cell", { shape: [batch, hidden], dtype }],
    [positions.bias, "the bias", { shape: [width], dtype }],
    [positions.mask, "the mask", { shape: [steps, batch], dtype: "bool" }],
  ];
  for (const [position, what, type] of expected) {
    if (position === undefined) continue;
    const actual = typeAt(name, operands, position);
    if (isSameShape(actual.shape, type.shape) && actual.dtype === type.dtype) continue;
    throw badShape(
      name,
      `${what} is ${actual.dtype} ${formatShape(actual.shape)}; it must be ${type.dtype} ${formatShape(type.shape)} for a ` +
        `projected input of ${dtype} ${formatShape(shape)}.`,
    );
  }
  return { steps, batch, hidden, width, dtype };
}
