/**
 * A training step as the engine traces and plans it, to be run with any schedule and plan that a test
 * proposes: the verifier does not check them.
 */

import { type Device, HoldfastError, manualSeed, nn, optim, randn, type Tensor, tensor } from "holdfast";
import { Guards } from "../../src/autograd/index.js";
import { planStep, traceStep } from "../../src/compile/index.js";
import { planMemory } from "../../src/compile/memory/plan.js";
import type { Schedule, ScheduledCall } from "../../src/compile/program/program.js";
import { lifetimesOf } from "../../src/compile/schedule/liveness.js";
import { recordName } from "../../src/compile/trace/step-record.js";
import { nativeGemms } from "./compiled-training.js";
import { type ProposedStep, scheduleOn } from "./proposed-steps.js";
import { UnverifiedStep } from "./unverified-step.js";

/** The state after a run, or why it failed. */
export type RunOutcome =
  | { readonly gradients: readonly Uint8Array[]; readonly persistent: readonly Uint8Array[] }
  | { readonly rejection: HoldfastError };

export interface TracedTraining {
  /** As in the engine: all calls on the main stream. */
  readonly straight: ProposedStep;
  /** The same calls on three streams, planned for them. */
  readonly streamed: ProposedStep;
  /** The gradients of the same step, run eagerly from the same state. */
  readonly eager: readonly Uint8Array[];
  /** Runs a proposed step, from the same state each time: once for each order of `ordersOf`. */
  run(step: ProposedStep): readonly RunOutcome[];
}

const [rows, features, width, classes] = [12, 10, 40, 3] as const;

/**
 * Two micro-batches, whose gradients are accumulated, then clip and update: memory is saved, shared, and
 * written in place.
 */
export function traceTraining(device: Device): TracedTraining {
  const { runtime } = device;
  manualSeed(3);
  const model = new nn.Sequential(
    new nn.Linear(features, width),
    new nn.LayerNorm(width),
    new nn.GELU(),
    new nn.Dropout(0.2),
    new nn.Linear(width, classes),
  ).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.02 });
  const batches = [1, 2].map((seed): [Tensor, Tensor] => {
    manualSeed(seed);
    const labels = Int32Array.from({ length: rows }, (_, row) => (row * 5 + seed) % classes);
    const [x, y] = [randn([rows, features], { device }), tensor(labels, { device })]; // [B, F], [B]
    device.keep(x);
    device.keep(y);
    return [x, y];
  });
  const body = (): void => {
    model.zeroGrad();
    for (const [x, y] of batches) nn.functional.crossEntropy(model.forward(x), y).backward();
    optim.clipGradNorm(model.parameters(), 0.5, { errorIfNonfinite: false });
    optimizer.step();
  };
  const gradientsNow = (): Uint8Array[] =>
    model.parameters().map(({ grad }) => new Uint8Array(grad!.dataSync().slice().buffer));
  /** All except the record of the step, which counts its calls. */
  const persistentNow = (): Uint8Array[] =>
    runtime.persistent.regions
      .filter(({ name }) => name !== recordName)
      .map(({ whole }) => runtime.read(whole));

  // One step before, so that gradients and moments have another step's numbers and not just zeros.
  device.step(body);
  const start = new Map(runtime.persistent.regions.map(({ whole }) => [whole, runtime.read(whole)]));
  const restore = (): void => void runtime.upload([...start].map(([target, source]) => ({ target, source })));
  device.step(body);
  const eager = gradientsNow();
  restore();

  const guards = new Guards();
  const trace = traceStep(runtime, () => device.inTracedStep(() => guards.watch(device, body)));
  const planned = planStep(runtime, trace, nativeGemms.passes);
  const program = planned.schedule.calls.map(({ call }) => call);
  const streams = program.map((_, index) => (index % 5 === 2 ? 1 : index % 7 === 3 ? 2 : 0));
  const schedule = scheduleOn(program, streams);

  return {
    straight: { program, schedule: planned.schedule, plan: planned.plan },
    streamed: { program, schedule, plan: planMemory(lifetimesOf(schedule)) },
    eager,
    run: (step) =>
      ordersOf(step.schedule).map((calls) => {
        restore();
        try {
          const unverified = new UnverifiedStep(runtime, { schedule: { calls }, plan: step.plan });
          unverified.run();
          const outcome = { gradients: gradientsNow(), persistent: persistentNow() };
          unverified.close();
          return outcome;
        } catch (error) {
          if (error instanceof HoldfastError) return { rejection: error };
          throw error;
        }
      }),
  };
}

/**
 * Orders in which a device may run a schedule: each runs its streams as far as possible, one stream before
 * the other. The step is over when its main stream is, even if the others have work left.
 */
function ordersOf({ calls }: Schedule): readonly (readonly ScheduledCall[])[] {
  const streams = [...new Set(calls.map(({ stream }) => stream))];
  return permutationsOf(streams).map((preferred) => {
    const waiting = new Map(
      streams.map((stream) => [stream, [...calls.keys()].filter((index) => calls[index]!.stream === stream)]),
    );
    const ended = new Set<number>();
    const order: ScheduledCall[] = [];
    while (waiting.get(0)!.length > 0) {
      const next = preferred
        .flatMap((stream) => waiting.get(stream)!.slice(0, 1))
        .find((index) => calls[index]!.after.every((dependency) => ended.has(dependency)));
      if (next === undefined) throw new Error("Every stream waits for another.");
      waiting.get(calls[next]!.stream)!.shift();
      ended.add(next);
      order.push(calls[next]!);
    }
    return order;
  });
}

function permutationsOf<T>(items: readonly T[]): T[][] {
  if (items.length === 0) return [[]];
  return items.flatMap((item) =>
    permutationsOf(items.filter((other) => other !== item)).map((rest) => [item, ...rest]),
  );
}
