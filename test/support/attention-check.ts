/**
 * Runs one case of attention forward and backward on a device, compares it with float64, and checks that it
 * writes only its outputs.
 */

import assert from "node:assert/strict";
import type { Runtime, Storage } from "holdfast/internals";
import { type Dtype, narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../src/ir/index.js";
import { attentionBackwardCalls, attentionCalls, submit } from "../../src/kernels/index.js";
import { arrayOf, type Case, prepare, prepareMask, type Values } from "./attention-cases.js";
import { type Dense, type Lookup, referenceAttention, referenceGradients } from "./attention-reference.js";
import { put } from "./kernel-runtime.js";
import { sameBytes } from "./same-bytes.js";

const narrowed = { f16: narrowToF16, bf16: narrowToBf16 } as const;
const widened = { f16: widenF16, bf16: widenBf16 } as const;
const results = ["out", "queryGradient", "keyGradient", "valueGradient"] as const;

/** Inputs that are rounded to half floats, and whether they are stored as such. */
export interface RoundedInputs {
  readonly dtype: "f16" | "bf16";
  readonly names: readonly string[];
  readonly areHalves: boolean;
}

/** Runs forward and backward and returns all that they wrote, each buffer whole; half floats as their bits. */
export function runCase(
  on: Runtime,
  attentionCase: Case,
  resultDtype: Dtype = attentionCase.dtype,
  rounded?: RoundedInputs,
) {
  const { dtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal } = attentionCase;
  const bytes = arrayOf[dtype].BYTES_PER_ELEMENT;
  const operands = prepare(attentionCase);
  const mask = prepareMask(attentionCase);
  return on.step(() => {
    const buffers = new Map<string, Storage>();
    const operand = (name: keyof typeof operands) => {
      const { layout, values } = operands[name];
      const isRounded = resultDtype !== dtype && results.some((result) => result === name);
      const halves = rounded?.names.includes(name) ? rounded.dtype : undefined;
      if (halves) values.set(widened[halves](narrowed[halves](values as Float32Array)));
      const areHalves = halves && rounded?.areHalves;
      const stored = areHalves ? halves : isRounded ? (resultDtype as "f16" | "bf16") : undefined;
      const input = stored ? narrowed[stored](values as Float32Array) : values;
      const buffer = put(on, input, name);
      buffers.set(name, buffer);
      const each = input.BYTES_PER_ELEMENT;
      const storage = on.view(buffer, layout.offset * each, layout.extent * each);
      const { batchStride, headStride, rowStride } = layout;
      return { storage, batchStride, headStride, rowStride, ...(areHalves && { dtype: halves }) };
    };
    const scores = (name: string): Storage => {
      const storage = on.arena.allocate(batch * heads * rows * columns * bytes, name);
      buffers.set(name, storage);
      return storage;
    };
    const inputs = {
      ...{ dtype, resultDtype, batch, heads, rows, columns, width, valueWidth, scale, isCausal },
      query: operand("query"),
      key: operand("key"),
      value: operand("value"),
      probabilities: scores("probabilities"),
    };
    submit(
      on,
      attentionCalls({
        ...inputs,
        ...(mask && { mask: { storage: put(on, mask.values, "mask"), ...mask.strides } }),
        out: operand("out"),
      }),
    );
    submit(
      on,
      attentionBackwardCalls({
        ...inputs,
        outGradient: operand("outGradient"),
        queryGradient: operand("queryGradient"),
        keyGradient: operand("keyGradient"),
        valueGradient: operand("valueGradient"),
        scoreGradient: scores("scoreGradient"),
      }),
    );
    const read = (name: string): Values => new arrayOf[dtype](on.read(buffers.get(name)!).buffer);
    const result = (name: (typeof results)[number]): Values =>
      resultDtype === dtype
        ? read(name)
        : (new Uint16Array(on.read(buffers.get(name)!).buffer) as unknown as Values);
    const written = {
      out: result("out"),
      probabilities: read("probabilities"),
      queryGradient: result("queryGradient"),
      keyGradient: result("keyGradient"),
      valueGradient: result("valueGradient"),
      scoreGradient: read("scoreGradient"),
    };
    return { operands, mask, written };
  });
}

const tolerance = { f32: 1e-5, f64: 1e-12 } as const;

/** Fails unless all of `found` is close enough, relative to the largest element. */
export function near(
  dtype: "f32" | "f64",
  name: string,
  actual: Lookup,
  expected: Dense,
  sizes: readonly number[],
): void {
  const size = expected.values.reduce((max, value) => Math.max(max, Math.abs(value)), 1);
  const [batch = 0, heads = 0, rows = 0, width = 0] = sizes;
  for (let b = 0; b < batch; b++) {
    for (let h = 0; h < heads; h++) {
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < width; column++) {
          const error = Math.abs(actual(b, h, row, column) - expected.at(b, h, row, column));
          // Written so that NaN fails.
          if (!(error <= tolerance[dtype] * size))
            assert.fail(`${name}[${b}, ${h}, ${row}, ${column}] is off by ${error}, of ${size}`);
        }
      }
    }
  }
}

/** Fails unless all outputs of the case are right, and everything around them is unchanged. */
export function checkCase(on: Runtime, attentionCase: Case, rounded?: RoundedInputs): void {
  const { dtype, batch, heads, rows, columns, width, valueWidth } = attentionCase;
  const { operands, mask, written } = runCase(on, attentionCase, attentionCase.dtype, rounded);
  const { query, key, value, outGradient } = operands;
  const inputs = { query: query.at, key: key.at, value: value.at };
  const forward = referenceAttention(attentionCase, { ...inputs, mask: mask?.at ?? (() => 0) });
  const backward = referenceGradients(attentionCase, {
    ...inputs,
    probabilities: forward.probabilities.at,
    outGradient: outGradient.at,
  });
  const expected = { ...forward, ...backward };
  for (const name of ["probabilities", "scoreGradient"] as const) {
    const actual: Lookup = (...indices) => written[name][expected[name].indexOf(...indices)]!;
    near(dtype, name, actual, expected[name], [batch, heads, rows, columns]);
  }
  for (const [name, itsRows, itsWidth] of [
    ["out", rows, valueWidth],
    ["queryGradient", rows, width],
    ["keyGradient", columns, width],
    ["valueGradient", columns, valueWidth],
  ] as const) {
    const { layout, values } = operands[name];
    const buffer = written[name];
    near(dtype, name, (...indices) => buffer[layout.indexOf(...indices)]!, expected[name], [
      batch,
      heads,
      itsRows,
      itsWidth,
    ]);
    const untouched = values.slice();
    for (let b = 0; b < batch; b++) {
      for (let h = 0; h < heads; h++) {
        for (let row = 0; row < itsRows; row++) {
          for (let column = 0; column < itsWidth; column++) {
            const index = layout.indexOf(b, h, row, column);
            untouched[index] = buffer[index]!;
          }
        }
      }
    }
    sameBytes(buffer, untouched, `the bytes around ${name}`);
  }
}
