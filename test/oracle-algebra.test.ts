/** Products, distances and linear algebra: values and all gradients equal PyTorch's; and their errors. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { blockDiag, cdist, einsum, type HoldfastError, pdist, type Tensor, tensordot } from "holdfast";
import { type AlgebraCall, type Arguments, algebraCalls } from "./support/algebra-calls.js";
import { isLeftToCpu, openStrictDevice } from "./support/devices.js";
import { isThorough } from "./support/effort.js";
import type { Listed } from "./support/oracle-records.js";
import { readRepositoryFile } from "./support/repository.js";
import { isNear, type Tolerance, tolerances } from "./tolerances.js";

interface AlgebraCase {
  readonly op: string;
  readonly args: Arguments;
  readonly inputs: readonly Listed[];
  readonly outputs: readonly Listed[];
  readonly upstreams: readonly (Listed | null)[];
  readonly grads: readonly (Listed | null)[];
}

const cpu = openStrictDevice();
const { cases } = JSON.parse(readRepositoryFile("test/oracle/algebra.json")) as {
  readonly cases: readonly AlgebraCase[];
};

test("the oracle has a case of every call, and a call for every case", () => {
  assert.deepEqual([...new Set(cases.map(({ op }) => op))].sort(), Object.keys(algebraCalls).sort());
});

const floats = ["f64", "f32"] as const;
for (const [index, algebraCase] of cases.entries()) {
  const { op, args, inputs } = algebraCase;
  const shapes = inputs.map(({ shape }) => `[${shape.join(", ")}]`).join(", ");
  // In a quick run the cases have f64 and f32 in turn.
  for (const float of isThorough ? floats : [floats[index % 2]!]) {
    test(`${op} of ${shapes} ${JSON.stringify(args)}: value and gradients in ${float}`, (t) => {
      try {
        check(algebraCase, float, algebraCalls[op]!);
      } catch (error) {
        if (!isLeftToCpu(error)) throw error;
        t.skip("the CPU computes decompositions");
      }
    });
  }
}

test("red proof: a value that is off by 1e-8 in f64 is found, and so is a gradient", () => {
  const [product] = cases;
  const call = algebraCalls[product!.op]!;
  const wrongValue: AlgebraCall = (operands, args) => (call(operands, args) as Tensor).mul(1 + 1e-8);
  const wrongGradient: AlgebraCall = ([a, b], args) =>
    call([a!.add(a!.sub(a!.detach()).mul(1e-8)), b!], args);
  for (const wrong of [wrongValue, wrongGradient])
    assert.throws(() => check(product!, "f64", wrong), assert.AssertionError);
});

test("products of integers are exact", () => {
  const x = cpu.fromHost([1, 2, 3, 4], [2, 2], "i32");
  const y = einsum("ij,jk->ik", x, x);
  assert.deepEqual(
    [y.dtype, y.tolist(), x.select(0, 0).dot(x.select(0, 1)).item()],
    [
      "i32",
      [
        [7, 10],
        [15, 22],
      ],
      11,
    ],
  );
});

test("the trace of a matrix with more rows than columns has a gradient of ones along the diagonal", () => {
  const x = cpu.fromHost([1, 2, 3, 4, 5, 6], [3, 2], "f32");
  x.requiresGrad = true;
  x.trace().backward();
  assert.deepEqual(x.grad?.tolist(), [
    [1, 0],
    [0, 1],
    [0, 0],
  ]);
});

test("axes of size 0 give sums of 0", () => {
  const empty = cpu.fromHost([], [0, 2], "f32");
  assert.deepEqual(einsum("ij,ik->jk", empty, empty).tolist(), [
    [0, 0],
    [0, 0],
  ]);
});

test("many operands are contracted in pairs", () => {
  const operands = Array.from({ length: 10 }, () => cpu.fromHost([1, 1, 0, 1], [2, 2], "f64"));
  assert.deepEqual(einsum("ab,bc,cd,de,ef,fg,gh,hi,ij,jk->ak", ...operands).tolist(), [
    [1, 10],
    [0, 1],
  ]);
});

const ones = (...shape: number[]): Tensor =>
  cpu.fromHost(new Float32Array(shape.reduce((a, b) => a * b, 1)), shape, "f32");
const rejected: Readonly<Record<string, readonly [() => unknown, RegExp]>> = {
  "a term too many": [() => einsum("ij,jk->ik", ones(2, 2)), /2 terms for 1 operands/],
  "a letter too few": [() => einsum("ij->i", ones(2)), /"ij" has 2 letters, and operand 0 has 1 axes/],
  "sizes that differ": [
    () => einsum("ij,jk", ones(2, 3), ones(2, 3)),
    /"j" has size 3, and size 2 in operand 1/,
  ],
  "an unknown output": [() => einsum("ij->ijk", ones(2, 3)), /the output has "k", which no operand has/],
  "an output twice": [() => einsum("ij->ii", ones(2, 3)), /the output has "i" twice/],
  "two arrows": [() => einsum("i->i->i", ones(2)), /more than one arrow/],
  "a character": [() => einsum("i1", ones(2, 2)), /characters other than letters/],
  "axes of tensordot": [() => tensordot(ones(2, 3), ones(2, 3), 1), /axes \[1\] of \[2, 3\] and \[0\]/],
  "vectors of dot": [() => ones(2).dot(ones(3)), /dot of \[2\] and \[3\]/],
  "a matrix for mv": [() => ones(2).mv(ones(2)), /it takes a matrix and a vector/],
  "a sum that grows": [
    () => ones(3, 2, 2).addmm(ones(2, 2), ones(2, 2)),
    /does not broadcast to the product/,
  ],
  "batches of addbmm": [() => ones(2).addbmm(ones(2, 1, 2), ones(3, 2, 1)), /b must be \[2, 2, columns\]/],
  "an axis of cross": [() => ones(2, 2).cross(ones(2, 2)), /no axis has 3 elements/],
  "rows of cdist": [() => cdist(ones(2, 2), ones(2, 3)), /rows of one length/],
  "a batch for pdist": [() => pdist(ones(1, 2, 2)), /one row for each point/],
  "blocks of three axes": [() => blockDiag(ones(1, 2, 2)), /operand 0 is \[1, 2, 2\]/],
  "a norm of 0": [() => ones(2, 2).renorm(0, 0, 1), /p is 0/],
};

for (const [what, [use, message]] of Object.entries(rejected)) {
  test(`${what}: the error has the shapes and what is valid`, () => {
    assert.throws(use, (error: HoldfastError) => {
      assert.match(error.code, /^BAD_(SHAPE|ARGUMENT)$/);
      assert.match(error.message, message);
      return true;
    });
  });
}

function check(
  { args, inputs, outputs, upstreams, grads }: AlgebraCase,
  float: "f32" | "f64",
  call: AlgebraCall,
): void {
  cpu.step(() => {
    const upload = ({ values, shape }: Listed): Tensor => cpu.fromHost(values, shape, float);
    const operands = inputs.map((input, index) => {
      const operand = upload(input);
      if (grads[index]) operand.requiresGrad = true;
      return operand;
    });
    const result = call(operands, args);
    const actual = Array.isArray(result) ? (result as readonly Tensor[]) : [result as Tensor];
    assert.equal(actual.length, outputs.length);
    for (const [at, expected] of outputs.entries())
      requireNear(actual[at]!, expected, tolerances["oracle value"][float], `output ${at}`);
    const terms = upstreams.flatMap((upstream, at) =>
      upstream && actual[at]!.requiresGrad ? [actual[at]!.mul(upload(upstream)).sum()] : [],
    );
    if (terms.length > 0) terms.reduce((sum, term) => sum.add(term)).backward();
    for (const [at, gradient] of grads.entries()) {
      if (!gradient) continue;
      const tolerance = tolerances["oracle gradient"][float];
      requireNear(operands[at]!.grad!, gradient, tolerance, `the gradient of operand ${at}`);
    }
  });
}

function requireNear(actual: Tensor, { shape, values }: Listed, tolerance: Tolerance, what: string): void {
  assert.deepEqual(actual.shape, shape, `the shape of ${what}`);
  const elements = actual.dataSync();
  const scale = Math.max(1, ...values.map(Math.abs));
  for (const [at, expected] of values.entries()) {
    if (isNear(elements[at]!, expected, tolerance, scale)) continue;
    assert.fail(`${what} at element ${at} is ${elements[at]}; PyTorch has ${expected}`);
  }
}
