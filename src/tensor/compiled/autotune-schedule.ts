/** Autotunes how a step runs: the first calls time several candidates in turn; then all but the fastest are closed. */

import type { Replayable, Runtime } from "../../runtime/index.js";

/** Trials per candidate. The first does not count, because it may load and warm up. */
const trialsPerCandidate = 4;

/** A candidate for running a step. Candidates may share memory. */
export interface Candidate {
  readonly name: string;
  readonly replayable: Replayable;
  readonly memory: Closable;
}

/** Idempotent close. */
export interface Closable {
  close(): void;
}

export interface TuningResult {
  /** The name of the fastest candidate, which is kept. */
  readonly kept: string;
  /** The best time by name, in ms. */
  readonly times: Readonly<Record<string, number>>;
}

export interface TunedSchedule<C extends Candidate> extends Replayable {
  /** Set once all candidates have been timed. */
  readonly tuning: TuningResult | undefined;
  /** The first candidate until all have been timed. */
  readonly kept: C;
}

/**
 * All candidates compute the same bits, so each call may run any of them. Of equally fast candidates the first is kept.
 * The others are closed and their memory is freed, except memory that the kept candidate shares. `onTuned` receives the
 * result. `clock` returns milliseconds. `decide` returns the index of the candidate that is kept, given that of the fastest: another rank may
 * decide.
 */
export function autotuneSchedule<C extends Candidate>(
  runtime: Pick<Runtime, "synchronize">,
  candidates: readonly [C, ...C[]],
  onTuned: (result: TuningResult) => void = () => undefined,
  clock: () => number = () => performance.now(),
  decide: (fastest: number) => number = (fastest) => fastest,
): TunedSchedule<C> {
  const times: number[][] = candidates.map(() => []);
  let [kept] = candidates;
  let tuning: TuningResult | undefined;
  let calls = 0;

  function timeNext(): void {
    const index = calls++ % candidates.length;
    runtime.synchronize();
    const startedAt = clock();
    candidates[index]?.replayable.replay();
    runtime.synchronize();
    times[index]?.push(clock() - startedAt);
    if (calls === trialsPerCandidate * candidates.length) selectFastest();
  }

  function selectFastest(): void {
    const best = times.map((trials) => Math.min(...trials.slice(1)));
    kept = candidates[decide(best.indexOf(Math.min(...best)))] ?? kept;
    tuning = {
      kept: kept.name,
      times: Object.fromEntries(candidates.map(({ name }, index) => [name, best[index] ?? 0])),
    };
    // Memory is freed when no candidate uses it any more.
    for (const candidate of candidates) if (candidate !== kept) candidate.replayable.close();
    for (const { memory } of candidates) if (memory !== kept.memory) memory.close();
    onTuned(tuning);
  }

  return {
    get mode() {
      return kept.replayable.mode;
    },
    get nodes() {
      return kept.replayable.nodes;
    },
    get tuning() {
      return tuning;
    },
    get reason() {
      if (!tuning || kept.replayable.mode === "graph") return kept.replayable.reason;
      const others = Object.entries(tuning.times).filter(([name]) => name !== kept.name);
      const otherTimes = others.map(([name, ms]) => `a ${name} ${ms.toFixed(3)}`).join(", ");
      return `that takes ${(tuning.times[kept.name] ?? 0).toFixed(3)} ms, and ${otherTimes}`;
    },
    get kept() {
      return kept;
    },
    replay() {
      if (tuning) kept.replayable.replay();
      else timeNext();
    },
    close() {
      for (const { replayable } of candidates) replayable.close();
      for (const { memory } of candidates) memory.close();
    },
  };
}
