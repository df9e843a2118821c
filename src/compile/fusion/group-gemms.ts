/**
 * Makes products together that leave most of a GPU idle one by one: those of a layer's weight gradients. In f32 each has
 * the bits that it has alone.
 */

import { canGroupGemms } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-times.js";
import type { Call, GemmCall } from "../program/program.js";
import { type Grouping, groupCalls } from "./group-calls.js";

/** So many elements for each multiprocessor keep it busy; products that have them need no company. */
const enoughElements = 11_000;

/** How many products one launch makes. */
const maxGemms = 8;

/** `isTuned`: may products round otherwise than in eager code? In f32 they never do. */
export function groupGemms(runtime: Runtime, calls: readonly Call[], isTuned = true): readonly Call[] {
  if (!isTuned && runtime.settings.precision !== "f32") return calls;
  const grouping: Grouping<GemmCall["problem"]> = {
    problemOf({ work }) {
      if (work.kind !== "gemm") return undefined;
      const { problem } = work;
      return !grouping.isEnough([problem]) && grouping.isPossible([problem]) ? problem : undefined;
    },
    isPossible: (problems) =>
      problems.length <= maxGemms && canGroupGemms(runtime, problems.map(describeGemm)),
    isEnough(problems) {
      const elements = problems.reduce((sum, { m, n, batch = 1 }) => sum + m * n * batch, 0);
      return elements >= enoughElements * runtime.device.parallelism;
    },
    workOf: (problems) => ({
      kind: "grouped-gemm",
      // A library's scratch memory and its algorithm are of no use here.
      problems: problems.map(({ scratch: _, choice: __, ...problem }) => problem),
    }),
  };
  return groupCalls(calls, grouping);
}
