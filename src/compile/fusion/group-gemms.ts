/**
 * Makes products together that leave most of a GPU idle one by one: those of a layer's weight gradients. In f32 each has
 * the bits that it has alone.
 */

import { gemmTogether } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { outlineOf } from "../autotune/gemm-times.js";
import type { Call, ProductCall } from "../program/program.js";
import { type Grouping, groupCalls } from "./group-calls.js";

/** So many elements for each multiprocessor keep it busy; products that have them need no company. */
const enoughElements = 11_000;

/** How many products one launch makes. */
const mostProducts = 8;

/** `isChosen`: may products round otherwise than in eager code? In f32 they never do. */
export function makeProductsTogether(
  runtime: Runtime,
  calls: readonly Call[],
  isChosen = true,
): readonly Call[] {
  if (!isChosen && runtime.settings.precision !== "f32") return calls;
  const grouping: Grouping<ProductCall["problem"]> = {
    problemOf({ work }) {
      if (work.kind !== "product") return undefined;
      const { problem } = work;
      return !grouping.isEnough([problem]) && grouping.isPossible([problem]) ? problem : undefined;
    },
    isPossible: (problems) =>
      problems.length <= mostProducts && gemmTogether(runtime, problems.map(outlineOf)),
    isEnough(problems) {
      const elements = problems.reduce((sum, { m, n, batch = 1 }) => sum + m * n * batch, 0);
      return elements >= enoughElements * runtime.device.parallelism;
    },
    workOf: (problems) => ({
      kind: "products",
      // A library's scratch memory and its algorithm are of no use here.
      problems: problems.map(({ scratch: _, choice: __, ...problem }) => problem),
    }),
  };
  return groupCalls(calls, grouping);
}
