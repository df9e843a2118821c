/**
 * Grouped GEMM: small GEMMs, such as a layer's weight gradients or LoRA's projections, in one launch. In f32 each keeps the bits that it has alone. In generation,
 * projections of the same few rows share a launch too.
 */

import { canGroupGemms, canShareActivations } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { busyGemmElements, hasIdleWave, maxGroupedGemms } from "../cost-model.js";
import { type GemmCall, type GroupedGemmCall, isSameSlice, type Program } from "../program/program.js";
import { groupCalls } from "./group-calls.js";

type Problem = GemmCall["problem"];

/** `isTuned`: may GEMMs round differently from eager code? In f32 they never do. */
export function groupGemms(runtime: Runtime, program: Program, isTuned = true): void {
  if (!isTuned && runtime.settings.precision !== "f32") return;
  const countElements = (problems: readonly Problem[]): number =>
    problems.reduce((sum, { m, n, batch = 1 }) => sum + m * n * batch, 0);
  const isBusy = (problems: readonly Problem[]): boolean =>
    countElements(problems) >= busyGemmElements(runtime.device);
  const isFull = (problems: readonly Problem[]): boolean =>
    isBusy(problems) &&
    !(runtime.settings.precision === "f32" && hasIdleWave(runtime.device, countElements(problems)));
  const canGroup = (problems: readonly Problem[]): boolean =>
    problems.length <= maxGroupedGemms && canGroupGemms(runtime, problems.map(describeGemm));
  groupCalls<Problem>(program, {
    defersConsumers: true,
    itemOf({ work }) {
      if (work.kind !== "gemm") return undefined;
      const { problem } = work;
      return !isBusy([problem]) && canGroup([problem]) ? problem : undefined;
    },
    canJoin: ({ items }, problem) => !isFull(items) && canGroup([...items, problem]),
    merge: ({ items }) => ({ work: groupedCall(items) }),
  });
  groupCalls<Problem>(program, {
    itemOf: ({ work }) =>
      work.kind === "gemm" && canShareActivations(runtime, [describeGemm(work.problem)])
        ? work.problem
        : undefined,
    canJoin({ items }, problem) {
      const all = [...items, problem];
      const isShared = items.every(({ a }) => isSameSlice(a.slice, problem.a.slice));
      return isShared && all.length <= maxGroupedGemms && canShareActivations(runtime, all.map(describeGemm));
    },
    merge: ({ items }) => ({ work: groupedCall(items) }),
  });
}

/** The grouped kernels use neither a cuBLASLt algorithm nor its workspace. */
const groupedCall = (problems: readonly Problem[]): GroupedGemmCall => ({
  kind: "grouped-gemm",
  problems: problems.map(({ scratch: _, algorithm: __, ...problem }) => problem),
});
