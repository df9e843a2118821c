/** Attention and its gradients against float64 over random shapes, layouts and masks; and their bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import {
  type Case,
  cases,
  plainCase,
  randomValues,
  type Values,
} from "../../../test/support/attention-cases.js";
import { checkCase, near, runCase } from "../../../test/support/attention-check.js";
import {
  type Lookup,
  referenceAttention,
  referenceGradients,
} from "../../../test/support/attention-reference.js";
import { effort } from "../../../test/support/effort.js";
import { openCpuKernelRuntime, openKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import { sameNamedBytes } from "../../../test/support/same-bytes.js";
import { runsOfKernels } from "../../../test/support/test-device.js";
import type { Storage } from "../../runtime/index.js";
import { submit } from "../submit.js";
import { attentionBackwardCalls, attentionCalls } from "./attention.js";

const runtime = openKernelRuntime();

for (const dtype of ["f32", "f64"] as const) {
  test(`attention in ${dtype} and its gradients are correct for every shape, layout and mask, and write nothing else`, () => {
    fc.assert(
      fc.property(cases(dtype), (testCase) => checkCase(runtime, testCase)),
      { numRuns: runsOfKernels(effort({ quick: 8, thorough: 150 })) },
    );
  });
}

test("the shapes of a small transformer and of a long sequence are correct", () => {
  const small = { rows: 12, columns: 12, width: 64, valueWidth: 64, scale: 1 / 8 };
  checkCase(runtime, { ...plainCase, ...small, batch: 3, heads: 4, order: "rows first" });
  const [rows, columns] = effort({ quick: [101, 67], thorough: [300, 260] });
  const long = { rows, columns, width: 32, valueWidth: 20, scale: 0.2 };
  for (const isCausal of [false, true]) checkCase(runtime, { ...plainCase, ...long, isCausal });
});

test("the gradients agree with central differences in float64", () => {
  const testCase: Case = {
    ...plainCase,
    dtype: "f64",
    ...{ heads: 2, rows: 3, columns: 5, width: 3, valueWidth: 2, scale: 0.7 },
    mask: { shared: [], hides: false },
  };
  const { operands, mask, written } = runCase(runtime, testCase);
  const { query, key, value, outGradient } = operands;
  const step = 1e-5;
  const weighted = (): number => {
    const inputs = { query: query.at, key: key.at, value: value.at, mask: mask!.at };
    const { out } = referenceAttention(testCase, inputs);
    let sum = 0;
    for (let h = 0; h < 2; h++)
      for (let row = 0; row < 3; row++)
        for (let w = 0; w < 2; w++) sum += out.at(0, h, row, w) * outGradient.at(0, h, row, w);
    return sum;
  };
  const proveSlopes = (name: string, values: Values, gradient: Values, count: number): void => {
    for (let index = 0; index < count; index++) {
      const before = values[index]!;
      values[index] = before + step;
      const above = weighted();
      values[index] = before - step;
      const below = weighted();
      values[index] = before;
      const error = Math.abs((above - below) / (2 * step) - gradient[index]!);
      assert.ok(error < 1e-8, `${name}[${index}] is off by ${error}`);
    }
  };
  // All operands are contiguous from 0 on, so that a value and its gradient have the same index.
  proveSlopes("query", query.values, written.queryGradient, query.layout.extent);
  proveSlopes("key", key.values, written.keyGradient, key.layout.extent);
  proveSlopes("value", value.values, written.valueGradient, value.layout.extent);
  proveSlopes("mask", mask!.values, written.scoreGradient, mask!.values.length);
});

describe("the bits of attention and of its gradients", () => {
  const shapes: readonly Case[] = [
    { ...plainCase, dtype: "f64", batch: 9, heads: 3, rows: 17, columns: 13, width: 9, valueWidth: 11 },
    {
      ...plainCase,
      batch: effort({ quick: 6, thorough: 40 }),
      heads: 8,
      rows: 12,
      columns: 12,
      width: 64,
      valueWidth: 64,
    },
    { ...plainCase, batch: 3, heads: 5, rows: 70, columns: 41, width: 30, valueWidth: 19, isCausal: true },
  ];

  const alone = openCpuKernelRuntime(1);
  const together = [2, 4].map((threads) => ({ threads, runtime: openCpuKernelRuntime(threads) }));

  for (const [index, testCase] of shapes.entries()) {
    const { dtype, batch, heads, rows, columns } = testCase;
    test(`are the same with 1, 2 and 4 threads: ${batch * heads} × ${rows}×${columns} in ${dtype}`, () => {
      const expected = runCase(alone, testCase).written;
      // Workers boot when they boot: the later runs surely have their help.
      const runs = index === 0 ? effort({ quick: 8, thorough: 12 }) : effort({ quick: 2, thorough: 3 });
      for (const { threads, runtime } of together) {
        for (let run = 0; run < runs; run++)
          sameNamedBytes(runCase(runtime, testCase).written, expected, `${threads} threads`);
      }
    });
  }
});

test("queries, keys and values can share one buffer, and their gradients another", () => {
  const [batch, heads, rows, width] = [2, 3, 5, 6];
  const shape = { batch, heads, rows, columns: rows, width, valueWidth: width };
  const values = randomValues("f32", batch * rows * 3 * heads * width, 5);
  const upstream = randomValues("f32", batch * rows * heads * width, 6);
  // [B, S, 3, H, D], as one projection makes them.
  const rowStride = 3 * heads * width;
  const offsetOf = (which: number, b: number, h: number, row: number, column: number): number =>
    b * rows * rowStride + row * rowStride + (which * heads + h) * width + column;
  const lookUp =
    (from: Values, which: number): Lookup =>
    (...at) =>
      from[offsetOf(which, ...at)]!;
  const plain = { batchStride: rows * heads * width, headStride: width, rowStride: heads * width };
  const problem = { ...shape, scale: 0.4, isCausal: true };
  const actual = runtime.step(() => {
    const joint = put(runtime, values, "joint");
    const gradients = runtime.arena.allocate(values.byteLength, "gradients");
    const part = (of: Storage, which: number) => {
      const offset = which * heads * width * 4;
      const storage = runtime.view(of, offset, of.span.size - offset);
      return { storage, batchStride: rows * rowStride, headStride: width, rowStride };
    };
    const scores = (name: string) => runtime.arena.allocate(batch * heads * rows * rows * 4, name);
    const inputs = {
      dtype: "f32" as const,
      ...problem,
      query: part(joint, 0),
      key: part(joint, 1),
      value: part(joint, 2),
      probabilities: scores("probabilities"),
    };
    submit(
      runtime,
      attentionCalls({
        ...inputs,
        out: { storage: runtime.arena.allocate(upstream.byteLength, "out"), ...plain },
      }),
    );
    submit(
      runtime,
      attentionBackwardCalls({
        ...inputs,
        outGradient: { storage: put(runtime, upstream, "upstream"), ...plain },
        queryGradient: part(gradients, 0),
        keyGradient: part(gradients, 1),
        valueGradient: part(gradients, 2),
        scoreGradient: scores("scoreGradient"),
      }),
    );
    return new Float32Array(runtime.read(gradients).buffer);
  });
  const inputs = { query: lookUp(values, 0), key: lookUp(values, 1), value: lookUp(values, 2) };
  const { probabilities } = referenceAttention(problem, { ...inputs, mask: () => 0 });
  const outGradient: Lookup = (b, h, row, column) =>
    upstream[((b * rows + row) * heads + h) * width + column]!;
  const expected = referenceGradients(problem, { ...inputs, probabilities: probabilities.at, outGradient });
  for (const [which, name] of (["queryGradient", "keyGradient", "valueGradient"] as const).entries()) {
    near("f32", name, lookUp(actual, which), expected[name], [batch, heads, rows, width]);
  }
});
