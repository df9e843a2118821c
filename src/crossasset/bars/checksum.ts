/** A checksum of bars, independent of their origin. */

import { createHash } from "node:crypto";
import { type Bars, barColumns } from "./bars.js";

/**
 * The SHA-256 of all columns, as 64 hexadecimal digits.
 *
 * @example
 * ```ts
 * import { crossasset } from "holdfast";
 * const [one, other] = [1, 2].map((seed) => crossasset.checksumOfBars(crossasset.generateBars({ bars: 10, seed })));
 * console.log(one?.length, one === other); // → 64 false
 * ```
 */
export function checksumOfBars(bars: Bars): string {
  const hash = createHash("sha256");
  for (const column of barColumns) {
    const { buffer, byteOffset, byteLength, length } = bars[column];
    hash.update(`${column} ${length} `).update(new Uint8Array(buffer, byteOffset, byteLength));
  }
  return hash.digest("hex");
}
