/** What counts as a stall, on a fake clock. */

import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { driverCalls } from "../../driver/index.js";
import { FakeClock } from "../../units/index.js";
import { Board } from "../board.js";
import { Phases } from "../phases.js";
import { Recorder } from "../recorder.js";
import { type Stall, StallDetector } from "./stall.js";

const limitMs = 30_000;

function engine() {
  const clock = new FakeClock();
  const board = new Board();
  const recorder = new Recorder({ clock });
  const phases = new Phases({ board, recorder, clock, log: () => {} });
  const detector = new StallDetector(board, limitMs, clock);
  const enterCall = (call: (typeof driverCalls)[number]) =>
    board.enterCall(driverCalls.indexOf(call), clock.nowMs());
  const exitCall = () => board.exitCall(clock.nowMs());
  return { clock, board, recorder, phases, detector, enterCall, exitCall };
}

function innermost(stall: Stall | undefined): string | undefined {
  const phase = stall?.phases.at(-1);
  return phase && `${phase.phase} ${phase.number}`;
}

describe("the stall detector", () => {
  it("names the driver call that has not returned, its phase, op, step and time", () => {
    const { clock, board, phases, detector, enterCall } = engine();
    phases.run(
      "step",
      () => {
        board.op = 7;
        clock.advance(1000);
        enterCall("synchronize");
        clock.advance(limitMs - 1);
        assert.equal(detector.examine(), undefined);
        clock.advance(1);
        const stall = detector.examine();
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
    const { clock, detector, enterCall } = engine();
    enterCall("reserve");
    clock.advance(limitMs);
    const stall = detector.examine();
    assert.equal(stall?.call?.call, "reserve");
    assert.deepEqual(stall?.phases, []);
  });

  it("sees a phase that does not move though no driver call is open", () => {
    const { clock, phases, detector } = engine();
    phases.run("compile", () => {
      clock.advance(limitMs);
      const stall = detector.examine();
      assert.equal(innermost(stall), "compile 0");
      assert.equal(stall?.call, undefined);
    });
  });

  it("never takes an idle engine for a stalled one", () => {
    const { clock, phases, detector, enterCall, exitCall } = engine();
    clock.advance(100 * limitMs);
    assert.equal(detector.examine(), undefined);
    phases.run("init", () => {
      enterCall("describe");
      exitCall();
    });
    clock.advance(100 * limitMs);
    assert.equal(detector.examine(), undefined);
  });

  it("counts anew after every call and phase that is entered or left", () => {
    const { clock, phases, detector, enterCall, exitCall } = engine();
    const moves = [
      () => enterCall("launch"),
      exitCall,
      () => phases.run("read-back", () => {}),
      () => enterCall("synchronize"),
      exitCall,
    ];
    phases.run("step", () => {
      for (const move of moves) {
        clock.advance(limitMs - 1);
        assert.equal(detector.examine(), undefined);
        move();
      }
      clock.advance(limitMs);
      assert.equal(detector.examine()?.stillMs, limitMs);
    });
  });

  it("does not take the time of a long call that has returned for standing still", () => {
    const { clock, phases, detector, enterCall, exitCall } = engine();
    phases.run("step", () => {
      enterCall("synchronize");
      clock.advance(limitMs - 1);
      exitCall();
      clock.advance(limitMs - 1);
      assert.equal(detector.examine(), undefined);
    });
  });

  it("sees an engine that asks for ever whether an event is reached, and does not blame the asking", () => {
    const { clock, phases, detector, enterCall, exitCall } = engine();
    phases.run("upload", () => {
      for (let asked = 0; asked < 31; asked++) {
        enterCall("isReached");
        exitCall();
        clock.advance(1000);
      }
      enterCall("isReached");
      const stall = detector.examine();
      assert.equal(innermost(stall), "upload 0");
      assert.equal(stall?.call, undefined);
    });
  });

  it("sees a stall that began before the detector did", () => {
    const { clock, board, phases } = engine();
    phases.run("capture", () => {
      clock.advance(limitMs + 5);
      const late = new StallDetector(board, limitMs, clock);
      assert.equal(late.examine()?.stillMs, limitMs + 5);
    });
  });

  it("tells a stall once, and the next one again", () => {
    const { clock, phases, detector, enterCall } = engine();
    phases.run("step", () => {
      clock.advance(limitMs);
      assert.ok(detector.examine());
      clock.advance(limitMs);
      assert.equal(detector.examine(), undefined);
      enterCall("launch");
      clock.advance(limitMs);
      assert.equal(detector.examine()?.call?.call, "launch");
    });
  });

  it("does not count the time in which the watcher was stopped too", () => {
    const { clock, phases, detector } = engine();
    phases.run("step", () => {
      clock.advance(10_000);
      detector.examine();
      clock.advance(3_600_000);
      detector.leaveOut(3_600_000);
      assert.equal(detector.examine(), undefined);
      clock.advance(limitMs - 10_000);
      assert.equal(detector.examine()?.stillMs, limitMs);
    });
  });

  it("names the innermost of nested phases and lists all that are open", () => {
    const { clock, phases, detector } = engine();
    phases.run(
      "step",
      () =>
        phases.run("read-back", () => {
          clock.advance(limitMs);
          const stall = detector.examine();
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

  /** The old fault: the last thing that was logged is taken for the place of the hang. */
  const byLastEvent: Namer = (recorder) => recorder.recent(1)[0]?.label;
  const byDetector: Namer = (_recorder, stall) => stall.phases.at(-1)?.phase;

  /** Hangs in step 3, after an upload inside it has ended. */
  function nameOfHang(name: Namer): string | undefined {
    const { clock, recorder, phases, detector } = engine();
    phases.run("init", () => {});
    return phases.run(
      "step",
      () => {
        phases.run("upload", () => {});
        clock.advance(limitMs);
        const stall = detector.examine();
        return stall && name(recorder, stall);
      },
      { number: 3 },
    );
  }

  it("names the phase that has not ended", () => {
    assert.equal(nameOfHang(byDetector), "step");
  });

  it("red proof: naming by the last event names the phase that has ended", () => {
    assert.equal(nameOfHang(byLastEvent), "upload");
  });

  it("forgets a phase that ended by an exception", () => {
    const { clock, phases, detector } = engine();
    assert.throws(() =>
      phases.run("plan", () => {
        throw new Error("no plan");
      }),
    );
    clock.advance(2 * limitMs);
    assert.equal(detector.examine(), undefined);
  });
});
