/** Launch configs of row kernels on a GPU: vectorisation, threads per row, limits. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { rejects } from "../../../../test/support/rejects.js";
import type { DeviceInfo } from "../../../driver/index.js";
import type { ColumnKernel, Dtype, RowKernel } from "../../../ir/index.js";
import { iterateElements, iterateRows, term } from "../../../ir/index.js";
import type { Storage } from "../../../runtime/index.js";
import { span } from "../../../units/index.js";
import type { LaunchConfig } from "../../launch-config.js";
import { cudaColumnConfig } from "./column-config.js";
import { cudaRowConfig } from "./row-config.js";

/** A storage with an address: configs need nothing else. */
function at(address: number, size = 1 << 20): Storage {
  return {
    kind: "step",
    span: span(address, size),
    generation: 1,
    label: "operand",
    home: {},
    owner: undefined,
  };
}

const [first, second, third] = [1 << 24, 2 << 24, 3 << 24] as const;

function copyOf(from: Dtype, to: Dtype): RowKernel {
  const value = term.load(0, from === "f64" ? "f64" : "f32");
  return {
    name: "copy",
    inputs: [from],
    outputs: [{ dtype: to, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: term.convert(value, to === "f64" ? "f64" : "f32") }],
  };
}

const codeOf = (config: LaunchConfig): string => config.print().cuda?.code ?? "";
const isVectorised = (config: LaunchConfig): boolean => codeOf(config).includes("loadVec<4>");

describe("vectors of four are used", () => {
  const copy = copyOf("f32", "f32");

  test("if lengths, addresses and strides allow it, and single elements if not", () => {
    const vector = (count: number, from: number, to: number): LaunchConfig =>
      cudaRowConfig(copy, iterateElements([count], [[1], [1]]), [at(from), at(to)]);
    assert.ok(isVectorised(vector(64, first, second)));
    assert.ok(!isVectorised(vector(64, first + 4, second)));
    assert.ok(!isVectorised(vector(64, first, second + 8)));
    assert.ok(!isVectorised(vector(3, first, second)));
    const rows = (strides: readonly number[]): LaunchConfig =>
      cudaRowConfig(copy, iterateElements([5, 8], [strides, [8, 1]]), [at(first), at(second)]);
    assert.ok(isVectorised(rows([12, 1])));
    assert.ok(isVectorised(rows([0, 1])));
    // A row that does not move has nothing to align.
    assert.ok(codeOf(rows([1, 0])).includes("storeVec("));
    assert.ok(!isVectorised(rows([9, 1])));
    assert.ok(!isVectorised(rows([1, 5])));
  });

  test("and a vector of any length has a tail", () => {
    const config = cudaRowConfig(copy, iterateElements([1027], [[1], [1]]), [at(first), at(second)]);
    assert.ok(isVectorised(config) && codeOf(config).includes("loadTail"));
    assert.deepEqual([config.blocks, config.sizes], [2, [1027]]);
  });

  test("but for the last one of a row of any length, if rows begin on vector boundaries and threads reduce them", () => {
    const centred: RowKernel = {
      ...copy,
      stages: [
        { kind: "reduce", op: "add", value: term.load(0, "f32") },
        { kind: "store", output: 0, value: term.sub(term.load(0, "f32"), term.reduced(0, "f32")) },
      ],
    };
    const rows = (from: number, to: number): LaunchConfig => {
      const strides = [
        [from, 1],
        [to, 1],
      ];
      return cudaRowConfig(centred, iterateRows([5, 65], strides, 1), [at(first), at(second)]);
    };
    const aligned = rows(72, 68);
    for (const access of ["loadVec<4>", "loadTail", "storeVec(", "storeTail("])
      assert.ok(codeOf(aligned).includes(access), access);
    for (const other of [rows(65, 68), rows(72, 65)]) {
      assert.ok(!isVectorised(other) && !codeOf(other).includes("storeVec("));
      assert.notEqual(other.key, aligned.key);
    }
  });

  test("by the size of a dtype's four elements, up to sixteen bytes", () => {
    for (const [dtype, alignment] of [
      ["f64", 16],
      ["f32", 16],
      ["bf16", 8],
      ["f16", 8],
    ] as const) {
      const config = (address: number): LaunchConfig =>
        cudaRowConfig(copyOf(dtype, "f32"), iterateElements([64], [[1], [1]]), [at(address), at(second)]);
      assert.ok(isVectorised(config(first + alignment)), dtype);
      assert.ok(!isVectorised(config(first + alignment / 2)), dtype);
    }
  });

  test("and of eight if all operands have at most 16 bits, and lengths, addresses and strides allow it", () => {
    const config = (
      to: Dtype,
      count: number,
      from = first,
      strides: readonly number[] = [1],
    ): LaunchConfig => {
      const shape = strides.length === 1 ? [count] : [4, count];
      const dense = strides.length === 1 ? [1] : [count, 1];
      return cudaRowConfig(copyOf("bf16", to), iterateElements(shape, [strides, dense]), [
        at(from),
        at(second),
      ]);
    };
    const isWide = (launch: LaunchConfig): boolean => codeOf(launch).includes("loadVec<8>");
    assert.ok(isWide(config("bf16", 4096)));
    assert.equal(config("bf16", 4096).blocks, 2);
    assert.ok(isWide(config("bf16", 64, first, [72, 1])));
    for (const narrow of [
      config("f32", 4096),
      config("bf16", 4092),
      config("bf16", 4096, first + 8),
      config("bf16", 64, first, [68, 1]),
    ])
      assert.ok(isVectorised(narrow) && !isWide(narrow));
  });

  test("independently of the address of operands that are read at an index", () => {
    const gather: RowKernel = {
      ...copy,
      inputs: ["f32", "i32"],
      stages: [{ kind: "store", output: 0, value: term.load(0, "f32", term.load(1, "i32")) }],
    };
    const config = (count: number): LaunchConfig =>
      cudaRowConfig(gather, iterateElements([count], [[0], [1], [1]]), [
        at(first + 4),
        at(second),
        at(third),
      ]);
    assert.ok(isVectorised(config(64)));
    // Lanes beyond the end cannot be used as an index.
    assert.ok(!isVectorised(config(63)));
  });
});

describe("reduced rows", () => {
  const sum: RowKernel = {
    name: "sum",
    inputs: ["f32"],
    outputs: [{ dtype: "f32", per: "row" }],
    scalars: [],
    stages: [
      { kind: "reduce", op: "add", value: term.load(0, "f32") },
      { kind: "store", output: 0, value: term.reduced(0, "f32") },
    ],
  };
  const config = (rows: number, columns: number, kernel = sum, address: number = first): LaunchConfig => {
    const strides = [[columns, 1], ...kernel.inputs.slice(1).map(() => [columns, 1]), [1, 0]];
    return cudaRowConfig(kernel, iterateRows([rows, columns], strides, 1), [
      ...kernel.inputs.map((_, index) => at(address + index * (1 << 22))),
      at(third),
    ]);
  };

  test("take as many threads as their length needs, independently of their number and address", () => {
    const cases: readonly [columns: number, threads: number, rowsPerBlock: number][] = [
      [0, 128, 128],
      [4, 128, 128],
      [5, 128, 64],
      [12, 128, 32],
      [64, 128, 8],
      [256, 128, 4],
      [1024, 128, 4],
      [1025, 256, 1],
      [8192, 256, 1],
      [8193, 1024, 1],
    ];
    for (const [columns, threads, rowsPerBlock] of cases) {
      const many = config(1000, columns);
      assert.equal(many.print().cuda?.threads, threads, `threads for rows of ${columns}`);
      assert.equal(many.blocks, Math.ceil(1000 / rowsPerBlock), `blocks for rows of ${columns}`);
      assert.equal(config(2, columns).key, many.key);
    }
  });

  test("stay in registers if they fit, and are loaded again in every stage if not", () => {
    const wide: RowKernel = {
      ...sum,
      inputs: ["f64", "f64"],
      outputs: [{ dtype: "f64", per: "row" }],
      stages: [
        { kind: "reduce", op: "add", value: term.mul(term.load(0, "f64"), term.load(1, "f64")) },
        { kind: "store", output: 0, value: term.reduced(0, "f64") },
      ],
    };
    const isCached = (selected: LaunchConfig): boolean => !codeOf(selected).includes("for (unsigned first");
    assert.ok(isCached(config(3, 256)) && isCached(config(3, 1024)) && isCached(config(3, 256, wide)));
    assert.ok(!isCached(config(3, 1024, wide)));
    // The threads of a block have fewer registers each, and those of a large one fewer still.
    assert.ok(isCached(config(3, 1025)) && isCached(config(3, 8192)) && isCached(config(3, 2048, wide)));
    assert.ok(!isCached(config(3, 2049, wide)));
    assert.ok(
      isCached(config(3, 16_384)) && !isCached(config(3, 16_385)) && !isCached(config(3, 8193, wide)),
    );
  });
});

describe("long rows", () => {
  const x = term.load(0, "f32");
  const centred: RowKernel = {
    name: "centred",
    inputs: ["f32"],
    outputs: [{ dtype: "f32", per: "element" }],
    scalars: [],
    stages: [
      { kind: "reduce", op: "add", value: x },
      { kind: "store", output: 0, value: term.sub(x, term.reduced(0, "f32")) },
    ],
  };
  const sharedBytes = (columns: number, computeCapability: string, kernel = centred): number => {
    const iteration = iterateRows([3, columns], Array(2).fill([columns, 1]), 1);
    const device = { computeCapability } as DeviceInfo;
    return (
      cudaRowConfig(kernel, iteration, [at(first), at(second)], { device }).print().cuda?.sharedBytes ?? 0
    );
  };

  test("of bf16 are read once, in vectors of eight, by two blocks per SM if functions may be approximate", () => {
    const maxThenSum: RowKernel = {
      ...{ ...centred, inputs: ["bf16"], outputs: [{ dtype: "bf16", per: "element" }] },
      stages: [
        { kind: "reduce", op: "max", value: x },
        { kind: "reduce", op: "add", value: term.exp(term.sub(x, term.reduced(0, "f32"))) },
        { kind: "store", output: 0, value: term.div(x, term.reduced(1, "f32")) },
      ],
    };
    const code = (columns: number, usesFastMath: boolean): string => {
      const iteration = iterateRows([3, columns], Array(2).fill([columns, 1]), 1);
      const options = { device: { computeCapability: "9.0" } as DeviceInfo, usesFastMath };
      return codeOf(cudaRowConfig(maxThenSum, iteration, [at(first), at(second)], options));
    };
    const passes = (text: string): number => text.match(/for \(unsigned first/g)?.length ?? 0;
    const loads = (text: string): number => text.match(/loadVec<[48]>\(row0/g)?.length ?? 0;
    for (const [columns, usesFastMath, width, count] of [
      [50_304, true, 8, 2],
      [50_308, true, 4, 2],
      [50_304, false, 4, 3],
    ] as const) {
      const text = code(columns, usesFastMath);
      assert.deepEqual([passes(text), loads(text)], [count, 1], `${columns}`);
      assert.ok(text.includes(`loadVec<${width}>`) && text.includes("__launch_bounds__(1024, 2)"), text);
    }
    assert.equal(passes(code(16_384, true)), 0, "registers hold the row");
  });

  test("are kept in shared memory as far as two resident blocks have it, if more than one pass reads them", () => {
    const step = 1024 * 16;
    assert.equal(sharedBytes(16_384, "9.0"), 0, "registers hold the row");
    assert.equal(sharedBytes(16_388, "9.0"), 5 * step);
    assert.deepEqual([sharedBytes(50_304, "9.0"), sharedBytes(50_257, "9.0")], [7 * step, 7 * step]);
    assert.equal(sharedBytes(50_304, "8.0"), 5 * step);
    const onePass = { ...centred, stages: [{ kind: "store", output: 0, value: x }] } as const;
    assert.equal(sharedBytes(50_304, "9.0", onePass), 0);
  });
});

describe("rows of whole vectors", () => {
  /** Each row's products with some columns of a matrix. */
  const dots = (columns: number): RowKernel => ({
    name: "dots",
    inputs: Array.from({ length: 1 + columns }, () => "f32"),
    outputs: Array.from({ length: columns }, () => ({ dtype: "f32", per: "row" })),
    scalars: [],
    stages: [
      ...Array.from({ length: columns }, (_, index) => ({
        ...({ kind: "reduce", op: "add" } as const),
        value: term.mul(term.load(0, "f32"), term.load(1 + index, "f32")),
      })),
      ...Array.from({ length: columns }, (_, index) => ({
        ...({ kind: "store", output: index } as const),
        value: term.reduced(index, "f32"),
      })),
    ],
  });
  const config = (
    columns: number,
    step: number,
    left: number = first,
    matrix: number = second,
  ): LaunchConfig => {
    const each = Array.from({ length: columns }, (_, index) => index);
    const strides = [[64, 1], ...each.map(() => [0, step]), ...each.map(() => [columns, 0])];
    return cudaRowConfig(dots(columns), iterateRows([5, 64], strides, 1), [
      at(left),
      ...each.map((index) => at(matrix + 4 * index)),
      ...each.map((index) => at(third + 4 * index)),
    ]);
  };
  const uses = (selected: LaunchConfig, name: string): boolean => codeOf(selected).includes(`${name}(`);

  test("are accessed as vectors by aligned operands, and element by element by others", () => {
    const selected = config(1, 9);
    assert.ok(isVectorised(selected) && uses(selected, "loadStrided") && !uses(selected, "loadTail"));
    const askew = config(1, 1, first + 4);
    assert.ok(isVectorised(askew) && uses(askew, "loadStrided"));
    assert.notEqual(askew.key, config(1, 1).key);
    assert.ok(!uses(config(1, 1), "loadStrided"));
  });

  test("are loaded together for interleaved columns, if all of them are inputs", () => {
    assert.ok(uses(config(3, 3), "loadInterleaved") && !uses(config(3, 3), "loadStrided"));
    assert.ok(uses(config(4, 4), "loadInterleaved") && uses(config(2, 2), "loadInterleaved"));
    for (const apart of [config(2, 3), config(3, 3, first, second + 4), config(3, 5)]) {
      assert.ok(!uses(apart, "loadInterleaved") && uses(apart, "loadStrided"));
    }
    assert.notEqual(config(3, 3).key, config(3, 3, first, second + 4).key);
  });
});

describe("the key of a config contains", () => {
  /** p ← p − g after m ← m + g, as an optimizer does. */
  const update: RowKernel = {
    name: "update",
    inputs: ["f32", "f32", "f32"],
    outputs: [
      { dtype: "f32", per: "element" },
      { dtype: "f32", per: "element" },
    ],
    scalars: [],
    stages: [
      { kind: "store", output: 0, value: term.add(term.load(2, "f32"), term.load(1, "f32")) },
      { kind: "store", output: 1, value: term.sub(term.load(0, "f32"), term.load(2, "f32")) },
    ],
  };
  const iteration = iterateElements([64], [[1], [1], [1], [1], [1]]);
  const [p, g, m] = [at(first), at(second), at(third)];
  /** How often memory is read. */
  const loads = (config: LaunchConfig): number => codeOf(config).match(/loadVec<4>/g)?.length ?? 0;

  test("which inputs alias which outputs: a value just stored is not loaded again", () => {
    const inPlace = cudaRowConfig(update, iteration, [p, g, m, m, p]);
    const apart = cudaRowConfig(update, iteration, [p, g, m, at(first + (1 << 22)), at(second + (1 << 22))]);
    const mixed = cudaRowConfig(update, iteration, [p, g, m, at(third + 16), p]);
    assert.equal(new Set([inPlace.key, apart.key, mixed.key]).size, 3);
    assert.deepEqual([loads(inPlace), loads(apart), loads(mixed)], [3, 3, 4]);
  });

  test("no aliasing if nothing is read after a store", () => {
    const copy = copyOf("f32", "f32");
    const selected = iterateElements([64], [[1], [1]]);
    assert.equal(cudaRowConfig(copy, selected, [p, p]).key, cudaRowConfig(copy, selected, [p, g]).key);
  });
});

test("counts above 31 bits are rejected: elements, rows, columns and strides", () => {
  const copy = copyOf("f32", "f32");
  const huge = 2 ** 31;
  const launch = (shape: readonly number[], strides: readonly number[]): LaunchConfig =>
    cudaRowConfig(copy, iterateElements(shape, [strides, [2, 1]]), [at(first), at(second)]);
  rejects("BAD_SIZE", () => launch([huge, 2], [2, 1]), /"copy" was launched over 4294967296 elements/);
  rejects("BAD_SIZE", () => launch([3, 5], [huge, 1]), /a stride of 2147483648 elements/);
  const sum: ColumnKernel = {
    name: "sum",
    inputs: ["f32"],
    outputs: ["f32"],
    scalars: [],
    op: "add",
    values: [term.load(0, "f32")],
  };
  const columns = (rows: number, count: number, row: number): LaunchConfig =>
    cudaColumnConfig(sum, { rows, columns: count, strides: [{ row, column: "unit" }] }, 132);
  rejects("BAD_SIZE", () => columns(huge, 8, 8), /2147483648 rows/);
  rejects("BAD_SIZE", () => columns(8, huge, 8), /2147483648 columns/);
  rejects("BAD_SIZE", () => columns(8, 8, -huge - 1), /a stride of -2147483649/);
  assert.deepEqual(columns(8, 20, -8).sizes, [8, 20, -8]);
});
