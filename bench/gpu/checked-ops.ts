/**
 * The work that runs under a memory-checking tool. Nothing is compared here; the tool watches.
 *
 * - By default: every op case, forward and backward, and a few training steps of CrossAsset.
 * - `--models PRECISION`: compiled training steps of the common models.
 * - `--stray TOOL`: the kernels with injected faults.
 */

import fc from "fast-check";
import { optim } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { commonWorkloads } from "../../test/support/common-models/workloads.js";
import { deviceOpCases } from "../../test/support/op-cases/index.js";
import { runCase } from "../../test/support/op-runs.js";
import type { FloatDtype } from "../../test/tolerances.js";
import { strayRuns } from "./faulty-kernels.js";
import { commonOptions, count, openGpu } from "./options.js";
import { makeRows, Training } from "./training.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  /** The tool whose faulty kernels run, instead of the ops. */
  stray: { type: "string", default: "" },
  models: { type: "string", default: "" },
  sizes: { type: "string", default: "tiny,wide" },
  draws: { type: "string", default: "2" },
  elements: { type: "string", default: "120" },
  seconds: { type: "string", default: "80" },
});
const seed = 20_240_611;
/** Round by round, so that two rounds cover two kinds of kernels. */
const floats: readonly FloatDtype[] = ["f32", "bf16", "f64", "f16"];
const stepsPerModel = 3;
const draws = count("draws", options.draws);
const deadline = performance.now() + 1000 * count("seconds", options.seconds);

// Small, because a tool keeps a shadow copy of it, and memory under a tool is allocated whole.
const small = { memory: "512MiB", arena: "256MiB", staging: "4MiB" } as const;
const { device, driver, close } = openGpu(options, {
  device: {
    ...(options.models === ""
      ? small
      : {
          memory: options.emulator ? "2GiB" : "16GiB",
          precision: options.models,
        }),
    stallAfter: "off",
  },
});
console.log(`spans in use are reported to the tool: ${driver.annotate ? "yes" : "no"}`);

if (options.stray !== "") {
  device.step(() => strayRuns[options.stray]?.run(device.runtime));
  device.runtime.synchronize();
  console.log("the faulty kernels ran");
} else if (options.models !== "") {
  const all = options.sizes
    .split(",")
    .flatMap((size) => Object.keys(commonWorkloads).map((name) => [name, size]));
  let covered = 0;
  for (const [name, size] of all) {
    if (performance.now() > deadline) break;
    trainModel(name as keyof typeof commonWorkloads, size as "tiny" | "wide");
    covered++;
  }
  console.log(`covered ${covered} of ${all.length} models in ${covered * stepsPerModel} steps`);
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
    for (const [index, opCase] of deviceOpCases.entries()) {
      if (performance.now() > deadline) break;
      const samples = fc.sample(opCase.draw(count("elements", options.elements)), { seed, numRuns: draws });
      const operands = opCase.gradients === "none" ? [] : opCase.gradients;
      const float = floats[draw % floats.length]!;
      device.step(() => runCase(device, opCase.op, samples[draw]!, { float, wanted: operands }));
      covered.add(index);
      calls++;
    }
  }
  console.log(`covered ${covered.size} of ${deviceOpCases.length} op cases in ${calls} calls`);
}
close();

/** A few compiled steps: the first call tries out kernels, and the others run the plan. */
function trainModel(name: keyof typeof commonWorkloads, size: "tiny" | "wide"): void {
  const { model, loss } = commonWorkloads[name](device, { size });
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 1e-3 });
  const step = device.compile(() => {
    const value = loss();
    value.backward();
    optim.clipGradNorm(parameters, 1);
    optimizer.step();
    optimizer.zeroGrad();
    return { value };
  });
  for (let call = 0; call < stepsPerModel; call++) step();
  device.runtime.synchronize();
  step.close();
}
