/**
 * The kernels that Holdfast selects on each generation of GPUs compile for it without a warning, and fit its shared memory. This
 * needs no GPU, only NVIDIA's compiler. TEST_GPUS=8.6,12.1 compiles for some generations only.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { KernelSource } from "holdfast/internals";
import { type CommonWorkloadName, commonWorkloads } from "./support/common-models/workloads.js";
import {
  type GpuGeneration,
  gpuGenerations,
  kernelsAtLimits,
  kernelsOfSteps,
} from "./support/gpu-generations.js";
import { compileWithNvcc, noCompiler } from "./support/nvcc.js";

const wanted = process.env["TEST_GPUS"]?.split(",");
const generations = gpuGenerations.filter(({ capability }) => wanted?.includes(capability) ?? true);

/** Kernels of a file: their results are kept together. */
const perFile = 8;
/** A few words, which a kernel with the largest tile of its width may lack. */
const maxSpillBytes = 64;

/** Compiled as for the device itself: with its own number, and its own instructions only if the kernel names them. Names all that do not fit. */
function checkKernels({ capability, sharedBytes }: GpuGeneration, kernels: readonly KernelSource[]): void {
  const faults: string[] = [];
  const number = `sm_${capability.replace(".", "")}`;
  for (const suffix of ["", "a"]) {
    const some = kernels.filter(
      ({ cuda }) => (cuda?.requiredCapability === capability ? "a" : "") === suffix,
    );
    for (let start = 0; start < some.length; start += perFile) {
      const file = some.slice(start, start + perFile);
      for (const [index, cost] of compileWithNvcc(file, `${number}${suffix}`).entries()) {
        const { name, cuda } = file[index]!;
        const bytes = cost.sharedBytes + (cuda?.sharedBytes ?? 0);
        if (bytes > sharedBytes)
          faults.push(`${name} needs ${bytes} bytes of shared memory, of ${sharedBytes}`);
        if (cost.spillBytes > maxSpillBytes) faults.push(`${name} spills ${cost.spillBytes} bytes`);
      }
    }
  }
  assert.deepEqual(faults, []);
}

describe("under nvcc", { skip: noCompiler() }, () => {
  assert.ok(generations.length > 0, `TEST_GPUS takes ${gpuGenerations.map(({ capability }) => capability)}`);
  for (const generation of generations) {
    test(`attention, convolutions, long rows and scatters for ${generation.capability} fit it`, () => {
      const kernels = (["f32", "tf32", "bf16"] as const).flatMap((precision) =>
        kernelsAtLimits(generation, precision),
      );
      checkKernels(generation, withoutCopies(kernels));
    });

    test(`the kernels of common models for ${generation.capability} fit it`, () => {
      const names = Object.keys(commonWorkloads) as CommonWorkloadName[];
      const kernels = (["f32", "tf32", "bf16"] as const).flatMap((precision) =>
        kernelsOfSteps(generation, precision, names),
      );
      checkKernels(generation, withoutCopies(kernels));
    });
  }
});

function withoutCopies(kernels: readonly KernelSource[]): readonly KernelSource[] {
  return [...new Map(kernels.map((kernel) => [kernel.cuda?.code, kernel])).values()];
}
