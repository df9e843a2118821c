/** Autotuning of a schedule: which candidate is kept. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { autotuneSchedule, type Candidate, type TuningResult } from "./autotune-schedule.js";

class Memory {
  closed = 0;
  /** The candidates that run in it. */
  readonly users: CountedCandidate[] = [];

  close(): void {
    assert.ok(
      this.users.every((candidate) => candidate.closed > 0),
      "memory is closed while a candidate uses it",
    );
    this.closed += 1;
  }
}

interface CountedCandidate extends Candidate {
  readonly memory: Memory;
  runs: number;
  closed: number;
}

/** Candidates with these durations on a fake clock, which count their runs. The first two share their memory. */
function tune(...durations: readonly [number, ...number[]]) {
  let now = 0;
  const shared = new Memory();
  const candidates = durations.map((ms, index): CountedCandidate => {
    const candidate: CountedCandidate = {
      name: `candidate ${index}`,
      memory: index < 2 ? shared : new Memory(),
      runs: 0,
      closed: 0,
      replayable: {
        mode: index === 1 ? "direct" : "graph",
        replay() {
          now += ms;
          candidate.runs += 1;
        },
        close() {
          candidate.closed += 1;
        },
      },
    };
    candidate.memory.users.push(candidate);
    return candidate;
  }) as [CountedCandidate, ...CountedCandidate[]];
  const results: TuningResult[] = [];
  const onTuned = (result: TuningResult): void => void results.push(result);
  const schedule = autotuneSchedule({ synchronize: () => undefined }, candidates, onTuned, () => now);
  return { candidates, schedule, results };
}

const runsOf = (candidates: readonly CountedCandidate[]): number[] => candidates.map(({ runs }) => runs);

test("the faster of two is kept with their shared memory, and the other is closed", () => {
  for (const [durations, kept] of [
    [[1, 3], 0],
    [[3, 1], 1],
  ] as const) {
    const { candidates, schedule } = tune(durations[0], durations[1]);
    for (let call = 0; call < 50; call++) schedule.replay();
    assert.deepEqual(schedule.tuning, {
      kept: `candidate ${kept}`,
      times: { "candidate 0": durations[0], "candidate 1": durations[1] },
    });
    assert.equal(schedule.kept, candidates[kept]);
    assert.equal(schedule.mode, kept === 0 ? "graph" : "direct");
    assert.deepEqual(runsOf(candidates), kept === 0 ? [46, 4] : [4, 46]);
    assert.deepEqual(
      candidates.map(({ closed }) => closed),
      kept === 0 ? [0, 1] : [1, 0],
    );
    assert.equal(candidates[0].memory.closed, 0);
    assert.equal(schedule.reason, kept === 0 ? undefined : "that takes 1.000 ms, and a candidate 0 3.000");
  }
});

test("rejected candidates are closed with their memory", () => {
  const third = tune(2, 3, 1);
  for (let call = 0; call < 12; call++) third.schedule.replay();
  assert.equal(third.schedule.tuning?.kept, "candidate 2");
  assert.ok(third.candidates[0].memory.closed > 0);
  assert.equal(third.candidates[2]!.memory.closed, 0);

  const first = tune(1, 3, 2);
  for (let call = 0; call < 12; call++) first.schedule.replay();
  assert.equal(first.schedule.tuning?.kept, "candidate 0");
  assert.deepEqual([first.candidates[0].memory.closed, first.candidates[2]!.memory.closed], [0, 1]);
  assert.deepEqual(first.results, [first.schedule.tuning], "the result is reported once");
});

test("of equally fast candidates the first is kept", () => {
  const { candidates, schedule } = tune(1, 1, 1);
  for (let call = 0; call < 20; call++) schedule.replay();
  assert.equal(schedule.kept, candidates[0]);
});

test("every call runs the step once, and the candidates take turns", () => {
  const { candidates, schedule } = tune(1, 1, 1);
  for (let call = 1; call <= 20; call++) {
    schedule.replay();
    assert.equal(
      runsOf(candidates).reduce((sum, runs) => sum + runs),
      call,
    );
    if (call === 5) assert.deepEqual(runsOf(candidates), [2, 2, 1]);
  }
});

test("closing closes all candidates and all memory, before and after tuning", () => {
  for (const calls of [5, 20]) {
    const { candidates, schedule } = tune(1, 2, 3);
    for (let call = 0; call < calls; call++) schedule.replay();
    schedule.close();
    assert.ok(candidates.every(({ closed, memory }) => closed > 0 && memory.closed > 0));
  }
});
