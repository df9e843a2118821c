/** Products against float64 over random shapes, strides and transposes; what they leave alone; and their bits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { withRuntime } from "../../../test/support/runtimes.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import { openCpuDriver, strict } from "../../driver/index.js";
import type { Runtime } from "../../runtime/index.js";
import { elementOf, type GemmDtype } from "./element.js";
import { gemm } from "./gemm.js";
import { blocking } from "./multiply.js";
import { gemmScratchBytes, planGemm } from "./plan.js";
import type { GemmProblem, GemmShape } from "./problem.js";
import { tileColumns, tileShape } from "./tile.js";

interface Case {
  readonly dtype: GemmDtype;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  readonly batch: number;
  readonly isATransposed: boolean;
  readonly isBTransposed: boolean;
  readonly isBShared: boolean;
  /** Elements that a row of A, B and C is longer than it must be. */
  readonly padding: readonly [number, number, number];
  /** Elements before the first one of A, B and C. */
  readonly offset: readonly [number, number, number];
  readonly alpha: number;
  readonly beta: number;
}

const plainCase: Case = {
  dtype: "f32",
  m: 1,
  n: 1,
  k: 1,
  batch: 1,
  isATransposed: false,
  isBTransposed: false,
  isBShared: false,
  padding: [0, 0, 0],
  offset: [0, 0, 0],
  alpha: 1,
  beta: 0,
};

const three = (most: number) => fc.tuple(fc.nat(most), fc.nat(most), fc.nat(most));

/** Small and large ones, with sizes on both sides of a tile, of a strip and of a slice of k. */
function cases(dtype: GemmDtype): fc.Arbitrary<Case> {
  const strip = blocking(elementOf(dtype));
  const small = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(12, 13, 31, 47, 64, 67));
  const sizes = fc.oneof(
    fc.record({ m: small, n: small, k: small }),
    fc.record({
      m: fc.constantFrom(47, 64, 67, 97, strip.rows + 1),
      n: fc.constantFrom(31, 64, 67, 97, strip.columns + 3),
      k: fc.constantFrom(97, 131, strip.depth, 2 * strip.depth + 5),
    }),
  );
  const rest = fc.record({
    dtype: fc.constant(dtype),
    batch: fc.oneof({ arbitrary: fc.constant(1), weight: 3 }, { arbitrary: fc.constant(3), weight: 1 }),
    isATransposed: fc.boolean(),
    isBTransposed: fc.boolean(),
    isBShared: fc.boolean(),
    padding: three(5),
    offset: three(5),
    alpha: fc.constantFrom(1, -0.5, 3),
    beta: fc.constantFrom(0, 1, -2),
  });
  return fc.tuple(sizes, rest).map(([shape, other]) => ({ ...shape, ...other }));
}

const arrayOf = { f32: Float32Array, f64: Float64Array } as const;
type Values = Float32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

function randomValues(dtype: GemmDtype, count: number, seed: number): Values {
  let state = seed;
  const values = new arrayOf[dtype](count);
  for (const place of values.keys()) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    values[place] = state / 2 ** 31;
  }
  return values;
}

/** A matrix in a buffer of its own: `offset` elements, the matrices of the batch, a few elements more. */
function layOut(rows: number, columns: number, padding: number, offset: number, batch: number) {
  const rowStride = columns + padding;
  const batchStride = rows * rowStride;
  const extent = (batch - 1) * batchStride + (rows - 1) * rowStride + columns;
  const at = (item: number, row: number, column: number) =>
    offset + item * batchStride + row * rowStride + column;
  return {
    rowStride,
    batchStride: batch > 1 ? batchStride : 0,
    offset,
    extent,
    size: offset + extent + 7,
    at,
  };
}

function layOutAll({ m, n, k, batch, isATransposed, isBTransposed, isBShared, padding, offset }: Case) {
  const [aRows, aColumns] = isATransposed ? [k, m] : [m, k];
  const [bRows, bColumns] = isBTransposed ? [n, k] : [k, n];
  return {
    a: layOut(aRows, aColumns, padding[0], offset[0], batch),
    b: layOut(bRows, bColumns, padding[1], offset[1], isBShared ? 1 : batch),
    c: layOut(m, n, padding[2], offset[2], batch),
  };
}

/** Runs a product on the runtime and gives the whole buffer of C, before and after. */
function runCase(runtime: Runtime, one: Case) {
  const { dtype, m, n, k, batch, isATransposed, isBTransposed, alpha, beta } = one;
  const { bytes } = elementOf(dtype);
  const layouts = layOutAll(one);
  const values = {
    a: randomValues(dtype, layouts.a.size, 1),
    b: randomValues(dtype, layouts.b.size, 2),
    c: randomValues(dtype, layouts.c.size, 3),
  };
  // What C holds must not matter then; NaN is what dead memory is poisoned with.
  if (beta === 0) values.c.fill(Number.NaN);
  return runtime.step(() => {
    const place = (name: "a" | "b" | "c") => {
      const { size, offset, extent, rowStride, batchStride } = layouts[name];
      const buffer = runtime.arena.allocate(size * bytes, name);
      runtime.upload([{ source: values[name], target: buffer }]);
      const storage = runtime.view(buffer, offset * bytes, extent * bytes);
      return { buffer, operand: { storage, rowStride, batchStride } };
    };
    const [a, b, c] = [place("a"), place("b"), place("c")];
    const problem: GemmProblem = {
      dtype,
      m,
      n,
      k,
      batch,
      a: { ...a.operand, isTransposed: isATransposed },
      b: { ...b.operand, isTransposed: isBTransposed },
      c: c.operand,
      alpha,
      beta,
    };
    const scratchBytes = gemmScratchBytes(problem);
    gemm(runtime, {
      ...problem,
      ...(scratchBytes > 0 && { scratch: runtime.arena.allocate(scratchBytes, "scratch") }),
    });
    const after = new arrayOf[dtype](runtime.read(c.buffer).buffer);
    return { values, layouts, after };
  });
}

/** Fails unless every element is within the bound of a sum of k products, and everything beside C is as it was. */
function proveCase(runtime: Runtime, one: Case): void {
  const { dtype, m, n, k, batch, isATransposed, isBTransposed, isBShared, alpha, beta } = one;
  const { values, layouts, after } = runCase(runtime, one);
  const epsilon = dtype === "f32" ? 2 ** -24 : 2 ** -53;
  const untouched = values.c.slice();
  for (let item = 0; item < batch; item++) {
    for (let row = 0; row < m; row++) {
      for (let column = 0; column < n; column++) {
        let [sum, size] = [0, 0];
        for (let step = 0; step < k; step++) {
          const [aRow, aColumn] = isATransposed ? [step, row] : [row, step];
          const [bRow, bColumn] = isBTransposed ? [column, step] : [step, column];
          const bItem = isBShared ? 0 : item;
          const product =
            values.a[layouts.a.at(item, aRow, aColumn)]! * values.b[layouts.b.at(bItem, bRow, bColumn)]!;
          sum += product;
          size += Math.abs(product);
        }
        const place = layouts.c.at(item, row, column);
        const before = beta === 0 ? 0 : beta * values.c[place]!;
        const error = Math.abs(after[place]! - (alpha * sum + before));
        const bound = 2 * (k + 3) * epsilon * (Math.abs(alpha) * size + Math.abs(before));
        // Written so that NaN fails.
        assert.ok(
          error <= bound,
          `C[${item}, ${row}, ${column}] is off by ${error}, and ${bound} is allowed`,
        );
        untouched[place] = after[place]!;
      }
    }
  }
  sameBytes(after, untouched, "what lies beside C");
}

for (const dtype of ["f32", "f64"] as const) {
  test(`a product of ${dtype} is right for any shape, layout, alpha and beta, and writes nothing beside C`, () => {
    const taken = new Set<string>();
    withRuntime({}, ({ runtime }) => {
      fc.assert(
        fc.property(cases(dtype), (one) => {
          taken.add(planGemm(shapeOf(one)).way);
          proveCase(runtime, one);
        }),
        { numRuns: 120 },
      );
    });
    assert.deepEqual([...taken].sort(), ["columns", "dots", "packed"]);
  });
}

test("sizes that fill tiles, strips and slices just so are right, and those one larger or smaller", () => {
  const element = elementOf("f32");
  const strip = blocking(element);
  withRuntime({}, ({ runtime }) => {
    for (const by of [-1, 0, 1]) {
      const tile = { m: 20 * tileShape.rows + by, n: 8 * tileColumns(element) + by, k: strip.depth + by };
      assert.equal(planGemm(shapeOf({ ...plainCase, ...tile })).way, "packed");
      for (const isTransposed of [false, true]) {
        const layout = { isATransposed: isTransposed, isBTransposed: isTransposed };
        proveCase(runtime, { ...plainCase, ...tile, ...layout });
      }
    }
  });
});

test("with k = 0 C is multiplied by beta, and set to zero where beta is 0", () => {
  withRuntime({}, ({ runtime }) => {
    for (const dtype of ["f32", "f64"] as const) {
      for (const beta of [0, -2]) {
        const { values, layouts, after } = runEmpty(runtime, { ...plainCase, dtype, m: 5, n: 7, beta });
        const { offset, extent } = layouts.c;
        for (let place = offset; place < offset + extent; place++) {
          assert.equal(after[place], beta === 0 ? 0 : beta * values.c[place]!);
        }
      }
    }
  });
});

/** A product with no k has operands with no elements, and storages have at least one: these are only named. */
function runEmpty(runtime: Runtime, one: Case) {
  const layouts = layOutAll(one);
  const c = randomValues(one.dtype, layouts.c.size, 3);
  if (one.beta === 0) c.fill(Number.NaN);
  return runtime.step(() => {
    const storage = runtime.arena.allocate(c.byteLength, "c");
    const operand = { storage: runtime.arena.allocate(8, "operand"), rowStride: 7 };
    runtime.upload([{ source: c, target: storage }]);
    const { dtype, m, n, beta } = one;
    gemm(runtime, { dtype, m, n, k: 0, a: operand, b: operand, c: { storage, rowStride: n }, beta });
    return { values: { c }, layouts, after: new arrayOf[dtype](runtime.read(storage).buffer) };
  });
}

describe("the bits of a product", () => {
  const large = [
    { ...plainCase, m: 301, n: 270, k: 600, alpha: 0.5 },
    { ...plainCase, m: 67, n: 259, k: 1030, isATransposed: true, isBTransposed: true },
    { ...plainCase, m: 12, n: 12, k: 64, batch: 500, isBTransposed: true },
    { ...plainCase, dtype: "f64" as const, m: 131, n: 131, k: 300 },
  ];

  function bitsWith(threads: number, one: Case): Values[] {
    const driver = openCpuDriver({ threads });
    try {
      // Workers boot when they boot: the later of these runs surely have their help.
      return withRuntime({ driver: strict(driver) }, ({ runtime }) =>
        Array.from({ length: threads === 1 ? 1 : 12 }, () => runCase(runtime, one).after),
      );
    } finally {
      driver.close();
    }
  }

  for (const one of large) {
    const { dtype, m, n, k, batch } = one;
    test(`are the same with 1, 2 and 4 threads: ${batch} × ${m}×${n}×${k} in ${dtype}`, () => {
      const [expected] = bitsWith(1, one);
      for (const threads of [2, 4]) {
        for (const found of bitsWith(threads, one)) sameBytes(found, expected!, `${threads} threads`);
      }
    });
  }
});

test("a product can be captured, and its replay counts", () => {
  withRuntime({ capture: "on" }, ({ runtime }) => {
    const [m, n, k] = [70, 70, 70];
    const shape: GemmShape = { dtype: "f32", m, n, k, a: { rowStride: k }, b: { rowStride: n } };
    const placements = { a: m * k * 4, b: k * n * 4, c: m * n * 4, scratch: gemmScratchBytes(shape) };
    const entries = Object.entries(placements).map(([name, size]) => ({ name, size }));
    const [a, b, c, scratch] = runtime.persistent.place("weights", "weights", entries).storages;
    runtime.upload([
      { source: new Float32Array(m * k).fill(0.5), target: a! },
      { source: new Float32Array(k * n).fill(2), target: b! },
    ]);
    const product = {
      ...shape,
      a: { storage: a!, rowStride: k },
      b: { storage: b!, rowStride: n },
      c: { storage: c!, rowStride: n },
      scratch: scratch!,
    };
    const graph = runtime.capture("product", () => gemm(runtime, product));
    assert.equal(graph.mode, "graph");
    graph.replay();
    sameBytes(runtime.read(c!), new Float32Array(m * n).fill(k), "the replay");
  });
});

test("a product of nothing launches nothing", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const operand = { storage: runtime.arena.allocate(36, "operand"), rowStride: 3 };
      for (const shape of [
        { m: 0, n: 3, k: 3 },
        { m: 3, n: 0, k: 3 },
        { m: 3, n: 3, k: 3, batch: 0 },
      ]) {
        gemm(runtime, { dtype: "f32", a: operand, b: operand, c: operand, ...shape });
      }
    }),
  );
});

test("what does not fit is refused with its numbers, before anything is launched", () => {
  withRuntime({}, ({ runtime }) =>
    runtime.step(() => {
      const operand = { storage: runtime.arena.allocate(64 * 64 * 4, "operand"), rowStride: 64 };
      const sound: GemmProblem = {
        dtype: "f32",
        m: 64,
        n: 64,
        k: 64,
        a: operand,
        b: operand,
        c: { ...operand, storage: runtime.arena.allocate(64 * 64 * 4, "result") },
      };
      const refusals: readonly [Partial<GemmProblem>, RegExp][] = [
        [{ m: 1.5 }, /m is 1\.5; give a whole number/],
        [{ m: 65 }, /A takes 16640 bytes .* and "operand" has 16384/],
        [
          { k: 32, a: { ...operand, rowStride: 31 } },
          /A is 64×32, and its row stride of 31 makes its rows overlap/,
        ],
        [
          { m: 8, batch: 2, c: operand },
          /C's batch stride of 0 makes its 2 matrices of 512 elements overlap/,
        ],
        [{}, /needs \d+ bytes of scratch memory, and none was given/],
        [{ scratch: operand.storage }, /scratch memory, and "operand" has 16384/],
      ];
      for (const [change, message] of refusals) {
        assert.throws(() => gemm(runtime, { ...sound, ...change }), { code: "BAD_ARGUMENT", message });
      }
    }),
  );
});

test("a small product needs no scratch memory, and a large one what its panels take", () => {
  const small = shapeOf({ ...plainCase, m: 12, n: 12, k: 64, batch: 1000, isBTransposed: true });
  assert.equal(gemmScratchBytes(small), 0);
  const large = shapeOf({ ...plainCase, m: 3072, n: 256, k: 1024 });
  const operands = (3072 + 256) * 1024 * 4;
  assert.ok(gemmScratchBytes(large) >= operands && gemmScratchBytes(large) < 1.05 * operands);
});

function shapeOf(one: Case): GemmShape {
  const { dtype, m, n, k, batch, isATransposed, isBTransposed } = one;
  const { a, b } = layOutAll(one);
  return {
    dtype,
    m,
    n,
    k,
    batch,
    a: { ...a, isTransposed: isATransposed },
    b: { ...b, isTransposed: isBTransposed },
  };
}
