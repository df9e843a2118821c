/**
 * `npm run bench:gpu -- --only gradients`: regression C1 on a GPU. Four batches of CrossAsset, with a reset
 * before each and dead memory full of NaN. Every gradient has the bits of the run without resets, and is
 * within 1e-5 of the CPU's. The table also has the figures of an engine without these rules.
 */

import { crossasset, Device, manualSeed, nn, optim } from "holdfast";
import { readOptions } from "../../test/support/command-line.js";
import { commonOptions, count, openGpu } from "./options.js";
import { Results } from "./results.js";
import { C, F, makeRows, S } from "./training.js";

const options = readOptions(import.meta.url, { ...commonOptions, batch: { type: "string", default: "256" } });
const batch = count("batch", options.batch);
const batches = 4;
const nearEnough = 1e-5;
/** The norm of the head's weight gradient on that engine's CPU and GPU, one reset a batch. */
const earlier = [
  [4.315349, 4.315349],
  [3.737152, 2.5e-6],
  [2.698082, 1.98e-18],
  [1.859067, 0],
] as const;
const head = "head.weight";

/** The gradients of each batch, by the parameters' names. */
type Gradients = readonly ReadonlyMap<string, Float32Array>[];

const rows = makeRows(batches * batch, "taught");

/** Trains four batches, each in its own step after a reset, or all of them without freeing anything. */
function train(device: Device, life: "resets" | "no resets"): Gradients {
  manualSeed(42);
  const model = new crossasset.CrossAsset().to(device);
  // Without moments: AdamW's division would make a rounding of a small gradient as large as the gradient itself.
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.002 });
  return Array.from({ length: batches }, (_, number) => {
    const trainOne = (): ReadonlyMap<string, Float32Array> => {
      const x = rows.x.subarray(number * batch * S * F, (number + 1) * batch * S * F);
      const y = rows.labels.subarray(number * batch * S, (number + 1) * batch * S);
      const input = device.fromHost(x, [batch, S, F], "f32", "x");
      const labels = device.fromHost(y, [batch * S], "i32", "labels");
      const logits = model.forward(input).reshape([-1, C]);
      nn.functional.crossEntropy(logits, labels).backward();
      const gradients = new Map(
        [...model.namedParameters()].map(([path, { grad }]) => [path, grad!.dataSync() as Float32Array]),
      );
      optimizer.step();
      optimizer.zeroGrad();
      return gradients;
    };
    if (life === "no resets") return trainOne();
    device.runtime.arena.reset();
    return device.step(trainOne);
  });
}

function trainOnGpu(life: "resets" | "no resets", poison: boolean): Gradients {
  const gpu = openGpu(options, { device: { poison } });
  try {
    return train(gpu.device, life);
  } finally {
    gpu.close();
  }
}

function trainOnCpu(): Gradients {
  const cpu = new Device("cpu", { stallAfter: "off", print: () => {} });
  try {
    return train(cpu, "resets");
  } finally {
    cpu.close();
  }
}

function normOf(values: ArrayLike<number>): number {
  let sum = 0;
  for (let at = 0; at < values.length; at++) sum += values[at]! ** 2;
  return Math.sqrt(sum);
}

/** The distance of two arrays, relative to the second. */
function distance(a: Float32Array, other: Float32Array): number {
  const difference = normOf(Float64Array.from(a, (value, at) => value - other[at]!));
  const size = normOf(other);
  return size === 0 ? difference : difference / size;
}

function countOtherBits(first: Float32Array, other: Float32Array): number {
  const [a, b] = [new Uint32Array(first.slice().buffer), new Uint32Array(other.slice().buffer)];
  return a.reduce((sum, word, at) => sum + (word === b[at] ? 0 : 1), Math.abs(a.length - b.length));
}

const results = new Results("gradients", options);
await results.attempt("gradients", () => {
  const kept = trainOnGpu("no resets", false);
  console.log("GPU without resets: done");
  const reset = trainOnGpu("resets", true);
  console.log("GPU with resets and poison: done");
  const cpu = trainOnCpu();
  results.line(`norm of the gradient of ${head}, ${batch} rows a batch`);
  results.table([
    [
      "batch",
      "CPU",
      "GPU, a reset before each",
      "GPU, none",
      "difference from CPU",
      "│ reported: CPU",
      "its GPU, a reset before each",
    ],
    ...reset.map((gradients, number) => [
      String(number + 1),
      normOf(cpu[number]!.get(head)!).toFixed(6),
      normOf(gradients.get(head)!).toFixed(6),
      normOf(kept[number]!.get(head)!).toFixed(6),
      distance(gradients.get(head)!, cpu[number]!.get(head)!).toExponential(1),
      `│ ${earlier[number]![0]}`,
      String(earlier[number]![1]),
    ]),
  ]);
  const all = reset.flatMap((gradients, number) =>
    [...gradients].map(([path, values]) => ({
      path,
      number,
      otherBits: countOtherBits(values, kept[number]!.get(path)!),
      apart: distance(values, cpu[number]!.get(path)!),
      isFinite: values.every(Number.isFinite),
    })),
  );
  const worst = all.toSorted((a, b) => b.apart - a.apart);
  results.line("the five gradients that are farthest from the CPU's, relative to their norm");
  results.table([
    ["gradient", "batch", "apart"],
    ...worst.slice(0, 5).map((entry) => [entry.path, String(entry.number + 1), entry.apart.toExponential(2)]),
  ]);
  const otherBits = all.reduce((sum, entry) => sum + entry.otherBits, 0);
  const text = `${all.length} gradients of ${batches} batches`;
  results.require(
    otherBits === 0,
    `${text}: ${otherBits} elements differ between the runs with and without resets and poison`,
  );
  results.require(
    all.every((entry) => entry.isFinite),
    `${text}: all numbers are finite`,
  );
  const maxDifference = worst[0]!.apart;
  results.require(
    maxDifference <= nearEnough,
    `${text}: at most ${maxDifference.toExponential(1)} from the CPU; ${nearEnough} allowed`,
  );
});
results.finish();
