/** The maximum of a long row and the sum of its exponentials in one pass, and the gradient of a label in another. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cudaMissing, openCudaKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import type { DeviceInfo } from "../../../driver/index.js";
import {
  type Dtype,
  iterateRows,
  narrowToBf16,
  type RowKernel,
  type Stage,
  term,
  widenBf16,
} from "../../../ir/index.js";
import { onlineSoftmaxAt } from "./online-softmax.js";
import { positionMatchIn } from "./position-match.js";
import { cudaRowConfig } from "./row-config.js";

const x = term.load(0, "f32");
const [max, sum] = [term.reduced(0, "f32"), term.reduced(1, "f32")];
const reduceMax: Stage = { kind: "reduce", op: "max", value: x };
const reduceSum = (value = term.exp(term.sub(x, max))): Stage => ({ kind: "reduce", op: "add", value });
const store = (output: number, value: typeof x): Stage => ({ kind: "store", output, value });

test("the pass computes a maximum and the sum of exponentials that are shifted by it, and no other pair", () => {
  assert.equal(onlineSoftmaxAt([reduceMax, reduceSum()], 0), x);
  const doubled = term.mul(2, x);
  assert.deepEqual(
    onlineSoftmaxAt(
      [{ ...reduceMax, value: doubled }, reduceSum(term.exp(term.sub(term.mul(2, x), max)))],
      0,
    ),
    doubled,
  );
  for (const other of [
    [reduceMax],
    [reduceMax, reduceSum(term.exp(term.sub(doubled, max)))],
    [reduceMax, reduceSum(term.sub(x, max))],
    [reduceSum(), reduceMax],
    [{ ...reduceMax, op: "min" } as Stage, reduceSum()],
  ])
    assert.equal(onlineSoftmaxAt(other, 0), undefined);
  assert.equal(onlineSoftmaxAt([reduceMax, reduceMax, reduceSum()], 1), undefined, "of another maximum");
});

const label = term.load(1, "i32");

test("a position is matched if the value tests for it once, against an integer of the row", () => {
  const isLabel = term.eq(term.position, label);
  const value = term.sub(x, term.select(isLabel, x, 0));
  const isInvariant = (input: number): boolean => input === 1;
  const match = positionMatchIn(value, isInvariant);
  assert.equal(match?.at, label);
  assert.deepEqual(match?.elsewhere, term.sub(x, term.select(term.constant(0, "i32"), x, 0)));
  const others = [
    x,
    term.select(term.lt(term.position, label), x, 0),
    term.select(isLabel, term.convert(term.position, "f32"), 0),
  ];
  for (const other of others) assert.equal(positionMatchIn(other, isInvariant), undefined);
  assert.equal(
    positionMatchIn(value, () => false),
    undefined,
    "a label of each element",
  );
});

/** Stores the probabilities minus 1 at the label, and for each row the logarithm of its sum. */
function lossKernel(dtype: Dtype): RowKernel {
  const probability = term.exp(term.sub(term.sub(x, max), term.log(sum)));
  return {
    ...{ name: "loss", inputs: [dtype, "i32"], scalars: [] },
    outputs: [
      { dtype: "f32", per: "row" },
      { dtype, per: "element" },
    ],
    stages: [
      reduceMax,
      reduceSum(),
      store(0, term.add(max, term.log(sum))),
      store(1, term.sub(probability, term.select(term.eq(term.position, label), 1, term.constant(0, "f32")))),
    ],
  };
}

/** The larger error; NaN is the largest. */
const worse = (a: number, b: number): number => (b <= a ? a : Number.isNaN(b) ? Number.POSITIVE_INFINITY : b);

const hopper = { computeCapability: "9.0" } as DeviceInfo;

describe("a long row of bf16", { skip: cudaMissing }, () => {
  const runtime = openCudaKernelRuntime();
  const { POSITIVE_INFINITY: inf, NaN: nan } = Number;
  /** With 1024 threads and vectors of eight: four whole rounds, and a few vectors. The last label is the last element. */
  const columns = 4 * 8192 + 808;
  const labels = [3, 8192 * 2 + 5, 0, columns - 1, 9, 10];

  /** Rows that rise, fall, and have −∞ in most vectors of each thread; then rows whose loss is NaN. */
  const rows: readonly ((index: number) => number)[] = [
    (index) => index / 4096,
    (index) => -index / 1024 + 3 * Math.sin(index),
    (index) => (index % 1000 === 7 ? 30 - index / 2000 : -inf),
    (index) => (index === columns - 2 ? 200 : -100),
    (index) => (index === 20_000 ? nan : 1),
    () => -inf,
  ];

  /** The rows, rounded to bf16. */
  const patterns = narrowToBf16(
    Float32Array.from(rows.flatMap((value) => Array.from({ length: columns }, (_, index) => value(index)))),
  );

  function run(fault?: readonly [from: string, to: string]) {
    return runtime.step(() => {
      const operands = [
        put(runtime, patterns, "x"),
        put(runtime, Int32Array.from(labels), "labels"),
        put(runtime, new Float32Array(rows.length), "losses"),
        put(runtime, new Uint16Array(patterns.length), "gradients"),
      ] as const;
      const [perElement, perRow] = [
        [columns, 1],
        [1, 0],
      ];
      const iteration = iterateRows([rows.length, columns], [perElement, perRow, perRow, perElement], 1);
      const options = { device: hopper, usesFastMath: true };
      const { sizes, blocks, print } = cudaRowConfig(lossKernel("bf16"), iteration, operands, options);
      const { cuda = assert.fail(), ...source } = print();
      assert.ok(cuda.code.includes("loadVec<8>") && cuda.code.includes("__launch_bounds__(1024, 2)"));
      if (fault) assert.ok(cuda.code.includes(fault[0]));
      const code = fault ? cuda.code.replaceAll(...fault) : cuda.code;
      const launch = { op: "loss", source: { ...source, cuda: { ...cuda, code } }, blocks } as const;
      runtime.submit(runtime.load([{ kind: "launch", ...launch, arguments: [...operands, ...sizes] }]));
      const losses = new Float32Array(runtime.read(operands[2]).buffer);
      return { losses, gradients: new Uint16Array(runtime.read(operands[3]).buffer) };
    });
  }

  /** The largest error of the logarithms, and of the gradients relative to their rounding. NaN counts as 0 if it is exact. */
  function errors({ losses, gradients }: ReturnType<typeof run>): { loss: number; gradient: number } {
    const [values, computed] = [widenBf16(patterns), widenBf16(gradients)];
    const distance = (actual: number, exact: number): number =>
      Number.isNaN(exact) && Number.isNaN(actual) ? 0 : Math.abs(actual - exact);
    let [loss, gradient] = [0, 0];
    for (const row of rows.keys()) {
      const begin = row * columns;
      const ofRow = values.subarray(begin, begin + columns);
      const largest = ofRow.reduce((a, b) => Math.max(a, b));
      const logSum = Math.log(ofRow.reduce((total, value) => total + Math.exp(value - largest), 0));
      loss = worse(loss, distance(losses[row]!, largest + logSum));
      for (const [index, value] of ofRow.entries()) {
        const exact = Math.exp(value - largest - logSum) - Number(index === labels[row]);
        const rounding = Math.abs(exact) * 2 ** -8 + 2 ** -126;
        gradient = worse(gradient, distance(computed[begin + index]!, exact) / (rounding || 1));
      }
    }
    return { loss, gradient };
  }

  test("has the logarithm of its sum to 2^-15, and its gradient to the rounding of bf16", () => {
    const { loss, gradient } = errors(run());
    assert.ok(loss <= 2 ** -15, `loss ${loss}`);
    assert.ok(gradient <= 1.01, `gradient ${gradient}`);
  });

  test("red proof: a sum that is not rescaled is seen, and a label that is not found", () => {
    const code = [
      ["acc1 * fast_exp_f32(acc0 - v", "acc1 * fast_exp_f32(0.0f * acc0 - 0.0f * v"],
      ["- position < 8u", "- position < 3u"],
    ] as const;
    assert.ok(errors(run(code[0])).loss > 0.01);
    assert.ok(errors(run(code[1])).gradient > 2);
  });
});
