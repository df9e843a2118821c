/**
 * The work that runs under a memory-checking tool: every op case, forward and backward, and a few training
 * steps of CrossAsset, or the kernels with injected faults. Nothing is compared here; the tool watches.
 */

import { parseArgs } from "node:util";
import fc from "fast-check";
import { opCases } from "../../test/support/op-cases/index.js";
import { runCase } from "../../test/support/op-runs.js";
import type { FloatDtype } from "../../test/tolerances.js";
import { strayRuns } from "./faulty-kernels.js";
import { commonOptions, count, openGpu } from "./options.js";
import { makeRows, Training } from "./training.js";

const { values: options } = parseArgs({
  options: {
    ...commonOptions,
    /** The tool whose faulty kernels run, instead of the ops. */
    stray: { type: "string", default: "" },
    draws: { type: "string", default: "2" },
    elements: { type: "string", default: "120" },
    seconds: { type: "string", default: "80" },
  },
});
const seed = 20_240_611;
/** Round by round, so that two rounds cover two kinds of kernels. */
const floats: readonly FloatDtype[] = ["f32", "bf16", "f64", "f16"];
const draws = count("draws", options.draws);
const deadline = performance.now() + 1000 * count("seconds", options.seconds);

const { device, driver, close } = openGpu(options, {
  // Small, because a tool keeps a shadow copy of it, and memory under a tool is allocated whole.
  device: { memory: "512MiB", arena: "256MiB", staging: "4MiB", stallAfter: "off" },
});
console.log(`spans in use are reported to the tool: ${driver.annotate ? "yes" : "no"}`);

if (options.stray !== "") {
  device.step(() => strayRuns[options.stray]?.run(device.runtime));
  device.runtime.synchronize();
  console.log("the faulty kernels ran");
} else {
  const training = new Training(device, makeRows(24, "random"), {
    batch: 6,
    model: { dropout: 0.1, qkNorm: true },
  });
  for (let step = 0; step < 4; step++) training.step(true);
  console.log("4 steps of CrossAsset ran");
  let calls = 0;
  const covered = new Set<number>();
  for (let draw = 0; draw < draws; draw++) {
    for (const [index, opCase] of opCases.entries()) {
      if (performance.now() > deadline) break;
      const samples = fc.sample(opCase.draw(count("elements", options.elements)), { seed, numRuns: draws });
      const operands = opCase.gradients === "none" ? [] : opCase.gradients;
      const float = floats[draw % floats.length]!;
      device.step(() => runCase(device, opCase.op, samples[draw]!, { float, wanted: operands }));
      covered.add(index);
      calls++;
    }
  }
  console.log(`covered ${covered.size} of ${opCases.length} op cases in ${calls} calls`);
}
close();
