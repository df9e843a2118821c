/** Checkpoints whose every byte follows from the step, so that a mix of two is detected. */

import type { Checkpoint } from "../../src/train/index.js";

/** About 40 kB, in tensors of several dtypes. */
export function patternedCheckpoint(step: number, length = 8192): Checkpoint {
  const tensor = (name: string, dtype: "f32" | "f64" | "u8", shape: number[], size: number) => {
    const bytes = new Uint8Array(size);
    for (let index = 0; index < size; index++) bytes[index] = index * 31 + step * 17 + name.length;
    return [name, { name, dtype, shape, bytes }] as const;
  };
  return {
    step,
    tensors: new Map([
      tensor("model.weight", "f32", [length], 4 * length),
      tensor("optimizer.0.step", "f64", [], 8),
      tensor("extra.mask", "u8", [length], length),
    ]),
    state: {
      model: "Patterned",
      epoch: step % 7,
      settings: { lr: 0.001, batch: 256 },
      losses: [step, -step],
    },
  };
}
