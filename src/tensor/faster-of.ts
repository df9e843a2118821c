/** A captured step is kept only if it wins: its first calls try the graph and the direct run in turns, and the quicker stays. */

import type { Replayable, Runtime } from "../runtime/index.js";

/** How often each is tried; the first time of each does not count, because it may load and warm things up. */
const tries = 4;

export interface Verdict {
  readonly graphMs: number;
  readonly directMs: number;
}

export interface Tried extends Replayable {
  /** Once both have been tried. */
  readonly verdict: Verdict | undefined;
}

/** Both do the same to the bit, so it does not matter which of them makes a step. `clock` tells milliseconds. */
export function keepFaster(
  runtime: Pick<Runtime, "synchronize">,
  graph: Replayable,
  direct: () => void,
  clock: () => number = () => performance.now(),
): Tried {
  const times: Record<"graph" | "direct", number[]> = { graph: [], direct: [] };
  let verdict: Verdict | undefined;
  let isGraphKept = true;

  function tryOne(way: "graph" | "direct"): void {
    runtime.synchronize();
    const startedAt = clock();
    if (way === "graph") graph.replay();
    else direct();
    runtime.synchronize();
    times[way].push(clock() - startedAt);
  }

  function judge(): void {
    const [graphMs, directMs] = [times.graph, times.direct].map((list) => Math.min(...list.slice(1)));
    verdict = { graphMs: graphMs ?? 0, directMs: directMs ?? 0 };
    isGraphKept = verdict.graphMs <= verdict.directMs;
    if (!isGraphKept) graph.close();
  }

  return {
    get mode() {
      return isGraphKept ? graph.mode : "direct";
    },
    ...(graph.nodes && { nodes: graph.nodes }),
    get verdict() {
      return verdict;
    },
    get reason() {
      if (isGraphKept || !verdict) return undefined;
      return `that takes ${verdict.directMs.toFixed(3)} ms, and a graph ${verdict.graphMs.toFixed(3)}`;
    },
    replay() {
      if (verdict) {
        if (isGraphKept) graph.replay();
        else direct();
        return;
      }
      tryOne(times.graph.length <= times.direct.length ? "graph" : "direct");
      if (times.graph.length === tries && times.direct.length === tries) judge();
    },
    close: () => graph.close(),
  };
}
