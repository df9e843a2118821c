/** Gradients of gradients, eager and compiled, compared with PyTorch's in float64 (test/oracle/autograd.py has the same functions). */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { autograd, linalg, nn, type Tensor, tensor } from "holdfast";
import { type Cell, recurrent } from "../src/ops/index.js";
import { isLeftToCpu, openDevice } from "./support/devices.js";
import { repositoryRoot } from "./support/repository.js";
import { sameBytes } from "./support/same-bytes.js";

interface OracleCase {
  /** The index of the first input that requires a gradient. */
  readonly first: number;
  readonly inputs: readonly (readonly number[])[];
  readonly value: number;
  readonly gradients: readonly (readonly number[])[];
}

const { cases } = JSON.parse(readFileSync(join(repositoryRoot, "test/oracle/autograd.json"), "utf8")) as {
  readonly cases: Readonly<Record<string, OracleCase>>;
};
const cpu = openDevice();
const { conv2d, crossEntropy, gelu, layerNorm, linear, maxPool2d, silu } = nn.functional;

type Inputs = readonly Tensor[];

function critic(x: Tensor, [w1, b1, gain, w2]: Inputs): Tensor {
  const hidden = layerNorm(gelu(linear(x, w1!, b1!)), [5], gain!);
  return linear(hidden, w2!);
}

function slopesSquared(y: Tensor, inputs: Inputs): Tensor {
  return autograd
    .grad(y, inputs, { createGraph: true })
    .map((slope) => slope.mul(slope).sum())
    .reduce((sum, part) => sum.add(part));
}

/** The cube of all states, and of an LSTM's final cell. */
function recurrentLayer(cell: Cell) {
  return (...[x, state, memory, wih, whh, bih, bhh]: Inputs): Tensor => {
    const isGru = cell === "gru";
    const gates = linear(x!, wih!, isGru ? bih! : bih!.add(bhh!));
    const others = cell === "lstm" ? [memory!] : isGru ? [bhh!] : [];
    const all = cpu.apply(recurrent, [gates, state!, whh!, ...others], { cell, isReversed: false });
    const [steps] = x!.shape;
    // PyTorch returns the last state too, which counts twice.
    const results = [all.narrow(0, 1, steps!), all.narrow(0, steps!, cell === "lstm" ? 2 : 1)];
    const out = results.map((result) => result.pow(3).sum()).reduce((sum, part) => sum.add(part));
    const inputs = [x!, state!, ...(cell === "lstm" ? [memory!] : []), wih!, whh!, bih!, bhh!];
    return slopesSquared(out, inputs).add(memory!.square().sum());
  };
}

const functions: Readonly<Record<string, (...inputs: Inputs) => Tensor>> = {
  gradientPenalty(real, fake, mix, ...weights) {
    const between = mix!.mul(real!).add(mix!.mul(-1).add(1).mul(fake!)).requiresGrad_();
    const [slope] = autograd.grad(critic(between, weights).sum(), [between], { createGraph: true });
    const penalty = slope.norm(1).sub(1).square().mean();
    return critic(fake!, weights).mean().sub(critic(real!, weights).mean()).add(penalty.mul(10));
  },
  attention(q, k, v) {
    return slopesSquared(nn.functional.scaledDotProductAttention(q!, k!, v!).tanh().sum(), [q!, k!, v!]);
  },
  convolution(x, w, b) {
    const y = maxPool2d(silu(conv2d(x!, w!, b!, { padding: 1 })), 2);
    return slopesSquared(y.mul(y).sum(), [x!, w!, b!]);
  },
  classes(x, w) {
    const labels = tensor([1, 0, 2, -100], { dtype: "i32", device: cpu });
    return slopesSquared(crossEntropy(x!.matmul(w!), labels, { labelSmoothing: 0.1 }), [x!, w!]);
  },
  lstm: recurrentLayer("lstm"),
  gru: recurrentLayer("gru"),
  rnnTanh: recurrentLayer("tanh"),
  rnnRelu: recurrentLayer("relu"),
  values(a, b) {
    const out = linalg
      .eigvalsh(a!.add(a!.transpose(-2, -1)))
      .pow(3)
      .sum()
      .add(linalg.svdvals(b!).pow(3).sum());
    return slopesSquared(out, [a!, b!]);
  },
  third(x) {
    let y = x!.mul(x!.sigmoid().square()).sum();
    for (let order = 0; order < 2; order++) {
      const [slope] = autograd.grad(y, [x!], { createGraph: true });
      y = slope.sum();
    }
    return y;
  },
};

for (const [name, { first, inputs: lists, value, gradients }] of Object.entries(cases)) {
  test(`${name}: gradients of gradients are PyTorch's, and a compiled step has the same bits`, (t) => {
    const inputs = lists.map((list) => tensor(list as number[], { dtype: "f64", device: cpu }));
    for (const input of inputs.slice(first)) input.requiresGrad = true;
    const body = (): Tensor[] => {
      const result = functions[name]!(...inputs);
      const slopes = autograd.grad(result, inputs.slice(first));
      return [result, ...slopes];
    };
    const eager = unlessLeftToCpu(() => cpu.step(() => body().map((result) => result.dataSync())));
    if (!eager) return t.skip("the CPU computes decompositions");
    const expected = [[value], ...gradients.map((gradient) => [gradient].flat(Number.POSITIVE_INFINITY))];
    for (const [index, numbers] of expected.entries()) {
      for (const [at, number] of (numbers as number[]).entries()) {
        const actual = eager[index]![at]!;
        const isNear = Math.abs(actual - number) <= 1e-9 * Math.max(1, Math.abs(number));
        assert.ok(isNear, `result ${index}[${at}] is ${actual}, and PyTorch's is ${number}`);
      }
    }
    const step = cpu.compile(body);
    for (let call = 0; call < 2; call++) {
      for (const [index, result] of step().entries())
        sameBytes(result.dataSync(), eager[index]!, `result ${index} of call ${call}`);
    }
    step.close();
    for (const input of inputs) input.release();
  });
}

/** Undefined if only the CPU computes an op of the function. */
function unlessLeftToCpu<T>(compute: () => T): T | undefined {
  try {
    return compute();
  } catch (error) {
    if (isLeftToCpu(error)) return undefined;
    throw error;
  }
}
