/** The gradient of `recurrent`: the same loop backwards, then one GEMM over all steps for the weight. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, transposed } from "../device-array.js";
import { castForGemm, lowerGemm } from "../matmul/gemm.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { cacheByDtypes } from "../row-lowering.js";
import { backwardKernel, cellShapes } from "./cells.js";
import type { RecurrentAttributes } from "./operands.js";
import { lowerCell, overHidden, rowOf, TimeLoop, withoutFirstAxis } from "./time-loop.js";

/**
 * Operands: the gradient of the states, the weight, the outputs of `recurrent`, and the optional mask. Outputs: the gradients of the projected
 * input [steps, batch, gates · hidden], of the initial state, and of the weight; for an LSTM that of the initial cell, and for a GRU that of
 * the projected states [steps, batch, gates · hidden].
 */
export const recurrentGradient: KernelOp<RecurrentAttributes> = {
  kind: "kernel",
  name: "recurrentGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer(operands, { cell }) {
    const { shape: ofWeight, dtype } = typeAt("recurrentGradient", operands, 1);
    const { hasCell } = cellShapes[cell];
    const [rows = 0, batch = 0, hidden = 0] = typeAt("recurrentGradient", operands, 2).shape;
    const [width = 0] = ofWeight;
    const gates = { shape: [rows - (hasCell ? 2 : 1), batch, width], dtype };
    const state = { shape: [batch, hidden], dtype };
    const last = hasCell ? [state] : cell === "gru" ? [gates] : [];
    return [gates, state, { shape: ofWeight, dtype }, ...last];
  },
  lower(lowering, operands, [gates, ofState, ofWeight, last], { cell, isReversed }) {
    const { saved: planes, hasCell, carries } = cellShapes[cell];
    const arrays = operands.map((_, index) => arrayAt(operands, index));
    const [upstream, weight, states, ...others] = arrays;
    const saved = planes > 0 ? others.shift() : undefined;
    const cells = hasCell ? others.shift() : undefined;
    const [mask] = others;
    if (!gates || !ofState || !ofWeight || !upstream || !weight || !states) return;
    if (!gates.storage || !states.storage) {
      fillWith(lowering, ofWeight, 0);
      return;
    }
    const { dtype } = states;
    const { compute } = dtypes[dtype];
    const [steps = 0, batch = 0] = gates.shape;
    const [hidden = 0] = ofState.shape.slice(1);
    const [initial, final, previous] = isReversed ? [steps, 0, 1] : [0, steps, -1];
    const first = isReversed ? 0 : steps - 1;
    const projected = cell === "gru" && last ? last : gates;
    const recurrent = zeroed(lowering, [batch, hidden], dtype);
    const carry = carries || mask ? zeroed(lowering, [batch, hidden], compute) : undefined;
    const ofCell = hasCell ? lowering.scratchArray([batch, hidden], compute) : undefined;
    if (ofCell) copyArray(lowering, rowOf(lowering, upstream, steps + 1), ofCell);

    const time = new TimeLoop(!isReversed);
    time.move("upstream", upstream, "in", final);
    time.move("states", states, "in", final);
    time.move("gates", gates, "out", first);
    if (projected !== gates) time.move("projected", projected, "out", first);
    if (saved) time.move("saved", saved, "in", first);
    if (cells) time.move("cells", cells, "in", final);
    if (mask) time.move("mask", mask, "in", first);
    const roundedWeight = castForGemm(lowering, weight);
    const rounded =
      roundedWeight && lowering.scratchArray([batch, weight.shape[0] ?? 0], roundedWeight.dtype);
    if (rounded) time.share("rounded", rounded, "out");
    time.share("weight", roundedWeight ?? weight, "in");
    time.share("recurrent", recurrent, "inout");
    if (carry) time.share("carry", carry, "inout");
    if (ofCell) time.share("cellGradient", ofCell, "inout");
    const kernel = backwardKernel({ cell, dtype, isMasked: mask !== undefined, rounded: rounded?.dtype });
    lowering.loop({
      count: steps,
      operands: time.operands,
      body(view) {
        const at = (array: string, rowsOff = 0): DeviceArray => time.at(view, array, { rowsOff });
        const byGate = (array: string, index: number): DeviceArray =>
          time.at(view, array, { plane: { axis: 1, index, size: hidden } });
        // An array that a kernel overwrites is the same storage as an input and as an output.
        const once = new Map<string, DeviceArray>();
        const shared = (array: string): DeviceArray => {
          const existing = once.get(array) ?? at(array);
          once.set(array, existing);
          return existing;
        };
        lowerCell(lowering, kernel, [batch, hidden], (array, index) => {
          switch (array) {
            case "gates":
              return byGate("gates", index);
            case "hidden":
              return byGate("projected", index);
            case "rounded":
              return byGate(array, index);
            case "saved":
              return withoutFirstAxis(time.at(view, array, { plane: { axis: 0, index, size: 1 } }));
            case "state":
              return at("states", previous);
            case "nextState":
              return at("states");
            case "cell":
              return at("cells", previous);
            case "nextCell":
              return at("cells");
            case "mask":
              return overHidden(at("mask"), hidden);
            default:
              return shared(array);
          }
        });
        const rows = at(rounded ? "rounded" : projected === gates ? "gates" : "projected");
        lowerGemm(lowering, rows, at("weight"), at("recurrent"));
      },
    });
    addAll(lowering, [recurrent, ...(carry ? [carry] : []), rowOf(lowering, upstream, initial)], ofState);
    if (ofCell && last) copyArray(lowering, ofCell, last);
    const previousStates = rowsOf(lowering, states, isReversed ? 1 : 0, steps);
    lowerGemm(lowering, transposed(asRows(projected)), asRows(previousStates), ofWeight);
  },
};

function zeroed(lowering: Lowering, shape: readonly number[], dtype: Dtype): DeviceArray {
  const array = lowering.scratchArray(shape, dtype);
  fillWith(lowering, array, 0);
  return array;
}

/** Some rows of a contiguous array's first axis. */
function rowsOf(lowering: Lowering, array: DeviceArray, first: number, count: number): DeviceArray {
  const { shape, strides, dtype, storage } = array;
  if (!storage) return array;
  const rowBytes = (strides[0] ?? 0) * dtypes[dtype].bytes;
  const view = lowering.view(storage, first * rowBytes, count * rowBytes);
  return { ...array, shape: [count, ...shape.slice(1)], storage: view };
}

/** [steps, batch, n] as [steps · batch, n]. */
function asRows(array: DeviceArray): DeviceArray {
  const [steps = 0, batch = 0, columns = 0] = array.shape;
  return { ...array, shape: [steps * batch, columns], strides: [columns, 1] };
}

const sumKernel = cacheByDtypes((output = "f32", ...inputs): RowKernel => {
  const { compute } = dtypes[output];
  const value = inputs
    .map((_, index) => term.load(index, compute))
    .reduce((total, addend) => term.add(total, addend));
  return {
    ...{ name: "recurrentStateGradient", inputs, scalars: [] },
    outputs: [{ dtype: output, per: "element" }],
    stages: [{ kind: "store", output: 0, value }],
  };
});

function addAll(lowering: Lowering, addends: readonly DeviceArray[], output: DeviceArray): void {
  const operands = [...addends, output];
  lowering.row({
    kernel: sumKernel(output.dtype, ...addends.map(({ dtype }) => dtype)),
    iteration: iterateElements(
      output.shape,
      operands.map(({ strides }) => strides),
    ),
    operands: operands.flatMap(({ storage }) => storage ?? []),
  });
}
