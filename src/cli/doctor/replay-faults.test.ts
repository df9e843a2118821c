/** The doctor on machines whose captures and replays go wrong: it has to name the phase and what is wrong. */

import { test } from "node:test";
import { withMethods } from "../../../test/support/replaced-methods.js";
import { failsIn, firstByteOf } from "../../../test/support/sick-machine.js";
import { around, type Driver, type Stream } from "../../driver/index.js";
import { clipGradNorm } from "../../optim/index.js";
import { Arena, Runtime, type Storage } from "../../runtime/index.js";
import type { Span } from "../../units/index.js";
import { TimingCapture } from "./rehearsal.js";

test("a step that looks at a value is rejected by the capture, by name", () => {
  const { update } = TimingCapture.prototype;
  const looking: Partial<TimingCapture> = {
    update(this: TimingCapture) {
      // Unless it is told otherwise it reads the norm back, to reject one that is not finite.
      clipGradNorm(this.model.parameters(), 1);
      update.call(this);
    },
  };
  withMethods(TimingCapture.prototype, looking, () =>
    failsIn(
      "capture",
      /^CAPTURE_REJECTED: read-back of 8 B by gradientNorm inside capture "the doctor's step"/,
    ),
  );
});

test("a replay that changes the lowest bits of one weight is found", () => {
  const drifting = (driver: Driver): Driver => {
    let [graphs, weights]: [number, Span | undefined] = [0, undefined];
    return around(driver, (call, args, proceed) => {
      const result = proceed();
      const [stream, target] = args as [Stream, Span];
      if (call === "copyToDevice" && target.size > 1_000_000) weights ??= target;
      // The first replay is the one that the capture checks.
      if (call === "launchGraph" && ++graphs === 3 && weights)
        driver.fill(stream, firstByteOf(weights), 0xaa);
      return result;
    });
  };
  failsIn(
    "replay",
    /^(Replay \d of 3 has the loss|After 3 replays memory differs from 3 eager steps: first in ".*" of CrossAsset at byte 0 of)/,
    drifting,
  );
});

test("a graph whose memory was handed out again is found by what it does to the new owner", () => {
  const { allocate, pin, unpin } = Arena.prototype;
  const { capture } = Runtime.prototype;
  let own: Storage | undefined;
  const disowning: Partial<Arena> = {
    allocate(this: Arena, size, label) {
      const storage = allocate.call(this, size, label);
      if (label === "the doctor's step") own = storage;
      return storage;
    },
    pin(this: Arena, storage, by) {
      if (storage !== own) pin.call(this, storage, by);
    },
    unpin(this: Arena, storage) {
      if (storage !== own) unpin.call(this, storage);
    },
  };
  const lettingGo: Partial<Runtime> = {
    capture(this: Runtime, name, body) {
      const graph = capture.call(this, name, body);
      if (own) this.arena.free(own);
      return graph;
    },
  };
  withMethods(Arena.prototype, disowning, () =>
    withMethods(Runtime.prototype, lettingGo, () =>
      failsIn(
        "replay",
        /^A replay has written into memory that is not the graph's own, at byte \d+ of it\.$/,
      ),
    ),
  );
});

test("a graph that was given its batch once and for all is found", () => {
  const { chooseBatch } = TimingCapture.prototype;
  let batches = 0;
  const freezing: Partial<TimingCapture> = {
    chooseBatch(this: TimingCapture, step) {
      // One for the first phases and three for the eager steps.
      if (++batches <= 4) chooseBatch.call(this, step);
    },
  };
  withMethods(TimingCapture.prototype, freezing, () =>
    failsIn("replay", /^Replay 1 of 3 has the loss [\d.]+, and the same step run eagerly [\d.]+\.$/),
  );
});
