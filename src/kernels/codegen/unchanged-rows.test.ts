/** Rows that a kernel leaves unchanged are skipped if, and only if, that changes no bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../../test/support/effort.js";
import { kernelDevices, put } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { type Expression, iterateRows, type RowKernel, type Stage, term } from "../../ir/index.js";
import type { Command, Runtime, Storage } from "../../runtime/index.js";
import { span } from "../../units/index.js";
import { backendOf, lowerCalls } from "../backend.js";
import { type KernelCall, rowCalls } from "../kernel-call.js";
import { submit } from "../submit.js";
import { cudaRowConfig } from "./cuda/row-config.js";
import { changeConditionOf } from "./unchanged-rows.js";
import { wasmRowConfig } from "./wasm/configs.js";
import { printRowKernel } from "./wasm/row-kernel.js";

const [g, m, p] = [0, 1, 2].map((input) => term.load(input, "f32")) as [Expression, Expression, Expression];
const limit = term.load(3, "f32");
const isUsed = term.ne(term.reduced(0, "i32"), 0);
const isAllowed = term.lt(limit, 1);

/** m += g and p -= m in rows whose g is not all zeros, if the limit allows it. */
function update(
  condition: Expression,
  { olds = [m, p], last = [] }: { olds?: readonly [Expression, Expression]; last?: readonly Stage[] } = {},
): RowKernel {
  const guarded = (value: Expression, old: Expression): Expression =>
    term.select(isAllowed, term.select(condition, value, old), old);
  return {
    name: "update of used rows",
    inputs: ["f32", "f32", "f32", "f32"],
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: "f32", per: "element" },
    ],
    scalars: [],
    stages: [
      { kind: "reduce", op: "max", value: term.ne(g, 0) },
      { kind: "store", output: 0, value: guarded(term.add(m, g), olds[0]) },
      { kind: "store", output: 1, value: guarded(term.sub(p, m), olds[1]) },
      ...last,
    ],
  };
}

const iterationOf = (rows: number, width: number) => {
  const whole = [width, 1];
  return iterateRows([rows, width], [whole, whole, whole, [0, 0], whole, whole], 1);
};

function at(address: number): Storage {
  const owner = undefined;
  return { kind: "step", span: span(address, 1 << 20), generation: 1, label: "operand", home: {}, owner };
}

describe("the rows are skipped", () => {
  const [gradient, moment, parameter, number, other] = [1, 2, 3, 4, 5].map((place) => at(place << 24)) as [
    Storage,
    Storage,
    Storage,
    Storage,
    Storage,
  ];
  const inPlace = [gradient, moment, parameter, number, moment, parameter];
  const isSkipping = (kernel: RowKernel, operands: readonly Storage[], width = 8): boolean => {
    const iteration = iterationOf(4, width);
    const condition = changeConditionOf(kernel, iteration, operands);
    for (const config of [cudaRowConfig, wasmRowConfig])
      assert.equal(config(kernel, iteration, operands).key.endsWith(" skip"), condition !== undefined);
    return condition !== undefined;
  };

  test("if every store keeps the present value of its output under one condition", () => {
    assert.ok(isSkipping(update(isUsed), inPlace));
    assert.ok(isSkipping(update(isUsed), inPlace, 1), "rows of one element");
  });

  test("but not if an output is other memory than the value that it keeps", () => {
    assert.ok(!isSkipping(update(isUsed), [gradient, moment, parameter, number, other, parameter]));
    assert.ok(!isSkipping(update(isUsed, { olds: [p, m] }), inPlace));
  });

  test("but not if a store has no condition, or a reduction follows the stores", () => {
    const plain: Stage = { kind: "store", output: 1, value: g };
    assert.ok(!isSkipping(update(isUsed, { last: [plain] }), inPlace));
    const sum: Stage = { kind: "reduce", op: "add", value: m };
    assert.ok(!isSkipping(update(isUsed, { last: [sum] }), inPlace));
  });

  test("by the condition that the elements of a row share, if another one differs among them", () => {
    const iteration = iterationOf(4, 8);
    const kernel = update(term.gt(g, 0));
    const condition = changeConditionOf(kernel, iteration, inPlace);
    assert.deepEqual(condition, isAllowed);
  });

  test("and on CUDA, the moments and parameters of other rows are loaded after the condition", () => {
    const { code = "" } = cudaRowConfig(update(isUsed), iterationOf(4, 64), inPlace).print().cuda ?? {};
    const [before = "", after = ""] = code.slice(code.indexOf("__global__")).split("changedCount =");
    const loads = (text: string): number => text.match(/loadVec<4>/g)?.length ?? 0;
    assert.deepEqual([loads(before), loads(after)], [1, 2]);
  });
});

/** g, m and p of rows of which every second one has no gradient. */
function valuesOf(rows: number, width: number): readonly Float32Array<ArrayBuffer>[] {
  const wave = (seed: number) =>
    Float32Array.from({ length: rows * width }, (_, element) => Math.sin(seed + element * 1.3));
  const gradient = wave(1).map((value, element) => (Math.floor(element / width) % 2 === 0 ? value : -0));
  // A single element with a gradient is enough.
  if (rows > 2) gradient.fill(0, 2 * width, 3 * width - 1);
  return [gradient, wave(2), wave(3)];
}

function run(
  runtime: Runtime,
  kernel: RowKernel,
  width: number,
  limit: number,
  isInPlace: boolean,
  lower: (call: KernelCall) => readonly KernelCall[] = (call) => [call],
) {
  const rows = 5;
  return runtime.step(() => {
    const inputs = [...valuesOf(rows, width), Float32Array.of(limit)].map((values, input) =>
      put(runtime, values, `input ${input}`),
    );
    const outputs = [inputs[1]!, inputs[2]!].map((storage) =>
      isInPlace ? storage : runtime.arena.allocate(storage.span.size, "output"),
    );
    const iteration = iterationOf(rows, width);
    submit(runtime, rowCalls({ kernel, iteration, operands: [...inputs, ...outputs] }).flatMap(lower));
    return outputs.map((output) => new Float32Array(runtime.read(output).buffer));
  });
}

/** The plain loops. With other outputs, p is reduced by the old m, which the kernel reads again. */
function runPlainly(width: number, limit: number, isInPlace: boolean) {
  const [gradient, moments, parameters] = valuesOf(5, width) as [Float32Array, Float32Array, Float32Array];
  const [newMoments, newParameters] = [moments.slice(), parameters.slice()];
  for (let row = 0; row < 5; row++) {
    const [from, to] = [row * width, (row + 1) * width];
    if (!(limit < 1) || gradient.slice(from, to).every((value) => value === 0)) continue;
    for (let element = from; element < to; element++) {
      newMoments[element] = moments[element]! + gradient[element]!;
      newParameters[element] = parameters[element]! - (isInPlace ? newMoments : moments)[element]!;
    }
  }
  return [newMoments, newParameters];
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    test("used rows change, and the others keep their bits, in place or not, for rows of any length", () => {
      for (const width of effort({ quick: [1, 64, 1100], thorough: [1, 3, 64, 300, 1100] })) {
        for (const [limit, isInPlace] of [
          [0, true],
          [0, false],
          [2, true],
        ] as const) {
          const expected = runPlainly(width, limit, isInPlace);
          for (const [output, values] of run(runtime, update(isUsed), width, limit, isInPlace).entries())
            sameBytes(values, expected[output]!, `output ${output}, rows of ${width}, limit ${limit}`);
        }
      }
    });

    test("red proof: code that skips the used rows leaves them unchanged", () => {
      const lower = (call: KernelCall) => lowerCalls(backendOf(runtime), [call]).map(invertSkip);
      const [moments] = run(runtime, update(isUsed), 64, 0, true, lower);
      assert.throws(() => sameBytes(moments!, runPlainly(64, 0, true)[0]!, "moments"), /moments/);
    });
  });
}

/** The same launch with code that skips the other rows. */
function invertSkip(command: Command): Command {
  assert.ok(command.kind === "launch");
  const { source } = command;
  const changes = term.eq(term.reduced(0, "i32"), 0);
  const inner = ["unit", "unit", "unit", "none", "unit", "unit"] as const;
  if (!source.cuda)
    return { ...command, source: printRowKernel(update(isUsed), { outerRank: 1, inner, changes }) };
  const code = source.cuda.code.replace("!= 0 ? count : 0u", "== 0 ? count : 0u");
  assert.notEqual(code, source.cuda.code);
  return { ...command, source: { ...source, cuda: { ...source.cuda, code } } };
}
