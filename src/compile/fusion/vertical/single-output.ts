/**
 * A row call reduced to one of its outputs, to recompute it. Other outputs that are still stored are loaded, not computed: the
 * normalised rows of a fused add and layer norm need only the sum and the statistics of its rows. Every value keeps its bits.
 */

import { dtypes, type Expression, isUniform, replaceIn } from "../../../ir/index.js";
import { type Buffer, forwardedOutput, type RowCall } from "../../program/program.js";
import { draftOf, rowsOf } from "./combine.js";
import { compact, type Rewritten } from "./compact.js";
import { type FusionNode, fusionNodeOf, neverMeet, type Operand } from "./fusion-node.js";
import { forwardedValue, Interner } from "./interner.js";
import { iterationSpaceOf } from "./iteration-space.js";
import { isInvariantAlongRows } from "./strided-access.js";

/**
 * The call that only writes `wanted`; undefined if that needs a reduction, or if the call overwrites memory. `isStored` tells which
 * buffers can be loaded.
 */
export function singleOutput(
  work: RowCall,
  wanted: Buffer,
  isStored: (buffer: Buffer) => boolean,
): RowCall | undefined {
  const member = fusionNodeOf({ op: work.kernel.name, work });
  const frame = member && iterationSpaceOf([member]);
  if (!frame || overwrites(work, member)) return undefined;
  const { kernel, outputs } = member;
  const interner = new Interner();
  const values = kernel.stages.map(({ value }) => interner.rewrite(value, sameLeaves));
  const inputs = [...member.inputs];
  const replaced: { readonly value: Expression; readonly load: Expression }[] = [];
  const stages = kernel.stages.map((stage, index): Rewritten => {
    const value = values[index] ?? stage.value;
    const output = stage.kind === "store" ? outputs[stage.output] : undefined;
    const isKept = output?.slice.buffer === wanted && output.per === "element";
    if (output && !isKept && isStored(output.slice.buffer) && isLoadable(member, output, value, interner)) {
      const input = inputs.push({ ...output, per: "element" }) - 1;
      replaced.push({ value, load: { kind: "load", input, type: dtypes[output.dtype].compute } });
    }
    return { member: 0, stage, output, value, isKept };
  });
  // One output may be computed from another. The one that is stored later contains the other, so it is replaced first.
  const loadStored = (root: Expression): Expression =>
    replaced.reduceRight((expression, { value, load }) => replaceIn(expression, value, load), root);
  const compacted = compact(
    stages.map((stage) => ({ ...stage, value: loadStored(stage.value) })),
    inputs,
    member.scalars.map((value, index) => ({ value, type: kernel.scalars[index] ?? "f32" })),
  );
  if (!compacted || compacted.stages.some(({ kind }) => kind === "reduce")) return undefined;
  const draft = draftOf(kernel.name, frame, compacted);
  return draft && rowsOf(draft);
}

/** True if the call stores to memory that it read before, or twice to the same memory. */
function overwrites(work: RowCall, { kernel, inputs, outputs }: FusionNode): boolean {
  const isInPlace = inputs.some(
    (input, index) =>
      forwardedOutput(work, index) === undefined && !outputs.every((output) => neverMeet(input, output)),
  );
  return isInPlace || kernel.stages.filter(({ kind }) => kind === "store").length > outputs.length;
}

/** True if a load of the stored output gives the value at every element of the row. */
function isLoadable(
  { inputs, rowSize = 1 }: FusionNode,
  { dtype, per }: Operand<keyof typeof dtypes>,
  value: Expression,
  interner: Interner,
): boolean {
  if (per === "column" || value.kind === "constant" || value.kind === "scalar") return false;
  if (forwardedValue(interner, value, dtype, (input) => inputs[input]?.dtype) !== value) return false;
  const isInvariant = (input: number): boolean => isInvariantAlongRows(inputs[input]?.steps ?? [], rowSize);
  return per === "element" || isUniform(value, isInvariant);
}

const sameLeaves: Parameters<Interner["rewrite"]>[1] = {
  load: (input, type, at) => (at ? { kind: "load", input, type, at } : { kind: "load", input, type }),
  scalar: (index, type) => ({ kind: "scalar", index, type }),
  reduced: (stage, type) => ({ kind: "reduced", stage, type }),
};
