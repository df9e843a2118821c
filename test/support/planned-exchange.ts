/** What ranks exchange in a step, counted in the plan of one of them. Nothing runs, so there may be any number of ranks. */

import {
  crossasset,
  type Device,
  distributed,
  fromTyped,
  modelFromConfig,
  nn,
  optim,
  type Tensor,
} from "holdfast";
import { C, F, makeRows, S } from "../../bench/gpu/training.js";
import { Guards } from "../../src/autograd/index.js";
import { planStep, reportPlan, traceStep } from "../../src/compile/index.js";
import type { Communicator, World } from "../../src/distributed/index.js";
import type { KernelSource } from "../../src/driver/index.js";
import { exchangeOf } from "../../src/inspect/rank-table.js";
import type { CallReport } from "../../src/records/index.js";

/** Collectives that are only planned. A broadcast from rank 0 changes nothing there, so it may run. */
function plannedCommunicator(size: number): Communicator {
  const source = (name: string, parameters: KernelSource["parameters"]): KernelSource => ({
    ...{ name, parameters },
    native: () => {
      if (name !== "broadcast") throw new Error(`${name} is only planned`);
    },
  });
  return {
    ...{ name: "planned", rank: 0, size },
    allGather: () => source("allGather", ["in", "out"]),
    allToAll: () => source("allToAll", ["in", "out"]),
    reduceScatter: () => source("reduceScatter", ["in", "out"]),
    broadcast: () => source("broadcast", ["inout"]),
    close: () => undefined,
  };
}

/** Rank 0 of so many, without the others. */
function plannedWorld(size: number): World {
  return {
    ...{ rank: 0, size, localRank: 0 },
    communicator: size > 1 ? plannedCommunicator(size) : undefined,
    launch: { launcher: undefined, rank: 0, size, localRank: 0, master: undefined, restarts: 0 },
    ranks: Array.from({ length: size }, (_, rank) => ({ rank, size, host: "localhost", pid: 1 })),
    traffic: { collectives: 0, sentBytes: 0, ms: 0 },
    exchange: (_, value) => new Array(size).fill(value),
    barrier: () => undefined,
    attach: () => undefined,
    fail: () => undefined,
    close: () => undefined,
  };
}

export interface PlannedModel {
  readonly model: nn.Module;
  readonly inputs: readonly Tensor[];
  loss(...inputs: Tensor[]): Tensor;
}

export interface PlannedExchange {
  /** The elements of all gradients. */
  readonly parameters: number;
  readonly collectives: number;
  /** By this rank, to all others together. */
  readonly sentBytes: number;
  /** Of each collective. */
  readonly calls: readonly CallReport[];
}

/**
 * The exchange of a training step. `isSharded`: with AdamW, whose moments are split over the ranks; otherwise without moments. `shards`: the
 * option of DataParallel.
 */
export function planExchange(
  device: Device,
  { model, inputs, loss }: PlannedModel,
  size: number,
  { isSharded = false, shards }: { readonly isSharded?: boolean; readonly shards?: number } = {},
): PlannedExchange {
  const parallel = new distributed.DataParallel(plannedWorld(size), shards === undefined ? {} : { shards });
  parallel.broadcast(model);
  const parameters = model.parameters();
  const optimizer = isSharded
    ? parallel.shardOptimizer(() => new optim.AdamW(parameters, { lr: 1e-3 }))
    : new optim.SGD(parameters, { lr: 1e-3 });
  const step = (): void => {
    parallel.backward(parameters, inputs, loss);
    optimizer.step();
    optimizer.zeroGrad();
  };
  const guards = new Guards();
  const trace = traceStep(device.runtime, () => device.inTracedStep(() => guards.watch(device, step)));
  guards.undo();
  const { calls } = reportPlan(planStep(device.runtime, trace, {}));
  return {
    parameters: parameters.reduce((sum, { numel }) => sum + numel, 0),
    ...exchangeOf({ calls }, size),
    calls: calls.filter(({ op }) => ["allGather", "allToAll", "reduceScatter"].includes(op)),
  };
}

/** The default CrossAsset, with as many rows. */
export function plannedCrossAsset(device: Device, rows: number): PlannedModel {
  const model = new crossasset.CrossAsset({}).to(device);
  const { x, labels } = makeRows(rows, "random");
  const put = (values: Float32Array | Int32Array, shape: number[]): Tensor =>
    device.keep(fromTyped(values, shape, { device }));
  return {
    model,
    inputs: [put(x, [rows, S, F]), put(labels, [rows, S])],
    loss: (inputs, targets) =>
      nn.functional.crossEntropy(
        model.forward(inputs as Tensor).reshape([-1, C]),
        (targets as Tensor).reshape([-1]),
      ),
  };
}

/** GPT-2 with these sizes of its config.json. Its weights are 0. */
export function plannedGpt2(
  device: Device,
  rows: number,
  sizes: Readonly<Record<string, number>> = {},
): PlannedModel {
  const model = modelFromConfig({ model_type: "gpt2", ...sizes });
  for (const parameter of model.parameters()) parameter.initialize(nn.init.zeros());
  model.to(device);
  const context = 32;
  const tokens = device.keep(fromTyped(new Int32Array(rows * context), [rows, context], { device }));
  return { model, inputs: [tokens], loss: (part) => model.loss(part as Tensor, part as Tensor) };
}
