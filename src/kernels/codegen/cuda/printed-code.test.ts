/** Printed CUDA code: no unused functions, no warnings under nvcc, no local memory. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { isThorough } from "../../../../test/support/effort.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import { sampleOfDay } from "../../../../test/support/sample-of-day.js";
import type { KernelSource } from "../../../driver/index.js";
import {
  binaryOps,
  type Dtype,
  dtypeNames,
  dtypes,
  type Expression,
  type ReduceOp,
  type RowKernel,
  roundings,
  type Stage,
  term,
  unaryOps,
} from "../../../ir/index.js";
import { printChunkedReduceKernel } from "./chunked-reduce-kernel.js";
import { printColumnKernel } from "./column-kernel.js";
import { type ElementLayout, printElementKernel } from "./element-kernel.js";
import { literal } from "./expressions.js";
import { printReducingKernel } from "./row-kernel.js";
import type { ReducingLayout } from "./row-vectors.js";

const units = (count: number): "unit"[] => Array<"unit">(count).fill("unit");

function elementKernel(inputs: readonly Dtype[], values: readonly Expression[]): RowKernel {
  return {
    name: "elements of it",
    inputs,
    outputs: values.map(({ type }) => ({ dtype: type, per: "element" })),
    scalars: [],
    stages: values.map((value, output) => ({ kind: "store", output, value })),
  };
}

function elementLayout(kernel: RowKernel, overrides: Partial<ElementLayout> = {}): ElementLayout {
  const inner = units(kernel.inputs.length + kernel.outputs.length);
  return { outerRank: 0, inner, aliases: new Map(), width: 4, access: "vector", ...overrides };
}

const x = term.load(0, "f32");

test("a kernel's source contains the functions it calls, and no others", () => {
  const kernel = elementKernel(["f32", "f32"], [term.add(x, 1)]);
  const { cuda, parameters } = printElementKernel(kernel, elementLayout(kernel));
  assert.deepEqual(parameters, ["in", "in", "inout", "u32"]);
  assert.equal(cuda?.entry, "hf_elements_of_it");
  assert.equal(
    cuda?.code,
    `template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T element[N];
};

template <int N, class T>
static __device__ __forceinline__ Vec<T, N> loadVec(const T* source) {
  return *reinterpret_cast<const Vec<T, N>*>(source);
}

template <class T, int N>
static __device__ __forceinline__ void storeVec(T* destination, const Vec<T, N>& vec) {
  *reinterpret_cast<Vec<T, N>*>(destination) = vec;
}

#ifndef HOLDFAST_EMULATOR
static __device__ __forceinline__ void gridDependencyWait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

extern "C" __global__ void __launch_bounds__(256) hf_elements_of_it(
    const float* in0,
    const float*,
    float* out0,
    unsigned elements) {
  gridDependencyWait();
  const unsigned position = (blockIdx.x * 256u + threadIdx.x) * 4u;
  if (position >= elements) return;
  const Vec<float, 4> v0 = loadVec<4>(in0 + position);
  Vec<float, 4> v1;
  #pragma unroll
  for (unsigned k = 0u; k < 4u; k++) {
    v1.element[k] = (v0.element[k] + 1.0f);
  }
  storeVec(out0 + position, v1);
}
`,
  );
});

test("literals read back as the same values", () => {
  const cases: readonly [type: "f32" | "f64" | "i32", value: number, text: string][] = [
    ["f32", 1, "1.0f"],
    ["f32", 0.1, "0.10000000149011612f"],
    ["f32", -2.5, "(-2.5f)"],
    ["f32", -0, "(-0.0f)"],
    ["f32", 1e30, "1.0000000150474662e+30f"],
    ["f32", 1e300, "__uint_as_float(0x7f800000u)"],
    ["f32", Number.NaN, "__uint_as_float(0x7fc00000u)"],
    ["f64", 0.1, "0.1"],
    ["f64", -Infinity, "__longlong_as_double((long long)0xfff0000000000000ull)"],
    ["i32", -7, "(-7)"],
    ["i32", -(2 ** 31), "(-2147483647 - 1)"],
  ];
  for (const [type, value, text] of cases) assert.equal(literal(type, value), text);
});

/** A kernel with all ops of a type, so that every prelude function is compiled once. */
function everything(type: "f32" | "f64" | "i32"): RowKernel {
  const a = term.load(0, type);
  const isWhole = type === "i32";
  const unary = unaryOps
    .filter((op) => (isWhole ? op === "neg" || op === "abs" : !roundings.has(op) || type === "f32"))
    .map((op): Expression => ({ kind: "unary", op, a, type }));
  const binary = binaryOps
    .filter((op) => (isWhole ? !["div", "pow", "atan2", "fmod"].includes(op) : op !== "and" && op !== "shr"))
    .map((op): Expression => ({ kind: "binary", op, a, b: term.constant(3, type), type }));
  const rest = [
    term.select(term.lt(a, 2), a, 0),
    term.convert(term.convert(a, isWhole ? "f32" : "i32"), type),
  ];
  return elementKernel([type], [...unary, ...binary, ...rest]);
}

function conversions(from: Dtype): RowKernel {
  const value = term.load(0, dtypes[from].compute);
  return {
    name: `from ${from}`,
    inputs: [from],
    outputs: dtypeNames.map((dtype) => ({ dtype, per: "element" })),
    scalars: [],
    stages: dtypeNames.map((to, output) => ({
      kind: "store",
      output,
      value: term.convert(value, dtypes[to].compute),
    })),
  };
}

/** The stages of layerNorm: two reductions, stores per element and per row, and a row-invariant operand. */
function reducing(dtype: "f32" | "f64" | "bf16", op: ReduceOp): RowKernel {
  const { compute } = dtypes[dtype];
  const element = term.load(0, compute);
  const centred = term.sub(element, term.mul(term.reduced(0, compute), term.load(1, compute)));
  return {
    name: `${op} of ${dtype}`,
    inputs: [dtype, dtype],
    outputs: [
      { dtype, per: "element" },
      { dtype: compute, per: "row" },
    ],
    scalars: [],
    stages: [
      { kind: "reduce", op, value: element },
      { kind: "reduce", op: "add", value: term.mul(centred, centred) },
      { kind: "store", output: 0, value: term.mul(centred, term.rsqrt(term.reduced(1, compute))) },
      { kind: "store", output: 1, value: term.reduced(1, compute) },
    ],
  };
}

const rowLayout: ReducingLayout = {
  outerRank: 2,
  inner: ["unit", "none", "unit", "none"],
  aliases: new Map(),
  access: "vector",
  lanes: 32,
  vectors: 8,
  cachedBytes: 128,
};

const kernels: readonly KernelSource[] = [
  ...(["f32", "f64", "i32"] as const).flatMap((type) => {
    const kernel = everything(type);
    return [
      printElementKernel(kernel, elementLayout(kernel)),
      ...(type === "f32" || isThorough
        ? [printElementKernel(kernel, elementLayout(kernel, { access: "tail" }))]
        : []),
      // Other types have the same code with it.
      ...(type === "f32" ? [printElementKernel(kernel, elementLayout(kernel, { usesFastMath: true }))] : []),
    ];
  }),
  ...dtypeNames.map((dtype) => {
    const kernel = conversions(dtype);
    const inner = ["any" as const, ...units(dtypeNames.length)];
    return printElementKernel(kernel, elementLayout(kernel, { width: 1, outerRank: 3, inner }));
  }),
  ...(["f32", "f64", "bf16"] as const).flatMap((dtype) => [
    printReducingKernel(reducing(dtype, "max"), { ...rowLayout, vectors: dtype === "f64" ? 0 : 8 }),
    printReducingKernel(reducing(dtype, "add"), { ...rowLayout, access: "scalar", lanes: 4, vectors: 1 }),
    printReducingKernel(reducing(dtype, "min"), {
      ...rowLayout,
      inner: ["any", "none", "any", "none"],
      access: "scalar",
      lanes: 1024,
      vectors: 0,
    }),
    printColumnKernel(
      {
        name: `columns of ${dtype}`,
        inputs: [dtype, "i32"],
        outputs: [dtype],
        scalars: ["i32"],
        op: "max",
        values: [term.load(0, dtypes[dtype].compute, term.mul(term.load(1, "i32"), term.scalar(0, "i32")))],
      },
      { strides: ["unit", "none"], partials: 1024, lanes: 128, columns: 8, unroll: 1 },
    ),
    printChunkedReduceKernel(
      {
        ...{ name: `chunks of ${dtype}`, dtype, scalars: ["f64"], op: "add" },
        value: term.mul(term.convert(term.load(0, dtypes[dtype].compute), "f64"), term.scalar(0, "f64")),
      },
      8,
    ),
  ]),
  ...(["bf16", "f32"] as const).map((dtype) =>
    printReducingKernel(logSoftmax(dtype), {
      ...{ outerRank: 1, inner: units(2), aliases: new Map(), access: "vector", usesFastMath: true },
      ...{ lanes: 1024, vectors: 0, cachedBytes: 0, width: dtype === "bf16" ? 8 : 4 },
      shared: { inputs: [0], vectors: 2, isWholeRow: false, bytes: 2 * 16 * 1024, residentBlocks: 2 },
    }),
  ),
];

function logSoftmax(dtype: "bf16" | "f32"): RowKernel {
  const shifted = term.sub(x, term.reduced(0, "f32"));
  return {
    ...{ name: `logSoftmax of ${dtype}`, inputs: [dtype], outputs: [{ dtype, per: "element" }], scalars: [] },
    stages: [
      { kind: "reduce", op: "max", value: x },
      { kind: "reduce", op: "add", value: term.exp(shifted) },
      { kind: "store", output: 0, value: term.sub(shifted, term.log(term.reduced(1, "f32"))) },
    ],
  };
}

test("independent reductions share one pass over a row, and a dependent one has its own", () => {
  const reduceAll = (...values: readonly Expression[]): string => {
    const stages: Stage[] = values.map((value) => ({ kind: "reduce", op: "add", value }));
    const kernel: RowKernel = {
      ...{ name: "sums", inputs: ["f32", "f32"], outputs: [{ dtype: "f32", per: "row" }], scalars: [] },
      stages: [...stages, { kind: "store", output: 0, value: term.reduced(values.length - 1, "f32") }],
    };
    const layout: ReducingLayout = {
      ...{ outerRank: 1, inner: units(3), aliases: new Map(), access: "vector", lanes: 256, vectors: 0 },
      cachedBytes: 0,
    };
    return printReducingKernel(kernel, layout).cuda?.code ?? "";
  };
  const passes = (code: string): number[] =>
    [/for \(unsigned first/g, /__syncthreads/g, /loadVec<4>/g].map(
      (pattern) => code.match(pattern)?.length ?? 0,
    );
  const [y, first] = [term.load(1, "f32"), term.reduced(0, "f32")];
  assert.deepEqual(passes(reduceAll(x, y)), [1, 1, 2]);
  assert.deepEqual(passes(reduceAll(x, term.mul(x, y), y)), [1, 1, 2]);
  assert.deepEqual(passes(reduceAll(x, y, term.sub(x, first))), [2, 2, 3]);
});

test("row-invariant values are computed once for all stages", () => {
  // As fusion leaves them: what is equal is one.
  const power = term.exp(term.reduced(0, "f32"));
  const factors = [power, term.add(power, term.constant(1, "f32"))];
  const kernel: RowKernel = {
    ...{ name: "powers", inputs: ["f32"], scalars: [] },
    outputs: [
      { dtype: "f32", per: "row" },
      ...factors.map(() => ({ dtype: "f32", per: "element" }) as const),
    ],
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "store", output: 0, value: power },
      ...factors.map(
        (value, index): Stage => ({ kind: "store", output: index + 1, value: term.mul(x, value) }),
      ),
    ],
  };
  const layout = { outerRank: 1, inner: units(4), aliases: new Map(), access: "vector", lanes: 32 } as const;
  const code = printReducingKernel(kernel, { ...layout, vectors: 1, cachedBytes: 16 }).cuda?.code ?? "";
  assert.equal(code.match(/expf\(/g)?.length, 1, code);
});

test("threads that cache little of a row allow six blocks per SM", () => {
  const layout = { outerRank: 1, inner: units(2), aliases: new Map(), access: "vector", vectors: 1 } as const;
  const kernel: RowKernel = {
    ...{ name: "sum", inputs: ["f32"], outputs: [{ dtype: "f32", per: "row" }], scalars: [] },
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "store", output: 0, value: term.reduced(0, "f32") },
    ],
  };
  const boundsOf = (lanes: number, cachedBytes: number): string | undefined =>
    printReducingKernel(kernel, { ...layout, lanes, cachedBytes }).cuda?.code.match(/bounds__\((.*?)\)/)?.[1];
  assert.equal(boundsOf(32, 224), "128, 6");
  assert.equal(boundsOf(32, 225), "128");
  assert.equal(boundsOf(256, 16), "256");
});

describe("printed code under nvcc", { skip: noCompiler() }, () => {
  test("compiles without a warning, and no kernel needs local memory", (t) => {
    const { cases, note } = sampleOfDay(kernels, 4);
    t.diagnostic(`${note} kernels`);
    const costs = compileWithNvcc(cases, "sm_80");
    for (const [index, { stackBytes, spillBytes }] of costs.entries()) {
      // Huge arguments of sin and cos are reduced with a table that the compiler lays in local memory.
      const isOfAngles = cases[index]?.cuda?.code.includes("sin") === true;
      if (!isOfAngles) assert.equal(stackBytes + spillBytes, 0, `${cases[index]?.name}, kernel ${index}`);
    }
  });
});
