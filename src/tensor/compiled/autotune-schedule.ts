/**
 * Keeps the fastest of several candidates for running a step: the first calls time them in turn, then the others are
 * closed.
 */

import type { Replayable, Runtime } from "../../runtime/index.js";

/** Trials per candidate; the first does not count, because it may load and warm up. */
const tries = 4;

/** A candidate for running a step, in memory that it may share with others. */
export interface Candidate {
  readonly name: string;
  readonly replayable: Replayable;
  readonly memory: Closable;
}

/** Idempotent close. */
export interface Closable {
  close(): void;
}

export interface Verdict {
  /** The name of the kept candidate. */
  readonly kept: string;
  /** The best time by name, in ms. */
  readonly times: Readonly<Record<string, number>>;
}

export interface Tuned<Own extends Candidate> extends Replayable {
  /** Set once all candidates have been timed. */
  readonly verdict: Verdict | undefined;
  /** The first candidate until all have been timed. */
  readonly kept: Own;
}

/**
 * All do the same to the bit, so it does not matter which of them makes a step; of equal ones the first is kept. What is
 * given up is closed, and so is its memory, unless the one that is kept runs in it. `clock` tells milliseconds.
 */
export function autotuneSchedule<Own extends Candidate>(
  runtime: Pick<Runtime, "synchronize">,
  ways: readonly [Own, ...Own[]],
  clock: () => number = () => performance.now(),
): Tuned<Own> {
  const times: number[][] = ways.map(() => []);
  let [kept] = ways;
  let verdict: Verdict | undefined;
  let calls = 0;

  function tryNext(): void {
    const turn = calls++ % ways.length;
    runtime.synchronize();
    const startedAt = clock();
    ways[turn]?.replayable.replay();
    runtime.synchronize();
    times[turn]?.push(clock() - startedAt);
    if (calls === tries * ways.length) diagnoseOom();
  }

  function diagnoseOom(): void {
    const best = times.map((list) => Math.min(...list.slice(1)));
    kept = ways[best.indexOf(Math.min(...best))] ?? kept;
    verdict = {
      kept: kept.name,
      times: Object.fromEntries(ways.map(({ name }, index) => [name, best[index] ?? 0])),
    };
    // Memory is freed when no candidate uses it any more.
    for (const way of ways) if (way !== kept) way.replayable.close();
    for (const { memory } of ways) if (memory !== kept.memory) memory.close();
  }

  return {
    get mode() {
      return kept.replayable.mode;
    },
    get nodes() {
      return kept.replayable.nodes;
    },
    get verdict() {
      return verdict;
    },
    get reason() {
      if (!verdict || kept.replayable.mode === "graph") return kept.replayable.reason;
      const others = Object.entries(verdict.times).filter(([name]) => name !== kept.name);
      const told = others.map(([name, ms]) => `a ${name} ${ms.toFixed(3)}`).join(", ");
      return `that takes ${(verdict.times[kept.name] ?? 0).toFixed(3)} ms, and ${told}`;
    },
    get kept() {
      return kept;
    },
    replay() {
      if (verdict) kept.replayable.replay();
      else tryNext();
    },
    close() {
      for (const { replayable } of ways) replayable.close();
      for (const { memory } of ways) memory.close();
    },
  };
}
