/** The doctor on machines with faulty captures and replays: it must name the phase and the fault. */

import { test } from "node:test";
import { failsIn, firstByteOf } from "../../../test/support/faulty-machine.js";
import { withMethods } from "../../../test/support/replaced-methods.js";
import { type Driver, interceptCalls, type Stream } from "../../driver/index.js";
import { clipGradNorm } from "../../optim/index.js";
import { Arena, Runtime, type Storage } from "../../runtime/index.js";
import type { Span } from "../../units/index.js";
import { TrialTraining } from "./trial-training.js";

test("a step that reads a value back is rejected by the capture, by name", () => {
  const { update } = TrialTraining.prototype;
  const looking: Partial<TrialTraining> = {
    update(this: TrialTraining) {
      // By default it reads the norm back, to reject a norm that is not finite.
      clipGradNorm(this.model.parameters(), 1);
      update.call(this);
    },
  };
  withMethods(TrialTraining.prototype, looking, () =>
    failsIn(
      "capture",
      /^CAPTURE_REJECTED: Read-back of 8 B by gradientNorm is not allowed inside capture "the doctor's step"/,
    ),
  );
});

test("a replay that changes the lowest bits of one weight is detected", () => {
  const drifting = (driver: Driver): Driver => {
    let [graphs, weights]: [number, Span | undefined] = [0, undefined];
    return interceptCalls(driver, (call, args, proceed) => {
      const result = proceed();
      const [stream, target] = args as [Stream, Span];
      if (call === "copyToDevice" && target.size > 10_000) weights ??= target;
      // The first replay is the one that the capture checks.
      if (call === "launchGraph" && ++graphs === 3 && weights)
        driver.fill(stream, firstByteOf(weights), 0xaa);
      return result;
    });
  };
  failsIn(
    "replay",
    /^(Replay \d of 3 has the loss|After 3 replays the training state differs from 3 eager steps: first in ".*" of CrossAsset at byte 0 of)/,
    drifting,
  );
});

test("a graph that writes to memory with a new owner is detected", () => {
  const { allocate, pin, unpin } = Arena.prototype;
  const { capture } = Runtime.prototype;
  let stepMemory: Storage | undefined;
  const disowning: Partial<Arena> = {
    allocate(this: Arena, size, label) {
      const storage = allocate.call(this, size, label);
      if (label === "the doctor's step") stepMemory = storage;
      return storage;
    },
    pin(this: Arena, storage, by) {
      if (storage !== stepMemory) pin.call(this, storage, by);
    },
    unpin(this: Arena, storage) {
      if (storage !== stepMemory) unpin.call(this, storage);
    },
  };
  const lettingGo: Partial<Runtime> = {
    capture(this: Runtime, name, body) {
      const graph = capture.call(this, name, body);
      if (stepMemory) this.arena.free(stepMemory);
      return graph;
    },
  };
  withMethods(Arena.prototype, disowning, () =>
    withMethods(Runtime.prototype, lettingGo, () =>
      failsIn("replay", /^A replay wrote to memory outside the graph, at byte \d+ of the guarded block\.$/),
    ),
  );
});

test("a graph with a fixed batch is detected", () => {
  const { chooseBatch } = TrialTraining.prototype;
  let batches = 0;
  const freezing: Partial<TrialTraining> = {
    chooseBatch(this: TrialTraining, step) {
      // One for the first phases and three for the eager steps.
      if (++batches <= 4) chooseBatch.call(this, step);
    },
  };
  withMethods(TrialTraining.prototype, freezing, () =>
    failsIn("replay", /^Replay 1 of 3 has the loss [\d.]+; the same eager step has [\d.]+\.$/),
  );
});
