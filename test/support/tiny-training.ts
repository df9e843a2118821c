/**
 * A training step in miniature, built from the basic kernels: gradients are accumulated, then moments and
 * weights are updated. Every value is a small multiple of a half, so float32 sums are exact in any order: two
 * runs that should agree agree in every bit, however the work was split.
 */

import type { Runtime, Storage } from "holdfast/internals";
import { add, placeValues, scale, setAll } from "./basic-ops.js";

/** The memory of a model. The fields can be rebound, because the old engine did just that. */
export interface TinyModel {
  p: Storage; // [N]
  g: Storage; // [N]
  m: Storage; // [N]
  v: Storage; // [N]
  seed: Storage; // [1], the seed of backward; not 1, so that a lost or repeated scaling shows
  half: Storage; // [1]
  minusLr: Storage; // [1]
}

export const stateNames = ["p", "g", "m", "v"] as const;

/** More than one block of work, and an odd count, so that vector kernels have a tail. */
export const tinyElements = 4099;

export function placeTinyModel(runtime: Runtime): TinyModel {
  const zeros = new Float32Array(tinyElements);
  const { p } = placeValues(runtime, "weights", { p: sample(0) });
  const { g } = placeValues(runtime, "gradients", { g: zeros });
  const { m, v } = placeValues(runtime, "moments", { m: zeros, v: zeros });
  return { p, g, m, v, ...placeValues(runtime, "scalars", { seed: [2], half: [0.5], minusLr: [-0.5] }) };
}

/** The values of a sample: integers from -3 to 3, different for each number. */
export function sample(number: number): Float32Array {
  return Float32Array.from({ length: tinyElements }, (_, i) => ((i * 5 + number * 11) % 7) - 3);
}

/** Allocates step memory for one tensor of the model's size. */
export function allocateTensor(runtime: Runtime, label: string): Storage {
  return runtime.arena.allocate(tinyElements * Float32Array.BYTES_PER_ELEMENT, label);
}

/** `g += seed · x` */
export function accumulate(
  runtime: Runtime,
  { g, seed }: TinyModel,
  x: Storage,
  scaled = allocateTensor(runtime, "seed · x"),
): void {
  scale(runtime, x, seed, scaled);
  add(runtime, g, scaled, g);
}

/** `m += g`, `v += g / 2`, `p -= lr · m`, `g = 0`; the learning rate is read from memory. */
export function update(
  runtime: Runtime,
  { p, g, m, v, half, minusLr }: TinyModel,
  change = allocateTensor(runtime, "change"),
): void {
  add(runtime, m, g, m);
  scale(runtime, g, half, change);
  add(runtime, v, change, v);
  scale(runtime, m, minusLr, change);
  add(runtime, p, change, p);
  setAll(runtime, g, 0);
}

/** The bytes of all state that a step changes. */
export function stateBytes(runtime: Runtime, model: TinyModel): Record<string, Uint8Array> {
  return Object.fromEntries(stateNames.map((name) => [name, runtime.read(model[name])]));
}
