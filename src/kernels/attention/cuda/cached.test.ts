/** Attention of one position to a cache on CUDA, against float64. Without a GPU under test the kernels run on the emulator. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Runtime } from "holdfast/internals";
import { withAlteredKernels } from "../../../../test/support/altered-kernels.js";
import { decodeFloats, encodeFloats } from "../../../../test/support/encoded-values.js";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import { submit } from "../../submit.js";
import type { CachedDtype } from "../cached-problem.js";
import { cachedScratchBytes, canAttendCached, divideCached, lowerCachedAttention } from "./cached.js";

interface Case {
  readonly dtype?: CachedDtype;
  readonly heads: number;
  readonly keyHeads: number;
  readonly width: number;
  readonly length: number;
  readonly columns?: number;
  /** One for each sequence. */
  readonly positions: readonly number[];
  readonly window?: number;
  readonly isRotated?: boolean;
}

/** Of the largest result: the rounding of the operands is part of the reference. */
const tolerances: Readonly<Record<CachedDtype, number>> = { f32: 2e-6, f16: 2e-3, bf16: 1e-2 };

/** Numbers between −2 and 2 that differ from place to place. */
const wave = (place: number, phase: number): number => 2 * Math.sin(1.7 * place + phase + 0.001 * place ** 2);

const rounded = (values: readonly number[], dtype: CachedDtype): number[] =>
  Array.from(decodeFloats(new Uint8Array(encodeFloats(values, dtype).buffer), dtype));

function check(runtime: Runtime, testCase: Case): void {
  const { dtype = "f32", heads, keyHeads, width, length, positions, window, isRotated = true } = testCase;
  const { columns = Math.max(...positions) + 1 } = testCase;
  const batch = positions.length;
  const numbers = (count: number, phase: number): number[] =>
    rounded(
      Array.from({ length: count }, (_, place) => wave(place, phase)),
      dtype,
    );
  const [query, key, value] = [
    numbers(batch * heads * width, 0),
    numbers(batch * keyHeads * width, 1),
    numbers(batch * keyHeads * width, 2),
  ];
  // One sequence more than the call has.
  const cacheSize = (batch + 1) * length * keyHeads * width;
  const [keys, values] = [numbers(cacheSize, 3), numbers(cacheSize, 4)];
  const half = width / 2;
  const angles = Array.from({ length: batch * half }, (_, place) => (place * 0.37) % 6);
  const scale = 1 / Math.sqrt(width);

  const actual = runtime.step(() => {
    const floats = (of: readonly number[], name: string) => put(runtime, encodeFloats(of, dtype), name);
    const heading = (of: readonly number[], count: number, name: string) => ({
      storage: floats(of, name),
      batchStride: count * width,
      headStride: width,
    });
    const trigonometric = (of: (x: number) => number, name: string) => ({
      storage: put(runtime, Float32Array.from(angles, of), name),
      batchStride: half,
    });
    const out = floats(
      query.map(() => -7),
      "out",
    );
    const [keyCache, valueCache] = [floats(keys, "keys"), floats(values, "values")];
    const shape = { dtype, batch, heads, keyHeads, width, length, columns };
    const bytes = cachedScratchBytes(shape);
    const commands = lowerCachedAttention(
      {
        ...shape,
        query: heading(query, heads, "query"),
        key: heading(key, keyHeads, "key"),
        value: heading(value, keyHeads, "value"),
        ...{ keyCache, valueCache, out, scale },
        positions: { storage: put(runtime, Int32Array.from(positions), "positions"), batchStride: 1 },
        ...(isRotated && {
          rotation: { cosines: trigonometric(Math.cos, "cosines"), sines: trigonometric(Math.sin, "sines") },
        }),
        ...(window !== undefined && { window }),
        ...(bytes > 0 && { scratch: runtime.arena.allocate(bytes, "scratch") }),
      },
      "cachedAttention",
    );
    submit(runtime, commands);
    const read = (storage: typeof out) => Array.from(decodeFloats(runtime.read(storage), dtype));
    return { out: read(out), keys: read(keyCache), values: read(valueCache) };
  });

  const expected: number[] = [];
  for (const [sequence, position] of positions.entries()) {
    const rotate = (of: readonly number[], first: number): number[] => {
      const head = of.slice(first, first + width);
      if (!isRotated) return head;
      const turned = head.map((own, i) => {
        const other = head[(i + half) % width]!;
        const angle = angles[sequence * half + (i % half)]!;
        return (
          own * Math.fround(Math.cos(angle)) + (i < half ? -1 : 1) * other * Math.fround(Math.sin(angle))
        );
      });
      return rounded(turned, dtype);
    };
    const rowAt = (column: number, keyHead: number): number =>
      ((sequence * length + column) * keyHeads + keyHead) * width;
    for (let keyHead = 0; keyHead < keyHeads; keyHead++) {
      const from = (sequence * keyHeads + keyHead) * width;
      keys.splice(rowAt(position, keyHead), width, ...rotate(key, from));
      values.splice(rowAt(position, keyHead), width, ...value.slice(from, from + width));
    }
    for (let head = 0; head < heads; head++) {
      const keyHead = Math.floor(head / (heads / keyHeads));
      const own = rotate(query, (sequence * heads + head) * width);
      const first = window === undefined ? 0 : Math.max(0, position + 1 - window);
      const scores = Array.from({ length: position + 1 - first }, (_, at) => {
        const row = rowAt(first + at, keyHead);
        return scale * own.reduce((sum, number, i) => sum + number * keys[row + i]!, 0);
      });
      const top = Math.max(...scores);
      const powers = scores.map((score) => Math.exp(score - top));
      const total = powers.reduce((sum, power) => sum + power, 0);
      for (let i = 0; i < width; i++) {
        const sum = powers.reduce(
          (all, power, at) => all + power * values[rowAt(first + at, keyHead) + i]!,
          0,
        );
        expected.push(sum / total);
      }
    }
  }
  const near = (name: string, found: readonly number[], wanted: readonly number[]): void => {
    const allowed = tolerances[dtype] * Math.max(...wanted.map(Math.abs));
    const bad = wanted.findIndex((number, at) => !(Math.abs(found[at]! - number) <= allowed));
    assert.ok(bad < 0, `${name}[${bad}] is ${found[bad]}, and should be ${wanted[bad]}`);
  };
  near("keys", actual.keys, keys);
  near("values", actual.values, values);
  near("out", actual.out, expected);
}

const grouped: Case = { heads: 6, keyHeads: 2, width: 16, length: 70, positions: [0, 65, 7] };
/** 600 columns are split over several CTAs, which is tried with a cache that is mostly unused. */
const split: Case = { heads: 4, keyHeads: 1, width: 16, length: 600, columns: 600, positions: [290] };

describe("attention of one position to a cache", { skip: cudaMissing }, () => {
  const runtime = cudaMissing ? undefined! : openCudaKernelRuntime();

  test("rotates, writes the new row and attends to the others, for sequences of different lengths", () => {
    check(runtime, grouped);
    check(runtime, { ...grouped, window: 5 });
    check(runtime, { ...grouped, isRotated: false });
  });

  test("works in each dtype, with heads that leave lanes idle or need several vectors of a lane", () => {
    check(runtime, { ...grouped, dtype: "bf16", width: 80, positions: [33] });
    check(runtime, { ...grouped, dtype: "f16", width: 24, heads: 7, keyHeads: 1, positions: [40] });
    check(runtime, { ...grouped, width: 192, heads: 2, keyHeads: 2, positions: [20] });
  });

  test("many sequences share keys between the query heads of a CTA", () => {
    const sequences = Array.from({ length: 33 }, (_, at) => at % 3);
    const wide: Case = { heads: 4, keyHeads: 1, width: 8, length: 4, dtype: "bf16", positions: sequences };
    assert.equal(divideCached({ ...wide, dtype: "bf16", batch: 33, columns: 4 }).blockHeads, 2);
    check(runtime, wide);
  });

  test("the columns of a long cache are split, also where some CTAs have none", () => {
    assert.ok(divideCached({ ...split, dtype: "f32", batch: 1, columns: 600 }).splits > 2);
    check(runtime, split);
    check(runtime, { ...split, positions: [1], dtype: "bf16" });
    check(runtime, { ...split, positions: [200, 3], window: 50 });
  });

  test("heads without whole vectors of 16 bytes are left to other kernels", () => {
    assert.ok(canAttendCached("bf16", 64) && canAttendCached("f32", 256) && canAttendCached("f32", 4));
    assert.ok(!canAttendCached("bf16", 20) && !canAttendCached("f32", 2) && !canAttendCached("bf16", 1024));
  });

  for (const { fault, from, to, testCase } of [
    {
      fault: "the sums of an earlier maximum are not rescaled",
      from: "sums[h][e] *= factor;",
      to: "",
      testCase: grouped,
    },
    {
      fault: "the new row goes to the first column",
      from: "position * rowStride + i",
      to: "i",
      testCase: grouped,
    },
    {
      fault: "every split adds the new column",
      from: "split == splits - 1 && warp == 0",
      to: "warp == 0",
      testCase: split,
    },
    {
      fault: "a window has a column too many",
      from: "position + 1 - window : 0",
      to: "position - window : 0",
      testCase: { ...grouped, window: 5 },
    },
    {
      fault: "the pairs are rotated backwards",
      from: "first * cosine - second * sine",
      to: "first * cosine + second * sine",
      testCase: grouped,
    },
  ] as const) {
    test(`red proof: it is found if ${fault}`, () => {
      withAlteredKernels({ from, to }, (altered) =>
        assert.throws(() => check(altered, testCase), /should be/),
      );
    });
  }
});
