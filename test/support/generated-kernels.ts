/** The kernels for a GPU: every op in every float dtype, the optimizers, a whole model's training step. */

import fc from "fast-check";
import { crossasset, Device, nn, optim } from "holdfast";
import { basicKernels, type KernelSource } from "holdfast/internals";
import { randomKernels } from "../../src/kernels/random/index.js";
import type { FloatDtype } from "../tolerances.js";
import { deviceOpCases } from "./op-cases/index.js";
import type { OpCase } from "./op-cases/op-case.js";
import { runCase } from "./op-runs.js";
import { placeParameters, setGradient } from "./parameter-module.js";
import { openPrintingDriver } from "./source-recording-driver.js";
import { testEnvironment } from "./test-device.js";

/** The elements of each case: the dtypes have the same kernels, and differ in how they load and store. */
const drawsIn: Readonly<Record<FloatDtype, readonly number[]>> = {
  f32: [40, 150],
  f64: [80],
  bf16: [80],
  f16: [80],
};

export interface PrintOptions {
  /** Of this many cases of ops, one is printed in a dtype, and another one in the next dtype. Default: all. */
  readonly caseStep?: number;
}

/**
 * The source of all kernels, each text once: in f32 every generated variant, in the other dtypes one of each
 * name. Nothing is computed.
 */
export function printKernels({ caseStep = 1 }: PrintOptions = {}): readonly KernelSource[] {
  const { driver, sources } = openPrintingDriver();
  const device = new Device("cuda", {
    driver,
    memory: "1GiB",
    stallAfter: "off",
    environment: testEnvironment,
    print: () => {},
  });
  const printedBy = (print: () => void): KernelSource[] => {
    const before = sources.size;
    print();
    return [...sources.values()].slice(before);
  };
  try {
    const ofModel = printedBy(() => {
      printCrossAsset(device);
      const { reserveDraw } = randomKernels;
      for (const source of [...Object.values(basicKernels), reserveDraw]) device.runtime.kernel(source);
    });
    const ofDtypes = (Object.keys(drawsIn) as FloatDtype[]).flatMap((float, which) => {
      const cases = deviceOpCases.filter((_, index) => index % caseStep === which % caseStep);
      const printed = printedBy(() => {
        printOps(device, float, cases);
        printTraining(device, float);
      });
      return float === "f32"
        ? printed
        : [...new Map(printed.map((kernel) => [kernel.name, kernel])).values()];
    });
    return [...ofModel, ...ofDtypes];
  } finally {
    device.close();
    driver.close();
  }
}

function printOps(device: Device, float: FloatDtype, cases: readonly OpCase[]): void {
  for (const { op, draw, gradients } of cases) {
    const requiresGrad = gradients === "none" ? [] : gradients;
    for (const size of drawsIn[float]) {
      const [call] = fc.sample(fc.noBias(draw(size)), { seed: 20_240_611 + size, numRuns: 1 });
      if (call) device.step(() => runCase(device, op, call, { float, wanted: requiresGrad }));
    }
  }
}

/** Updates and clips of parameters in a dtype, grouped and separate. */
function printTraining(device: Device, float: FloatDtype): void {
  const shapes = [[3, 5], [7], [2, 130]];
  const values = shapes.map((shape) => new Float64Array(shape.reduce((size, extent) => size * extent)));
  const makers = [
    (parameters: nn.Parameter[]) => new optim.SGD(parameters, { lr: 0.1 }),
    (parameters: nn.Parameter[]) =>
      new optim.SGD(parameters, { lr: 0.1, momentum: 0.9, nesterov: true, weightDecay: 0.1 }),
    (parameters: nn.Parameter[]) => new optim.Adam(parameters, { weightDecay: 0.1 }),
    (parameters: nn.Parameter[]) => new optim.AdamW(parameters),
    (parameters: nn.Parameter[]) => new optim.SparseAdam(parameters),
  ];
  for (const make of makers) {
    const parameters = placeParameters(device, float, shapes, values);
    const optimizer = make(parameters);
    for (const [index, parameter] of parameters.entries()) setGradient(device, parameter, values[index]!);
    for (const normType of [2, 1, 3, Number.POSITIVE_INFINITY])
      optim.clipGradNorm(parameters, 1, { normType }).release();
    optim.clipGradValue(parameters, 1);
    optimizer.step();
    optimizer.release();
  }
}

function printCrossAsset(device: Device): void {
  const model = new crossasset.CrossAsset({ dropout: 0.1, qkNorm: true }).to(device);
  const optimizer = new optim.AdamW(model.parameters());
  device.step(() => {
    const [batch, sources, features] = [4, 12, 193];
    const x = device.fromHost(
      new Float32Array(batch * sources * features),
      [batch, sources, features],
      "f32",
    );
    const y = device.fromHost(new Int32Array(batch * sources), [batch * sources], "i32");
    nn.functional.crossEntropy(model.forward(x).reshape([-1, 3]), y).backward();
    optim.clipGradNorm(model.parameters(), 1);
    optimizer.step();
  });
}
