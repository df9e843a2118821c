/**
 * Row P2: an optimizer's step is one fused pass over contiguous memory, without a copy, for any number of
 * parameters.
 */

import assert from "node:assert/strict";
import { type Device, optim, type Tensor } from "holdfast";
import { CallLog } from "../support/call-log.js";
import { withDevice } from "../support/devices.js";
import { placeParameters, setGradient } from "../support/parameter-module.js";
import { regressionRow } from "../support/regressions.js";

interface Trainer {
  step(): void;
}

type Options = optim.AdamOptions & optim.SGDOptions;
type MakeTrainer = (
  name: "SGD" | "Adam" | "AdamW",
  parameters: readonly Tensor[],
  options: Options,
) => Trainer;

const fused: MakeTrainer = (name, parameters, options) => new optim[name](parameters, options);

/** The old ways: an update for each parameter, and an update of copies that are copied back. */
const oneByOne: MakeTrainer = (name, parameters, options) => {
  const optimizers = parameters.map((parameter) => new optim[name]([parameter], options));
  return {
    step() {
      for (const optimizer of optimizers) optimizer.step();
    },
  };
};
const onCopies: MakeTrainer = (name, parameters, options) => {
  const optimizer = new optim[name](parameters, options);
  return {
    step() {
      optimizer.step();
      const { device: home, array } = parameters[0]!;
      const copy = home.runtime.arena.allocate(array.storage!.span.size, "copy");
      home.runtime.copy(copy, array.storage!);
      home.runtime.copy(array.storage!, copy);
      home.runtime.arena.free(copy);
    },
  };
};

/** How a step is run again, after two of its kind. */
const modes = {
  eager: (_device: Device, step: () => void): (() => void) => step,
  /** As compiled code without a graph, whose launches can be counted. */
  compiled: (device: Device, step: () => void): (() => void) => device.compile(step),
};

/** The driver's work in the third step, for this many parameters of odd sizes. */
function workOf(
  make: MakeTrainer,
  name: "SGD" | "Adam" | "AdamW",
  count: number,
  mode: keyof typeof modes,
): string[] {
  const log = new CallLog();
  const work = (cpu: Device): string[] => {
    const sizes = Array.from({ length: count }, (_, index) => 1 + ((index * 37) % 101));
    const parameters = placeParameters(
      cpu,
      "f32",
      sizes.map((size) => [size]),
      sizes.map((size) => new Float32Array(size).fill(1)),
    );
    const trainer = make(name, parameters, { lr: 0.1, ...(name === "SGD" && { momentum: 0.9 }) });
    for (const parameter of parameters)
      setGradient(cpu, parameter, new Float32Array(parameter.numel).fill(1));
    const step = modes[mode](cpu, () => trainer.step());
    step();
    step();
    const start = log.calls.length;
    step();
    return log
      .namesFrom(start)
      .filter((call) => call === "launch" || call === "fill" || call.startsWith("copy"));
  };
  return withDevice({ memory: "64MiB", capture: "off" }, work, log.wrap);
}

/** A trainer, and how many parameters it has in the larger of two tries. */
interface Subject {
  readonly make: MakeTrainer;
  readonly many: number;
}

for (const mode of ["eager", "compiled"] as const) {
  regressionRow<Subject>({
    row: "P2",
    rule: `a step of SGD, Adam or AdamW, ${mode}, is at most two launches and no copy, for 1 parameter as for 60`,
    sound: { make: fused, many: 60 },
    faults: {
      [`${mode}, an update for each parameter`]: { make: oneByOne, many: 24 },
      [`${mode}, updates go through copies`]: { make: onCopies, many: 3 },
    },
    check({ make, many }) {
      for (const name of ["SGD", "Adam", "AdamW"] as const) {
        for (const count of [1, many]) {
          const work = workOf(make, name, count, mode);
          // Compiled, the step count may be fused with the update, or omitted if nothing reads it.
          const expected = mode === "eager" ? 2 : Math.min(work.length, 2);
          assert.deepEqual(work, Array(expected).fill("launch"), `${name}, ${count} parameters`);
        }
      }
    },
  });
}
