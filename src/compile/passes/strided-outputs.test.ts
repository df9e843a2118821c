/** Values whose pieces go to places at equal steps are made there, if that is free and their bits stay what they are. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { onCalls } from "../../../test/support/rewritten.js";
import { type ColumnKernel, iterateElements, type RowKernel, term } from "../../ir/index.js";
import type { Runtime, Storage } from "../../runtime/index.js";
import { span } from "../../units/index.js";
import type { Buffer, BufferSlice, Call, ColumnCall, GemmCall, Work } from "../program/program.js";
import { propagateCopies } from "./copy-propagation.js";
import { writeStridedOutputs } from "./strided-outputs.js";

interface Settings {
  readonly kind?: "cpu" | "cuda";
  readonly precision?: "f32" | "tf32";
  readonly computeCapability?: string;
  /** What the library wants for a product whose result has gaps. */
  readonly workspaceBytes?: number;
}

/** All that the pass asks of a runtime. */
function on(settings: Settings = {}): Runtime {
  const { kind = "cuda", precision = "tf32", computeCapability = "9.0", workspaceBytes = 0 } = settings;
  return {
    device: { kind, computeCapability, parallelism: 1 },
    settings: { precision },
    kernel: () => ({ workspaceBytes }),
  } as unknown as Runtime;
}

const [layers, m, n, k] = [3, 32, 64, 48];
let buffers = 0;
const bufferOf = (floats: number, label = "b"): Buffer => ({ id: buffers++, bytes: 4 * floats, label });
const whole = (buffer: Buffer): BufferSlice => ({ buffer, offset: 0, size: buffer.bytes });

/** [weight 0, bias 0, weight 1, bias 1, …] in persistent memory. */
function gradients(step = m * n + n): {
  readonly region: Buffer;
  weight(i: number): BufferSlice;
  bias(i: number): BufferSlice;
} {
  const bytes = 4 * (layers * step + m * n);
  const storage: Storage = {
    ...{ kind: "persistent", span: span(4096, bytes), generation: 0, label: "gradients" },
    ...{ home: {}, owner: undefined },
  };
  const region: Buffer = { ...bufferOf(bytes / 4, "gradients"), storage };
  return {
    region,
    weight: (layer) => ({ buffer: region, offset: 4 * layer * step, size: 4 * m * n }),
    bias: (layer) => ({ buffer: region, offset: 4 * (layer * step + m * n), size: 4 * n }),
  };
}

const call = (op: string, work: Work): Call => ({ op, work });
const result = bufferOf(layers * m * n, "products");
const sums = bufferOf(layers * n, "sums");

const product = call("matmul", {
  kind: "gemm",
  problem: {
    ...{ dtype: "f32", m, n, k, batch: layers },
    a: { slice: whole(bufferOf(layers * m * k)), rowStride: m, isTransposed: true, batchStride: m * k },
    b: { slice: whole(bufferOf(layers * k * n)), rowStride: n, batchStride: k * n },
    c: { slice: whole(result), rowStride: n, batchStride: m * n },
  },
});

const sumKernel: ColumnKernel = {
  ...{ name: "sum", inputs: ["f32"], outputs: ["f32"], scalars: [], op: "add" },
  values: [term.load(0, "f32")],
};
const sum = call("sum", {
  ...{ kind: "column", kernel: sumKernel, rows: k, columns: layers * n, scalars: [] },
  strides: [{ row: layers * n, column: "unit" }],
  operands: [whole(bufferOf(k * layers * n)), whole(sums)],
});

const numbers = Array.from({ length: layers }, (_, layer) => layer);

/** Copies of the pieces of a buffer to places, as they come of gradients on their way. */
function deliver(source: Buffer, placeOf: (layer: number) => BufferSlice): Call[] {
  return numbers.map((layer) => {
    const target = placeOf(layer);
    return call("copy", {
      kind: "copy",
      target,
      source: { buffer: source, offset: layer * target.size, size: target.size },
    });
  });
}

/** Copy propagation, then strided outputs. */
const simplify = onCalls((runtime, program, isTuned: boolean) => {
  propagateCopies(program);
  writeStridedOutputs(runtime, program, isTuned);
});
const spread = (runtime: Runtime, calls: readonly Call[]): readonly Call[] =>
  simplify(runtime, calls, runtime.settings.precision !== "f32");
const opsOf = (calls: readonly Call[]): string[] => calls.map(({ op }) => op);
const problemOf = (one: Call | undefined): GemmCall["problem"] => (one!.work as GemmCall).problem;
const columnsOf = (one: Call | undefined): ColumnCall => one!.work as ColumnCall;

for (const order of ["product first", "sums first"] as const) {
  test(`weight gradients and sums are made in their places, each in the gaps of the other: ${order}`, () => {
    const { region, weight, bias } = gradients();
    const makers = order === "product first" ? [product, sum] : [sum, product];
    const calls = spread(on(), [...makers, ...deliver(result, weight), ...deliver(sums, bias)]);
    assert.deepEqual(opsOf(calls), opsOf(makers));
    const step = m * n + n;
    const { c } = problemOf(calls.find(({ op }) => op === "matmul"));
    assert.deepEqual(c, {
      slice: { buffer: region, offset: 0, size: 4 * ((layers - 1) * step + m * n) },
      ...{ rowStride: n, batchStride: step },
    });
    const { kernel, operands } = columnsOf(calls.find(({ op }) => op === "sum"));
    assert.deepEqual(kernel.outputLayout, { stride: 1, runs: { length: n, runStride: step } });
    assert.deepEqual(operands[1], { buffer: region, offset: 4 * m * n, size: 4 * ((layers - 1) * step + n) });
  });
}

describe("a wide product whose columns are taken apart", () => {
  const terms = 2048;
  const all = bufferOf(layers * m * n, "wide");
  const [left, right] = [whole(bufferOf(terms * m)), whole(bufferOf(terms * layers * n))];
  const wide = call("products", {
    kind: "gemm",
    problem: {
      ...{ dtype: "f32", m, n: layers * n, k: terms, algorithm: 2 },
      a: { slice: left, rowStride: m, isTransposed: true },
      b: { slice: right, rowStride: layers * n },
      c: { slice: whole(all), rowStride: layers * n },
    },
  });
  const copyKernel: RowKernel = {
    ...{ name: "copy", inputs: ["f32"], outputs: [{ dtype: "f32", per: "element" }], scalars: [] },
    stages: [{ kind: "store", output: 0, value: term.load(0, "f32") }],
  };
  const { region } = gradients();
  const apart = (kernel = copyKernel): Call => {
    const step = m * n + n;
    const iteration = iterateElements(
      [layers, m, n],
      [
        [n, layers * n, 1],
        [step, n, 1],
      ],
    );
    const target: BufferSlice = { buffer: region, offset: 0, size: 4 * ((layers - 1) * step + m * n) };
    return call("copy", { kind: "row", kernel, iteration, operands: [whole(all), target], scalars: [] });
  };

  test("is a batch of products in the pieces' places, where our own kernels make those", () => {
    const calls = spread(on(), [wide, apart()]);
    assert.deepEqual(opsOf(calls), ["products"]);
    const step = m * n + n;
    assert.deepEqual(problemOf(calls[0]), {
      ...{ dtype: "f32", m, n, k: terms, batch: layers },
      a: { slice: left, rowStride: m, isTransposed: true, batchStride: 0 },
      b: { slice: right, rowStride: layers * n, batchStride: n },
      c: {
        slice: { buffer: region, offset: 0, size: 4 * ((layers - 1) * step + m * n) },
        ...{ rowStride: n, batchStride: step },
      },
    });
  });

  test("has a library's scratch memory, for where it is made alone after all", () => {
    const [one] = spread(on({ workspaceBytes: 131 }), [wide, apart()]);
    assert.equal(problemOf(one).batch, layers);
    assert.equal(problemOf(one).scratch?.size, 131);
  });

  test("stays one where they don't, where eager code's bits are asked for, and where more than copying is done", () => {
    const ops = ["products", "copy"];
    assert.deepEqual(opsOf(spread(on({ computeCapability: "8.0" }), [wide, apart()])), ops);
    assert.deepEqual(opsOf(onCalls(writeStridedOutputs)(on(), [wide, apart()], false)), ops);
    const negated = term.neg(term.load(0, "f32"));
    const other: RowKernel = { ...copyKernel, stages: [{ kind: "store", output: 0, value: negated }] };
    assert.deepEqual(opsOf(spread(on(), [wide, apart(other)])), ops);
    const met = call("clear", {
      kind: "fill",
      target: { buffer: region, offset: 4 * m * n, size: 8 * n },
      byte: 0,
    });
    assert.deepEqual(opsOf(spread(on(), [wide, met, apart()])), ["products", "clear", "copy"]);
  });
});

test("the same kernel with the same places is the same object, whose printed code is kept", () => {
  const kernels = [0, 1].map(() => {
    const calls = spread(on(), [sum, ...deliver(sums, gradients().bias)]);
    return columnsOf(calls[0]).kernel;
  });
  assert.equal(kernels[0], kernels[1]);
});

test("on a CPU products are made so, and sums of columns are copied", () => {
  const { weight, bias } = gradients();
  const calls = [product, sum, ...deliver(result, weight), ...deliver(sums, bias)];
  assert.deepEqual(opsOf(spread(on({ kind: "cpu" }), calls)), ["matmul", "sum", "copy"]);
});

describe("values stay where they are made, and are copied,", () => {
  const { region, weight } = gradients();
  const copies = deliver(result, weight);
  const staysApart = (runtime: Runtime, calls: readonly Call[]): void => {
    const found = spread(runtime, calls);
    assert.ok(opsOf(found).includes("copy"));
    assert.equal(problemOf(found.find(({ op }) => op === "matmul")).c.slice.buffer, result);
  };
  const reading = (source: BufferSlice): Call =>
    call("other", { kind: "copy", source, target: { ...gradients().weight(0), size: source.size } });
  const clearing = (slice: BufferSlice): Call => call("clear", { kind: "fill", target: slice, byte: 0 });

  test("where somebody else reads them", () => {
    staysApart(on(), [product, reading({ ...whole(result), size: 256 }), clearing(whole(sums)), ...copies]);
  });

  test("where their places are met in between, but not where only a gap is", () => {
    staysApart(on(), [product, clearing(weight(1)), ...copies]);
    const gap: BufferSlice = { buffer: region, offset: 4 * m * n, size: 4 * n };
    assert.deepEqual(opsOf(spread(on(), [product, clearing(gap), ...copies])), ["matmul", "clear"]);
  });

  test("where the places are not aligned as memory of their own is", () => {
    staysApart(on(), [product, ...deliver(result, gradients(m * n + 4).weight)]);
  });

  test("where a library makes them and its own choice is kept: it may be another one for another layout", () => {
    const calls = [product, ...copies];
    staysApart(on({ precision: "f32", computeCapability: "8.0" }), calls);
    assert.ok(opsOf(simplify(on(), calls, false)).includes("copy"));
    // With many terms it would be ours among others, and is the library's alone.
    assert.ok(product.work.kind === "gemm");
    const long = { ...product, work: { ...product.work, problem: { ...product.work.problem, k: 2048 } } };
    assert.ok(opsOf(simplify(on(), [long, ...copies], false)).includes("copy"));
    assert.deepEqual(opsOf(spread(on({ precision: "f32" }), calls)), ["matmul"]);
  });

  test("where a library would want more memory for it", () => {
    staysApart(on({ workspaceBytes: 1024 }), [product, ...copies]);
  });
});

test("a GEMM's result is written to a part of a buffer only if that is aligned as step memory is", () => {
  const larger = bufferOf(layers * m * n + 128, "larger");
  for (const [offset, ops] of [
    [256, ["matmul"]],
    [64, ["matmul", "copy"]],
  ] as const) {
    const target = { buffer: larger, offset, size: result.bytes };
    const copy = call("copy", { kind: "copy", source: whole(result), target });
    assert.deepEqual(opsOf(spread(on({ kind: "cpu", precision: "f32" }), [product, copy])), ops);
  }
});
