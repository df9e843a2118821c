/** The draws of a step are reserved together, in their order, unless another call needs the state between them. */

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Kernel } from "../../driver/index.js";
import { stateBytes } from "../../kernels/index.js";
import type { Storage } from "../../runtime/index.js";
import { type Buffer, type BufferSlice, type Call, Program } from "../program/program.js";
import { mergeDraws } from "./merge-draws.js";

const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });
const kernelOf = (name: string, ...parameters: Kernel["parameters"]): Kernel =>
  ({ name, parameters }) as unknown as Kernel;
const kernels = {
  reserve: kernelOf("reserveDraw", "out", "inout", "u32"),
  use: kernelOf("use", "in", "out"),
  reseed: kernelOf("reseed", "inout"),
};

/** A region with the state and another number after it. */
const region: Buffer = {
  ...{ id: 0, bytes: 2 * stateBytes, label: "scalars" },
  storage: { span: { address: 4096, size: 2 * stateBytes } } as unknown as Storage,
};
const state: BufferSlice = { buffer: region, offset: 0, size: stateBytes };
const other: BufferSlice = { buffer: region, offset: stateBytes, size: stateBytes };

let ids = 0;
const bufferOf = (label: string): Buffer => ({ id: ++ids, bytes: stateBytes, label });
const launch = (kernel: Kernel, ...values: readonly (BufferSlice | number)[]): Call => ({
  op: kernel.name,
  work: { kind: "launch", kernel, blocks: 1, arguments: values },
});

/** So many draws, each with a call that reads it; `between` comes after the first. */
function callsOf(draws: number, between: readonly Call[] = []): readonly Call[] {
  return Array.from({ length: draws }, (_, index) => {
    const draw = bufferOf(`draw ${index}`);
    const use = launch(kernels.use, whole(draw), whole(bufferOf("result")));
    return [launch(kernels.reserve, whole(draw), state, 1), use, ...(index === 0 ? between : [])];
  }).flat();
}

function merged(calls: readonly Call[]) {
  const program = new Program(calls);
  mergeDraws(program);
  return program.calls.map(({ op, work }) => ({
    op,
    values: work.kind === "launch" ? work.arguments : [],
  }));
}

test("one launch reserves all draws, and each reader has its own", () => {
  const [first, ...readers] = merged(callsOf(3));
  assert.equal(first?.op, "reserveDraw of 3");
  const [draws, from, count] = first.values as [BufferSlice, BufferSlice, number];
  assert.deepEqual([draws.size, from, count], [3 * stateBytes, state, 3]);
  assert.deepEqual(
    readers.map(({ values: [draw] }) => draw),
    [0, 1, 2].map((index) => ({ buffer: draws.buffer, offset: index * stateBytes, size: stateBytes })),
  );
});

test("a call that only touches the memory after the state does not separate them", () => {
  const calls = merged(callsOf(2, [launch(kernels.reseed, other)]));
  assert.deepEqual(
    calls.map(({ op }) => op),
    ["reserveDraw of 2", "use", "reseed", "use"],
  );
});

test("draws before and after another access of the state stay apart", () => {
  const calls = merged(callsOf(3, [launch(kernels.reseed, state)]));
  assert.deepEqual(
    calls.map(({ op }) => op),
    ["reserveDraw", "use", "reseed", "reserveDraw of 2", "use", "use"],
  );
});

test("a single draw, and draws that another call writes too, stay as they are", () => {
  const single = callsOf(1);
  assert.deepEqual(
    merged(single).map(({ op }) => op),
    single.map(({ op }) => op),
  );
  const draw = bufferOf("draw");
  const rewritten = [
    launch(kernels.reserve, whole(draw), state, 1),
    launch(kernels.use, whole(bufferOf("x")), whole(draw)),
    ...callsOf(1),
  ];
  assert.deepEqual(
    merged(rewritten).map(({ op }) => op),
    rewritten.map(({ op }) => op),
  );
});
