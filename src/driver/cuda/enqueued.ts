/** Kernels whose work a library issues to the stream, such as the collectives of NCCL. */

import type { Span } from "../../units/index.js";
import { requireLaunch, requireSpan } from "../checks.js";
import type { KernelSource } from "../driver.js";
import type { LoadedKernel } from "./kernels.js";
import { requireLive } from "./spans.js";

/** Loads nothing: the library has its code. All parameters must be memory. */
export function loadEnqueued(
  { name, parameters }: KernelSource,
  enqueue: NonNullable<KernelSource["enqueue"]>,
): LoadedKernel {
  return {
    parameters,
    workspaceBytes: 0,
    algorithmCount: 1,
    recordedNodes: "any",
    launch(stream, { blocks, arguments: args }, reservations, accessed) {
      requireLaunch(name, parameters, blocks, args.length);
      const spans = args.map((argument, index): Span => {
        const what = () => `Argument ${index} of kernel "${name}" (${parameters[index]})`;
        const span = requireSpan(argument, what);
        requireLive(reservations, span, what);
        return span;
      });
      accessed?.push(...spans);
      if (blocks > 0) enqueue(stream, ...spans.map(({ address }) => address));
    },
    unload: () => undefined,
  };
}
