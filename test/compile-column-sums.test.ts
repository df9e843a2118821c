/**
 * Steps whose gradients of biases and norms start in kernels that have the rows, or loop over them: in float32 they have the bits of the
 * eager step, in bf16 the values of float32 within its precision.
 */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import { type Device, manualSeed, nn, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { sameBytes } from "./support/same-bytes.js";
import { isNear, tolerances } from "./tolerances.js";

/** Rows are so wide that a block of the norm's gradient has no registers for a warp for each of its rows: warps loop over rows. */
const sizes = { rows: 1100, width: 512, hidden: 128 } as const;

class Block extends nn.Module {
  readonly offset = new nn.Parameter([sizes.width], nn.init.zeros());
  readonly norm = new nn.LayerNorm(sizes.width);
  readonly up = new nn.Linear(sizes.width, sizes.hidden);
  readonly down = new nn.Linear(sizes.hidden, sizes.width);

  forward(x: Tensor): Tensor {
    const h = nn.functional.dropout(x.add(this.offset), 0.2, true);
    return h.add(this.down.forward(this.up.forward(this.norm.forward(h)).gelu("tanh"))); // [rows, width]
  }
}

/** The gradients of a block, by the parameters' names; compiled if passes are passed. */
function gradientsOf(device: Device, passes?: PassSettings) {
  manualSeed(5);
  const model = new Block().to(device);
  const step = (x: Tensor): Tensor => {
    const loss = model.forward(x).square().mean();
    loss.backward();
    return loss;
  };
  const compiled = passes && device.compile(step, { passes });
  const x = randn([sizes.rows, sizes.width], { device });
  if (compiled) compiled(x);
  else device.step(() => step(x).item());
  const gradients = new Map(
    [...model.namedParameters()].map(([name, { grad }]) => [name, grad!.dataSync() as Float32Array]),
  );
  const calls = (compiled && latestPlanOf(compiled)?.planned.schedule.calls) ?? [];
  const works = calls.map(({ call }) => call.work);
  const summing = calls.flatMap(({ call: { op, work } }) =>
    work.kind === "row" && work.kernel.outputs.some(({ per }) => per === "column") ? [op] : [],
  );
  const reduced = works.flatMap((work) => {
    if (work.kind === "column") return [work];
    return work.kind === "grouped-reduce" ? [...work.columns, ...(work.partials?.columns ?? [])] : [];
  });
  return { gradients, summing, rowsReduced: reduced.map(({ rows }) => rows) };
}

describe("a compiled step", { skip: emulatorMissing }, () => {
  afterEach(() => openEmulator().reset());

  /** On one multiprocessor these sums are worth a loop over rows. A library computes the GEMMs. */
  function open(precision: "f32" | "bf16"): Device {
    openEmulator().set("computeMajor", 8);
    return openEmulatorGpu({ precision, multiprocessors: 1, capture: "off", seesSnapshots: false });
  }

  /** A recomputed norm or sum would be part of the kernels that read it. */
  const passes = { recomputeActivations: false, recomputeCheapValues: false } as const;
  let [opened, eagerGradients]: [Device?, ReadonlyMap<string, Float32Array>?] = [];
  const f32 = (): Device => (opened ??= open("f32"));
  const inFloat32 = () => (eagerGradients ??= gradientsOf(f32()).gradients);

  test("starts column sums in kernels that have their rows, with the bits of the eager step in float32", () => {
    const { gradients, summing, rowsReduced } = gradientsOf(f32(), passes);
    const eager = inFloat32();
    assert.deepEqual(summing, [
      "squareGradient + biasGradient",
      "geluTanhGradient + biasGradient",
      "layerNormGradient + add + dropoutGradient … + sum",
    ]);
    assert.ok(!rowsReduced.includes(sizes.rows), "no reduction reads all rows again");
    for (const [name, values] of eager) sameBytes(gradients.get(name)!, values, name);
  });

  test("has the gradients of float32 within bf16's precision", () => {
    const { gradients, summing } = gradientsOf(open("bf16"), { ...passes, gemmAlgorithms: false });
    assert.deepEqual(summing, [
      "squareGradient + linear + biasGradient",
      "geluTanhGradient + linear + biasGradient",
      "layerNormGradient + add + dropoutGradient … + sum",
    ]);
    for (const [name, values] of inFloat32()) {
      const actual = gradients.get(name)!;
      const scale = values.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
      for (const [index, value] of values.entries())
        assert.ok(
          isNear(actual[index]!, value, tolerances["oracle gradient"].bf16, scale),
          `${name}[${index}] is ${actual[index]}, in f32 ${value}, of ${scale}`,
        );
    }
  });
});
