/** Attention that stores half floats: where a conversion is all that reads its results, and nowhere else. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime } from "../../runtime/index.js";
import { span } from "../../units/index.js";
import type { AttentionCall } from "../program/kinds/attention.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, type RowCall } from "../program/program.js";
import { fuseAttentionCasts as fuseAttentionCastsIn } from "./attention-cast.js";

const fuseAttentionCasts = onCalls(fuseAttentionCastsIn);

const on = (kind: "cuda" | "cpu"): Runtime => ({ device: { kind } }) as unknown as Runtime;

let buffers = 0;
const bufferOf = (bytes: number): Buffer => ({ id: buffers++, bytes, label: `b${buffers}` });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

/** 2 × 4 pairs of 12 rows in heads of 8. */
const shape = {
  ...({
    dtype: "f32",
    batch: 2,
    heads: 4,
    rows: 12,
    columns: 12,
    width: 8,
    valueWidth: 8,
    scale: 1,
  } as const),
};
const elements = 2 * 4 * 12 * 8;

function attentionOver(direction: AttentionCall["direction"], operands: AttentionCall["operands"]): Call {
  return { op: "attention", work: { kind: "attention", direction, shape, operands, layouts: {} } };
}

function forward(out: Buffer): Call {
  const [packed, probabilities] = [bufferOf(12 * elements), bufferOf(4 * 8 * 12 * 12)];
  return attentionOver("forward", {
    ...{ query: whole(packed), key: whole(packed), value: whole(packed), out: whole(out) },
    probabilities: whole(probabilities),
  });
}

/** Its gradients lie in one buffer, row by row. */
function backward(packed: Buffer): Call {
  const input = whole(bufferOf(12 * elements));
  const slice = (index: number): BufferSlice => ({
    buffer: packed,
    offset: 128 * index,
    size: packed.bytes - 256,
  });
  return attentionOver("backward", {
    ...{ query: input, key: input, value: input, probabilities: input, outGradient: input },
    ...{ queryGradient: slice(0), keyGradient: slice(1), valueGradient: slice(2) },
    scoreGradient: whole(bufferOf(4 * 8 * 12 * 12)),
  });
}

function castOf(from: BufferSlice, to: Dtype): Call & { readonly work: RowCall; readonly made: Buffer } {
  const count = from.size / 4;
  const made = bufferOf(count * dtypes[to].bytes);
  const kernel: RowKernel = {
    ...{ name: `f32 to ${to}`, inputs: ["f32"], outputs: [{ dtype: to, per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
  };
  const iteration = iterateElements([count], [[1], [1]]);
  const work = { kind: "row", kernel, iteration, operands: [from, whole(made)], scalars: [] } as const;
  return { op: "matmul", work, made };
}

const copyOf = (source: BufferSlice): Call => ({
  op: "copy",
  work: { kind: "copy", source, target: whole(bufferOf(source.size)) },
});

test("what is only converted is stored converted, and the conversion is gone", () => {
  for (const dtype of ["f16", "bf16"] as const) {
    const out = bufferOf(4 * elements);
    const cast = castOf(whole(out), dtype);
    const [call, reader, ...rest] = fuseAttentionCasts(on("cuda"), [
      ...[forward(out), cast, copyOf(whole(cast.made))],
    ]);
    assert.equal(rest.length, 0);
    assert.ok(call?.work.kind === "attention" && reader?.work.kind === "copy");
    assert.equal(call.op, "attention + matmul");
    assert.equal(call.work.shape.resultDtype, dtype);
    assert.deepEqual(call.work.operands["out"], whole(cast.made));
    const written = accessesOf(call).filter(({ writes }) => writes);
    assert.deepEqual(written.map(({ slice }) => slice.size).sort(), [4608, 2 * elements].sort());
  }
});

test("gradients that lie in one buffer each have their place in the converted one", () => {
  const packed = bufferOf(12 * elements);
  const cast = castOf(whole(packed), "bf16");
  const [call] = fuseAttentionCasts(on("cuda"), [backward(packed), cast]);
  assert.ok(call?.work.kind === "attention");
  const { operands } = call.work;
  for (const [index, name] of ["queryGradient", "keyGradient", "valueGradient"].entries()) {
    const size = (packed.bytes - 256) / 2;
    assert.deepEqual(operands[name], { buffer: cast.made, offset: 64 * index, size });
  }
});

test("results stay as they are on a CPU, where they are read otherwise too, or in part, or leave the step", () => {
  const [first, second] = [bufferOf(4 * elements), bufferOf(4 * elements)];
  const half = { ...whole(first), size: first.bytes / 2 };
  const kept: Buffer = {
    ...bufferOf(4 * elements),
    storage: { span: span(4096, 4 * elements) } as NonNullable<Buffer["storage"]>,
  };
  const fill: Call = { op: "zeros", work: { kind: "fill", target: half, byte: 0 } };
  const programs: readonly [string, readonly Call[], "cuda" | "cpu"][] = [
    ["on a CPU", [forward(first), castOf(whole(first), "bf16")], "cpu"],
    ["read twice", [forward(first), castOf(whole(first), "bf16"), copyOf(whole(first))], "cuda"],
    ["converted in part", [forward(first), castOf(half, "bf16")], "cuda"],
    ["converted to f64", [forward(first), castOf(whole(first), "f64")], "cuda"],
    ["written again", [forward(first), fill, castOf(whole(first), "bf16")], "cuda"],
    ["persistent", [forward(kept), castOf(whole(kept), "bf16")], "cuda"],
    ["not read", [forward(second)], "cuda"],
  ];
  for (const [what, calls, device] of programs) {
    assert.deepEqual(fuseAttentionCasts(on(device), calls), calls, what);
  }
});
