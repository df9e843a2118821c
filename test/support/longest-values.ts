/** Arrays of test values that are made once and used again. */

import type { Dtype } from "../../src/ir/index.js";

interface Sliceable {
  readonly length: number;
  subarray(start: number, end: number): this;
}

/**
 * A function like `make` that keeps the longest array of each dtype and seed, and returns its beginning. So `make` must give the same
 * first values for every count.
 */
export function keepLongest<Values extends Sliceable>(
  make: (dtype: Dtype, count: number, seed: number) => Values,
): (dtype: Dtype, count: number, seed: number) => Values {
  const made = new Map<string, Values>();
  return (dtype, count, seed) => {
    const key = `${dtype} ${seed}`;
    let values = made.get(key);
    if (values === undefined || values.length < count) {
      values = make(dtype, count, seed);
      made.set(key, values);
    }
    return values.subarray(0, count);
  };
}
