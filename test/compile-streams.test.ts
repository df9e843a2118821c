/**
 * Streams of a compiled step: work on side streams, directly and in a graph, changes no bit of a step's
 * results.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, type DeviceOptions, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";
import { bytes, type Driver, faulty, type Storage, type Stream, strict } from "holdfast/internals";
import { assignStreams } from "../src/compile/index.js";
import { interceptCalls } from "../src/driver/index.js";
import { latestPlanOf } from "../src/tensor/index.js";
import { withDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { regressionRow } from "./support/regressions.js";
import { sameBytes } from "./support/same-bytes.js";
import { type TestDriver, testDevice } from "./support/test-device.js";

const layers = effort({ quick: 2, thorough: 4 });
const fewCalls = effort({ quick: 2, thorough: 3 });

/**
 * Residual layers with dropout: each has the gradients of a weight and a bias that only the optimizer reads.
 * They are computed from a gradient that the next layer's is added to.
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

type Plan = NonNullable<ReturnType<typeof latestPlanOf>>;

/** Runs a few steps, and returns what `look` finds in the plan after them. */
function train(
  device: Device,
  streams: boolean,
  look: (plan: Plan) => void = () => {},
  calls = fewCalls,
): Trained {
  const { step, read, inputs } = prepare(device);
  const compiled = device.compile(step, { passes: { streams } });
  const losses = Array.from({ length: calls }, () => compiled(...inputs).loss.item());
  look(latestPlanOf(compiled)!);
  const states = read();
  compiled.close();
  return { losses, states };
}

function requireSame(actual: Trained, expected: Trained): void {
  assert.deepEqual(actual.losses, expected.losses);
  for (const [index, state] of actual.states.entries())
    sameBytes(state, expected.states[index]!, `state ${index}`);
}

/** The bytes of a step's plan: without side streams, with them, and with them only where the gain is large. */
const planBytes: (number | undefined)[] = [];

const plain = withDevice(
  { capture: "off" },
  (device) =>
    train(device, false, ({ planned }) => {
      const streamed = assignStreams(device.runtime, planned);
      const reluctant = assignStreams(device.runtime, planned, { streams: 3, lag: 10_000 });
      planBytes.push(...[planned, streamed, reluctant].map((step) => step?.plan.bytes));
    }),
  strict,
);

for (const capture of ["off", "on"] as const) {
  test(`with capture ${capture} a step with side streams has the bits of a step without them`, () => {
    const options: DeviceOptions = { capture, poison: true };
    const actual = withDevice(
      options,
      (device) =>
        train(device, true, ({ planned, replayable }) => {
          assert.equal(replayable.mode, capture === "on" ? "graph" : "direct");
          assert.ok(planned.schedule.calls.filter(({ stream }) => stream > 0).length >= layers);
        }),
      strict,
    );
    requireSame(actual, plain);
  });
}

/** Records for every launch inside a capture its stream. */
function recordingLaunches(driver: Driver, streams: Stream[]): Driver {
  let isCapturing = false;
  return interceptCalls(driver, (call, args, proceed) => {
    if (call === "beginCapture") isCapturing = true;
    if (call === "endCapture") isCapturing = false;
    if (call === "launch" && isCapturing) streams.push(args[0] as Stream);
    return proceed();
  });
}

test("the graph has side streams, and the same nodes as the graph without them", () => {
  const nodes = [true, false].map((hasStreams) => {
    const streams: Stream[] = [];
    return withDevice(
      { capture: "on" },
      (device) => {
        let inspected: unknown;
        const look = ({ replayable }: Plan): void => {
          inspected = replayable.nodes;
        };
        train(device, hasStreams, look, 1);
        const sideStreams = streams.filter((stream) => stream !== device.runtime.stream);
        assert.equal(new Set(sideStreams).size, hasStreams ? 3 : 0);
        return inspected;
      },
      (driver) => strict(recordingLaunches(driver, streams)),
    );
  });
  assert.deepEqual(nodes[0], nodes[1]);
});

type Wrap = (driver: Driver) => Driver;

/** Omits one wait of a kind. */
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
  ...effort({ quick: ["20th"], thorough: ["3rd", "20th", "41st", "77th"] }).map((nth) => [
    `the ${nth} launch is late`,
  ]),
];

regressionRow<Wrap>({
  row: "C13",
  rule: "a compiled step with side streams gives the same bits whichever kernel is late",
  sound: strict,
  faults: {
    "no stream waits for another": forgetting(1),
    "every third wait is missing, under strict": (driver) => forgetting(3)(strict(driver)),
  },
  check(wrap) {
    for (const script of late) {
      const actual = withDevice(
        { capture: "off" },
        (device) => train(device, true),
        (driver: TestDriver) => wrap(faulty(driver, script)),
      );
      requireSame(actual, plain);
    }
  },
});

/** How often a candidate runs before one is kept. */
const triesOfCandidate = 4;
/** A graph with each kind of side streams and one without; where PDL is supported, also without it; and direct calls. */
const callsToTryAll = (testDevice === "cpu" ? 4 : 7) * triesOfCandidate;

/** Where PDL is supported, each graph is also tried without it. */
function candidatesOf({ runtime }: Device, graphs: readonly string[]): readonly string[] {
  return graphs.flatMap((name) => (runtime.device.supportsPdl ? [name, `${name} without PDL`] : [name]));
}

/** Notes instead of those in the user's cache. */
const withNotes =
  (notes: Pick<Map<string, string>, "get" | "set">): Wrap =>
  (driver) =>
    strict(
      Object.assign(
        interceptCalls(driver, (_call, _args, proceed) => proceed()),
        {
          recall: (key: string) => notes.get(key),
          remember: (key: string, note: string) => void notes.set(key, note),
        },
      ),
    );

test("with capture auto the candidates alternate, share their memory, and one is kept", () => {
  const notes = new Map<string, string>();
  let kept: string | undefined;
  const actual = withDevice(
    { capture: "auto" },
    (device) =>
      train(
        device,
        true,
        ({ tuning, planned, placed, replayable }) => {
          const graphs = ["graph", "graph with streams", "graph with low-priority streams"];
          assert.deepEqual(
            Object.keys(tuning!.times).sort(),
            [...candidatesOf(device, graphs), "direct"].sort(),
          );
          kept = tuning!.kept;
          assert.equal(replayable.mode, kept === "direct" ? "direct" : "graph");
          const hasSideStreams = planned.schedule.calls.some(({ stream }) => stream > 0);
          assert.equal(hasSideStreams, tuning!.kept.includes("streams"));
          assert.ok(placed.commands.length > 0);
          const { live, highWater } = device.runtime.arena.figures;
          const largest = Math.max(...planBytes.map((size) => size ?? 0));
          assert.ok(
            highWater < 2 * largest,
            `${highWater} bytes: the candidates have not shared their memory`,
          );
          assert.ok(
            live < 2 * planned.plan.bytes,
            `${live} bytes are live, the plan has ${planned.plan.bytes}`,
          );
        },
        callsToTryAll,
      ),
    withNotes(notes),
  );
  assert.ok([...notes.values()].includes(kept!));
  const expected = withDevice(
    { capture: "off" },
    (device) => train(device, false, undefined, callsToTryAll),
    strict,
  );
  requireSame(actual, expected);
});

test("the candidate that an earlier process kept is the only one, with the same bits", () => {
  const run = (kept: string, look: (plan: Plan) => void): void => {
    const notes = new Map<string, string>();
    notes.get = (key) => (key.startsWith("schedule") ? kept : undefined);
    requireSame(
      withDevice({ capture: "auto" }, (device) => train(device, true, look), withNotes(notes)),
      plain,
    );
  };
  for (const kept of ["graph", "graph with low-priority streams without PDL"]) {
    run(kept, ({ tuning, planned, replayable }) => {
      assert.deepEqual([tuning, replayable.mode], [undefined, "graph"]);
      assert.ok(!("kept" in replayable), "there is no other candidate");
      const { calls } = planned.schedule;
      const hasSideStreams = calls.some(({ stream }) => stream > 0);
      assert.equal(hasSideStreams, kept.includes("streams"));
      if (kept.includes("without")) assert.ok(calls.every(({ prefetches }) => !prefetches));
    });
  }
  run("a candidate of another version", ({ replayable }) => {
    assert.ok("kept" in replayable, "all candidates are tried");
  });
});

/** Memory is taken in chunks, which are larger on a GPU. Side streams need more memory than the spare bytes. */
const mib = 2 ** 20;
/** The spare memory is less than side streams need, and on a GPU at least a chunk. */
const short = {
  cpu: { rows: 2560, spare: 144 * 1024, chunk: bytes(16 * 1024) },
  emulator: { rows: 40_960, spare: 2 * mib, chunk: bytes(2 * mib) },
  cuda: { rows: 163_840, spare: 2 * mib, chunk: bytes(2 * mib) },
}[testDevice];

test("if memory is short, only the plan without side streams is tried", () => {
  const run = (device: Device): void => {
    const { budget, arena } = device.runtime;
    const { step, inputs } = prepare(device, short.rows);
    const compiled = device.compile(step, { passes: { streams: true } });
    const { peak } = compiled.memory(...inputs);
    const room = budget.left + arena.figures.committed - arena.figures.live;
    const { spare } = short;
    budget.charge("weights", bytes(room - peak - spare), "another program");
    const expected = [...candidatesOf(device, ["graph"]), "direct"];
    for (let call = 0; call < triesOfCandidate * expected.length; call++) compiled(...inputs);
    assert.deepEqual(Object.keys(latestPlanOf(compiled)!.tuning!.times), expected);
    compiled.close();
  };
  const notes = new Map<string, string>();
  withDevice({ capture: "auto", chunk: short.chunk }, run, withNotes(notes));
  const isSchedule = (key: string): boolean => key.startsWith("schedule");
  assert.ok(![...notes.keys()].some(isSchedule), "with more memory, all candidates are tried again");
});

test("a plan with side streams takes little more memory than the plain one, and a chain of dependent calls has none", () => {
  const [unstreamed, streamed, reluctant] = planBytes;
  assert.ok(streamed! <= 2 * unstreamed!, `${streamed} bytes instead of ${unstreamed}`);
  assert.equal(reluctant, undefined);
});
