/** Which of two ways to run a step is kept. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { keepFaster } from "./faster-of.js";

/** Two ways that take so many milliseconds by a clock of their own, and a count of their runs. */
function waysOf(graphMs: number, directMs: number) {
  let now = 0;
  const runs = { graph: 0, direct: 0, closed: 0 };
  const graph = {
    mode: "graph" as const,
    replay() {
      now += graphMs;
      runs.graph += 1;
    },
    close() {
      runs.closed += 1;
    },
  };
  const direct = (): void => {
    now += directMs;
    runs.direct += 1;
  };
  return { runs, tried: keepFaster({ synchronize: () => undefined }, graph, direct, () => now) };
}

test("a graph that is quicker is kept, and nothing runs directly any more", () => {
  const { runs, tried } = waysOf(1, 3);
  for (let call = 0; call < 50; call++) tried.replay();
  assert.deepEqual(tried.verdict, { graphMs: 1, directMs: 3 });
  assert.deepEqual([tried.mode, runs.graph, runs.direct, runs.closed], ["graph", 46, 4, 0]);
});

test("a graph that is slower than running directly is given up and closed", () => {
  const { runs, tried } = waysOf(3, 1);
  for (let call = 0; call < 50; call++) tried.replay();
  assert.deepEqual([tried.mode, runs.graph, runs.direct, runs.closed], ["direct", 4, 46, 1]);
  assert.equal(tried.reason, "that takes 1.000 ms, and a graph 3.000");
});

test("every call runs the step once, by whichever way", () => {
  const { runs, tried } = waysOf(1, 1);
  for (let call = 1; call <= 12; call++) {
    tried.replay();
    assert.equal(runs.graph + runs.direct, call);
  }
});
