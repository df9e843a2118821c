/** autograd.functional, and gradients of each member by vmap, compared with PyTorch's in float64 (test/oracle/functional.py). */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { autograd, ones, Tensor, tensor, vmap } from "holdfast";
import { openDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";
import { repositoryRoot } from "./support/repository.js";
import { sameBytes } from "./support/same-bytes.js";

interface OracleArray {
  readonly shape: readonly number[];
  readonly values: readonly number[];
}

const oracle = JSON.parse(readFileSync(join(repositoryRoot, "test/oracle/functional.json"), "utf8")) as {
  readonly inputs: Readonly<Record<"x" | "w" | "v" | "vx" | "vw", OracleArray>>;
  readonly cases: Readonly<Record<string, readonly OracleArray[]>>;
};
const cpu = openDevice();
const { hessian, hvp, jacobian, jvp, vhp, vjp } = autograd.functional;

const upload = ({ shape, values }: OracleArray): Tensor =>
  cpu.fromHost(Float64Array.from(values), shape, "f64");
const { inputs } = oracle;
const [x, w, v] = [upload(inputs.x), upload(inputs.w), upload(inputs.v)];
const [vx, vw] = [upload(inputs.vx), upload(inputs.vw)];

const layer = (a: Tensor, b: Tensor): Tensor => a.matmul(b).tanh();
const two = (a: Tensor, b: Tensor): readonly Tensor[] => [layer(a, b), b.mul(b).sum(0)];
const energy = (a: Tensor, b: Tensor): Tensor => layer(a, b).square().sum().mul(a.exp().mean());
const slopeOf = (a: Tensor, b: Tensor): Tensor => {
  const leaf = b.requiresGrad_();
  return autograd.grad(energy(a, leaf), [leaf])[0];
};

type Nested = Tensor | readonly Nested[];

const calls: Readonly<Record<string, () => Nested>> = {
  jacobian: () => jacobian(layer, [x, w]),
  "jacobian, vectorized": () => jacobian(layer, [x, w], { vectorize: true }),
  jacobianOfOne: () => jacobian((a) => a.softmax(-1), x),
  jacobianOfTwo: () => jacobian(two, [x, w]),
  "jacobianOfTwo, vectorized": () => jacobian(two, [x, w], { vectorize: true }),
  hessian: () => hessian(energy, [x, w]),
  "hessian, vectorized": () => hessian(energy, [x, w], { vectorize: true }),
  vjp: () => vjp(layer, [x, w], v),
  jvp: () => jvp(layer, [x, w], [vx, vw]),
  hvp: () => hvp(energy, [x, w], [vx, vw]),
  vhp: () => vhp(energy, [x, w], [vx, vw]),
  perSample: () => vmap(slopeOf)(x, w.expand([2, 3, 2])),
};

function flat(items: Nested): readonly Tensor[] {
  return items instanceof Tensor ? [items] : items.flatMap(flat);
}

for (const [name, call] of Object.entries(calls)) {
  const expected = oracle.cases[name.split(",")[0] ?? ""] ?? assert.fail(name);
  test(`${name}: as PyTorch's, eagerly and in a compiled step to the same bits`, () => {
    const eager = cpu.step(() =>
      flat(call()).map((result) => ({ shape: result.shape, values: result.dataSync() })),
    );
    assert.equal(eager.length, expected.length);
    for (const [index, { shape, values }] of expected.entries()) {
      assert.deepEqual(eager[index]?.shape, shape, `the shape of result ${index}`);
      for (const [at, number] of values.entries()) {
        const actual = Number(eager[index]?.values[at]);
        assert.ok(
          Math.abs(actual - number) <= 1e-9 * Math.max(1, Math.abs(number)),
          `${index}[${at}]: ${actual}, not ${number}`,
        );
      }
    }
    const step = cpu.compile(() => [...flat(call())]);
    for (const [index, result] of step().entries())
      sameBytes(result.dataSync() as Float64Array, eager[index]?.values as Float64Array, `result ${index}`);
    step.close();
  });
}

test("createGraph gives results that can be differentiated, and the inputs stay as they are", () => {
  cpu.step(() => {
    const leaf = tensor([1, 2], { requiresGrad: true, device: cpu });
    const rows = jacobian((a) => a.mul(a).mul(a), leaf, { createGraph: true });
    assert.deepEqual(autograd.grad(rows.sum(), [leaf])[0].tolist(), [6, 12]);
    const [, slope] = jvp((a) => a.mul(a).sum(), leaf, ones([2]), { createGraph: true });
    assert.deepEqual(autograd.grad(slope, [leaf])[0].tolist(), [2, 2]);
    assert.equal(jacobian((a) => a.mul(2), leaf).requiresGrad, false);
    assert.equal(leaf.grad, null);
    assert.equal(x.requiresGrad, false);
  });
});

test("a jacobian inside vmap is that of each member", () => {
  cpu.step(() => {
    const rows = vmap((row: Tensor) => jacobian((a) => a.mul(a), row))(x);
    for (const [index, row] of x.unbind(0).entries())
      assert.deepEqual(rows.select(0, index).tolist(), jacobian((a) => a.mul(a), row).tolist());
  });
});

test("results without a gradient have a derivative of 0, or are rejected by strict", () => {
  cpu.step(() => {
    const constant = (): Tensor => ones([2]);
    assert.deepEqual(jacobian(constant, ones([3])).tolist(), [
      [0, 0, 0],
      [0, 0, 0],
    ]); // prettier-ignore
    assert.deepEqual(hessian((a) => a.sum(), ones([2])).tolist(), [
      [0, 0],
      [0, 0],
    ]); // prettier-ignore
    assert.deepEqual(
      jvp((a) => [a.mul(3), constant()], ones([2]), ones([2]))[1].map((part) => part.tolist()),
      [
        [3, 3],
        [0, 0],
      ],
    ); // prettier-ignore
    assert.deepEqual(hvp((a) => a.sum(), ones([2]), ones([2]))[1].tolist(), [0, 0]);
    assert.deepEqual(jacobian((a) => a.slice([0, 0]), ones([3])).shape, [0, 3]);
    rejects("NO_GRADIENT", () => jacobian(constant, ones([3]), { strict: true }), /input 0/);
    rejects("BAD_SHAPE", () => hessian((a) => a, ones([3])), /single number/);
    rejects("BAD_SHAPE", () => vjp((a) => a, ones([3]), ones([2])), /vector 0/);
    rejects("BAD_ARGUMENT", () => jvp((a) => a, ones([3])), /vector v/);
    rejects("BAD_ARGUMENT", () => jacobian((a: Tensor) => a, []), /at least one input/);
  });
});
