/** Scatters in one launch: independent ones of a kind that do not keep large operands alive; no others. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { bufferOf, elementwise, type View } from "../../../test/support/row-calls.js";
import { term } from "../../ir/index.js";
import { backendOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { Call, ScatterCall } from "../program/program.js";
import { groupScatters as groupScattersIn } from "./group-scatters.js";

const groupScatters = onCalls(groupScattersIn);

const on = (parallelism: number): Runtime =>
  ({
    ...{ device: { kind: "cuda", computeCapability: "9.0", parallelism }, settings: { precision: "f32" } },
  }) as unknown as Runtime;

interface Sizes {
  readonly rows?: number;
  readonly width?: number;
  readonly count?: number;
  readonly overwrites?: boolean;
  readonly source?: View;
  readonly target?: View;
}

function scatterOf(sizes: Sizes = {}): Call & { readonly work: ScatterCall; readonly target: View } {
  const { rows = 20, width = 4, count = 8, overwrites = true } = sizes;
  const target = sizes.target ?? bufferOf([rows, width], { label: "table" });
  const source = sizes.source ?? bufferOf([count, width]);
  const shape = {
    ...({ dtype: "f32", outer: 1, length: rows, inner: width, count, isIndexShared: true } as const),
    ...(overwrites && { overwrites }),
  };
  const operands = {
    ...{ index: bufferOf([count], { dtype: "i32" }).slice, source: source.slice, target: target.slice },
  };
  return { op: "scatter", target, work: { kind: "scatter", shape, ...operands, scratch: [] } };
}

const sizesOf = (calls: readonly Call[]): number[] =>
  calls.flatMap(({ work }) =>
    work.kind === "grouped-scatter" ? [work.scatters.length] : work.kind === "scatter" ? [1] : [],
  );

test("scatters to tables of different sizes are one launch, also with other calls between them", () => {
  const [first, second, third] = [
    scatterOf(),
    scatterOf({ rows: 1000, width: 16 }),
    scatterOf({ count: 900 }),
  ];
  const between = elementwise("neg", term.neg, [bufferOf([7])], bufferOf([7]));
  const calls = groupScatters(on(132), [first, between, second, between, third]);
  assert.deepEqual(sizesOf(calls), [3]);
  const [group] = calls.flatMap(({ work }) => (work.kind === "grouped-scatter" ? [work] : []));
  assert.deepEqual(
    group?.scatters.map(({ target }) => target),
    [first, second, third].map(({ target }) => target.slice),
  );
  assert.deepEqual(group?.scratch, []);
});

test("the scatters of a group share the scratch memory of their partition", () => {
  const runtime = on(1);
  const scatters = [scatterOf({ rows: 9000, count: 5000 }), scatterOf({ rows: 300, count: 5000 })];
  const [group] = groupScatters(runtime, scatters);
  assert.equal(group?.work.kind, "grouped-scatter");
  const { scratch, scatters: members } = group.work;
  const sizes = backendOf(runtime).scatterScratchBytes(scatters.map(({ work }) => work.shape));
  assert.equal(sizes.length, 5);
  assert.deepEqual(
    scratch.map(({ size, buffer }) => [size, buffer.bytes]),
    sizes.map((size) => [size, size]),
  );
  assert.ok(members.every((member) => member.scratch.length === 0));
});

test("a second lookup that adds to the first one's table stays after it, and those of several tables are two launches", () => {
  const first = [scatterOf(), scatterOf()];
  const second = first.map(({ target }) => scatterOf({ target, overwrites: false }));
  const calls = groupScatters(on(132), [first[0]!, second[0]!, first[1]!, second[1]!]);
  assert.deepEqual(
    calls.map(
      ({ work }) => work.kind === "grouped-scatter" && work.scatters.map(({ shape }) => shape.overwrites),
    ),
    [
      [true, true],
      [undefined, undefined],
    ],
  );
});

test("scatters of other widths or with sums that start at other values are launches of their own", () => {
  const calls = [scatterOf(), scatterOf({ width: 3 }), scatterOf({ overwrites: false })];
  assert.deepEqual(sizesOf(groupScatters(on(132), calls)), [1, 1, 1]);
});

test("a large operand is not kept for another scatter, unless it is needed later anyway", () => {
  const [count, width] = [4096, 1024];
  const source = bufferOf([count, width]);
  const early = scatterOf({ count, width, source });
  const late = scatterOf();
  const change = elementwise("neg", term.neg, [late.target], bufferOf([20, 4]));
  const read = elementwise("neg", term.neg, [source], bufferOf([count, width]));
  // The last operand of the second scatter is written after the first one, so that the first one would wait.
  const writer = elementwise("neg", term.neg, [bufferOf([8, 4])], {
    ...bufferOf([8, 4]),
    slice: late.work.source,
  });
  assert.deepEqual(sizesOf(groupScatters(on(132), [early, writer, late, change])), [1, 1]);
  assert.deepEqual(sizesOf(groupScatters(on(132), [early, writer, late, change, read])), [2]);
});
