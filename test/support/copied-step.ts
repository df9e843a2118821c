/** A step that keeps a weight copy: it reads the bf16 copy of some weights, updates them, and stores the copy. */

import type { Buffer, BufferSlice, Call, RowCall } from "../../src/compile/program/program.js";
import { iterateElements, type RowKernel, term } from "../../src/ir/index.js";
import { type ProposedStep, planDisjoint, Sketch, scheduleOn, sliceOf } from "./proposed-steps.js";

const elements = 64;
const [bytes, copiedBytes] = [4 * elements, 2 * elements];

const castKernel: RowKernel = {
  name: "f32 to bf16",
  inputs: ["f32"],
  outputs: [{ dtype: "bf16", per: "element" }],
  scalars: [],
  stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
};

/** Input: the weights. Outputs: the weights, halved, and their copy, in this order or in the other. */
const updateKernel = (storesCopyFirst: boolean): RowKernel => {
  const stages = [
    { kind: "store", output: 0, value: term.mul(term.load(0, "f32"), 0.5) },
    { kind: "store", output: 1, value: term.load(0, "f32") },
  ] as const;
  return {
    name: "halve",
    inputs: ["f32"],
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: "bf16", per: "element" },
    ],
    scalars: [],
    stages: storesCopyFirst ? stages.toReversed() : stages,
  };
};

export interface CopiedMemory {
  readonly weights: Buffer;
  readonly copy: Buffer;
  /** The result of the reader of the copy. */
  readonly y: Buffer;
}

/** A step of these calls, over a region of which a part has a copy. */
export function copiedStep(calls: (sketch: Sketch, memory: CopiedMemory) => void): ProposedStep {
  const sketch = new Sketch();
  const region = sketch.persistent("weights", 4096, 3 * bytes);
  const copy: Buffer = {
    ...sketch.persistent("copy", 8192, copiedBytes),
    copyOf: { source: sliceOf(region, bytes, bytes), kernel: castKernel, offset: 0 },
  };
  calls(sketch, { weights: region, copy, y: sketch.step("y", 64) });
  const { program } = sketch;
  const schedule = scheduleOn(program, []);
  return { program, schedule, plan: planDisjoint(schedule) };
}

/** The weights that have a copy, or a part of them: the elements from `first` on. */
export function copiedWeights({ weights }: CopiedMemory, first = 0, count = elements - first): BufferSlice {
  return sliceOf(weights, bytes + 4 * first, 4 * count);
}

/** Updates copied weights and stores the copy, in one kernel. */
export function updateCall({ weights, copy }: CopiedMemory, storesCopyFirst = false): Call {
  const slice = sliceOf(weights, bytes, bytes);
  const work: RowCall = {
    ...{ kind: "row", kernel: updateKernel(storesCopyFirst), scalars: [] },
    iteration: iterateElements([elements], [[1], [1], [1]]),
    operands: [slice, slice, sliceOf(copy, 0, copiedBytes)],
  };
  return { op: "update", work };
}

/** The elements of the copy from `first` on. */
export function sliceOfElements(
  { copy }: CopiedMemory,
  first: number,
  count = elements - first,
): BufferSlice {
  return sliceOf(copy, 2 * first, 2 * count);
}
