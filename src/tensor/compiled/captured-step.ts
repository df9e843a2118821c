/**
 * A step of eager code as one launch: its ops are recorded one by one, neither fused nor planned. Tensors of the step are in
 * memory that the graph owns, so every replay has them at the same addresses.
 */

import type { Replayable } from "../../runtime/index.js";
import type { Device } from "../device.js";

/**
 * Captures a function that creates tensors and gradients. It must not read values, and it must write its results to persistent
 * memory. `memoryBytes` is its peak memory: the high-water mark of the arena after the same step, run eagerly.
 */
export function captureStep(device: Device, name: string, memoryBytes: number, body: () => void): Replayable {
  const { runtime, tape } = device;
  const { arena } = runtime;
  const memory = arena.allocate(memoryBytes, name);
  const run = (): void =>
    arena.withSubArena(memory, () => {
      const start = tape.position();
      try {
        body();
      } finally {
        // Tensors saved for backward are in that memory too, and end with it.
        tape.release(start);
      }
    });
  try {
    const captured = runtime.capture(name, run);
    const close = (): void => {
      captured.close();
      if (arena.isLive(memory)) arena.free(memory);
    };
    return { ...captured, close };
  } catch (rejection) {
    arena.free(memory);
    throw rejection;
  }
}
