/**
 * Row C11: learning rate, bias correction and dropout masks were frozen into the graph. A whole training step
 * is captured as it is, and compiled, and its replays are compared with eager steps, with a
 * schedule and with dropout.
 */

import assert from "node:assert/strict";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import type { Storage } from "holdfast/internals";
import { captureStep } from "../../src/tensor/index.js";
import { MiB } from "../../src/units/index.js";
import { nativeGemms } from "../support/compiled-training.js";
import { openDevice } from "../support/devices.js";
import { effort } from "../support/effort.js";
import { regressionRow } from "../support/regressions.js";
import { sameNamedBytes } from "../support/same-bytes.js";

const steps = effort({ quick: 3, thorough: 20 });

interface Training {
  readonly step: () => void;
  /** The schedule from the first step on. */
  readonly startSchedule: () => optim.Schedule;
  /** All state that a step continues from, by name. */
  readonly state: Readonly<Record<string, Storage>>;
}

/** A network with dropout, whose step reads no value. */
class Net extends nn.Module {
  readonly layers = new nn.Sequential(
    new nn.Linear(5, 16),
    new nn.LayerNorm(16),
    new nn.GELU(),
    new nn.Dropout(0.3),
    new nn.Linear(16, 3),
  );

  forward(x: Tensor): Tensor {
    return this.layers.forward(x).square().mean();
  }
}

function prepare(device: Device): Training {
  manualSeed(21);
  const model = new Net().to(device);
  const lr = 0.02;
  const optimizer = new optim.AdamW(model.parameters(), { lr });
  const startSchedule = (): optim.Schedule => {
    optimizer.lr = lr;
    return new optim.CosineSchedule(optimizer, { tMax: steps, etaMin: 1e-4 });
  };
  const x = randn([6, 5], { device });
  const named = {
    ...Object.fromEntries(model.namedParameters()),
    ...optimizer.stateDict(),
    "random state": device.randomState,
  };
  const state = Object.fromEntries(
    Object.entries(named).flatMap(([name, { array }]) => (array.storage ? [[name, array.storage]] : [])),
  );
  const step = (): void => {
    optimizer.zeroGrad();
    model.forward(x).backward();
    optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false }).release();
    optimizer.step();
  };
  return { step, startSchedule, state };
}

type State = Record<string, Uint8Array<ArrayBuffer>>;

function read(device: Device, { state }: Training): State {
  return Object.fromEntries(
    Object.entries(state).map(([name, storage]) => [name, device.runtime.read(storage)]),
  );
}

/** State that changes between replays and that a faulty graph treats as constant. */
type Freeze = (device: Device, training: Training, start: State) => void;

/** The old ways: state that the graph should have read from memory is frozen at the capture. */
const freezing =
  (pattern: RegExp): Freeze =>
  (device, { state }, start) => {
    const frozen = Object.keys(state).filter((name) => pattern.test(name));
    assert.ok(frozen.length > 0, `nothing is named ${pattern}`);
    device.runtime.upload(frozen.map((name) => ({ source: start[name]!, target: state[name]! })));
  };

/** A step that can be run repeatedly. */
type Repeat = (step: () => void) => () => void;

const device = openDevice({ capture: "on", poison: true });

const repeats = {
  replayed: (step) => {
    const graph = captureStep(device, "step", 16 * MiB, step);
    return () => graph.replay();
  },
  compiled: (step) => {
    const compiled = device.compile(step, nativeGemms);
    return () => void compiled();
  },
  eager: (step) => () => device.step(step),
} satisfies Readonly<Record<string, Repeat>>;

type Mode = keyof typeof repeats;

/** What every training of a kind begins with: the step is captured or compiled once. */
function begin(mode: Mode) {
  const training = prepare(device);
  return { training, start: read(device, training), run: repeats[mode](training.step) };
}

const begun = new Map<Mode, ReturnType<typeof begin>>();

/** Trains from the start with steps of a kind; `onStep` gets the state after each. */
function train(mode: Mode, freeze: Freeze, onStep: (state: State, index: number) => void): void {
  const { training, start, run } = begun.get(mode) ?? begin(mode);
  begun.set(mode, { training, start, run });
  const schedule = training.startSchedule();
  device.runtime.upload(
    Object.entries(training.state).map(([name, target]) => ({ source: start[name]!, target })),
  );
  for (let index = 0; index < steps; index++) {
    freeze(device, training, start);
    run();
    schedule.step();
    onStep(read(device, training), index);
  }
}

const eagerStates: State[] = [];

/** The state after each eager step. */
function trainEagerly(): readonly State[] {
  if (eagerStates.length === 0)
    train(
      "eager",
      () => {},
      (state) => eagerStates.push(state),
    );
  return eagerStates;
}

for (const mode of ["replayed", "compiled"] as const) {
  regressionRow<Freeze>({
    row: "C11",
    rule: `${steps} steps, ${mode}, equal eager ones bit for bit, with a schedule and with dropout`,
    sound: () => {},
    faults: {
      [`${mode}, the learning rate is the capture's`]: freezing(/\blr$/),
      [`${mode}, the bias correction is the capture's`]: freezing(/step$/),
      [`${mode}, the dropout masks are the capture's`]: freezing(/^random state$/),
    },
    check(freeze) {
      const eager = trainEagerly();
      assert.notDeepEqual(eager[0], eager[1], "the steps change something");
      let compared = 0;
      train(mode, freeze, (state, index) => {
        sameNamedBytes(state, eager[index]!, `after step ${index + 1}`);
        compared++;
      });
      assert.equal(compared, steps);
    },
  });
}
