/**
 * A runtime with the 50 weights of CrossAsset, and work on all of them to capture. A 4×4 smoke test once
 * passed where the real model hung.
 */

import { basicKernels, blockCount, type Driver, type Runtime, type Storage } from "holdfast/internals";
import type { CapturePass } from "../../src/runtime/capture/capture-state.js";
import { uploadWeights } from "./crossasset-weights.js";
import { withRuntime } from "./runtimes.js";

/** The passes of a captured function, in order. */
export const passes: readonly CapturePass[] = ["observing", "running", "recording"];

export interface Model {
  readonly runtime: Runtime;
  /** Objects that the runtime itself never exposes: the old ways need them. */
  readonly driver: Driver;
  readonly weights: readonly Storage[];
}

/** Runs `use` on a runtime with the 50 weights; a rejected capture is an error. */
export function withModel<T>(wrap: (device: Driver) => Driver, use: (model: Model) => T): T {
  let driver: Driver | undefined;
  const wrapAndKeep = (device: Driver): Driver => {
    driver = wrap(device);
    return driver;
  };
  return withRuntime(
    { memory: "256MiB", arena: "64MiB", capture: "on" },
    ({ runtime }) => use({ runtime, driver: driver!, weights: uploadWeights(runtime).region.storages }),
    wrapAndKeep,
  );
}

/** Doubles every weight: work for 50 nodes. */
export function doubleWeights({ runtime, weights }: Model): void {
  const kernel = runtime.kernel(basicKernels.add);
  for (const weight of weights) {
    const elements = weight.span.size / 4;
    const args = [weight, weight, weight, elements];
    runtime.launch({ op: "double", kernel, blocks: blockCount(elements), arguments: args });
  }
}
