/** What counts as a stall, on a fake clock. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { driverCalls } from "../../../driver/index.js";
import {
  beat,
  duringFileWork,
  FakeClock,
  fileWorkReader,
  heartbeatMemory,
  makeWorkerBeat,
  recordTurn,
  turnCounter,
} from "../../../units/index.js";
import { Phases } from "../phases.js";
import { Recorder } from "../recorder.js";
import { SharedStatus } from "../shared-status.js";
import { isOutside, type Stall, StallDetector, type ThreadSigns } from "./stall.js";

const limitMs = 30_000;

function engine(signs: ThreadSigns = {}) {
  const clock = new FakeClock();
  const sharedStatus = new SharedStatus();
  const recorder = new Recorder({ clock });
  const phases = new Phases({ sharedStatus, recorder, clock, log: () => {} });
  const detector = new StallDetector(sharedStatus, limitMs, clock, {
    turns: turnCounter(heartbeatMemory()),
    fileWork: fileWorkReader(heartbeatMemory()),
    ...signs,
  });
  let stall: Stall | undefined;
  clock.onTick(() => {
    stall ??= detector.examine();
  });
  /** Advances the clock, checks at every tick, and returns the first stall. */
  const pass = (elapsedMs: number, tickMs?: number): Stall | undefined => {
    stall = undefined;
    clock.advance(elapsedMs, tickMs);
    return stall;
  };
  const enterCall = (call: (typeof driverCalls)[number]) =>
    sharedStatus.enterCall(driverCalls.indexOf(call), clock.nowMs());
  const exitCall = () => sharedStatus.exitCall(clock.nowMs());
  detector.examine();
  return { clock, sharedStatus, recorder, phases, detector, pass, enterCall, exitCall };
}

function innermost(stall: Stall | undefined): string | undefined {
  const phase = stall?.phases.at(-1);
  return phase && `${phase.phase} ${phase.number}`;
}

describe("the stall detector", () => {
  it("names the driver call that has not returned, its phase, op, step and time", () => {
    const { sharedStatus, phases, pass, enterCall } = engine();
    phases.run(
      "step",
      () => {
        sharedStatus.op = 7;
        pass(1000);
        enterCall("synchronize");
        assert.equal(pass(limitMs - 1), undefined);
        const stall = pass(1);
        assert.equal(stall?.call?.call, "synchronize");
        assert.equal(innermost(stall), "step 12");
        assert.equal(stall?.op, 7);
        assert.equal(stall?.step, 12);
        assert.equal(stall?.stillMs, limitMs);
        assert.equal(stall?.limitMs, limitMs);
      },
      { number: 12 },
    );
  });

  it("names a driver call outside any phase", () => {
    const { pass, enterCall } = engine();
    enterCall("reserve");
    const stall = pass(limitMs + 250);
    assert.equal(stall?.call?.call, "reserve");
    assert.deepEqual(stall?.phases, []);
  });

  it("detects a phase without progress and without a driver call", () => {
    const { phases, pass } = engine();
    phases.run("compile", () => {
      const stall = pass(limitMs + 250);
      assert.equal(innermost(stall), "compile 0");
      assert.equal(stall?.call, undefined);
    });
  });

  it("never reports an idle engine", () => {
    let turns = 0;
    const { phases, pass, enterCall, exitCall } = engine({ turns: () => turns++ });
    assert.equal(pass(10 * limitMs), undefined);
    phases.run("init", () => {
      enterCall("describe");
      exitCall();
    });
    assert.equal(pass(10 * limitMs), undefined);
  });

  it("restarts the count at every entry and exit of a call or a phase", () => {
    const { phases, pass, enterCall, exitCall } = engine();
    const moves = [
      () => enterCall("launch"),
      exitCall,
      () => phases.run("read-back", () => {}),
      () => enterCall("synchronize"),
      exitCall,
    ];
    phases.run("step", () => {
      for (const move of moves) {
        assert.equal(pass(limitMs - 1), undefined);
        move();
      }
      assert.equal(pass(limitMs)?.stillMs, limitMs);
    });
  });

  it("restarts the count at every heartbeat inside a phase or a call", () => {
    const { phases, pass, enterCall } = engine();
    phases.run("step", () => {
      enterCall("synchronize");
      for (let times = 0; times < 10; times++) {
        assert.equal(pass(limitMs - 250), undefined);
        beat();
      }
      assert.equal(pass(limitMs + 250)?.call?.call, "synchronize");
    });
  });

  it("restarts the count at every heartbeat of a worker thread", () => {
    const { phases, pass, enterCall } = engine();
    const beatOfWorker = makeWorkerBeat(heartbeatMemory());
    phases.run("step", () => {
      enterCall("synchronize");
      for (let times = 0; times < 10; times++) {
        assert.equal(pass(limitMs - 250), undefined);
        beatOfWorker();
      }
      assert.equal(pass(limitMs + 250)?.call?.call, "synchronize");
    });
  });

  it("names the file work that has not ended, inside and outside a phase", () => {
    const { phases, pass } = engine();
    const stalls = [
      duringFileWork("disk-write", () => pass(limitMs + 250)),
      phases.run("step", () => duringFileWork("disk-read", () => pass(limitMs + 250)), { number: 2 }),
    ];
    assert.deepEqual(
      stalls.map((stall) => stall?.phases.map(({ phase }) => phase)),
      [["disk-write"], ["step", "disk-read"]],
    );
    recordTurn();
    assert.equal(pass(limitMs - 250), undefined);
  });

  it("detects a blocked event loop outside all phases", () => {
    const { pass } = engine();
    for (let times = 0; times < 10; times++) {
      assert.equal(pass(limitMs - 250), undefined);
      recordTurn();
    }
    const stall = pass(limitMs + 250);
    assert.ok(stall && isOutside(stall));
  });

  it("does not count turns of the event loop as progress of a phase", async () => {
    const { phases, pass } = engine();
    await phases.runAsync("step", async () => {
      let stall: Stall | undefined;
      for (let times = 0; times < 4; times++) {
        recordTurn();
        stall ??= pass(limitMs / 2);
      }
      assert.equal(innermost(stall), "step 0");
    });
  });

  it("does not count the time in which the thread waited for a processor", () => {
    let isCrowded = true;
    const { phases, pass } = engine({ waitedMs: () => (isCrowded ? 200 : 0) });
    phases.run("step", () => {
      // The thread could run for 50 of every 250 ms.
      assert.equal(pass(4 * limitMs), undefined);
      isCrowded = false;
      assert.equal(pass(limitMs / 5 + 250)?.stillMs, limitMs);
    });
  });

  it("detects an endless loop on a fully crowded machine, after eight times the limit", () => {
    const { phases, pass } = engine({ waitedMs: () => 240 });
    phases.run("step", () => {
      assert.equal(pass(8 * limitMs - 250), undefined);
      assert.equal(pass(250)?.stillMs, limitMs);
    });
  });

  it("S5, red proof: without heartbeats, slow work looks like a stall", () => {
    const { clock, sharedStatus, phases } = engine();
    const deaf = new StallDetector(sharedStatus, limitMs, clock, { beats: () => 0 });
    const stalls: Stall[] = [];
    clock.onTick(() => stalls.push(...[deaf.examine()].filter((stall) => stall !== undefined)));
    phases.run("compile", () => {
      for (let times = 0; times < 4; times++) {
        clock.advance(limitMs / 2);
        beat();
      }
    });
    assert.equal(stalls.length, 1);
  });

  it("does not count the time of a long call that has returned", () => {
    const { phases, pass, enterCall, exitCall } = engine();
    phases.run("step", () => {
      enterCall("synchronize");
      pass(limitMs - 1);
      exitCall();
      assert.equal(pass(limitMs - 1), undefined);
    });
  });

  it("detects an engine that polls an event for ever, and does not name the polling call", () => {
    const { phases, pass, enterCall, exitCall } = engine();
    phases.run("upload", () => {
      let stall: Stall | undefined;
      for (let asked = 0; asked < 31; asked++) {
        enterCall("isReached");
        stall ??= pass(1000);
        exitCall();
      }
      assert.equal(innermost(stall), "upload 0");
      assert.equal(stall?.call, undefined);
    });
  });

  it("detects a stall older than the detector, after two more checks", () => {
    const { clock, sharedStatus, phases } = engine();
    phases.run("capture", () => {
      clock.advance(limitMs + 5);
      const late = new StallDetector(sharedStatus, limitMs, clock);
      const looks = [0, 250, 250].map((elapsedMs) => {
        clock.advance(elapsedMs);
        return late.examine()?.stillMs;
      });
      assert.deepEqual(looks, [undefined, undefined, limitMs]);
    });
  });

  it("reports a stall once, and the next one again", () => {
    const { phases, pass, enterCall } = engine();
    phases.run("step", () => {
      assert.ok(pass(limitMs));
      assert.equal(pass(limitMs), undefined);
      enterCall("launch");
      assert.equal(pass(limitMs)?.call?.call, "launch");
    });
  });

  for (const [what, elapsedMs] of [
    ["a clock that jumps by an hour", 3_600_000],
    ["a process that is stopped for a minute", 60_000],
    ["a machine that sleeps for a night", 8 * 3_600_000],
  ] as const) {
    it(`does not count ${what}: the detector did not check`, () => {
      const { phases, pass } = engine();
      phases.run("step", () => {
        assert.equal(pass(10_000), undefined);
        assert.equal(pass(elapsedMs, elapsedMs), undefined);
        // The jump counts as two checks at most.
        assert.equal(pass(limitMs - 10_000 - 501), undefined);
        assert.equal(pass(1)?.stillMs, limitMs);
      });
    });
  }

  it("restarts the count on restart()", () => {
    const { phases, pass, detector } = engine();
    phases.run("step", () => {
      assert.ok(pass(limitMs));
      detector.restart();
      assert.equal(pass(limitMs - 1), undefined);
      assert.equal(pass(1)?.stillMs, limitMs);
    });
  });

  it("names the innermost phase and lists all open phases", () => {
    const { phases, pass } = engine();
    phases.run(
      "step",
      () =>
        phases.run("read-back", () => {
          const stall = pass(limitMs);
          assert.equal(innermost(stall), "read-back 0");
          assert.deepEqual(
            stall?.phases.map(({ phase }) => phase),
            ["step", "read-back"],
          );
        }),
      { number: 2 },
    );
  });
});

describe("H3: a phase that has ended is never named", () => {
  type Namer = (recorder: Recorder, stall: Stall) => string | undefined;

  /** The injected fault: it names the last logged event as the stall. */
  const byLastEvent: Namer = (recorder) => recorder.recent(1)[0]?.label;
  const byDetector: Namer = (_recorder, stall) => stall.phases.at(-1)?.phase;

  /** Hangs in step 3, after an upload inside it has ended. */
  function nameOfHang(name: Namer): string | undefined {
    const { recorder, phases, pass } = engine();
    phases.run("init", () => {});
    return phases.run(
      "step",
      () => {
        phases.run("upload", () => {});
        const stall = pass(limitMs);
        return stall && name(recorder, stall);
      },
      { number: 3 },
    );
  }

  it("names the phase that has not ended", () => {
    assert.equal(nameOfHang(byDetector), "step");
  });

  it("red proof: the last event names a phase that has ended", () => {
    assert.equal(nameOfHang(byLastEvent), "upload");
  });

  it("does not name a phase that ended with an exception", () => {
    const { phases, pass } = engine();
    assert.throws(() =>
      phases.run("plan", () => {
        throw new Error("no plan");
      }),
    );
    assert.deepEqual(pass(2 * limitMs)?.phases, []);
  });
});
