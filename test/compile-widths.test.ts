/**
 * Models of any even width can be planned for a GPU: every plan passes the verifier with all passes.
 * TEST_WIDTHS=all plans every width from 8 to 320 in every precision and runs twenty of the steps on the
 * emulated GPU; the default is a sample of both.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type Device, HoldfastError, manualSeed, type nn } from "holdfast";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, planAllSchedules, withNullGpu } from "./support/null-gpu.js";
import { type TrainedWorkload, type WorkloadName, widthWorkloads } from "./support/width-workloads.js";

const isWhole = process.env["TEST_WIDTHS"] === "all";
const workloads = Object.keys(widthWorkloads) as WorkloadName[];
const precisions: readonly Precision[] = ["f32", "tf32", "bf16"];
// A capture would run each new step twice more.
const capture = effort({ quick: "off", thorough: "on" } as const);
const everyWidth = Array.from({ length: (320 - 8) / 2 + 1 }, (_, index) => 8 + 2 * index);

/** Widths whose layers are not a multiple of the memory alignment, and one whose are. */
const sampledWidths = effort<Readonly<Record<WorkloadName, readonly number[]>>>({
  quick: { crossAsset: [128], characters: [60], gpt: [98], convnet: [10] },
  thorough: {
    crossAsset: [10, 36, 100, 128, 252],
    characters: [8, 60, 300],
    gpt: [12, 98],
    convnet: [10, 20, 130],
  },
});

interface Case {
  readonly workload: WorkloadName;
  readonly width: number;
  readonly precision: Precision;
}

/** Small GEMMs leave a GPU idle and large ones fill it: they have different kernels. */
const batches = [8, 64, 256] as const;

function casesOf(workload: WorkloadName): readonly Case[] {
  if (isWhole)
    return everyWidth.flatMap((width) => precisions.map((precision) => ({ workload, width, precision })));
  return sampledWidths[workload].map((width, index) => ({
    ...{ workload, width },
    precision: precisions[(index + workloads.indexOf(workload)) % precisions.length] ?? "f32",
  }));
}

/** Why a case has no plan; undefined if it has all of them. */
function rejectionOf({ workload, width, precision }: Case): readonly string[] {
  const batch = batches[(width / 2) % batches.length] ?? 8;
  try {
    withNullGpu(precision, (device) => {
      const { step } = widthWorkloads[workload](device, { width, batch, isPlannedOnly: true });
      const plans = planAllSchedules(device, step);
      assert.ok(plans.length > 1, "no call runs on a side stream");
    });
    return [];
  } catch (error) {
    if (error instanceof HoldfastError)
      return [`width ${width} in ${precision}: ${error.code}: ${error.message}`];
    throw error;
  }
}

describe("plans on a GPU", () => {
  for (const workload of workloads) {
    const cases = casesOf(workload);
    test(`${workload}: the verifier accepts ${cases.length} plans of width 8 to 320`, async (context) => {
      const rejections: string[] = [];
      for (const widthCase of cases) {
        rejections.push(...rejectionOf(widthCase));
        // The memory of closed devices is collected between turns of the event loop, and there are hundreds
        // of them.
        await nextTurn();
      }
      context.diagnostic(
        `${cases.length} steps planned with and without side streams, ${rejections.length} rejected`,
      );
      assert.deepEqual(rejections, []);
    });
  }
});

/** Runs take minutes: their kernels are compiled by g++. */
const executed: readonly Case[] = isWhole
  ? [10, 22, 36, 60, 100].flatMap((width, index) =>
      workloads.map((workload, which) => ({
        ...{ workload, width },
        precision: precisions[(index + which) % precisions.length] ?? "f32",
      })),
    )
  : [{ workload: "crossAsset", width: 10, precision: "f32" }];

/** The results of training on a fresh device: the losses, the gradients and, in f32, the weights. */
function trained(
  { workload, width, precision }: Case,
  run: (device: Device, training: TrainedWorkload) => number,
): Readonly<Record<string, ArrayLike<number>>> {
  const device = openEmulatorGpu({ precision, capture, seesSnapshots: false });
  manualSeed(11);
  const training = widthWorkloads[workload](device, { width, batch: 2 });
  const isExact = precision === "f32";
  // If GEMMs round, Adam makes full steps of gradients near zero: then one step is compared, without weights.
  const losses = Array.from({ length: isExact ? 2 : 1 }, () => run(device, training));
  return { losses, ...valuesOf(training.model, isExact) };
}

function valuesOf(model: nn.Module, withWeights: boolean): Readonly<Record<string, ArrayLike<number>>> {
  const results: Record<string, ArrayLike<number>> = {};
  for (const [name, parameter] of model.namedParameters()) {
    if (withWeights) results[name] = parameter.dataSync().slice() as Float32Array;
    if (parameter.grad) results[`gradient of ${name}`] = parameter.grad.dataSync().slice() as Float32Array;
  }
  return results;
}

/**
 * The tolerance of a compiled step relative to eager code, in units of the largest value: f32 gives the same
 * bits.
 */
const tolerances: Readonly<Record<Precision, number>> = { f32: 0, tf32: 5e-3, bf16: 5e-2 };

describe("the emulated GPU", { skip: emulatorMissing }, () => {
  for (const widthCase of executed) {
    const { workload, width, precision } = widthCase;
    test(`${workload} of width ${width} in ${precision}: compiled steps train like eager ones`, () => {
      const eager = trained(widthCase, (device, { step }) => device.step(() => step().loss.item()));
      let compiled: (() => ReturnType<TrainedWorkload["step"]>) | undefined;
      const actual = trained(widthCase, (device, { step }) => {
        compiled ??= device.compile(step);
        return compiled().loss.item();
      });
      assert.deepEqual(Object.keys(actual), Object.keys(eager));
      for (const [name, expected] of Object.entries(eager)) {
        const largest = Math.max(...Array.from(expected, Math.abs));
        const limit = tolerances[precision] * largest;
        for (const [index, value] of Array.from(expected).entries()) {
          const compiledValue = actual[name]![index]!;
          assert.ok(
            Object.is(compiledValue, value) || Math.abs(compiledValue - value) <= limit,
            `${name}[${index}] is ${compiledValue}, and ${value} in eager code`,
          );
        }
      }
    });
  }
});
