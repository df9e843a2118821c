/** Times several functions alternately, so that other load on the machine affects all of them equally. */

const warmUpMs = 300;

/** The best time of each, in milliseconds, after a warm-up in which code compiles and threads start. */
export function bestTimes(runs: readonly (() => void)[], repetitions: number): number[] {
  const best = runs.map(() => Number.POSITIVE_INFINITY);
  for (const run of runs) {
    for (const startedAt = performance.now(); performance.now() - startedAt < warmUpMs; ) run();
  }
  for (let round = 0; round < repetitions; round++) {
    for (const [index, run] of runs.entries()) {
      const startedAt = performance.now();
      run();
      best[index] = Math.min(best[index]!, performance.now() - startedAt);
    }
  }
  return best;
}
