/**
 * Rows C7 and C13: the host reads only after the writing stream, and two streams share memory only after an
 * event.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  basicKernels,
  type Driver,
  elementsPerBlock,
  faulty,
  type Runtime,
  type Stream,
  strict,
} from "holdfast/internals";
import { interceptCalls } from "../../src/driver/index.js";
import { add, placeValues, scale, setAll } from "../support/basic-ops.js";
import { regressionRow } from "../support/regressions.js";
import { rejectionOf } from "../support/rejections.js";
import { readF32, withRuntime } from "../support/runtimes.js";

/** A small staging ring: four slots of 16 KiB. */
const stagingBytes = 64 * 1024;
const memory = { memory: "64MiB", arena: "8MiB", staging: `${stagingBytes}B` } as const;

type Wrap = (device: Driver) => Driver;

/** The old way: the host continues as if every copy were complete when it is issued. */
const neverWaiting: Wrap = (device) =>
  interceptCalls(device, (call, _, proceed) => (call === "synchronizeEvent" ? undefined : proceed()));

const delays = [[], ["every launch is late"], ["every copy is late"], ["every work is late"]] as const;

const lateness = (script: readonly string[]): string =>
  `read too early: ${script.join() || "nothing is late"}`;

function sumOfTwenty(runtime: Runtime): Float32Array {
  const { p, x } = placeValues(runtime, "weights", { p: [1, 2, 3], x: [10, 20, 30] });
  for (let i = 0; i < 20; i++) add(runtime, p, x, p);
  return readF32(runtime, p);
}

regressionRow<Wrap>({
  row: "C7",
  rule: "a read sees the writes of the kernels before it, however late kernels and copies are",
  sound: strict,
  faults: {
    "the host reads staging without waiting": neverWaiting,
    "the host reads without waiting, under strict": (device) => neverWaiting(strict(device)),
  },
  check(wrap) {
    for (const script of delays) {
      withRuntime(
        memory,
        ({ runtime }) => assert.deepEqual([...sumOfTwenty(runtime)], [201, 402, 603], lateness(script)),
        (device) => wrap(faulty(device, script)),
      );
    }
  },
});

test("C7: strict rejects a read that is not ordered after the copy, by name", () => {
  const rejection = withRuntime(
    memory,
    ({ runtime }) => rejectionOf(() => sumOfTwenty(runtime)),
    (device) => neverWaiting(strict(device)),
  );
  assert.equal(rejection?.code, "UNORDERED_ACCESS");
  assert.match(rejection.message, /^the host accesses .*, which copyToHost on stream 1 accesses too/);
});

regressionRow<Wrap>({
  row: "C7",
  rule: "a staging slot is reused only when its copy is complete: ten rings of bytes are uploaded, each byte right",
  sound: strict,
  faults: { "a slot is reused while its copy is pending": neverWaiting },
  check(wrap) {
    for (const script of delays) {
      withRuntime(
        memory,
        ({ runtime, device }) => {
          const source = Uint32Array.from({ length: (10 * stagingBytes) / 4 + 77 }, (_, i) => i * 2654435761);
          const target = runtime.arena.allocate(source.byteLength, "data");
          runtime.upload([{ source, target }]);
          runtime.synchronize();
          const actual = device.deviceBytes(target.span);
          assert.ok(Buffer.compare(actual, Buffer.from(source.buffer)) === 0, "other bytes were uploaded");
        },
        (device) => wrap(faulty(device, script)),
      );
    }
  },
});

type OrderStreams = (runtime: Runtime, earlier: Stream, later: Stream) => void;

const byEvent: OrderStreams = (runtime, earlier, later) => runtime.orderStreams(earlier, later);

/** Two streams that pass `u` to each other twice: seven launches, and `before` runs before each of them. */
function shareTwoStreams(
  runtime: Runtime,
  order: OrderStreams,
  before: (launch: number, stream: Stream) => void = () => {},
): number[] {
  const { x, t, u, p, two } = placeValues(runtime, "weights", {
    x: [1, 2, 3, 4, 5],
    t: [0, 0, 0, 0, 0],
    u: [0, 0, 0, 0, 0],
    p: [1000, 1000, 1000, 1000, 1000],
    two: [2],
  });
  const main = runtime.stream;
  const side = runtime.createStream();
  runtime.orderStreams(main, side);
  before(1, side);
  scale(runtime, x, two, t, side);
  before(2, side);
  add(runtime, t, x, u, side); // u = 3x
  order(runtime, side, main);
  before(3, main);
  add(runtime, p, u, p);
  order(runtime, main, side);
  before(4, side);
  setAll(runtime, u, 100, side);
  before(5, side);
  add(runtime, u, x, u, side); // u = 100 + x
  order(runtime, side, main);
  before(6, main);
  add(runtime, p, u, p);
  before(7, main);
  add(runtime, p, x, p);
  return [...readF32(runtime, p)]; // p = 1100 + 5x
}

const ordinals = ["1st", "2nd", "3rd", "4th", "5th", "6th", "7th"];

/** Orders the streams except the n-th time. */
function skipping(skipped: number): () => OrderStreams {
  return () => {
    let count = 0;
    return (runtime, earlier, later) => {
      count += 1;
      if (count !== skipped) runtime.orderStreams(earlier, later);
    };
  };
}

interface TwoStreams {
  readonly wrap: Wrap;
  readonly order: () => OrderStreams;
}

regressionRow<TwoStreams>({
  row: "C13",
  rule: "two streams ordered by events give the same result whichever kernel is late",
  sound: { wrap: strict, order: () => byEvent },
  faults: {
    "a private stream without any order": { wrap: (device) => device, order: () => () => undefined },
    "the first event is missing": { wrap: (device) => device, order: skipping(1) },
    "the last event is missing": { wrap: (device) => device, order: skipping(3) },
    "the event against overwriting is missing, under strict": { wrap: strict, order: skipping(2) },
  },
  check({ wrap, order }) {
    const scripts = [[], ["every launch is late"], ...ordinals.map((nth) => [`the ${nth} launch is late`])];
    for (const script of scripts) {
      withRuntime(
        memory,
        ({ runtime }) => {
          assert.deepEqual(
            shareTwoStreams(runtime, order()),
            [1105, 1110, 1115, 1120, 1125],
            lateness(script),
          );
        },
        (device) => wrap(faulty(device, script)),
      );
    }
  },
});

/** Keeps a stream busy: on a GPU four threads iterate over memory forty times, which takes milliseconds. */
function slowDown(runtime: Runtime): (stream: Stream) => void {
  const zeros = new Float32Array(elementsPerBlock);
  const { input, ofMain, ofSide } = placeValues(runtime, "weights", {
    input: zeros,
    ofMain: [0],
    ofSide: [0],
  });
  const kernel = runtime.kernel(basicKernels.sum);
  return (stream) => {
    const args = [input, stream === runtime.stream ? ofMain : ofSide, elementsPerBlock];
    for (let round = 0; round < 40; round++)
      runtime.launch({ op: "slow", kernel, blocks: 1, arguments: args, stream });
  };
}

test("C13: slow kernels before any one launch, or before all, change nothing", () => {
  for (const late of [...ordinals.keys(), "all"] as const) {
    withRuntime(memory, ({ runtime }) => {
      const slow = slowDown(runtime);
      const actual = shareTwoStreams(runtime, byEvent, (launch, stream) => {
        if (late === "all" || launch === late + 1) slow(stream);
      });
      assert.deepEqual(actual, [1105, 1110, 1115, 1120, 1125], `late: ${late}`);
    });
  }
});

test("C13: strict rejects two streams on the same bytes if one of the three events is missing", () => {
  for (const skipped of [1, 2, 3]) {
    const rejection = withRuntime(memory, ({ runtime }) =>
      rejectionOf(() => shareTwoStreams(runtime, skipping(skipped)())),
    );
    assert.equal(rejection?.code, "UNORDERED_ACCESS", `without event ${skipped}`);
  }
});
