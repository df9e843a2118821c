/**
 * The kernels that are written in CUDA C++ by hand, under NVIDIA's compiler; their values are proved where they are used.
 * `cuda-function.long.test.ts` compiles all of their dtypes.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  commonKernels,
  elementsOf,
  smallAttention,
  transformer,
} from "../../../../test/support/handwritten-kernels.js";
import { compileWithNvcc, noCompiler } from "../../../../test/support/nvcc.js";
import { sampleOfDay } from "../../../../test/support/sample-of-day.js";
import { cudaKernel } from "./cuda-function.js";
import { pdlDeclaration } from "./intrinsics/pdl.js";

describe("CUDA code under nvcc", { skip: noCompiler() }, () => {
  test("compiles for sm_80 without a warning, and no kernel of the common dtypes needs local memory", (t) => {
    const { cases, note } = sampleOfDay(commonKernels, 4);
    t.diagnostic(`${note} kernels`);
    for (const [index, { stackBytes, spillBytes }] of compileWithNvcc(cases, "sm_80").entries())
      assert.deepEqual({ stackBytes, spillBytes }, { stackBytes: 0, spillBytes: 0 }, cases[index]?.name);
  });

  test("eight blocks of a small transformer's attention fit on an SM", () => {
    const narrow = elementsOf("f32", "bf16", ["query", "key", "value", "outGradient"]);
    const pair = (["forward", "backward"] as const).flatMap((direction) => [
      smallAttention(direction, "f32", transformer, true),
      smallAttention(direction, "f32", transformer, true, narrow),
    ]);
    for (const [index, { registers, sharedBytes }] of compileWithNvcc(pair, "sm_90").entries()) {
      const threads = pair[index]?.cuda?.threads ?? 0;
      assert.ok(Math.ceil(registers / 8) * 8 * threads * 8 <= 65_536, `${registers} registers × ${threads}`);
      assert.ok((sharedBytes + 1024) * 8 <= 228 * 1024, `${sharedBytes} bytes`);
    }
  });

  test("a tensor map passed by value is in memory that TMA can read", () => {
    const declarations = "struct __align__(64) TensorMap { unsigned long long words[16]; };";
    const sizes = {
      columns: "i32",
      rows: "i32",
      rowStride: "i32",
      matrices: "i32",
      matrixStride: "i32",
    } as const;
    const map = { columns: "columns", rows: "rows", rowStride: "rowStride" } as const;
    const batch = { matrices: "matrices", matrixStride: "matrixStride" } as const;
    const box = { columns: 32, rows: 8 };
    const source = cudaKernel({
      ...{ name: "map", elements: "unsigned long long", threads: 32, declarations },
      parameters: { to: "out", from: "in", ...sizes },
      maps: { from: { dtype: "f32", ...map, ...batch, box } },
      body: "  to[0] = (unsigned long long)&from + columns + rows + rowStride + matrices + matrixStride;",
    });
    // Of a parameter that isn't constant for the grid, the address would be that of a copy on the stack.
    assert.equal(compileWithNvcc([source], "sm_90")[0]?.stackBytes, 0);
  });

  test("a warning is an error", () => {
    const parameters = { to: "out" } as const;
    const body = "  unsigned unused;\n  to[0] = 1;";
    const careless = cudaKernel({ name: "careless", parameters, elements: "float", threads: 32, body });
    assert.throws(() => compileWithNvcc([careless], "sm_80"), /"unused" was declared but never referenced/);
  });
});

test("a kernel's signature has its parameters in order, pointers with their element type", () => {
  const source = cudaKernel({
    name: "add.rows-2",
    parameters: {
      index: "in",
      from: "in",
      to: "inout",
      count: "u32",
      step: "i32",
      scale: "f32",
      shift: "f64",
    },
    elements: "float",
    pointers: { index: "int" },
    threads: 64,
    body: "  to[0] = from[index[0]];",
  });
  assert.deepEqual(source.parameters, ["in", "in", "inout", "u32", "i32", "f32", "f64"]);
  assert.deepEqual(source.cuda, {
    entry: "hf_add_rows_2",
    threads: 64,
    hasGridDependencyWait: true,
    code: `${pdlDeclaration}extern "C" __global__ void __launch_bounds__(64) hf_add_rows_2(const int* index, const float* from, float* to, unsigned count, int step, float scale, double shift) {
  gridDependencyWait();
  to[0] = from[index[0]];
}
`,
  });
});

test("a kernel with its own grid dependency wait has none in its first line", () => {
  const parameters = { to: "out" } as const;
  const body = "  const unsigned own = threadIdx.x;\n  gridDependencyWait();\n  to[own] = 1;";
  const { code, hasGridDependencyWait } = cudaKernel({
    name: "late",
    parameters,
    elements: "float",
    threads: 64,
    body,
  }).cuda;
  assert.equal(hasGridDependencyWait, true);
  assert.match(code, /\{\n {2}const unsigned own = threadIdx\.x;\n {2}gridDependencyWait\(\);\n {2}to/);
  assert.equal(code.match(/ gridDependencyWait\(\);/g)?.length, 1);
});

test("a kernel's signature has the cluster size and the resident blocks per SM", () => {
  const parameters = { to: "out" } as const;
  const kernel = { name: "pair", parameters, elements: "float", threads: 64, body: "  to[0] = 1;" };
  assert.match(cudaKernel(kernel).cuda.code, /void __launch_bounds__\(64\) hf_pair/);
  const { code } = cudaKernel({ ...kernel, cluster: 2, blocksPerSm: 1 }).cuda;
  assert.match(code, /void __cluster_dims__\(2, 1, 1\) __launch_bounds__\(64, 1\) hf_pair/);
});

test("a tensor map is a parameter; its sizes are parameter numbers, and have names only if the body reads them", () => {
  const { cuda, parameters } = cudaKernel({
    name: "boxes",
    parameters: {
      ...({ to: "out", a: "in", columns: "i32", rows: "i32", b: "in", step: "i32" } as const),
      ...({ matrices: "i32", apart: "i32" } as const),
    },
    elements: "float",
    maps: {
      b: {
        ...({
          dtype: "f32",
          columns: "rows",
          rows: "columns",
          rowStride: "step",
          matrices: "matrices",
        } as const),
        ...{ matrixStride: "apart" as const, box: { columns: 32, rows: 128 } },
      },
      a: {
        ...({
          dtype: "bf16",
          columns: "columns",
          rows: "rows",
          rowStride: "step",
          matrices: "matrices",
        } as const),
        ...{ matrixStride: "apart" as const, box: { columns: 64, rows: 64 } },
      },
    },
    threads: 64,
    body: "  to[0] = rows;",
  });
  assert.deepEqual(parameters, ["out", "in", "i32", "i32", "in", "i32", "i32", "i32"]);
  assert.match(
    cuda.code,
    /hf_boxes\(float\* to, const __grid_constant__ TensorMap a, int, int rows, const __grid_constant__ TensorMap b, int, int, int\)/,
  );
  const shared = { rowStride: 5, matrices: 6, matrixStride: 7 };
  assert.deepEqual(cuda.maps, [
    { parameter: 1, dtype: "bf16", columns: 2, rows: 3, ...shared, box: { columns: 64, rows: 64 } },
    { parameter: 4, dtype: "f32", columns: 3, rows: 2, ...shared, box: { columns: 32, rows: 128 } },
  ]);
});
