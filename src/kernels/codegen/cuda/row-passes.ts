/** The passes of a row kernel with reductions over its row: which stages share one, and what they read. */

import { dtypes, loadsOf, type RowKernel, type Stage, subexpressionsOf } from "../../../ir/index.js";
import { maxThreadsPerBlock, warpSize } from "../../cost-model.js";
import { onlineSoftmaxAt } from "./online-softmax.js";

/** The stages that each pass over the row computes. Stages per row need none. */
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

/** The inputs whose elements more than one pass reads. `isOnline`: with online softmax. */
export function inputsOfSeveralPasses(kernel: RowKernel, isOnline: boolean): readonly number[] {
  const passes = passesOf(kernel, isOnline).map(
    (stages) =>
      new Set(stages.flatMap(({ value }) => loadsOf(value).flatMap(({ input, at }) => (at ? [] : [input])))),
  );
  return kernel.inputs.flatMap((_, input) =>
    passes.filter((read) => read.has(input)).length > 1 ? [input] : [],
  );
}

/** True if a pass computes the maximum of a row and the sum of its exponentials: for rows that registers cannot hold. */
export function usesOnlineSoftmax({
  usesFastMath = false,
  vectors,
}: {
  readonly usesFastMath?: boolean;
  readonly vectors: number;
}): boolean {
  return usesFastMath && vectors === 0;
}

/** Static shared memory of a block: a value of each warp for each reduction. */
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
