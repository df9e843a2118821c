/** Seeds and the other 64-bit numbers of Philox's key and counter. */

import { HoldfastError } from "../../errors/index.js";
import type { Words2 } from "./philox.js";

/** An integer from 0 to 2⁶⁴ − 1; from 2⁵³ on a bigint, because a number would lose its low bits. */
export type Seed = number | bigint;

/** The low and the high 32 bits of a 64-bit number; `what` names it in the error. */
export function halvesOf(value: Seed, what: string): Words2 {
  const isWhole = typeof value === "bigint" || Number.isSafeInteger(value);
  if (!isWhole || value < 0 || value >= 2n ** 64n) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The ${what} is ${value}; pass a whole number from 0 to 2^64 - 1, as a bigint from 2^53 on.`,
    );
  }
  const whole = BigInt(value);
  return [Number(whole & 0xffffffffn), Number(whole >> 32n)];
}
