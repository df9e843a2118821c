/** Which of several ways to run a step is kept. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { autotuneSchedule, type Candidate } from "./autotune-schedule.js";

class Memory {
  closed = 0;
  /** Who runs in it. */
  readonly users: CountedWay[] = [];

  close(): void {
    assert.ok(
      this.users.every((way) => way.closed > 0),
      "memory is given up in which somebody runs",
    );
    this.closed += 1;
  }
}

interface CountedWay extends Candidate {
  readonly memory: Memory;
  runs: number;
  closed: number;
}

/** Ways that take so many milliseconds by a clock of their own, and count their runs. The first two share their memory. */
function waysOf(...durations: readonly [number, ...number[]]) {
  let now = 0;
  const shared = new Memory();
  const ways = durations.map((ms, index): CountedWay => {
    const way: CountedWay = {
      name: `way ${index}`,
      memory: index < 2 ? shared : new Memory(),
      runs: 0,
      closed: 0,
      replayable: {
        mode: index === 1 ? "direct" : "graph",
        replay() {
          now += ms;
          way.runs += 1;
        },
        close() {
          way.closed += 1;
        },
      },
    };
    way.memory.users.push(way);
    return way;
  }) as [CountedWay, ...CountedWay[]];
  return { ways, tried: autotuneSchedule({ synchronize: () => undefined }, ways, () => now) };
}

const runsOf = (ways: readonly CountedWay[]): number[] => ways.map(({ runs }) => runs);

test("the quickest of two is kept, with the memory that both run in, and the other is closed", () => {
  for (const [durations, kept] of [
    [[1, 3], 0],
    [[3, 1], 1],
  ] as const) {
    const { ways, tried } = waysOf(durations[0], durations[1]);
    for (let call = 0; call < 50; call++) tried.replay();
    assert.deepEqual(tried.verdict, {
      kept: `way ${kept}`,
      times: { "way 0": durations[0], "way 1": durations[1] },
    });
    assert.equal(tried.kept, ways[kept]);
    assert.equal(tried.mode, kept === 0 ? "graph" : "direct");
    assert.deepEqual(runsOf(ways), kept === 0 ? [46, 4] : [4, 46]);
    assert.deepEqual(
      ways.map(({ closed }) => closed),
      kept === 0 ? [0, 1] : [1, 0],
    );
    assert.equal(ways[0].memory.closed, 0);
    assert.equal(tried.reason, kept === 0 ? undefined : "that takes 1.000 ms, and a way 0 3.000");
  }
});

test("of three, what is given up is closed with its memory", () => {
  const third = waysOf(2, 3, 1);
  for (let call = 0; call < 12; call++) third.tried.replay();
  assert.equal(third.tried.verdict?.kept, "way 2");
  assert.ok(third.ways[0].memory.closed > 0);
  assert.equal(third.ways[2]!.memory.closed, 0);

  const first = waysOf(1, 3, 2);
  for (let call = 0; call < 12; call++) first.tried.replay();
  assert.equal(first.tried.verdict?.kept, "way 0");
  assert.deepEqual([first.ways[0].memory.closed, first.ways[2]!.memory.closed], [0, 1]);
});

test("of equal ones the first is kept", () => {
  const { ways, tried } = waysOf(1, 1, 1);
  for (let call = 0; call < 20; call++) tried.replay();
  assert.equal(tried.kept, ways[0]);
});

test("every call runs the step once, by whichever way, each in its turn", () => {
  const { ways, tried } = waysOf(1, 1, 1);
  for (let call = 1; call <= 20; call++) {
    tried.replay();
    assert.equal(
      runsOf(ways).reduce((sum, runs) => sum + runs),
      call,
    );
    if (call === 5) assert.deepEqual(runsOf(ways), [2, 2, 1]);
  }
});

test("closing closes every way and all memory, before a verdict and behind it", () => {
  for (const calls of [5, 20]) {
    const { ways, tried } = waysOf(1, 2, 3);
    for (let call = 0; call < calls; call++) tried.replay();
    tried.close();
    assert.ok(ways.every(({ closed, memory }) => closed > 0 && memory.closed > 0));
  }
});
