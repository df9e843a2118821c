/**
 * The emulator of cuBLASLt: GEMMs of every layout that Holdfast uses, compared with sums in float64, and its
 * errors.
 */

import assert from "node:assert/strict";
import test, { afterEach } from "node:test";
import fc from "fast-check";
import { NativeBuffer } from "../../src/driver/cuda/native-buffer.js";
import { structs } from "../../src/driver/cuda/structs.js";
import { BareCuda } from "../support/bare-cuda.js";
import { emulatorMissing, openEmulator } from "../support/emulator.js";

const skip = emulatorMissing;
const emulator = skip ? undefined! : openEmulator();
const bare = skip ? undefined! : new BareCuda(emulator.folder);
const lt = skip ? undefined! : bare.cuda.cublasLt;
const handle = skip ? 0 : bare.make((to) => lt.cublasLtCreate(to));

afterEach(() => {
  if (!skip) emulator.reset();
});

const elementTypes = { f32: 0, f64: 1, f16: 2, bf16: 14 } as const;
const compute = { f32: 68, f64: 70, bf16: 75, tf32: 77 } as const;

interface Matrix {
  readonly rows: number;
  readonly columns: number;
  readonly leading: number;
  readonly batchStride: number;
}

interface GemmOptions {
  readonly type: keyof typeof elementTypes;
  readonly compute: number;
  readonly transposes: readonly [boolean, boolean];
  readonly a: Matrix;
  readonly b: Matrix;
  readonly d: Matrix;
  readonly batch: number;
  readonly alpha: number;
  readonly beta: number;
  readonly epilogue: number;
  readonly alignment: number;
}

/** Creates the descriptions of a GEMM, selects an algorithm, and runs it. */
class BareGemm {
  readonly #asked: GemmOptions;
  readonly #block = new NativeBuffer(256);
  readonly #description: number;
  readonly #layouts: readonly number[];
  readonly status: number;
  readonly workspace: number;

  constructor(asked: GemmOptions) {
    this.#asked = asked;
    const { type, batch } = asked;
    const scale = type === "f64" ? 1 : 0;
    this.#description = bare.make((to) => lt.cublasLtMatmulDescCreate(to, asked.compute, scale));
    for (const [attribute, value] of [
      [3, Number(asked.transposes[0])],
      [4, Number(asked.transposes[1])],
      [7, asked.epilogue],
    ] as const) {
      lt.cublasLtMatmulDescSetAttribute(this.#description, attribute, this.#put(value), 4);
    }
    this.#layouts = [asked.a, asked.b, asked.d].map(({ rows, columns, leading, batchStride }) => {
      const layout = bare.make((to) =>
        lt.cublasLtMatrixLayoutCreate(to, elementTypes[type], rows, columns, leading),
      );
      lt.cublasLtMatrixLayoutSetAttribute(layout, 5, this.#put(batch), 4);
      lt.cublasLtMatrixLayoutSetAttribute(layout, 6, this.#put(batchStride), 8);
      return layout;
    });
    const preference = bare.make((to) => lt.cublasLtMatmulPreferenceCreate(to));
    lt.cublasLtMatmulPreferenceSetAttribute(preference, 1, this.#put(1 << 20), 8);
    for (const attribute of [5, 6, 7, 8]) {
      lt.cublasLtMatmulPreferenceSetAttribute(preference, attribute, this.#put(asked.alignment), 4);
    }
    const [a, b, d] = this.#layouts as [number, number, number];
    const { address } = this.#block;
    this.status = lt.status.cublasLtMatmulAlgoGetHeuristic(
      ...([handle, this.#description, a, b, d, d, preference, 1, address + 64, address] as const),
    );
    this.workspace = structs.heuristicResult.read(this.#block.view, 64).workspaceSize;
    lt.cublasLtMatmulPreferenceDestroy(preference);
  }

  run(a: number, b: number, d: number, { bias = 0, workspace = 0, bytes = 0, stream = 0 } = {}): number {
    const { type, alpha, beta, epilogue } = this.#asked;
    if (epilogue & 4) lt.cublasLtMatmulDescSetAttribute(this.#description, 8, this.#put(bias), 8);
    const set = (at: number, value: number) =>
      type === "f64"
        ? this.#block.view.setFloat64(at, value, true)
        : this.#block.view.setFloat32(at, value, true);
    set(16, alpha);
    set(24, beta);
    const { address } = this.#block;
    const [aLayout, bLayout, dLayout] = this.#layouts as [number, number, number];
    return lt.status.cublasLtMatmul(
      ...([
        handle,
        this.#description,
        address + 16,
        a,
        aLayout,
        b,
        bLayout,
        address + 24,
        d,
        dLayout,
      ] as const),
      ...([d, dLayout, address + 64, workspace, bytes, stream] as const),
    );
  }

  #put(value: number): number {
    this.#block.setU64(value, 32);
    return this.#block.address + 32;
  }
}

const matrix = (rows: number, columns: number, pad = 0, batchStride = 0): Matrix => ({
  rows,
  columns,
  leading: rows + pad,
  batchStride,
});

/** A GEMM of small dense matrices. */
const plain = (changes: Partial<GemmOptions> = {}): GemmOptions => ({
  ...{ type: "f32", compute: compute.f32, transposes: [false, false], batch: 1, alpha: 1, beta: 0 },
  ...{ epilogue: 1, alignment: 256, a: matrix(2, 3), b: matrix(3, 2), d: matrix(2, 2) },
  ...changes,
});

test("GEMMs of any layout equal the reference", { skip }, () => {
  const size = fc.integer({ min: 1, max: 6 });
  const pads = fc.array(fc.integer({ min: 0, max: 2 }), { minLength: 3, maxLength: 3 });
  fc.assert(
    fc.property(
      fc.record({
        ...{ m: size, n: size, k: size, pads, batch: fc.integer({ min: 1, max: 3 }) },
        ...{ transA: fc.boolean(), transB: fc.boolean(), isShared: fc.boolean(), isWide: fc.boolean() },
        ...{
          beta: fc.constantFrom(0, 1, -0.5),
          alpha: fc.constantFrom(1, 2),
          epilogue: fc.constantFrom(1, 2, 4, 6),
        },
      }),
      ({ m, n, k, pads: [padA, padB, padD], batch, transA, transB, isShared, isWide, ...rest }) => {
        const matrixOf = (rows: number, columns: number, pad: number, shared = false): Matrix =>
          matrix(rows, columns, pad, shared ? 0 : (rows + pad) * columns);
        const a = transA ? matrixOf(k, m, padA!) : matrixOf(m, k, padA!);
        const b = transB ? matrixOf(n, k, padB!, isShared) : matrixOf(k, n, padB!, isShared);
        const d = matrixOf(m, n, padD!);
        const elements = (values: readonly number[]) =>
          isWide ? Float64Array.from(values) : Float32Array.from(values);
        const fill = ({ leading, columns }: Matrix, by: number) =>
          elements(Array.from({ length: leading * columns * batch }, (_, index) => ((index * by) % 11) - 5));
        const [left, right, before] = [fill(a, 3), fill(b, 7), fill(d, 5)];
        const bias = elements(Array.from({ length: m }, (_, index) => index - 1));
        const gemm = new BareGemm({
          ...{ type: isWide ? "f64" : "f32", compute: isWide ? compute.f64 : compute.f32 },
          ...{ transposes: [transA, transB], a, b, d, batch, alignment: 4, ...rest },
        });
        assert.equal(gemm.status, 0);
        const target = bare.put(before);
        assert.equal(gemm.run(bare.put(left), bare.put(right), target, { bias: bare.put(bias) }), 0);

        const expected = [...before];
        const at = ({ leading, batchStride }: Matrix, row: number, column: number, index: number) =>
          index * batchStride + column * leading + row;
        for (let index = 0; index < batch; index++) {
          for (let row = 0; row < m; row++) {
            for (let column = 0; column < n; column++) {
              let value = 0;
              for (let inner = 0; inner < k; inner++) {
                const factor = left[transA ? at(a, inner, row, index) : at(a, row, inner, index)]!;
                const other = right[transB ? at(b, column, inner, index) : at(b, inner, column, index)]!;
                value += factor * other;
              }
              value = rest.alpha * value + rest.beta * before[at(d, row, column, index)]!;
              if (rest.epilogue & 4) value += bias[row]!;
              expected[at(d, row, column, index)] = rest.epilogue & 2 ? Math.max(value, 0) : value;
            }
          }
        }
        // Integers and halves this small are exact in every order of summation, and bytes between the columns
        // do not change.
        assert.deepEqual(
          [...bare.read(target, before)],
          expected.map((value) => value + 0),
        );
      },
    ),
    { numRuns: 60, seed: 7 },
  );
});

test("operands are rounded: tf32 keeps ten bits, bf16 seven", { skip }, () => {
  const single = { a: matrix(1, 1), b: matrix(1, 1), d: matrix(1, 1) };
  const roundTrip = (type: number, value: number): number => {
    const target = bare.allocate(4);
    const gemm = new BareGemm(plain({ ...single, compute: type }));
    gemm.run(bare.put(new Float32Array([value])), bare.put(new Float32Array([1])), target);
    return bare.read(target, new Float32Array(1))[0]!;
  };
  const value = 1 + 2 ** -7 + 2 ** -10 + 2 ** -20;
  assert.equal(roundTrip(compute.f32, value), value);
  assert.equal(roundTrip(compute.tf32, value), 1 + 2 ** -7 + 2 ** -10);
  assert.equal(roundTrip(compute.bf16, value), 1 + 2 ** -7);
});

test("half-width types are converted exactly and rounded to nearest even", { skip }, () => {
  // By their bits: 1, the largest, the smallest of each; products with 1 return them unchanged.
  for (const [type, oneBits, bits] of [
    ["f16", 0x3c00, [0x3c00, 0x7bff, 0x0001, 0x8001, 0x03ff, 0x7c00, 0x0400, 0xbc01]],
    ["bf16", 0x3f80, [0x3f80, 0x7f7f, 0x0080, 0xbf81, 0x7f80, 0x4049, 0x0000, 0xff80]],
  ] as const) {
    const layouts = { a: matrix(1, 1), b: matrix(1, 8), d: matrix(1, 8) };
    const gemm = new BareGemm(plain({ type, ...layouts }));
    const target = bare.allocate(16);
    assert.equal(gemm.run(bare.put(new Uint16Array([oneBits])), bare.put(new Uint16Array(bits)), target), 0);
    assert.deepEqual([...bare.read(target, new Uint16Array(8))], bits, type);
  }
  // 1 + 2⁻⁸ is between two numbers of bf16 and rounds to the even one, 1; 1 + 3·2⁻⁸ rounds up to the even
  // one.
  const sum = new BareGemm(plain({ type: "bf16", a: matrix(1, 2), b: matrix(2, 2), d: matrix(1, 2) }));
  const target = bare.allocate(4);
  sum.run(
    bare.put(new Uint16Array([0x3f80, 0x3b80])),
    bare.put(new Uint16Array([0x3f80, 0x3f80, 0x3f80, 0x4040])),
    target,
  );
  assert.deepEqual([...bare.read(target, new Uint16Array(2))], [0x3f80, 0x3f82]);
});

test("gelu is the tanh approximation, relu maps NaN to zero, and C is not read if beta is 0", {
  skip,
}, () => {
  const layouts = { a: matrix(1, 1), b: matrix(1, 3), d: matrix(1, 3) };
  const run = (epilogue: number, values: number[]): number[] => {
    const target = bare.put(new Float32Array(3).fill(Number.NaN));
    const gemm = new BareGemm(plain({ ...layouts, epilogue }));
    gemm.run(bare.put(new Float32Array([1])), bare.put(new Float32Array(values)), target);
    return [...bare.read(target, new Float32Array(3))];
  };
  const gelu = (x: number) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
  for (const [index, value] of run(32, [-1, 0.5, 3]).entries()) {
    assert.ok(Math.abs(value - gelu([-1, 0.5, 3][index]!)) < 1e-6);
  }
  assert.deepEqual(run(2, [-1, Number.NaN, 3]), [0, 0, 3]);
  assert.deepEqual(run(1, [-1, Number.NaN, 3]), [-1, Number.NaN, 3]);
});

test("an algorithm requires the alignment that the caller promised", { skip }, () => {
  const [a, b, d] = [bare.allocate(64), bare.allocate(64), bare.allocate(64)];
  assert.equal(new BareGemm(plain({ alignment: 16 })).run(a, b, d), 0);
  assert.equal(new BareGemm(plain({ alignment: 16 })).run(a + 8, b, d), 15);
  assert.equal(new BareGemm(plain({ alignment: 8 })).run(a + 8, b, d + 8), 0);
});

test("an algorithm with a workspace gets it or fails, and overwrites all of it", { skip }, () => {
  emulator.set("gemmWorkspace", 4096);
  const gemm = new BareGemm(plain());
  assert.equal(gemm.workspace, 4096);
  const [a, b, d] = [bare.allocate(64), bare.allocate(64), bare.allocate(64)];
  assert.equal(gemm.run(a, b, d), 7);
  const workspace = bare.put(new Uint8Array(4096));
  assert.equal(gemm.run(a, b, d, { workspace, bytes: 4096 }), 0);
  assert.ok(bare.read(workspace, new Uint8Array(4096)).every((byte) => byte === 0xa5));
  emulator.set("gemmWorkspace", 2 << 20);
  assert.equal(new BareGemm(plain()).workspace, 0);
});

test("a GEMM in a capture has as many kernel nodes as the library launches", { skip }, () => {
  emulator.set("gemmNodes", 3);
  const { driver } = bare.cuda;
  const stream = bare.stream();
  const gemm = new BareGemm(plain());
  const [a, b, d] = [
    bare.put(new Float32Array([1, 2, 3, 4, 5, 6])),
    bare.put(new Float32Array([1, 1, 1, 2, 0, 0])),
    bare.allocate(16),
  ];
  driver.cuStreamBeginCapture_v2(stream, 1);
  assert.equal(gemm.run(a, b, d, { stream }), 0);
  const graph = bare.make((to) => driver.cuStreamEndCapture(stream, to));
  driver.cuGraphGetNodes(graph, 0, bare.out.address);
  assert.equal(bare.out.u64(), 3);
  const executable = bare.make((to) => driver.cuGraphInstantiateWithFlags(to, graph, 0));
  driver.cuGraphLaunch(executable, stream);
  driver.cuStreamSynchronize(stream);
  assert.deepEqual([...bare.read(d, new Float32Array(4))], [9, 12, 2, 4]);
});

test("unsupported GEMMs are rejected, and inconsistent descriptions are invalid", { skip }, () => {
  assert.equal(new BareGemm(plain({ compute: compute.f64 })).status, 15);
  assert.equal(new BareGemm(plain({ epilogue: 34 })).status, 15);
  assert.equal(new BareGemm(plain({ b: matrix(4, 2) })).status, 7);
  assert.equal(new BareGemm(plain({ a: { ...matrix(2, 3), leading: 1 } })).status, 7);
  emulator.set("gemmsRejected", 1);
  assert.equal(new BareGemm(plain()).status, 15);
});

test("operands in unallocated memory are an illegal address", { skip }, () => {
  const memory = bare.allocate(8);
  const gemm = new BareGemm(plain({ alignment: 4 }));
  assert.equal(gemm.run(memory, memory, memory), 0);
  assert.equal(bare.cuda.driver.status.cuStreamSynchronize(0), 700);
});
