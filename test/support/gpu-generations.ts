/**
 * The GPUs that kernels are generated for, and the kernels that Holdfast selects on each of them. No kernel runs: steps
 * are only planned, and eager ops launch on a driver that only records the code of kernels.
 */

import { Device, nn, optim, type Tensor, zeros } from "holdfast";
import type { KernelSource } from "holdfast/internals";
import { listSources } from "../../src/compile/execute/emit.js";
import { cachedAttention } from "../../src/ops/index.js";
import { type CommonWorkloadName, commonWorkloads } from "./common-models/workloads.js";
import { collectGarbage } from "./gc.js";
import { type Precision, planAllSchedules, storageWithoutMemory } from "./null-gpu.js";
import { openPrintingDriver } from "./source-recording-driver.js";
import { testEnvironment } from "./test-device.js";

/** A GPU, with the limits of NVIDIA's table of compute capabilities. */
export interface GpuGeneration {
  readonly capability: string;
  /** Shared memory of a block, static and dynamic. */
  readonly sharedBytes: number;
  readonly multiprocessors: number;
}

const gpu = (capability: string, sharedKiB: number, multiprocessors: number): GpuGeneration => ({
  capability,
  sharedBytes: sharedKiB * 1024,
  multiprocessors,
});

/** Ampere, Ada, Hopper and Blackwell: in data centres, on desktops, and with unified memory. */
export const gpuGenerations: readonly GpuGeneration[] = [
  gpu("8.0", 163, 108),
  gpu("8.6", 99, 84),
  gpu("8.9", 99, 128),
  gpu("9.0", 227, 132),
  gpu("10.0", 227, 148),
  gpu("12.0", 99, 170),
  gpu("12.1", 99, 48),
];

/** Runs `use` on such a GPU; returns the kernels that it loaded, and those that `use` returns, each code once. */
function recordKernels(
  { capability, sharedBytes, multiprocessors }: GpuGeneration,
  precision: Precision,
  use: (device: Device) => readonly KernelSource[],
): readonly KernelSource[] {
  const { driver, sources } = openPrintingDriver({
    ...{ computeCapability: capability, sharedBytesPerBlock: sharedBytes, parallelism: multiprocessors },
    supportsPdl: Number.parseInt(capability, 10) >= 9,
  });
  const device = new Device("cuda", {
    ...{ driver, precision, memory: "1GiB", staging: "4MiB", stallAfter: "off" },
    ...{ environment: testEnvironment, print: () => {} },
  });
  try {
    const returned = use(device).map((source) => [source.cuda?.code ?? "", source] as const);
    return [...new Map([...sources, ...returned]).values()].filter(({ cuda }) => cuda !== undefined);
  } finally {
    device.close();
    driver.close();
    // The driver backs GPU memory with the host's: without a collection, several devices take gigabytes.
    collectGarbage();
  }
}

/** The kernels of training steps of common models, at the widths of real ones. */
export function kernelsOfSteps(
  generation: GpuGeneration,
  precision: Precision,
  names: readonly CommonWorkloadName[],
): readonly KernelSource[] {
  return recordKernels(generation, precision, (device) =>
    names.flatMap((name) => {
      const { model, loss } = commonWorkloads[name](device, { size: "wide", isPlannedOnly: true });
      const optimizer = new optim.AdamW(model.parameters());
      const plans = planAllSchedules(device, () => {
        loss().backward();
        optim.clipGradNorm(model.parameters(), 1, { errorIfNonfinite: false });
        optimizer.step();
        optimizer.zeroGrad();
      });
      return plans.flatMap(({ schedule }) =>
        listSources(
          device.runtime,
          schedule.calls.map(({ call }) => call),
          storageWithoutMemory,
        ),
      );
    }),
  );
}

/** Widths of heads: they select the tiles of flash attention, and the widest need the most shared memory. */
export const headWidths = [40, 64, 96, 128, 192, 256] as const;

/** The kernels whose shared memory grows with a size: attention of these heads, convolutions and long rows. */
export function kernelsAtLimits(
  generation: GpuGeneration,
  precision: Precision,
  widths: readonly number[] = headWidths,
): readonly KernelSource[] {
  return recordKernels(generation, precision, (device) => {
    for (const width of widths)
      for (const dropoutP of [0, 0.1]) device.step(() => attend(device, width, dropoutP));
    for (const width of widths) device.step(() => attendToCache(device, width));
    for (const channels of [3, 32, 256]) device.step(() => convolve(device, channels));
    for (const columns of [9000, 50_304]) device.step(() => normalise(device, columns));
    device.step(() => embed(device));
    return [];
  });
}

const learned = (device: Device, ...shape: number[]): Tensor => zeros(shape, { device, requiresGrad: true });

function attend(device: Device, width: number, dropoutP: number): void {
  const [q, k, v] = [0, 1, 2].map(() => learned(device, 1, 2, 80, width)) as [Tensor, Tensor, Tensor];
  nn.functional.scaledDotProductAttention(q, k, v, null, { isCausal: true, dropoutP }).sum().backward();
}

/** A short cache and one whose columns are split. */
function attendToCache(device: Device, width: number): void {
  for (const dtype of ["f32", "bf16"] as const) {
    for (const columns of [128, 2048]) {
      const heads = (count: number) => zeros([1, 1, count, width], { dtype, device });
      const cache = () => zeros([1, columns, 2, width], { dtype, device });
      const positions = zeros([1, 1], { dtype: "i32", device });
      const angles = zeros([1, 1, 1, width / 2], { device });
      const operands = [heads(16), heads(2), heads(2), cache(), cache(), positions, angles, angles];
      device.apply(cachedAttention, operands, { columns, scale: 1, window: null });
    }
  }
}

function convolve(device: Device, channels: number): void {
  const [images, weight] = [learned(device, 4, channels, 16, 16), learned(device, 64, channels, 3, 3)];
  nn.functional.conv2d(images, weight, null, { padding: 1 }).sum().backward();
}

function normalise(device: Device, columns: number): void {
  const labels = zeros([4], { dtype: "i32", device });
  nn.functional.crossEntropy(learned(device, 4, columns), labels).backward();
}

function embed(device: Device): void {
  for (const rows of [100, 20_000]) {
    const ids = zeros([512], { dtype: "i32", device });
    nn.functional
      .embedding(ids, learned(device, rows, 64))
      .sum()
      .backward();
  }
}
