/**
 * The oracle's cases and CrossAsset's trajectories on a device: their distance from PyTorch, in units of the
 * tolerance.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  avgPool1d,
  avgPool2d,
  conv1d,
  conv2d,
  crossasset,
  type Device,
  type Dtype,
  maxPool1d,
  maxPool2d,
  nn,
  optim,
  readSafetensors,
  type Tensor,
  viewElements,
} from "holdfast";
import { type OracleCase, oracleCalls } from "../../test/support/oracle-calls.js";
import type { ConvolutionCase, Listed, Trajectory } from "../../test/support/oracle-records.js";
import { readRepositoryFile, repositoryRoot } from "../../test/support/repository.js";
import { type ToleranceUse, tolerances } from "../../test/tolerances.js";
import { type Deviation, deviationOf, noDeviation, scaleOf, worseOf } from "./deviation.js";

type Float = "f32" | "f64";

interface Stored {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
  readonly values: ArrayLike<number>;
}

/** The tensors of an oracle file, by name. */
function openTensors(file: string): (name: string) => Stored {
  const { tensors } = readSafetensors(readFileSync(join(repositoryRoot, "test/oracle", file)));
  return (name) => {
    const tensor = tensors.get(name);
    if (!tensor) throw new Error(`${file} has no ${name}.`);
    const { shape, dtype, bytes } = tensor;
    return { shape, dtype, values: viewElements(dtype, bytes) as ArrayLike<number> };
  };
}

function deviationFrom(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  use: ToleranceUse,
  float: Float,
  what: string,
): Deviation {
  // In f32 the terms of a matrix product can cancel to less than their own rounding errors.
  const scale = float === "f32" && use !== "trajectory" ? scaleOf(expected) : 1;
  return deviationOf(actual, expected, tolerances[use][float], scale, what);
}

/** The worst of all op cases. */
export function opOracleError(device: Device, float: Float): Deviation {
  const find = openTensors("ops.safetensors");
  const { cases } = JSON.parse(readRepositoryFile("test/oracle/ops.json")) as {
    cases: readonly OracleCase[];
  };
  const upload = (name: string): Tensor => {
    const { shape, dtype, values } = find(name);
    return device.fromHost(values, shape, dtype === "f64" ? float : dtype, name);
  };
  const check = (opCase: OracleCase): Deviation => {
    const operands = opCase.inputs.map((name, index) => {
      const operand = upload(name);
      if (opCase.grads[index]) operand.requiresGrad = true;
      return operand;
    });
    const result = oracleCalls[opCase.op]!(operands as [Tensor, ...Tensor[]], opCase.attrs);
    const outputs = Array.isArray(result) ? (result as readonly Tensor[]) : [result as Tensor];
    const describe = (name: string): string => `${opCase.name} ${opCase.op} ${name}`;
    let worst = outputs.reduce((soFar, output, index) => {
      const name = opCase.outputs[index]!;
      return worseOf(
        soFar,
        deviationFrom(output.dataSync(), find(name).values, "oracle value", float, describe(name)),
      );
    }, noDeviation);
    if (opCase.grads.every((name) => !name)) return worst;
    for (const [index, output] of outputs.entries())
      output.backward(upload(opCase.upstream[index]!), { retainGraph: true });
    for (const [index, name] of opCase.grads.entries()) {
      if (!name) continue;
      const gradient = operands[index]!.grad?.dataSync() ?? [];
      worst = worseOf(
        worst,
        deviationFrom(gradient, find(name).values, "oracle gradient", float, describe(name)),
      );
    }
    return worst;
  };
  return cases.reduce(
    (worst, opCase) =>
      worseOf(
        worst,
        device.step(() => check(opCase)),
      ),
    noDeviation,
  );
}

const convolutions: Readonly<Record<string, typeof conv1d>> = { conv1d, conv2d };
const pools: Readonly<Record<string, typeof avgPool1d>> = {
  max_pool1d: maxPool1d,
  max_pool2d: maxPool2d,
  avg_pool1d: avgPool1d,
  avg_pool2d: avgPool2d,
};

/** The worst of all convolutions and pools. */
export function convolutionOracleError(device: Device, float: Float): Deviation {
  const { cases } = JSON.parse(readRepositoryFile("test/oracle/convolution.json")) as {
    readonly cases: readonly ConvolutionCase[];
  };
  const upload = ({ values, shape }: Listed): Tensor => device.fromHost(values, shape, float);
  const check = ({ op, attrs, inputs, output, upstream, grads }: ConvolutionCase): Deviation => {
    const operands = inputs.map((input) => {
      if (!input) return null;
      const operand = upload(input);
      operand.requiresGrad = true;
      return operand;
    });
    const [x, weight, bias] = operands;
    const { kernel_size: size, ...rest } = attrs;
    const convolution = convolutions[op];
    const result = convolution ? convolution(x!, weight!, bias ?? null, rest) : pools[op]!(x!, size!, rest);
    let worst = deviationFrom(result.dataSync(), output.values, "oracle value", float, `${op}: the value`);
    result.backward(upload(upstream));
    for (const [index, gradient] of grads.entries()) {
      if (!gradient) continue;
      const actual = operands[index]?.grad?.dataSync() ?? [];
      const what = `${op}: the gradient of operand ${index}`;
      worst = worseOf(worst, deviationFrom(actual, gradient.values, "oracle gradient", float, what));
    }
    return worst;
  };
  return cases.reduce(
    (worst, opCase) =>
      worseOf(
        worst,
        device.step(() => check(opCase)),
      ),
    noDeviation,
  );
}

export function readTrajectories(): readonly Trajectory[] {
  const text = readRepositoryFile("test/oracle/crossasset.json");
  return (JSON.parse(text) as { trajectories: readonly Trajectory[] }).trajectories;
}

/** Ten steps of CrossAsset: losses, norms, the last gradients and the final weights. */
export function trajectoryError(device: Device, trajectory: Trajectory, float: Float): Deviation {
  const find = openTensors("crossasset.safetensors");
  const { name, config, lr, betas, eps, weight_decay: weightDecay, clip, steps } = trajectory;
  const { S: sources, F: features, D: width, H: heads, L: layers, qkNorm } = config;
  const model = new crossasset.CrossAsset({ sources, features, width, heads, layers, qkNorm }).to(
    device,
    float,
  );
  const parameters = [...model.namedParameters()];
  for (const [path, parameter] of parameters) device.write(parameter, find(`${name}.init.${path}`).values);
  const optimizer = new optim.AdamW(model.parameters(), { lr, betas, eps, weightDecay });
  let worst = noDeviation;
  const hold = (actual: ArrayLike<number>, expected: ArrayLike<number>, what: string): void => {
    worst = worseOf(worst, deviationFrom(actual, expected, "trajectory", float, `${name}: ${what}`));
  };
  for (let step = 0; step < steps; step++) {
    device.step(() => {
      const [x, y] = [find(`${name}.x${step}`), find(`${name}.y${step}`)];
      const logits = model.forward(device.fromHost(x.values, x.shape, float)); // [B, S, C]
      const labels = device.fromHost(y.values, y.shape, "i32").reshape([-1]);
      const loss = nn.functional.crossEntropy(logits.reshape([-1, 3]), labels, { ignoreIndex: -1 });
      loss.backward();
      hold([loss.item()], trajectory.loss.slice(step, step + 1), `loss ${step}`);
      const norm = optim.clipGradNorm(model.parameters(), clip);
      hold([norm.item()], trajectory.grad_norm.slice(step, step + 1), `norm ${step}`);
      // The bundle's grad0 is the last step's gradient, clipped; see test/oracle/README.md.
      if (step === steps - 1) {
        for (const [path, { grad }] of parameters)
          hold(grad?.dataSync() ?? [], find(`${name}.grad0.${path}`).values, `gradient of ${path}`);
      }
      optimizer.step();
      optimizer.zeroGrad();
    });
  }
  for (const [path, parameter] of parameters)
    hold(parameter.dataSync(), find(`${name}.final.${path}`).values, `final ${path}`);
  return worst;
}
