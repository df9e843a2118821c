/**
 * H4 and H5 for compiled steps: the whole step of CrossAsset, with all its 50 weights, is recorded, and only
 * work is.
 */

import assert from "node:assert/strict";
import { crossasset, type Device, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";
import { basicKernels, type DriverCall, type KernelSource, strict } from "holdfast/internals";
import { CaptureStateMachine } from "../../src/runtime/capture/capture-state.js";
import { Runtime } from "../../src/runtime/index.js";
import { latestPlanOf } from "../../src/tensor/index.js";
import { CallLog } from "../support/call-log.js";
import { nativeGemms } from "../support/compiled-training.js";
import { withDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { withMethods } from "../support/replaced-methods.js";
import { sameBytes } from "../support/same-bytes.js";

/** Narrow, but with the 12 scales and two layers of the real one: the same numbers of tensors and ops. */
const sizes = { features: 5, width: 8, heads: 2, hidden: 16 } as const;
const [rows, sources, classes] = [3, 12, 3] as const;

interface Training {
  readonly parameters: readonly nn.Parameter[];
  readonly step: (x: Tensor, y: Tensor) => void;
  readonly batch: readonly [Tensor, Tensor];
}

function prepare(device: Device, layers: number): Training {
  manualSeed(8);
  const model = new crossasset.CrossAsset({ ...sizes, layers }).to(device);
  const parameters = model.parameters();
  const optimizer = new optim.AdamW(parameters, { lr: 0.01 });
  const labels = Int32Array.from({ length: rows * sources }, (_, row) => row % classes);
  const batch = [randn([rows, sources, sizes.features], { device }), tensor(labels, { device })] as const; // [B, S, F], [B·S]
  const step = (x: Tensor, y: Tensor): void => {
    optimizer.zeroGrad();
    nn.functional.crossEntropy(model.forward(x).reshape([rows * sources, classes]), y).backward();
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    optimizer.step();
  };
  return { parameters, step, batch };
}

const weightsOf = (device: Device, { parameters }: Training): Uint8Array[] =>
  parameters.map(({ array }) => device.runtime.read(array.storage!));

/** Calls that a capture may pass to the driver while it records. */
const legalInCapture: ReadonlySet<DriverCall> = new Set(["launch", "fill", "copyOnDevice"]);

/** Extra work whenever a capture runs the step. */
type ExtraWork = (runtime: Runtime) => unknown;

interface Recording {
  /** Memory that the runtime has created while the captured work ran. */
  created: number;
}

/** Captures do more than their work; the capture state, which would reject it, is bypassed. */
function withExtraWork(extra: ExtraWork | undefined, recording: Recording, run: () => void): void {
  const { capture } = Runtime.prototype;
  const countOf = ({ arena, persistent }: Runtime): number =>
    arena.figures.allocations + persistent.regions.length;
  const capturing: Pick<Runtime, "capture"> = {
    capture(this: Runtime, name, body) {
      return capture.call(this, name, () => {
        const before = countOf(this);
        body();
        extra?.(this);
        recording.created += countOf(this) - before;
      });
    },
  };
  const open = { reject: () => undefined, rejectInside: () => undefined };
  withMethods(Runtime.prototype, capturing, () =>
    extra ? withMethods(CaptureStateMachine.prototype, open, run) : run(),
  );
}

const illegal: Readonly<Record<string, ExtraWork>> = {
  "a synchronisation": (runtime) => runtime.synchronize(),
  "a read-back": (runtime) => runtime.read(runtime.persistent.regions[0]!.storages[0]!),
  "an upload": (runtime) => {
    const target = runtime.persistent.regions[0]!.storages[0]!;
    runtime.upload([{ source: new Uint8Array(target.span.size), target }]);
  },
};

let lateKernels = 0;

/** Loaded kernels are found by their content, so each has code of its own: a step is captured several times. */
function makeLateKernel(): KernelSource {
  const { cuda, ...sum } = basicKernels.sum;
  const number = lateKernels++;
  const code = `${cuda?.code}// late ${number}\n`;
  return { ...sum, name: `late sum ${number}`, ...(cuda && { cuda: { ...cuda, code } }) };
}

const lazy: Readonly<Record<string, ExtraWork>> = {
  "scratch memory": (runtime) => runtime.arena.allocate(8 * 1024 * 1024, "library workspace"),
  "a placement": (runtime) => runtime.persistent.place("moments", "late", [{ name: "m", size: 4096 }]),
  "a kernel's load": (runtime) => runtime.kernel(makeLateKernel()),
};

/** Of the whole model; of fewer layers if its capture does more than its work. */
function checkCapture(extra: ExtraWork | undefined): void {
  const layers = extra ? 0 : 2;
  const log = new CallLog();
  const recording: Recording = { created: 0 };
  withDevice(
    { capture: "on" },
    (device) => {
      const training = prepare(device, layers);
      const compiled = device.compile(training.step, nativeGemms);
      withExtraWork(extra, recording, () => {
        try {
          compiled(...training.batch);
        } finally {
          const illegal = log.namesInCapture().filter((call) => !legalInCapture.has(call));
          assert.deepEqual(illegal, [], "driver calls inside the recording");
          assert.equal(recording.created, 0, "memory created for the captured work while it ran");
        }
      });
      if (!extra) assert.equal(training.parameters.length, 50);
      const { placed, replayable } = latestPlanOf(compiled)!;
      assert.equal(replayable.mode, "graph");
      assert.equal(log.namesInCapture().length, placed.commands.length, "each command is recorded once");
      const start = log.calls.length;
      compiled(...training.batch);
      const submitted = log.namesFrom(start);
      assert.equal(submitted.filter((call) => call === "launchGraph").length, 1, "a call is one launch");
      const others = submitted.filter((call) => call !== "launchGraph" && !legalInCapture.has(call));
      assert.deepEqual(others, [], "besides the copies of its inputs");
      assert.ok(submitted.length <= 1 + training.batch.length, "one copy an input");

      const eager = prepare(device, layers);
      for (let i = 0; i < 2; i++) device.step(() => eager.step(...eager.batch));
      const expected = weightsOf(device, eager);
      for (const [index, actual] of weightsOf(device, training).entries())
        sameBytes(actual, expected[index]!, `weight ${index}`);
    },
    (driver) => log.wrap(strict(driver)),
  );
}

/** The result for the sound step, which both rows ask for. */
let sound: (() => void) | undefined;

function checkOnce(extra: ExtraWork | undefined): void {
  if (extra) {
    checkCapture(extra);
    return;
  }
  sound ??= resultOf(() => checkCapture(undefined));
  sound();
}

/** Calls `run` once. The returned function throws the same error, or nothing. */
function resultOf(run: () => void): () => void {
  try {
    run();
    return () => {};
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

regressionRow<ExtraWork | undefined>({
  row: "H4",
  rule: "a compiled step with 50 weights is recorded without a synchronisation or a host copy, and a call of it is one launch",
  sound: undefined,
  faults: Object.fromEntries(
    Object.entries(illegal).map(([name, act]) => [`${name} besides the work, with the checks bypassed`, act]),
  ),
  check: checkOnce,
});

regressionRow<ExtraWork | undefined>({
  row: "H5",
  rule: "all resources of a compiled step with 50 weights exist before its capture: nothing is allocated, placed or loaded in it",
  sound: undefined,
  faults: Object.fromEntries(
    Object.entries(lazy).map(([name, act]) => [`${name} during the work, with the checks bypassed`, act]),
  ),
  check: checkOnce,
});
