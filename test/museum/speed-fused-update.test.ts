/** Row P2: an optimizer's step is one fused pass over contiguous memory, without a copy, however many parameters. */

import assert from "node:assert/strict";
import { type Device, optim, type Tensor } from "holdfast";
import { CallLog } from "../support/call-log.js";
import { withDevice } from "../support/devices.js";
import { museumRow } from "../support/museum.js";
import { placeGiven, setGradient } from "../support/trained-module.js";

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

/** The old ways: an update for each parameter; and one that works on copies and copies them back. */
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

/** The driver's work in the third step of so many parameters of odd sizes. */
function workOf(make: MakeTrainer, name: "SGD" | "Adam" | "AdamW", count: number): string[] {
  const log = new CallLog();
  const work = (cpu: Device): string[] => {
    const sizes = Array.from({ length: count }, (_, index) => 1 + ((index * 37) % 101));
    const parameters = placeGiven(
      cpu,
      "f32",
      sizes.map((size) => [size]),
      sizes.map((size) => new Float32Array(size).fill(1)),
    );
    const trainer = make(name, parameters, { lr: 0.1, ...(name === "SGD" && { momentum: 0.9 }) });
    for (const parameter of parameters)
      setGradient(cpu, parameter, new Float32Array(parameter.numel).fill(1));
    trainer.step();
    trainer.step();
    const start = log.calls.length;
    trainer.step();
    return log
      .namesFrom(start)
      .filter((call) => call === "launch" || call === "fill" || call.startsWith("copy"));
  };
  return withDevice({ memory: "64MiB" }, work, log.wrap);
}

museumRow<MakeTrainer>({
  row: "P2",
  rule: "a step of SGD, Adam or AdamW is two launches and no copy, for 1 parameter as for 60",
  sound: fused,
  faults: { "an update for each parameter": oneByOne, "updates go through copies": onCopies },
  check(make) {
    for (const name of ["SGD", "Adam", "AdamW"] as const) {
      for (const count of [1, 60]) {
        assert.deepEqual(workOf(make, name, count), ["launch", "launch"], `${name}, ${count} parameters`);
      }
    }
  },
});
