/** Weights that are functions of their names, as test/oracle/model_cases.py makes them. */

import { crc32 } from "../../src/data/crc32.js";

/** Numbers from -1 to 1, exact in f32 and bf16, that depend on the name. */
export function hubNumbers(name: string, count: number): Float64Array {
  let state = crc32(new TextEncoder().encode(name));
  return Float64Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return (state >>> 25) / 64 - 1;
  });
}

/** The elements of a parameter: weights of norms are around 1. */
export function hubWeight(name: string, shape: readonly number[]): Float64Array {
  const isVector = shape.length === 1;
  const count = shape.reduce((all, size) => all * size, 1);
  const start = isVector && name.endsWith("weight") ? 1 : 0;
  return hubNumbers(name, count).map((value) => value * (isVector ? 0.125 : 0.25) + start);
}
