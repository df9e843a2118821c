/** The state of the random numbers as plain data: the draws on the host, and the counter of a device. */

import { HoldfastError } from "../errors/index.js";
import { type Device, defaultDevice } from "./device.js";
import { type DrawPosition, drawPosition, restoreDrawPosition } from "./seed.js";

/** The state of the random numbers; plain data, for JSON. */
export interface RngState {
  /** The seed of everything, in decimal digits. */
  readonly seed: string;
  /** Number of draws on the host: initial values and permutations. */
  readonly draws: number;
  /** The seed and the counter of the draws on the device, as four words: dropout, `randn` and the like. */
  readonly device: readonly number[];
}

const deviceWords = 4;

/**
 * The state of the random numbers on the host and on a device, like PyTorch's get_rng_state. Waits for the device.
 * Default device: the one opened first.
 *
 * @example
 * ```ts
 * import { device, getRngState, manualSeed, nn, ones, setRngState } from "holdfast";
 * const cpu = await device("cpu");
 * manualSeed(7);
 * const draw = () => nn.functional.dropout(ones([8])).tolist();
 * draw();
 * const state = getRngState();
 * const next = String(draw());
 * setRngState(state);
 * console.log(String(draw()) === next); // → true
 * cpu.close();
 * ```
 */
export function getRngState(device: Device = defaultDevice()): RngState {
  const { seed, draws } = drawPosition();
  return { seed: String(seed), draws, device: [...device.randomState.dataSync()] };
}

/**
 * Restores a state of the random numbers on the host and on a device, like PyTorch's set_rng_state. Other open devices
 * restart from the state's seed, as with `manualSeed`.
 *
 * @example
 * ```ts
 * import { device, getRngState, randn, setRngState } from "holdfast";
 * const cpu = await device("cpu");
 * const state = getRngState();
 * const first = String(randn([3]).tolist());
 * setRngState(state);
 * console.log(String(randn([3]).tolist()) === first); // → true
 * cpu.close();
 * ```
 */
export function setRngState(state: RngState, device: Device = defaultDevice()): void {
  const words: readonly unknown[] = Array.isArray(state?.device) ? state.device : [];
  if (words.length !== deviceWords || !words.every((word) => Number.isInteger(word))) {
    throw new HoldfastError(
      "BAD_STATE",
      `A device's random state has ${deviceWords} whole numbers; this one has ${words.length} values. Pass the value that getRngState() returned.`,
    );
  }
  const position = drawPositionOf("The random state", state, "Pass the value that getRngState() returned.");
  restoreDrawPosition(position);
  // After the seed: setting the seed restarts the device's random numbers.
  device.write(device.randomState, state.device);
}

/** The draws on the host according to a state, validated. */
export function drawPositionOf(subject: string, state: unknown, remedy: string): DrawPosition {
  const { seed, draws } = (typeof state === "object" && state !== null ? state : {}) as Partial<RngState>;
  const isSeed = typeof seed === "string" && /^\d{1,20}$/.test(seed) && BigInt(seed) < 2n ** 64n;
  if (isSeed && typeof draws === "number" && Number.isSafeInteger(draws) && draws >= 0) {
    return { seed: BigInt(seed), draws };
  }
  throw new HoldfastError("BAD_STATE", `${subject} has no valid position of the random numbers. ${remedy}`);
}
