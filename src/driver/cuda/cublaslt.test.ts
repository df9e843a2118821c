/** GEMMs by cuBLASLt: correct results for every layout, alignment, workspace, and their nodes in a graph. */

import assert from "node:assert/strict";
import test, { afterEach, describe } from "node:test";
import fc from "fast-check";
import { emulatorMissing, openEmulator } from "../../../test/support/emulator.js";
import { heldOnEmulator, openBench, withEmulatorDriver } from "../../../test/support/emulator-driver.js";
import { decodeFloats, encodeFloats, floatBytes } from "../../../test/support/encoded-values.js";
import {
  biasStepOf,
  checkValues,
  expectedOf,
  layOutGemm,
  type RandomGemm,
  randomGemms,
  valuesFor,
} from "../../../test/support/random-gemms.js";
import { type Address, type Span, span } from "../../units/index.js";
import type { KernelSource, LibraryGemm, Parameter } from "../driver.js";
import type { CudaDriver } from "./driver.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();

afterEach(() => {
  if (!skip) emulator.reset();
});

const plain: RandomGemm = {
  ...{ dtype: "f32", resultDtype: "f32", m: 2, n: 3, k: 4, batch: 1, alpha: 1, beta: 0 },
  ...{ bias: "none", activation: "none" },
  a: { isTransposed: false, batchLayout: "separate", gap: 0, offset: 0 },
  b: { isTransposed: false, batchLayout: "separate", gap: 0, offset: 0 },
  c: { isTransposed: false, batchLayout: "separate", gap: 0, offset: 0 },
};

const alignmentOf = (address: number): number => {
  let alignment = 256;
  while (address % alignment !== 0) alignment /= 2;
  return alignment;
};

/** The source of a GEMM whose matrices start at these addresses. */
function sourceOf(random: RandomGemm, addresses: Readonly<Record<"a" | "b" | "c", number>>): KernelSource {
  const layouts = layOutGemm(random);
  const matrix = (name: "a" | "b" | "c") => ({
    rowStride: layouts[name].rowStride,
    batchStride: layouts[name].batchStride,
    isTransposed: random[name].isTransposed,
    alignment: alignmentOf(addresses[name]),
  });
  const { dtype, resultDtype, m, n, k, batch, alpha, beta, bias, activation } = random;
  const gemm: LibraryGemm = {
    ...{ dtype, resultDtype, precision: "f32", m, n, k, batch, alpha, beta, activation },
    ...{ a: matrix("a"), b: matrix("b"), c: matrix("c") },
    hasBias: bias !== "none",
    biasBatchStride: biasStepOf(random),
  };
  const parameters: Parameter[] = ["in", "in", "inout", ...(bias === "none" ? [] : (["in"] as const))];
  return { name: `product_${dtype}`, parameters, gemm };
}

type Bench = ReturnType<typeof openBench>;

/** Writes the operands of a GEMM to memory, each matrix at a separate boundary. */
function writeOperands(gemm: RandomGemm, { memory, write }: Bench) {
  const layouts = layOutGemm(gemm);
  const values = valuesFor(gemm);
  const { dtype, resultDtype } = gemm;
  let next = memory.address as number;
  const put = (name: "a" | "b" | "c" | "bias", type: RandomGemm["dtype"]): Span => {
    const encoded = encodeFloats(values[name], type);
    const whole = span(next, encoded.byteLength);
    next += Math.ceil(encoded.byteLength / 256) * 256;
    write(whole, encoded);
    return whole;
  };
  const wholes = { a: put("a", dtype), b: put("b", dtype), c: put("c", resultDtype) };
  const partOf = (name: "a" | "b" | "c", type: RandomGemm["dtype"]): Span => {
    const { offset, extent } = layouts[name];
    return span(wholes[name].address + offset * floatBytes[type], extent * floatBytes[type]);
  };
  const operands = [partOf("a", dtype), partOf("b", dtype), partOf("c", resultDtype)] as const;
  const bias = gemm.bias === "none" ? [] : [put("bias", resultDtype)];
  const addresses = { a: operands[0].address, b: operands[1].address, c: operands[2].address };
  const workspace = { address: next as Address, size: 0 };
  return { values, whole: wholes.c, operands: [...operands, ...bias], addresses, workspace };
}

/** Runs a GEMM and compares all of C's memory with the expected bytes. */
function prove(driver: CudaDriver, bench: Bench, gemm: RandomGemm): void {
  const { values, whole, operands, addresses, workspace } = writeOperands(gemm, bench);
  const kernel = driver.loadKernel(sourceOf(gemm, addresses));
  const { workspaceBytes = 0 } = kernel;
  const args = workspaceBytes > 0 ? [...operands, span(workspace.address, workspaceBytes)] : operands;
  driver.launch(bench.stream, { kernel, blocks: 1, arguments: args });
  const actual = decodeFloats(bench.read(whole), gemm.resultDtype);
  checkValues(gemm, actual, expectedOf(gemm, values));
  driver.unloadKernel(kernel);
}

describe("a GEMM", { skip }, () => {
  for (const dtype of ["f32", "f64", "f16", "bf16"] as const) {
    test(`of ${dtype} is correct for any shape, layout, batch, bias and activation, and writes only C`, () => {
      withEmulatorDriver({}, (driver) => {
        const bench = openBench(driver);
        fc.assert(
          fc.property(randomGemms([dtype]), (gemm) => prove(driver, bench, gemm)),
          {
            numRuns: 150,
            examples: [
              [
                {
                  ...plain,
                  dtype,
                  resultDtype: dtype,
                  batch: 3,
                  c: { ...plain.c, batchLayout: "interleaved", gap: 2 },
                },
              ],
              [
                {
                  ...plain,
                  dtype,
                  resultDtype: dtype,
                  batch: 3,
                  b: { ...plain.b, batchLayout: "shared" },
                  bias: "batched",
                },
              ],
              [
                {
                  ...plain,
                  dtype,
                  resultDtype: dtype,
                  m: 1,
                  n: 1,
                  k: 1,
                  a: { ...plain.a, isTransposed: true },
                },
              ],
            ],
          },
        );
      });
    });
  }

  test("red proof: the check detects a wrong stride, transpose, bias and scale", () => {
    const wrong: Record<string, (product: LibraryGemm) => Partial<LibraryGemm>> = {
      "a row stride": ({ a }) => ({ a: { ...a, rowStride: a.rowStride + 1 } }),
      "a batch stride": ({ b }) => ({ b: { ...b, batchStride: 0 } }),
      "a transpose": ({ b }) => ({ b: { ...b, isTransposed: !b.isTransposed } }),
      "C's rows": ({ c }) => ({ c: { ...c, rowStride: c.rowStride + 1 } }),
      alpha: () => ({ alpha: 2 }),
      beta: () => ({ beta: 0 }),
      "the activation": () => ({ activation: "none" }),
    };
    const gemm: RandomGemm = {
      ...plain,
      ...{ m: 3, n: 3, k: 3, batch: 2, beta: 1, bias: "one", activation: "relu" },
      ...{ a: { ...plain.a, gap: 2 }, b: { ...plain.b, gap: 2 }, c: { ...plain.c, gap: 2 } },
    };
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      prove(driver, bench, gemm);
      for (const [fault, change] of Object.entries(wrong)) {
        const injected: CudaDriver = Object.create(driver, {
          loadKernel: {
            value: (source: KernelSource) =>
              driver.loadKernel({ ...source, gemm: { ...source.gemm!, ...change(source.gemm!) } }),
          },
          launch: { value: driver.launch.bind(driver) },
          unloadKernel: { value: driver.unloadKernel.bind(driver) },
        });
        assert.throws(() => prove(injected, bench, gemm), /element \d+ of C's memory/, fault);
      }
    });
  });

  test("of f32 is rounded to tf32 or bf16 only if requested", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, read, write } = openBench(driver);
      const value = 1 + 2 ** -7 + 2 ** -10 + 2 ** -20;
      const at = (index: number) => span(memory.address + 256 * index, 4);
      write(at(0), Float32Array.of(value));
      write(at(1), Float32Array.of(1));
      const actual = (["f32", "tf32", "bf16"] as const).map((precision) => {
        const one = sourceOf({ ...plain, m: 1, n: 1, k: 1 }, { a: 256, b: 256, c: 256 });
        const kernel = driver.loadKernel({ ...one, gemm: { ...one.gemm!, precision } });
        driver.launch(stream, { kernel, blocks: 1, arguments: [at(0), at(1), at(2)] });
        return new Float32Array(read(at(2)).buffer)[0];
      });
      assert.deepEqual(actual, [value, 1 + 2 ** -7 + 2 ** -10, 1 + 2 ** -7]);
    });
  });

  test("of half floats with an f32 result keeps full precision", () => {
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, read, write } = openBench(driver);
      const at = (index: number, size: number) => span(memory.address + 256 * index, size);
      for (const dtype of ["f16", "bf16"] as const) {
        const gemm: RandomGemm = { ...plain, dtype, resultDtype: "f32", m: 1, n: 1, k: 2 };
        write(at(0, 4), encodeFloats([1, 2 ** -12], dtype));
        write(at(1, 4), encodeFloats([1, 1], dtype));
        const kernel = driver.loadKernel(sourceOf(gemm, { a: 256, b: 256, c: 256 }));
        driver.launch(stream, { kernel, blocks: 1, arguments: [at(0, 4), at(1, 4), at(2, 4)] });
        assert.equal(new Float32Array(read(at(2, 4)).buffer)[0], 1 + 2 ** -12, dtype);
      }
    });
  });
});

describe("the library", { skip }, () => {
  test("gets the alignment of operands, and never runs an algorithm that needs more", () => {
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      // Every offset of every operand: 4, 8, 12 … bytes after a boundary.
      for (const name of ["a", "b", "c"] as const) {
        for (let offset = 0; offset < 9; offset++) {
          prove(driver, bench, { ...plain, [name]: { ...plain[name], offset } });
        }
      }
      // Red proof: a misaligned operand fails.
      for (const name of ["a", "b", "c"] as const) {
        const gemm = { ...plain, [name]: { ...plain[name], offset: 1 } };
        const { operands, addresses } = writeOperands(gemm, bench);
        const kernel = driver.loadKernel(sourceOf(gemm, { ...addresses, [name]: 256 }));
        assert.throws(() => driver.launch(bench.stream, { kernel, blocks: 1, arguments: operands }), {
          code: "DRIVER_FAILED",
          message: /^cublasLtMatmul\(.*CUBLAS_STATUS_NOT_SUPPORTED \(15\)/,
        });
      }
    });
  });

  test("gets the workspace of its algorithm as the last argument", () => {
    emulator.set("gemmWorkspace", 8192);
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      for (const bias of ["none", "one"] as const) {
        const gemm = { ...plain, bias };
        prove(driver, bench, gemm);
        const { operands, addresses, workspace } = writeOperands(gemm, bench);
        const source = sourceOf(gemm, addresses);
        const kernel = driver.loadKernel(source);
        assert.deepEqual([kernel.workspaceBytes, kernel.parameters], [8192, [...source.parameters, "out"]]);
        const launch = (args: readonly Span[]) => () =>
          driver.launch(bench.stream, { kernel, blocks: 1, arguments: args });
        const before = emulator.calls("cublasLtMatmul");
        assert.throws(launch(operands), { code: "BAD_ARGUMENT", message: /arguments; it takes/ });
        const beyond = span(bench.memory.address + bench.memory.size - 8, 8192);
        assert.throws(launch([...operands, beyond]), { code: "DEAD_ADDRESS" });
        assert.throws(launch([...operands, span(workspace.address, 4096)]), {
          code: "BAD_ARGUMENT",
          message: /workspace of 8192 bytes.*4096/,
        });
        assert.equal(emulator.calls("cublasLtMatmul"), before);
        driver.unloadKernel(kernel);
      }
    });
  });

  test("without an algorithm is reported with the whole GEMM, and everything is released", () => {
    withEmulatorDriver({}, (driver) => {
      emulator.set("gemmsRejected", 1);
      const source = sourceOf({ ...plain, m: 7, n: 8, k: 9, batch: 2, dtype: "bf16" }, { a: 2, b: 2, c: 4 });
      for (let turn = 0; turn < 2; turn++) {
        assert.throws(() => driver.loadKernel(source), {
          code: "UNSUPPORTED",
          message:
            /no algorithm for a GEMM of 7×8×9 \(batch 2, bf16, f32, activation none\): CUBLAS_STATUS_NOT_SUPPORTED/,
          numbers: { m: 7, n: 8, k: 9, batch: 2, status: 15 },
        });
      }
      const ends = ["MatmulDesc", "MatrixLayout", "MatmulPreference"].map((what) => [
        emulator.calls(`cublasLt${what}Create`),
        emulator.calls(`cublasLt${what}Destroy`),
      ]);
      assert.deepEqual(ends, [
        [2, 2],
        [6, 6],
        [2, 2],
      ]);
    });
  });

  test("has several algorithms, each with its workspace; the default is the first", () => {
    emulator.set("gemmsDiffer", 1);
    emulator.set("gemmWorkspace", 512);
    withEmulatorDriver({}, (driver) => {
      const { memory, stream, read, write } = openBench(driver);
      const source = sourceOf({ ...plain, m: 1, n: 1, k: 400 }, { a: 256, b: 256, c: 256 });
      const load = (change: Pick<LibraryGemm, "algorithm">) =>
        driver.loadKernel({ ...source, gemm: { ...source.gemm!, ...change } });
      const kernels = [{}, { algorithm: 0 }, { algorithm: 1 }, { algorithm: 2 }].map(load);
      assert.deepEqual(
        kernels.map(({ algorithmCount, workspaceBytes }) => [algorithmCount, workspaceBytes]),
        [
          [3, 512],
          [3, 512],
          [3, 1536],
          [3, 2560],
        ],
      );
      assert.throws(() => load({ algorithm: 3 }), {
        code: "BAD_ARGUMENT",
        message: /has 3 algorithms for a GEMM of 1×1×400.*algorithm 3 \(counted from 0\) does not exist/,
        numbers: { algorithm: 3, algorithmCount: 3 },
      });
      const at = (index: number, size: number) => span(memory.address + 4096 * index, size);
      const values = Float32Array.from({ length: 400 }, (_, index) => Math.sin(index));
      for (const index of [0, 1]) write(at(index, 1600), values);
      const operands = [at(0, 1600), at(1, 1600), at(2, 4)];
      const [unnamed, ...named] = kernels.map((kernel) => {
        const workspace = at(3, kernel.workspaceBytes!);
        driver.launch(stream, { kernel, blocks: 1, arguments: [...operands, workspace] });
        return new Float32Array(read(at(2, 4)).buffer)[0]!;
      });
      const exact = values.reduce((sum, value) => sum + value * value, 0);
      for (const sum of named) assert.ok(Math.abs(sum - exact) < 1e-3, `${sum}, and ${exact}`);
      assert.equal(unnamed, named[0]);
      assert.equal(new Set(named).size, 3, "each algorithm rounds differently");
    });
  });

  test("may list an algorithm that it marks as unusable; it is skipped", () => {
    emulator.set("gemmUnsound", 0);
    withEmulatorDriver({}, (driver) => {
      const source = sourceOf(plain, { a: 256, b: 256, c: 256 });
      const { algorithmCount, workspaceBytes } = driver.loadKernel(source);
      assert.deepEqual([algorithmCount, workspaceBytes], [2, 1024]);
      emulator.set("gemmAlgorithms", 1);
      assert.throws(() => driver.loadKernel(source), {
        code: "UNSUPPORTED",
        message: /CUBLAS_STATUS_NOT_SUPPORTED/,
      });
    });
  });

  test("is opened once, for the first GEMM, and closed with the driver", () => {
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      assert.equal(emulator.calls("cublasLtCreate"), 0);
      for (let turn = 0; turn < 3; turn++) prove(driver, bench, plain);
      assert.deepEqual([emulator.calls("cublasLtCreate"), emulator.calls("cublasLtDestroy")], [1, 0]);
    });
    assert.equal(emulator.calls("cublasLtDestroy"), 1);
  });

  test("selects an algorithm once per GEMM, not once per launch", () => {
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      const { operands, addresses } = writeOperands(plain, bench);
      const kernel = driver.loadKernel(sourceOf(plain, addresses));
      for (let turn = 0; turn < 5; turn++)
        driver.launch(bench.stream, { kernel, blocks: 1, arguments: operands });
      const calls = ["cublasLtMatmulAlgoGetHeuristic", "cublasLtMatmul"].map((call) => emulator.calls(call));
      assert.deepEqual(calls, [1, 5]);
    });
  });
});

describe("the arguments of a GEMM", { skip }, () => {
  test("that are wrong or dead are rejected by their index, and the library is not called", () => {
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      const { operands, addresses } = writeOperands({ ...plain, bias: "one" }, bench);
      const kernel = driver.loadKernel(sourceOf({ ...plain, bias: "one" }, addresses));
      const launch =
        (args: readonly (Span | number)[], blocks = 1) =>
        () =>
          driver.launch(bench.stream, { kernel, blocks, arguments: args });
      assert.throws(launch(operands.slice(1)), { code: "BAD_ARGUMENT", message: /3 arguments; it takes 4/ });
      assert.throws(launch([1, ...operands.slice(1)]), {
        code: "BAD_ARGUMENT",
        message: /Argument 0 of kernel "product_f32" \(in\) is 1; pass a span/,
      });
      const dead = span(bench.memory.address + bench.memory.size, 64);
      for (const index of operands.keys()) {
        assert.throws(launch(operands.with(index, dead)), {
          code: "DEAD_ADDRESS",
          message: new RegExp(`Argument ${index} of kernel`),
        });
      }
      launch(operands, 0)();
      assert.equal(emulator.calls("cublasLtMatmul"), 0);
    });
  });

  test("are rejected if a bias or a workspace is misaligned, and the library is not called", () => {
    emulator.set("gemmWorkspace", 1024);
    withEmulatorDriver({}, (driver) => {
      const bench = openBench(driver);
      const gemm: RandomGemm = { ...plain, bias: "one" };
      const { operands, addresses, workspace } = writeOperands(gemm, bench);
      const source = sourceOf(gemm, addresses);
      const kernel = driver.loadKernel(source);
      const launch = (bias: number, work: number) => () => {
        const moved = [...operands.slice(0, 3), span(operands[3]!.address + bias, 12)];
        const args = [...moved, span(workspace.address + work, 1024)];
        driver.launch(bench.stream, { kernel, blocks: 1, arguments: args });
      };
      const rejected = (message: RegExp) => ({ code: "BAD_ARGUMENT", message });
      assert.throws(
        launch(4, 0),
        rejected(/The bias of kernel "product_f32" starts 4 bytes after a multiple of 16/),
      );
      assert.throws(launch(0, 128), rejected(/The workspace of .* 128 bytes after a multiple of 256/));
      const misaligned = { ...source, gemm: { ...source.gemm!, batch: 2, biasBatchStride: 3 } };
      assert.throws(() => driver.loadKernel(misaligned), rejected(/The bias of/));
      assert.equal(emulator.calls("cublasLtMatmul"), 0);
      launch(16, 256)();
    });
  });

  test("are kept by a capture, which counts the GEMM as one kernel, independent of its nodes", () => {
    for (const nodes of [1, 3]) {
      emulator.set("gemmNodes", nodes);
      withEmulatorDriver({}, (driver) => {
        const bench = openBench(driver);
        const gemm: RandomGemm = { ...plain, bias: "one" };
        const { values, whole, operands, addresses } = writeOperands(gemm, bench);
        const kernel = driver.loadKernel(sourceOf(gemm, addresses));
        const { stream } = bench;
        driver.beginCapture(stream, "thread-local");
        driver.launch(stream, { kernel, blocks: 1, arguments: operands });
        driver.fill(stream, span(bench.memory.address + 8192, 4), 0);
        driver.launch(stream, { kernel, blocks: 1, arguments: operands });
        const graph = driver.endCapture(stream);
        assert.deepEqual(graph.nodes, { kernel: 2, copy: 0, fill: 1, memory: 0, host: 0 });
        driver.instantiate(graph);
        // Meanwhile another launch of the kernel uses another bias.
        const other = span(bench.memory.address + 16_384, 12);
        bench.write(other, Float32Array.of(50, 50, 50));
        const elsewhere = span(bench.memory.address + 20_480, operands[2]!.size);
        driver.launch(stream, {
          kernel,
          blocks: 1,
          arguments: [operands[0]!, operands[1]!, elsewhere, other],
        });
        driver.launchGraph(stream, graph);
        checkValues(gemm, decodeFloats(bench.read(whole), "f32"), expectedOf(gemm, values));
        driver.unloadKernel(kernel);
        assert.throws(() => driver.launchGraph(stream, graph), { code: "CLOSED", message: /product_f32/ });
      });
    }
  });
});

test("a GEMM that fails to load releases everything, whichever call fails", { skip }, () => {
  const makers = ["cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate"];
  const others = ["cublasLtMatrixLayoutSetAttribute", "cublasLtMatmulPreferenceCreate"];
  for (const call of [...makers, ...others, "cublasLtMatmulPreferenceSetAttribute"]) {
    withEmulatorDriver({}, (driver) => {
      const before = heldOnEmulator();
      emulator.fail(call, 3, { after: call === "cublasLtMatrixLayoutCreate" ? 2 : 0, times: 1 });
      const source = sourceOf({ ...plain, batch: 2 }, { a: 256, b: 256, c: 256 });
      assert.throws(() => driver.loadKernel(source), {
        code: "OUT_OF_MEMORY",
        message: new RegExp(`^${call}`),
      });
      assert.deepEqual(heldOnEmulator(), before);
      const created = ["MatmulDesc", "MatrixLayout", "MatmulPreference"].map((what) => {
        const name = `cublasLt${what}Create`;
        return emulator.calls(name) - (name === call ? 1 : 0) - emulator.calls(`cublasLt${what}Destroy`);
      });
      assert.deepEqual(created, [0, 0, 0], call);
      emulator.reset();
    });
  }
});
