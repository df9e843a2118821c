/**
 * recurrent: the steps of a recurrent layer in one direction, after the projection of its whole input. Each step is a GEMM of the previous state
 * and one kernel. All steps are one loop, which a compiled step keeps as one call.
 */

import { dtypes } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, transposed } from "../device-array.js";
import { castForGemm, lowerGemm } from "../matmul/gemm.js";
import { arrayAt, type KernelOp } from "../op.js";
import { cellShapes, forwardKernel } from "./cells.js";
import { recurrentGradient } from "./gradient.js";
import { positionsOf, type RecurrentAttributes, sizesOf } from "./operands.js";
import { recordedRecurrentGradient } from "./recorded-gradient.js";
import { lowerCell, overHidden, rowOf, TimeLoop, withoutFirstAxis } from "./time-loop.js";

/**
 * Operands: see `positionsOf`. Outputs: the states [steps + 1, batch, hidden], the initial one included; for an LSTM one row more, with the
 * final cell. Then what backward reads: the activated gates [steps, planes, batch, hidden], and an LSTM's cells [steps + 1, batch, hidden].
 */
export const recurrent: KernelOp<RecurrentAttributes> = {
  kind: "kernel",
  name: "recurrent",
  infer(operands, { cell }) {
    const { steps, batch, hidden, dtype } = sizesOf("recurrent", operands, cell);
    const { saved, hasCell } = cellShapes[cell];
    return [
      { shape: [steps + (hasCell ? 2 : 1), batch, hidden], dtype },
      ...(saved > 0 ? [{ shape: [steps, saved, batch, hidden], dtype }] : []),
      ...(hasCell ? [{ shape: [steps + 1, batch, hidden], dtype: dtypes[dtype].compute }] : []),
    ];
  },
  saves(needs, { cell }) {
    const { weight, mask } = positionsOf(cell, needs.length);
    const { saved, hasCell } = cellShapes[cell];
    return {
      operands: [weight, ...(mask === undefined ? [] : [mask])],
      outputs: [0, ...(saved > 0 ? [1] : []), ...(hasCell ? [2] : [])],
    };
  },
  gradient(rule) {
    const { apply, applyAll, attributes } = rule;
    if (rule.isRecorded) return recordedRecurrentGradient(rule);
    const { cell } = attributes;
    const { weight, mask, bias } = positionsOf(cell, rule.operandCount);
    const saved = rule.outputTypes.map((_, index) => rule.output(index));
    const [gates, state, ofWeight, fourth] = applyAll(
      recurrentGradient,
      [rule.upstream, rule.operand(weight), ...saved, ...(mask === undefined ? [] : [rule.operand(mask)])],
      attributes,
    );
    const last = fourth !== undefined && bias !== undefined ? apply(sum, [fourth], { axes: [0, 1] }) : fourth;
    return [gates, state, ofWeight, last, undefined].slice(0, rule.operandCount);
  },
  lower(lowering, operands, [states, saved, cells], { cell, isReversed }) {
    if (!states?.storage) return;
    const { steps, batch, hidden, width, dtype } = sizesOf("recurrent", operands, cell);
    const positions = positionsOf(cell, operands.length);
    const optional = (position: number | undefined): DeviceArray | undefined =>
      position === undefined ? undefined : arrayAt(operands, position);
    const [initial, final] = isReversed ? [steps, 0] : [0, steps];
    copyArray(lowering, arrayAt(operands, positions.state), rowOf(lowering, states, initial));
    const initialCell = optional(positions.cell);
    if (cells && initialCell) copyArray(lowering, initialCell, rowOf(lowering, cells, initial));

    const time = new TimeLoop(isReversed);
    const [first, next] = isReversed ? [steps - 1, -1] : [0, 1];
    const [weight, bias, mask] = [
      arrayAt(operands, positions.weight),
      optional(positions.bias),
      optional(positions.mask),
    ];
    time.move("gates", arrayAt(operands, positions.gates), "in", first);
    time.move("states", states, "inout", initial);
    if (cells) time.move("cells", cells, "inout", initial);
    if (saved) time.move("saved", saved, "out", first);
    if (mask) time.move("mask", mask, "in", first);
    // A GEMM that rounds its operands reads a rounded weight, and rounded states, which the kernel of the step before stores.
    const roundedWeight = castForGemm(lowering, weight);
    const rounded = roundedWeight && lowering.scratchArray([batch, hidden], roundedWeight.dtype);
    if (rounded) {
      copyArray(lowering, arrayAt(operands, positions.state), rounded);
      time.share("rounded", rounded, "inout");
    }
    time.share("weight", roundedWeight ?? weight, "in");
    if (bias) time.share("bias", bias, "in");
    time.share("hidden", lowering.scratchArray([batch, width], dtype), "out");
    const kernel = forwardKernel({ cell, dtype, isMasked: mask !== undefined, rounded: rounded?.dtype });
    lowering.loop({
      count: steps,
      operands: time.operands,
      body(view) {
        const at = (array: string, rowsOff = 0): DeviceArray => time.at(view, array, { rowsOff });
        const state = at("states");
        const left = rounded ? at("rounded") : state;
        lowerGemm(lowering, left, transposed(at("weight")), at("hidden"), bias && at("bias"));
        lowerCell(lowering, kernel, [batch, hidden], (array, index) => {
          switch (array) {
            case "saved":
              return withoutFirstAxis(time.at(view, array, { plane: { axis: 0, index, size: 1 } }));
            case "state":
              return state;
            case "nextState":
              return at("states", next);
            case "cell":
              return at("cells");
            case "nextCell":
              return at("cells", next);
            case "rounded":
              return left;
            case "mask":
              return overHidden(at("mask"), hidden);
            default:
              return time.at(view, array, { plane: { axis: 1, index, size: hidden } });
          }
        });
      },
    });
    if (cells) copyArray(lowering, rowOf(lowering, cells, final), rowOf(lowering, states, steps + 1));
  },
};
