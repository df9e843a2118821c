/** Ending a run: by an order, once, and by SIGKILL if it does not answer. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { RunEnding, type WatchedRun } from "./run-ending.js";

/** A run that records the actions on it; `end` is the action at which it dies, if any. */
function fakeRun(end?: "order" | "kill") {
  const done: string[] = [];
  const pending: (() => void)[] = [];
  const run: WatchedRun = {
    orderToLeave: () => done.push("order"),
    kill: () => done.push("kill"),
    isAlive: () => end === undefined || !done.includes(end),
    giveUp: () => done.push("give up"),
  };
  const startEnding = () => new RunEnding(run, (_delayMs, action) => pending.push(action));
  const passTime = () => {
    for (let action = pending.shift(); action; action = pending.shift()) action();
  };
  return { done, ending: startEnding(), startEnding, passTime };
}

describe("the end of a run", () => {
  it("is only an order to leave if the run obeys", () => {
    const { done, ending, passTime } = fakeRun("order");
    ending.begin("exit");
    passTime();
    assert.deepEqual(done, ["order"]);
  });

  it("is a kill if the run does not obey", () => {
    const { done, ending, passTime } = fakeRun("kill");
    ending.begin("exit");
    passTime();
    assert.deepEqual(done, ["order", "kill"]);
  });

  it("is a kill at once if the run cannot exit by itself", () => {
    const { done, ending } = fakeRun("kill");
    ending.begin("kill");
    assert.deepEqual(done, ["kill"]);
  });

  it("is given up if a kill has no effect", () => {
    const { done, ending, passTime } = fakeRun();
    ending.begin("exit");
    passTime();
    assert.deepEqual(done, ["order", "kill", "give up"]);
  });

  it("H8: happens once, even if ordered twice or in two ways", () => {
    const { done, ending, passTime } = fakeRun("kill");
    ending.begin("exit");
    ending.begin("exit");
    ending.begin("kill");
    passTime();
    ending.begin("exit");
    passTime();
    assert.deepEqual(done, ["order", "kill"]);
  });

  it("H8, red proof: two independent endings order twice", () => {
    const { done, startEnding } = fakeRun("kill");
    startEnding().begin("exit");
    startEnding().begin("exit");
    assert.deepEqual(done, ["order", "order"]);
  });
});
