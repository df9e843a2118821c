/** Branches of a compiled step: work beside the main chain, directly and in a graph, changes no bit of what a step does. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, type DeviceOptions, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";
import { bytes, type Driver, faulty, type Storage, type Stream, strict } from "holdfast/internals";
import { assignStreams } from "../src/compile/index.js";
import { interceptCalls } from "../src/driver/index.js";
import { latestPlanOf } from "../src/tensor/index.js";
import { withDevice } from "./support/devices.js";
import { regressionRow } from "./support/regressions.js";
import { sameBytes } from "./support/same-bytes.js";
import type { TestDriver } from "./support/test-device.js";

const layers = 8;

/**
 * Residual layers with dropout behind them: each has a weight's and a bias's gradient that only the optimizer reads, made
 * of a gradient that the next layer's is added to.
 */
function prepare(device: Device, rows = 16) {
  manualSeed(11);
  const blocks = Array.from({ length: layers }, () => new nn.Linear(12, 12));
  const [norm, head] = [new nn.LayerNorm(12), new nn.Linear(12, 3)];
  const model = new nn.Sequential(...blocks, norm, new nn.Dropout(0.2), head).to(device);
  const forward = (x: Tensor): Tensor => {
    const hidden = blocks.reduce(
      (before, block) => before.add(block.forward(norm.forward(before)).gelu()),
      x,
    );
    return head.forward(nn.functional.dropout(hidden, 0.2));
  };
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.02 });
  const step = (x: Tensor, y: Tensor): { readonly loss: Tensor } => {
    const loss = nn.functional.crossEntropy(forward(x), y);
    loss.backward();
    optim.clipGradNorm(model.parameters(), 0.5, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
  const tensors = [...model.parameters(), ...Object.values(optimizer.stateDict())];
  const states = tensors.flatMap(({ array }) => array.storage ?? []);
  const read = (): Uint8Array[] => states.map((storage: Storage) => device.runtime.read(storage));
  const inputs = [
    randn([rows, 12], { device }),
    tensor(
      Int32Array.from({ length: rows }, (_, row) => (row * 7) % 3),
      { device },
    ),
  ] as const;
  return { step, read, inputs };
}

interface Trained {
  readonly losses: readonly number[];
  readonly states: readonly Uint8Array[];
}

/** A few steps, and what a look at the plan behind them finds. */
function train(
  device: Device,
  streams: boolean,
  look: (plan: NonNullable<ReturnType<typeof latestPlanOf>>) => void = () => {},
  calls = 4,
): Trained {
  const { step, read, inputs } = prepare(device);
  const compiled = device.compile(step, { passes: { streams } });
  const losses = Array.from({ length: calls }, () => compiled(...inputs).loss.item());
  look(latestPlanOf(compiled)!);
  const states = read();
  compiled.close();
  return { losses, states };
}

function requireSame(found: Trained, expected: Trained): void {
  assert.deepEqual(found.losses, expected.losses);
  for (const [index, state] of found.states.entries())
    sameBytes(state, expected.states[index]!, `state ${index}`);
}

const plain = withDevice({ capture: "off" }, (device) => train(device, false), strict);

for (const capture of ["off", "on"] as const) {
  test(`with capture ${capture} a step with branches does to the bit what one without them does`, () => {
    const options: DeviceOptions = { capture, poison: true };
    const found = withDevice(
      options,
      (device) =>
        train(device, true, ({ planned, replayable }) => {
          assert.equal(replayable.mode, capture === "on" ? "graph" : "direct");
          assert.ok(planned.schedule.calls.filter(({ stream }) => stream > 0).length >= 10);
        }),
      strict,
    );
    requireSame(found, plain);
  });
}

/** Tells of every launch inside a capture on which stream it was. */
function recordingLaunches(driver: Driver, streams: Stream[]): Driver {
  let isCapturing = false;
  return interceptCalls(driver, (call, args, proceed) => {
    if (call === "beginCapture") isCapturing = true;
    if (call === "endCapture") isCapturing = false;
    if (call === "launch" && isCapturing) streams.push(args[0] as Stream);
    return proceed();
  });
}

test("the graph has branches, and the same nodes as the one without them", () => {
  const nodes = [true, false].map((hasStreams) => {
    const streams: Stream[] = [];
    return withDevice(
      { capture: "on" },
      (device) => {
        let found: unknown;
        train(device, hasStreams, ({ replayable }) => {
          found = replayable.nodes;
        });
        const aside = streams.filter((stream) => stream !== device.runtime.stream);
        assert.equal(new Set(aside).size, hasStreams ? 3 : 0);
        return found;
      },
      (driver) => strict(recordingLaunches(driver, streams)),
    );
  });
  assert.deepEqual(nodes[0], nodes[1]);
});

type Wrap = (driver: Driver) => Driver;

/** Forgets one wait of a kind. */
const forgetting =
  (nth: number): Wrap =>
  (driver) => {
    let seen = 0;
    return interceptCalls(driver, (call, _, proceed) =>
      call === "waitEvent" && ++seen % nth === 0 ? undefined : proceed(),
    );
  };

const late = [
  [],
  ["every launch is late"],
  ...["3rd", "20th", "41st", "77th"].map((nth) => [`the ${nth} launch is late`]),
];

regressionRow<Wrap>({
  row: "C13",
  rule: "a compiled step with branches gives the same bits whichever kernel is late",
  sound: strict,
  faults: {
    "no branch waits for another": forgetting(1),
    "every third wait is missing, under strict": (driver) => forgetting(3)(strict(driver)),
  },
  check(wrap) {
    for (const script of late) {
      const found = withDevice(
        { capture: "off" },
        (device) => train(device, true),
        (driver: TestDriver) => wrap(faulty(driver, script)),
      );
      requireSame(found, plain);
    }
  },
});

/** Seven ways, four times each. */
const callsToTryAll = 28;

/** Where launches can begin early, each graph is tried without that as well. */
function waysOf({ runtime }: Device, graphs: readonly string[]): readonly string[] {
  return graphs.flatMap((name) => (runtime.device.supportsPdl ? [name, `${name} in turn`] : [name]));
}

test("with capture auto the ways are tried in turns, one is kept, and the others' memory is given back", () => {
  const found = withDevice(
    { capture: "auto" },
    (device) =>
      train(
        device,
        true,
        ({ tuning, planned, placed, replayable }) => {
          const graphs = ["graph", "graph with streams", "graph with low-priority streams"];
          assert.deepEqual(Object.keys(tuning!.times).sort(), [...waysOf(device, graphs), "direct"].sort());
          assert.equal(replayable.mode, tuning!.kept === "direct" ? "direct" : "graph");
          const hasSideStreams = planned.schedule.calls.some(({ stream }) => stream > 0);
          assert.equal(hasSideStreams, tuning!.kept.includes("streams"));
          assert.ok(placed.commands.length > 0);
          const { live } = device.runtime.arena.figures;
          assert.ok(
            live < 2 * planned.plan.bytes,
            `${live} bytes are live, the plan has ${planned.plan.bytes}`,
          );
        },
        callsToTryAll,
      ),
    strict,
  );
  const expected = withDevice(
    { capture: "off" },
    (device) => train(device, false, undefined, callsToTryAll),
    strict,
  );
  requireSame(found, expected);
});

test("where memory is short only the plan without branches is tried", () => {
  withDevice({ capture: "auto" }, (device) => {
    const { budget, arena } = device.runtime;
    const { step, inputs } = prepare(device, 8192);
    const compiled = device.compile(step, { passes: { streams: true } });
    const { peak } = compiled.memory(...inputs);
    const room = budget.left + arena.figures.committed - arena.figures.live;
    const spare = 6 * 1024 * 1024;
    assert.ok(peak > spare, `${peak} bytes would fit twice`);
    budget.charge("weights", bytes(room - peak - spare), "somebody else");
    for (let call = 0; call < callsToTryAll; call++) compiled(...inputs);
    const tried = Object.keys(latestPlanOf(compiled)!.tuning!.times);
    assert.deepEqual(tried, [...waysOf(device, ["graph"]), "direct"]);
    compiled.close();
  });
});

test("a branched plan takes little more memory than the plain one, and there is none where all wait for each other", () => {
  withDevice({ capture: "off" }, (device) => {
    train(device, false, ({ planned }) => {
      const streamed = assignStreams(device.runtime, planned)!;
      assert.ok(streamed.plan.bytes <= 2 * planned.plan.bytes);
      assert.equal(assignStreams(device.runtime, planned, { streams: 3, lag: 10_000 }), undefined);
    });
  });
});
