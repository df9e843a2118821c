/** A program's schedule, and the memory plan that belongs to it. */

import type { Buffer, BufferSlice } from "./buffer.js";
import type { Call } from "./call.js";

/** The order of a program's calls, and which of them may run concurrently. */
export interface Schedule {
  readonly calls: readonly ScheduledCall[];
  /** True if the main stream has priority over side streams. */
  readonly isMainFirst?: boolean;
}

export interface ScheduledCall {
  readonly call: Call;
  /** Calls of one stream run in order. 0 is the main stream, where all others fork and join. */
  readonly stream: number;
  /** Schedule indices of earlier calls on other streams that it waits for. */
  readonly after: readonly number[];
  /**
   * Set if the call uses programmatic dependent launch: the operands that it prefetches before the grid dependency wait. It reads nothing
   * else and writes nothing before the wait.
   */
  readonly prefetches?: readonly BufferSlice[];
}

/** The layout of step memory: the offset of each buffer in one block of memory. */
export interface Plan {
  readonly bytes: number;
  readonly offsets: ReadonlyMap<Buffer, number>;
}
