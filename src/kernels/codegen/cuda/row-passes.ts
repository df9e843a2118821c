/**
 * The passes of a row kernel over its row. A pass visits every element once: it computes one or more reductions that do not depend on each
 * other, or stores one output.
 */

import { dtypes, loadsOf, type RowKernel, type Stage, subexpressionsOf } from "../../../ir/index.js";
import { maxThreadsPerBlock, warpSize } from "../../cost-model.js";
import { onlineSoftmaxAt } from "./online-softmax.js";

/** The stages of each pass. A stage that stores one value per row needs no pass. */
function passesOf({ stages, outputs }: RowKernel, isOnline: boolean): readonly (readonly Stage[])[] {
  const passes: (readonly Stage[])[] = [];
  for (let index = 0; index < stages.length; ) {
    const reductions =
      isOnline && onlineSoftmaxAt(stages, index)
        ? stages.slice(index, index + 2)
        : independentReductionsFrom(stages, index);
    const stage = stages[index];
    if (reductions.length > 0) passes.push(reductions);
    else if (stage?.kind === "store" && outputs[stage.output]?.per !== "row") passes.push([stage]);
    index += Math.max(1, reductions.length);
  }
  return passes;
}

/** The inputs that more than one pass reads. `isOnline`: a row's maximum and sum of exponentials share a pass. */
export function inputsOfSeveralPasses(kernel: RowKernel, isOnline: boolean): readonly number[] {
  const passes = passesOf(kernel, isOnline).map(
    (stages) =>
      new Set(stages.flatMap(({ value }) => loadsOf(value).flatMap(({ input, at }) => (at ? [] : [input])))),
  );
  return kernel.inputs.flatMap((_, input) =>
    passes.filter((read) => read.has(input)).length > 1 ? [input] : [],
  );
}

/** True if one pass computes a row's maximum and its sum of exponentials. Rows in registers need no such pass: they are loaded once. */
export function usesOnlineSoftmax({
  usesFastMath = false,
  vectors,
}: {
  readonly usesFastMath?: boolean;
  readonly vectors: number;
}): boolean {
  return usesFastMath && vectors === 0;
}

/** The static shared memory of a block: each reduction has a value per warp. */
export function reductionBytes({ stages }: RowKernel): number {
  const reductions = stages.filter(({ kind }) => kind === "reduce");
  return reductions.length * (maxThreadsPerBlock / warpSize) * dtypes.f64.bytes;
}

/** The consecutive reductions from stage `first` on that do not depend on each other: they share one pass over the row. */
export function independentReductionsFrom(
  stages: readonly Stage[],
  first: number,
): readonly Extract<Stage, { kind: "reduce" }>[] {
  const reductions: Extract<Stage, { kind: "reduce" }>[] = [];
  for (const stage of stages.slice(first)) {
    const isIndependent =
      stage.kind === "reduce" &&
      subexpressionsOf(stage.value).every((node) => node.kind !== "reduced" || node.stage < first);
    if (!isIndependent) break;
    reductions.push(stage);
  }
  return reductions;
}
