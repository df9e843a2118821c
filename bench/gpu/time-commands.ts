/** Times commands on a GPU by replays of a graph that has them several times, so that the host's share is small. */

import type { Command, Runtime } from "../../src/runtime/index.js";

export interface Repetitions {
  /** How often a graph has the commands. Default: 10. */
  readonly launches?: number;
  /** Replays, of which the fastest counts, after one more that warms up. Default: 12. */
  readonly replays?: number;
}

/** Microseconds of all commands together. */
export function timeCommandsUs(
  runtime: Runtime,
  commands: readonly Command[],
  { launches = 10, replays = 12 }: Repetitions = {},
): number {
  const loaded = runtime.load(commands);
  const graph = runtime.captureForTiming("timed commands", () => {
    for (let launch = 0; launch < launches; launch++) runtime.submit(loaded);
  });
  const replayUs = (): number => {
    runtime.synchronize();
    const startMs = performance.now();
    graph.replay();
    runtime.synchronize();
    return (1000 * (performance.now() - startMs)) / launches;
  };
  try {
    replayUs();
    return Math.min(...Array.from({ length: replays }, replayUs));
  } finally {
    graph.close();
  }
}
