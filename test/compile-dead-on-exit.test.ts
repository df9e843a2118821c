/**
 * Gradients that a compiled step discards: those that nothing in the step reads are not stored, and all else
 * is as in eager code. Gradients that live after the step are those of eager code.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { accessesOf, type BufferSlice } from "../src/compile/program/program.js";
import type { Region } from "../src/runtime/index.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { openStrictDevice } from "./support/devices.js";
import { sameBytes } from "./support/same-bytes.js";

const device = openStrictDevice();

type Discarding = "at the end" | "before" | "never" | "partly" | "and returned";

interface Outcome {
  /** Weights, moments and rates. */
  readonly state: readonly Uint8Array[];
  readonly gradients: readonly (Uint8Array | undefined)[];
  /** The ops of the calls that change gradients. */
  readonly writers: readonly string[];
  readonly returned: Uint8Array | undefined;
  readonly skipped: number;
}

const bytesOf = (tensor: Tensor): Uint8Array => new Uint8Array(tensor.dataSync().slice().buffer);

/** Some steps from the same start. A factor of infinity makes gradients non-finite, so that a step is skipped. */
function train(on: Device, mode: "eager" | "compiled", discards: Discarding, factors = [1, 2, 3]): Outcome {
  manualSeed(11);
  const model = new nn.Sequential(new nn.Linear(7, 9), new nn.GELU(), new nn.Linear(9, 5)).to(on);
  const parameters = [...model.parameters()];
  const optimizer = new optim.AdamW(parameters, { lr: 0.02 });
  const errorIfNonfinite = factors.includes(Infinity);
  const step = (x: Tensor, factor: Tensor): { readonly loss: Tensor; readonly gradient?: Tensor } => {
    if (discards === "before") optimizer.zeroGrad();
    const loss = model.forward(x).square().mean().mul(factor);
    loss.backward();
    optim.clipGradNorm(parameters, 0.05, { errorIfNonfinite });
    optimizer.step();
    const gradient = parameters[0]!.grad!;
    if (discards === "at the end" || discards === "and returned") optimizer.zeroGrad();
    if (discards === "partly") parameters[1]!.zeroGrad();
    return discards === "and returned" ? { loss, gradient } : { loss };
  };
  const [x, all] = [
    randn([6, 7], { device: on }),
    factors.map((factor) => randn([1], { device: on }).fill_(factor)),
  ];
  // Gradients that are cleared first must exist.
  if (discards === "before") on.step(() => model.forward(x).sum().backward());
  const compiled = on.compile(step);
  let returned: Uint8Array | undefined;
  for (const factor of all) {
    if (mode === "eager" && factor.item() === Infinity) continue;
    on.step(() => {
      const { gradient } = mode === "compiled" ? compiled(x, factor) : step(x, factor);
      returned = gradient && bytesOf(gradient);
    });
  }
  const kept = [...parameters, ...Object.values(optimizer.stateDict())];
  const gradientOf = ({ grad }: Tensor): Uint8Array | undefined => grad?.array.storage && bytesOf(grad);
  const outcome = {
    state: kept.map(bytesOf),
    gradients: parameters.map(gradientOf),
    writers: mode === "compiled" ? writersOf(compiled) : [],
    returned,
    skipped: mode === "compiled" ? compiled.skipped : factors.filter((factor) => factor === Infinity).length,
  };
  compiled.close();
  return outcome;
}

/** The ops of the calls after the gradients' norm that write gradients. */
function writersOf(compiled: object): readonly string[] {
  const calls = latestPlanOf(compiled)!.planned.schedule.calls.map(({ call }) => call);
  const norm = calls.findIndex(({ op }) => op.includes("gradientNorm"));
  const isGradient = ({ buffer }: BufferSlice): boolean =>
    (buffer.storage?.home as Partial<Region> | undefined)?.label === "gradients";
  assert.ok(norm >= 0);
  return calls
    .slice(norm)
    .filter((call) => accessesOf(call).some(({ slice, writes }) => writes && isGradient(slice)))
    .map(({ op }) => op);
}

function requireSame(actual: Outcome, expected: Outcome): void {
  assert.equal(actual.skipped, expected.skipped);
  for (const [index, bytes] of expected.state.entries())
    sameBytes(actual.state[index]!, bytes, `state ${index}`);
  for (const [index, bytes] of expected.gradients.entries()) {
    assert.equal(actual.gradients[index] === undefined, bytes === undefined, `gradient ${index}`);
    if (bytes) sameBytes(actual.gradients[index]!, bytes, `gradient ${index}`);
  }
  assert.equal(actual.returned === undefined, expected.returned === undefined);
  if (expected.returned) sameBytes(actual.returned!, expected.returned, "the returned gradient");
}

describe("of gradients that a compiled step clips,", () => {
  const both = (discards: Discarding, factors?: readonly number[]): Outcome => {
    const [compiled, eager] = (["compiled", "eager"] as const).map((mode) =>
      train(device, mode, discards, factors && [...factors]),
    );
    requireSame(compiled!, eager!);
    return compiled!;
  };

  test("those that it discards at its end are not stored, and everything else has the eager bits", () => {
    const { writers, gradients } = both("at the end");
    assert.deepEqual(writers, []);
    assert.ok(gradients.every((gradient) => gradient === undefined));
  });

  for (const discards of ["before", "never"] as const) {
    test(`those that live after it are the eager ones: discarded ${discards}`, () => {
      const { writers, gradients } = both(discards);
      assert.ok(writers.length > 0);
      assert.ok(gradients.every((gradient) => gradient !== undefined));
    });
  }

  test("all are stored if it discards only some of those that it clips in one call", () => {
    assert.ok(both("partly").writers.length > 0);
  });

  test("those that it reads after discarding them are stored", () => {
    assert.ok(both("and returned").returned);
  });

  test("those that it discards without a read are not even computed", () => {
    const weight = randn([4, 4], { device, requiresGrad: true });
    const x = randn([3, 4], { device });
    const writers = [true, false].map((discards) => {
      const step = device.compile((x: Tensor) => {
        const loss = x.matmul(weight).square().sum();
        loss.backward();
        if (discards) weight.zeroGrad();
        return loss;
      });
      step(x);
      const { calls } = latestPlanOf(step)!.planned.schedule;
      weight.zeroGrad();
      step.close();
      return calls.filter(({ call }) => call.phase === "backward").length;
    });
    assert.equal(writers[0], 0);
    assert.ok(writers[1]! > 0);
  });

  test("those of a skipped step change nothing, and the next step is the eager one", () => {
    assert.deepEqual(both("at the end", [1, Infinity, 2]).writers, []);
  });
});
