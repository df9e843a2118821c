/**
 * The state of the random kernels: a seed and a counter of draws, 16 bytes in persistent memory. It is uploaded once, incremented by
 * `advance` on the device, and saved with a checkpoint, so that a resumed run draws the same words.
 */

import { HoldfastError } from "../../errors/index.js";
import { halvesOf, type Seed } from "./seed.js";

/** Both are 64-bit numbers, low bytes first. */
export const stateOffsets = { seed: 0, counter: 8 } as const;
export const stateBytes = 16;

export interface RandomState {
  readonly seed: bigint;
  /** The number of draws. Two states of one seed are independent only if their counters differ. */
  readonly counter: bigint;
}

/** The state's bytes, to upload. */
export function encodeState({ seed, counter = 0 }: { seed: Seed; counter?: Seed }): Uint8Array<ArrayBuffer> {
  const state = new Uint8Array(stateBytes);
  const view = new DataView(state.buffer);
  for (const [offset, [low, high]] of [
    [stateOffsets.seed, halvesOf(seed, "seed")],
    [stateOffsets.counter, halvesOf(counter, "counter of draws")],
  ] as const) {
    view.setUint32(offset, low, true);
    view.setUint32(offset + 4, high, true);
  }
  return state;
}

/** Decodes a state that was read back. */
export function decodeState(state: Uint8Array): RandomState {
  if (state.byteLength !== stateBytes) {
    const message = `A random state has ${stateBytes} bytes, the seed and the counter, but this one has ${state.byteLength}.`;
    throw new HoldfastError("BAD_ARGUMENT", message, { numbers: { size: state.byteLength } });
  }
  const view = new DataView(state.buffer, state.byteOffset, state.byteLength);
  return {
    seed: view.getBigUint64(stateOffsets.seed, true),
    counter: view.getBigUint64(stateOffsets.counter, true),
  };
}
