/** 16-bit floats against a float64 reference that follows the definitions of the formats. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "./half.js";

interface Format {
  readonly name: string;
  readonly exponentBits: number;
  readonly widen: (halves: Uint16Array) => Float32Array;
  readonly narrow: (values: Float32Array) => Uint16Array;
}

const formats: readonly Format[] = [
  { name: "f16", exponentBits: 5, widen: widenF16, narrow: narrowToF16 },
  { name: "bf16", exponentBits: 8, widen: widenBf16, narrow: narrowToBf16 },
];

const signBit = 0x8000;
const everyPattern = Uint16Array.from({ length: 65_536 }, (_, pattern) => pattern);

/** The value of a bit pattern by IEEE 754; float64 represents every one exactly. */
function worthOf({ exponentBits }: Format, pattern: number): number {
  const mantissaBits = 15 - exponentBits;
  const bias = 2 ** (exponentBits - 1) - 1;
  const sign = pattern & signBit ? -1 : 1;
  const exponent = (pattern & 0x7fff) >> mantissaBits;
  const fraction = (pattern & (2 ** mantissaBits - 1)) / 2 ** mantissaBits;
  if (exponent === 2 ** exponentBits - 1) return fraction === 0 ? sign * Infinity : NaN;
  if (exponent === 0) return sign * fraction * 2 ** (1 - bias);
  return sign * (1 + fraction) * 2 ** (exponent - bias);
}

/** The pattern of +∞: one more than the pattern of the largest finite value. */
function infinityOf({ exponentBits }: Format): number {
  return (2 ** exponentBits - 1) << (15 - exponentBits);
}

/** The midpoint of the pattern `upper` and the one below it. Infinity counts as one step above the largest, as in IEEE 754. */
function midpointBelow(format: Format, upper: number): number {
  const below = worthOf(format, upper - 1);
  if (upper !== infinityOf(format)) return (below + worthOf(format, upper)) / 2;
  return below + (below - worthOf(format, upper - 2)) / 2;
}

/** By format: the midpoint below each positive pattern. */
const midpoints = new Map(
  formats.map((format) => [
    format,
    Float64Array.from({ length: infinityOf(format) + 1 }, (_, upper) =>
      upper === 0 ? 0 : midpointBelow(format, upper),
    ),
  ]),
);

/** The nearest pattern, ties to even, by bisection: positive patterns are ordered by value. */
function nearest(format: Format, value: number): number {
  const sign = value < 0 || Object.is(value, -0) ? signBit : 0;
  const magnitude = Math.abs(value);
  const below = midpoints.get(format)!;
  let low = 0;
  let high = infinityOf(format);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    const midpoint = below[middle]!;
    const isAbove = magnitude > midpoint || (magnitude === midpoint && middle % 2 === 0);
    if (isAbove) low = middle;
    else high = middle - 1;
  }
  return sign | low;
}

const one = new Float32Array(1);
const bitsOfOne = new Uint32Array(one.buffer);

/** The f32 whose bits differ by one step. */
function neighbour(value: number, step: 1 | -1): number {
  one[0] = value;
  bitsOfOne[0]! += step;
  return one[0];
}

function checkNarrowing(format: Format, values: Float32Array): void {
  const narrowed = format.narrow(values);
  const wrong = values.findIndex((value, index) => narrowed[index] !== nearest(format, value));
  if (wrong < 0) return;
  const [value, actual] = [values[wrong]!, narrowed[wrong]!];
  assert.fail(
    `${value} became 0x${actual.toString(16)}, nearest is 0x${nearest(format, value).toString(16)}`,
  );
}

for (const format of formats) {
  describe(`${format.name} and f32`, () => {
    it("every pattern widens exactly, NaN to NaN, zero with its sign", () => {
      const widened = format.widen(everyPattern);
      const wrong = everyPattern.filter((pattern) => !Object.is(widened[pattern], worthOf(format, pattern)));
      assert.deepEqual([...wrong], []);
    });

    it("every pattern survives the round trip through f32; a signalling NaN becomes quiet", () => {
      const back = format.narrow(format.widen(everyPattern));
      const quietBit = 1 << (14 - format.exponentBits);
      const wrong = everyPattern.filter((pattern) => {
        const isNotANumber = (pattern & 0x7fff) > infinityOf(format);
        return back[pattern] !== (isNotANumber ? pattern | quietBit : pattern);
      });
      assert.deepEqual([...wrong], []);
    });

    it("a tie rounds to even, and a value next to a tie to the nearest", () => {
      const ties = Array.from({ length: infinityOf(format) }, (_, below) => midpointBelow(format, below + 1));
      const values = ties.flatMap((tie) => [tie, neighbour(tie, 1), neighbour(tie, -1)]);
      assert.ok(ties.every((tie) => Math.fround(tie) === tie));
      checkNarrowing(format, new Float32Array(values));
      checkNarrowing(format, new Float32Array(values.map((value) => -value)));
    });

    it("only values that are too large become infinite", () => {
      const largest = worthOf(format, infinityOf(format) - 1);
      const limit = midpointBelow(format, infinityOf(format));
      const values = new Float32Array([largest, neighbour(limit, -1), limit, Infinity, -Infinity]);
      const widened = [...format.widen(format.narrow(values))];
      assert.deepEqual(widened, [largest, largest, Infinity, Infinity, -Infinity]);
    });

    it("every f32 NaN stays a NaN with its sign, for every payload", () => {
      const payloads = Array.from({ length: 23 }, (_, bit) => 1 << bit).concat(0x7f_ffff, 0x3f_ffff, 0x1fff);
      const bits = payloads.flatMap((payload) => [0x7f80_0000 | payload, 0xff80_0000 | payload]);
      const narrowed = format.narrow(new Float32Array(new Uint32Array(bits).buffer));
      for (const [index, half] of narrowed.entries()) {
        assert.ok(Number.isNaN(worthOf(format, half)), `0x${bits[index]!.toString(16)}`);
        assert.equal(half >>> 15, index % 2);
      }
    });

    it("every f32 narrows to the nearest value", () => {
      const anyBits = fc.uint32Array({ minLength: 1, maxLength: 64 });
      fc.assert(
        fc.property(anyBits, (bits) => {
          const values = new Float32Array(bits.slice().buffer);
          checkNarrowing(
            format,
            values.filter((value) => !Number.isNaN(value)),
          );
        }),
        { numRuns: effort({ quick: 200, thorough: 1000 }) },
      );
    });

    it("every f32 in the format's range, including subnormals, narrows to the nearest value", () => {
      const magnitude = fc.float({ min: Math.fround(2 ** -27), max: Math.fround(2 ** 17), noNaN: true });
      const values = fc.array(magnitude, { minLength: 1, maxLength: 64 });
      fc.assert(
        fc.property(values, (some) => checkNarrowing(format, new Float32Array(some))),
        { numRuns: effort({ quick: 200, thorough: 1000 }) },
      );
    });

    it("a subarray is converted correctly", () => {
      const values = new Float32Array([9, 1, -2, 9]).subarray(1, 3);
      const halves = format.narrow(values);
      assert.deepEqual([...format.widen(halves)], [1, -2]);
      assert.deepEqual([...format.widen(halves.subarray(1))], [-2]);
      assert.equal(format.narrow(new Float32Array(0)).length, 0);
    });
  });
}
