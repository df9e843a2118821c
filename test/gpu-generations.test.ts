/**
 * Every generation of GPUs runs the kernels that Holdfast selects for it: they fit its shared memory and registers, and need no
 * instructions of another one. `gpu-generations.long.test.ts` compiles them with NVIDIA's compiler.
 */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import { Device, fromTyped, manualSeed, nn, type Tensor } from "holdfast";
import { cudaKernel } from "../src/kernels/codegen/cuda/cuda-function.js";
import { maxRegisterBytes, registerBytes, registersPerSm } from "../src/kernels/cost-model.js";
import { type CommonWorkloadName, commonWorkloads } from "./support/common-models/workloads.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorDriver, withEmulatorDriver } from "./support/emulator-driver.js";
import {
  type GpuGeneration,
  gpuGenerations,
  kernelsAtLimits,
  kernelsOfSteps,
} from "./support/gpu-generations.js";
import { testEnvironment } from "./support/test-device.js";
import { isNear, tolerances } from "./tolerances.js";

const emulator = emulatorMissing ? undefined! : openEmulator();

afterEach(() => {
  if (!emulatorMissing) emulator.reset();
});

function emulate({ capability }: GpuGeneration): void {
  const [major = 0, minor = 0] = capability.split(".").map(Number);
  emulator.set("computeMajor", major);
  emulator.set("computeMinor", minor);
}

const find = (...capabilities: string[]): readonly GpuGeneration[] =>
  gpuGenerations.filter(({ capability }) => capabilities.includes(capability));

describe("an emulated GPU", { skip: emulatorMissing }, () => {
  const kernelWith = (sharedBytes: number) =>
    cudaKernel({
      ...{ name: "shared", parameters: { to: "out" }, elements: "float", threads: 32, sharedBytes },
      body: "  __shared__ float kept[32];\n  kept[threadIdx.x] = 1.0f;\n  __syncthreads();\n  to[0] = kept[0];",
    });

  for (const generation of gpuGenerations) {
    const { capability, sharedBytes } = generation;
    test(`of compute capability ${capability} reports its shared memory, loads code of its own number, and rejects kernels that need more`, () => {
      emulate(generation);
      withEmulatorDriver({}, (driver) => {
        assert.equal(driver.describe().sharedBytesPerBlock, sharedBytes);
        const staticBytes = 32 * 4;
        driver.unloadKernel(driver.loadKernel(kernelWith(sharedBytes - staticBytes)));
        assert.throws(() => driver.loadKernel(kernelWith(sharedBytes)), /cuFuncSetAttribute/);
      });
    });
  }
});

/** A lane's addresses, fragments and statistics in flash attention by FMA: with fewer registers for them, the compiler spills. */
const otherRegisters = 80;

/** The registers of a lane that the accumulators of flash attention's forward pass leave, with the blocks per SM that its code asks for. */
function registersLeft(code: string): number {
  const constant = (name: string) => Number(code.match(new RegExp(`\\b${name} = (\\d+)`))?.[1]);
  const [threads = 0, blocks = 1] = (code.match(/__launch_bounds__\(([^)]*)\)/)?.[1] ?? "")
    .split(",")
    .map(Number);
  const available = Math.min(maxRegisterBytes / registerBytes, registersPerSm / (threads * blocks));
  return available - (constant("blocksM") * (constant("tileN") + constant("valueDepth"))) / 2;
}

for (const generation of effort({ quick: find("8.0", "12.1"), thorough: gpuGenerations })) {
  const { capability, sharedBytes } = generation;
  for (const precision of ["f32", "tf32", "bf16"] as const) {
    test(`kernels for ${capability} in ${precision} fit its shared memory, leave registers, and need no other capability`, () => {
      const names = Object.keys(commonWorkloads) as CommonWorkloadName[];
      const steps = effort({ quick: [], thorough: names });
      const kernels = [
        ...kernelsAtLimits(generation, precision),
        ...kernelsOfSteps(generation, precision, steps),
      ];
      assert.ok(kernels.some(({ name }) => name.startsWith("attention.flash")));
      for (const { name, cuda } of kernels) {
        const { sharedBytes: dynamicBytes = 0, requiredCapability = capability } = cuda ?? {};
        assert.ok(dynamicBytes <= sharedBytes, `${name}: ${dynamicBytes} bytes of ${sharedBytes}`);
        assert.equal(requiredCapability, capability, name);
        const left = name === "attention.flash.f32" ? registersLeft(cuda?.code ?? "") : otherRegisters;
        assert.ok(left >= otherRegisters, `${name}: its accumulators leave ${left} registers`);
      }
    });
  }
}

test("red proof: a GPU with less shared memory gets kernels that fit it, and those of Hopper would not", () => {
  const [hopper, desktop] = [find("9.0"), find("12.1")].map(([generation]) =>
    kernelsAtLimits(generation!, "bf16", [256]).map(({ cuda }) => cuda?.sharedBytes ?? 0),
  );
  assert.ok(Math.max(...hopper!) > 99 * 1024 && Math.max(...desktop!) <= 99 * 1024);
});

test("red proof: the registers of three blocks per SM are too few for the accumulators of wide heads", () => {
  const kernels = find("8.0").flatMap((generation) => kernelsAtLimits(generation, "f32", [192]));
  const code = kernels.find(({ name }) => name === "attention.flash.f32")?.cuda?.code ?? "";
  assert.ok(registersLeft(code) >= otherRegisters);
  assert.ok(
    registersLeft(code.replace("__launch_bounds__(128, 2)", "__launch_bounds__(128, 3)")) < otherRegisters,
  );
});

/** Attention of wide heads, forward and backward: its tiles differ most between GPUs. */
function attend(device: Device, dtype: "f32" | "f64"): number[][] {
  manualSeed(5);
  const [rows, width] = [20, 256];
  const place = (phase: number): Tensor => {
    const values = Float32Array.from(
      { length: rows * width },
      (_, index) => Math.sin(index * 1.7 + phase) / 2,
    );
    const typed = dtype === "f64" ? Float64Array.from(values) : values;
    return fromTyped(typed, [1, 1, rows, width], { device, requiresGrad: true });
  };
  return device.step(() => {
    const inputs = [place(0), place(1), place(2)] as const;
    const out = nn.functional.scaledDotProductAttention(...inputs, null, { isCausal: true, dropoutP: 0.1 });
    out.square().sum().backward();
    return [out, ...inputs.map(({ grad }) => grad!)].map((tensor) => [...tensor.dataSync()].map(Number));
  });
}

describe("attention of heads of 256 on an emulated GPU", { skip: emulatorMissing }, () => {
  const cpu = new Device("cpu", { memory: "64MiB", stallAfter: "off", print: () => {} });
  const expected = attend(cpu, "f64");
  cpu.close();

  const precisions = effort({ quick: ["bf16"] as const, thorough: ["f32", "tf32", "bf16"] as const });
  for (const generation of effort({ quick: find("12.1"), thorough: gpuGenerations })) {
    for (const precision of precisions) {
      test(`of ${generation.capability} in ${precision} equals the CPU's in f64, with dropout`, () => {
        emulate(generation);
        const driver = openEmulatorDriver();
        const device = new Device("cuda", {
          ...{ driver, precision, memory: "256MiB", stallAfter: "off" },
          ...{ environment: testEnvironment, print: () => {} },
        });
        const tolerance = tolerances["against f64"][precision === "f32" ? "f32" : "bf16"];
        for (const [which, values] of attend(device, "f32").entries()) {
          const numbers = expected[which]!;
          const scale = Math.max(...numbers.map(Math.abs));
          for (const [index, value] of values.entries())
            assert.ok(isNear(value, numbers[index]!, tolerance, scale), `${which}, ${index}: ${value}`);
        }
        device.close();
        driver.close();
      });
    }
  }
});
