/**
 * A step of eager code as one launch: its ops are recorded one by one, as they are, neither fused nor planned. What the
 * step makes lies in memory that the graph owns, so every replay finds it at the same addresses.
 */

import type { Replayable } from "../../runtime/index.js";
import type { Device } from "../device.js";

/**
 * Captures a function that makes tensors and gradients. It may not look at values; what it is to leave behind it writes
 * to persistent memory. `memoryBytes` is what it needs at once: the arena's high-water after the same step, run eagerly.
 */
export function captureStep(device: Device, name: string, memoryBytes: number, body: () => void): Replayable {
  const { runtime, tape } = device;
  const { arena } = runtime;
  const memory = arena.allocate(memoryBytes, name);
  const run = (): void =>
    arena.withSubArena(memory, () => {
      const mark = tape.position();
      try {
        body();
      } finally {
        // Tensors saved for backward are in that memory too, and end with it.
        tape.release(mark);
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
