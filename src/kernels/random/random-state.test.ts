/** The bytes of the random state. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../../test/support/rejects.js";
import { decodeState, encodeState, stateBytes } from "./random-state.js";

test("a state is the seed, then the counter, in little-endian order", () => {
  const state = encodeState({ seed: 0x0807060504030201n, counter: 0x100f0e0d0c0b0a09n });
  assert.deepEqual([...state], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
});

test("an encoded state is decoded, at any offset in a buffer", () => {
  const bytes = new Uint8Array(stateBytes + 3);
  bytes.set(encodeState({ seed: 42, counter: 2n ** 64n - 1n }), 3);
  assert.deepEqual(decodeState(bytes.subarray(3)), { seed: 42n, counter: 2n ** 64n - 1n });
  assert.deepEqual(decodeState(encodeState({ seed: 42 })), { seed: 42n, counter: 0n });
});

test("a state of another size, and numbers that exceed 64 bits, are rejected", () => {
  rejects("BAD_ARGUMENT", () => decodeState(new Uint8Array(15)), /16 bytes.*but this one has 15/);
  rejects("BAD_ARGUMENT", () => encodeState({ seed: -1 }), /^The seed is -1/);
  rejects("BAD_ARGUMENT", () => encodeState({ seed: 1, counter: 2n ** 64n }), /^The counter of draws is/);
});
