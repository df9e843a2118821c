/** Which memory a single output of a fused call is computed from, and the bits that it has. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../../test/support/effort.js";
import { openCpuKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import {
  bytesOf,
  callsOf,
  type RandomProgram,
  randomPrograms,
  valuesOf,
} from "../../../../test/support/random-program.js";
import { onCalls } from "../../../../test/support/rewritten.js";
import { bufferOf, elementwise, layerNorm, reducing, type View } from "../../../../test/support/row-calls.js";
import { runProgram } from "../../../../test/support/run-program.js";
import { sameBytes } from "../../../../test/support/same-bytes.js";
import { type Expression, term } from "../../../ir/index.js";
import type { Runtime } from "../../../runtime/index.js";
import { type Buffer, mapSlices, type RowCall } from "../../program/program.js";
import { fuse as fuseIn } from "./fuse.js";
import { singleOutput } from "./single-output.js";

const fuse = onCalls(fuseIn);
const [N, D] = [256, 64] as const;

function labelsRead(work: RowCall | undefined): readonly string[] | undefined {
  return work?.operands.slice(0, work.kernel.inputs.length).map(({ buffer }) => buffer.label);
}

/** `sum = x + r` and its layer norm in one call. */
function addAndNorm() {
  const views = ["x", "r", "sum", "y"].map((label) => bufferOf([N, D], { label }));
  const [x, r, sum, y] = views as [View, View, View, View];
  const [mean, spread] = [bufferOf([N], { label: "mean" }), bufferOf([N], { label: "spread" })];
  const runtime = { device: { kind: "cpu" } } as unknown as Runtime;
  const calls = [elementwise("add", term.add, [x, r], sum), layerNorm(sum, y, mean, spread)];
  const [fused, ...others] = fuse(runtime, calls, { isRead: ({ label }) => label !== "x" });
  assert.deepEqual(others, []);
  return { work: fused!.work as RowCall, y: y.slice.buffer, mean: mean.slice.buffer };
}

describe("one output of a sum and the norm of its rows", () => {
  const storedOnly =
    (...labels: readonly string[]) =>
    ({ label }: Buffer): boolean =>
      labels.includes(label);

  test("is computed from the stored sum and the stored statistics, without a reduction", () => {
    const { work, y } = addAndNorm();
    const alone = singleOutput(work, y, storedOnly("sum", "mean", "spread"));
    assert.deepEqual(labelsRead(alone), ["sum", "mean", "spread"]);
    assert.deepEqual(
      alone?.kernel.stages.map(({ kind }) => kind),
      ["store"],
    );
  });

  test("is computed from the inputs if the sum is not stored", () => {
    const { work, y } = addAndNorm();
    const alone = singleOutput(work, y, storedOnly("mean", "spread"));
    assert.deepEqual(labelsRead(alone), ["x", "r", "mean", "spread"]);
  });

  test("is rejected if it needs a reduction, or if it is a value per row", () => {
    const { work, y, mean } = addAndNorm();
    assert.equal(singleOutput(work, y, storedOnly("sum", "mean")), undefined);
    assert.equal(
      singleOutput(work, mean, () => true),
      undefined,
    );
  });
});

test("an output is rejected if the call overwrites one of its inputs", () => {
  const [x, y] = [bufferOf([N, D], { label: "x" }), bufferOf([N, D], { label: "y" })];
  const runtime = { device: { kind: "cpu" } } as unknown as Runtime;
  const calls = [elementwise("exp", term.exp, [x], y), elementwise("neg", term.neg, [x], x)];
  const work = fuse(runtime, calls, { isRead: () => true })[0]!.work as RowCall;
  assert.equal(work.kernel.outputs.length, 2);
  assert.equal(
    singleOutput(work, y.slice.buffer, () => true),
    undefined,
  );
});

test("another output is not loaded if it has only the row's first value, or is rounded", () => {
  const [x, y] = [bufferOf([N, D], { label: "x" }), bufferOf([N, D], { label: "y" })];
  const values = [term.exp, (x: Expression) => term.add(term.exp(x), 1)];
  const others = [bufferOf([N], { label: "first" }), bufferOf([N, D], { label: "half", dtype: "bf16" })];
  for (const other of others) {
    const work = reducing("exp", [], values, [x], [other, y]).work as RowCall;
    const alone = singleOutput(work, y.slice.buffer, () => true);
    assert.deepEqual(labelsRead(alone), ["x"]);
  }
});

describe("of random fused programs", () => {
  const runtime = openCpuKernelRuntime();

  /** Recomputes each output after its call, from everything that is stored. Returns how many outputs it compared. */
  function compareOutputs(program: RandomProgram): number {
    return runtime.step(() => {
      const storages = program.buffers.map((one, index) =>
        put(runtime, valuesOf(one, program.sizes, index), `buffer ${index}`),
      );
      const buffers = program.buffers.map(
        (one, id): Buffer => ({ id, bytes: bytesOf(one, program.sizes), label: `buffer ${id}` }),
      );
      const places = new Map(buffers.map((buffer, index) => [buffer, storages[index]!]));
      let compared = 0;
      for (const call of fuse(runtime, callsOf(program, buffers), { isRead: () => true })) {
        const { work } = call;
        const outputs = work.kind === "row" ? work.operands.slice(work.kernel.inputs.length) : [];
        const copies = new Map(
          outputs.map(({ buffer }) => [buffer, put(runtime, runtime.read(places.get(buffer)!), "copy")]),
        );
        runProgram(runtime, [call], places);
        for (const [buffer, copy] of copies) {
          const alone = work.kind === "row" ? singleOutput(work, buffer, () => true) : undefined;
          if (!alone) continue;
          const written: Buffer = { ...buffer, id: -1 };
          const toCopy = mapSlices(alone, (slice) =>
            slice.buffer === buffer ? { ...slice, buffer: written } : slice,
          );
          const again = { ...call, work: toCopy };
          runProgram(runtime, [again], new Map([...places, [written, copy]]));
          sameBytes(runtime.read(copy), runtime.read(places.get(buffer)!), buffer.label);
          compared += 1;
        }
      }
      return compared;
    });
  }

  test("a recomputed output has the bits of the stored one", () => {
    let compared = 0;
    const property = fc.property(randomPrograms, (program) => {
      compared += compareOutputs(program);
    });
    fc.assert(property, { numRuns: effort({ quick: 60, thorough: 400 }) });
    assert.ok(compared > 50, `${compared} outputs`);
  });
});
