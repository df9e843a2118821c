/** Which gradients of embeddings become compact rows, and what their readers read then. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { cat, type Device, nn, optim, type Tensor, zeros } from "holdfast";
import {
  accessesOf,
  type Call,
  type ChunkedReduceCall,
  type RowCall,
  type Work,
} from "../src/compile/program/program.js";
import { planAllSchedules, withNullGpu } from "./support/null-gpu.js";

interface Options {
  /** Rows of each table. Default: two tables that take long to read. */
  readonly tables?: readonly number[];
  readonly batch?: number;
  readonly width?: number;
  readonly clips?: boolean;
  readonly clears?: "before" | "after";
  /** The first table is also the weight of a linear layer. */
  readonly isTied?: boolean;
  /** Each table is looked up once more. */
  readonly isShared?: boolean;
  readonly backwards?: number;
  /** A function of the tables' gradients before they are clipped, whose result is kept. */
  readonly keeps?: (gradients: readonly Tensor[]) => Tensor;
  readonly optimizer?: "AdamW" | "SparseAdam";
}

/** The planned calls of a training step on a GPU with four multiprocessors. */
function planned(options: Options = {}): readonly Call[] {
  const { tables = [6000, 4000], batch = 32, width = 32, clips = true, clears = "after" } = options;
  const plan = (device: Device): readonly Call[] => {
    const embeddings = tables.map((rows) => new nn.Embedding(rows, width));
    const head = new nn.Linear(tables.length * width, 8);
    const model = new nn.ModuleList<nn.Module>([...embeddings, head]);
    for (const parameter of model.parameters()) parameter.initialize(nn.init.zeros());
    model.to(device);
    const parameters = model.parameters();
    const optimizer = new optim[options.optimizer ?? "AdamW"](parameters, { lr: 0.01 });
    const ids = device.keep(zeros([batch, tables.length], { dtype: "i32", device }));
    const kept = device.keep(zeros([tables[0]!, width], { device }));
    const lossOf = (): Tensor => {
      const lookUp = (embedding: nn.Embedding, index: number): Tensor =>
        embedding.forward(ids.select(1, index));
      const rows = embeddings.map((embedding, index) =>
        options.isShared
          ? lookUp(embedding, index).mul(lookUp(embedding, (index + 1) % tables.length))
          : lookUp(embedding, index),
      );
      const tied = options.isTied ? rows[0]!.matmul(embeddings[0]!.weight.transpose(0, 1)).mean() : undefined;
      const own = head.forward(cat(rows, 1)).square().mean();
      return tied ? own.add(tied) : own;
    };
    const step = (): void => {
      if (clears === "before") optimizer.zeroGrad();
      for (let index = 0; index < (options.backwards ?? 1); index++) lossOf().backward();
      if (options.keeps) kept.copy_(options.keeps(embeddings.map(({ weight }) => weight.grad!)));
      if (clips) optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
      optimizer.step();
      if (clears === "after") optimizer.zeroGrad();
    };
    return planAllSchedules(device, step)[0]!.schedule.calls.map(({ call }) => call);
  };
  return withNullGpu("f32", plan, { multiprocessors: 4, memory: "256MiB" });
}

function worksOf<K extends Work["kind"]>(
  calls: readonly Call[],
  kind: K,
): readonly Extract<Work, { kind: K }>[] {
  return calls.flatMap(({ work }) => (work.kind === kind ? [work as Extract<Work, { kind: K }>] : []));
}

const isCompact = (calls: readonly Call[]): boolean => worksOf(calls, "row-map").length > 0;

/** Row calls, in combo kernels too. */
const rowsOf = (calls: readonly Call[]): readonly RowCall[] =>
  calls.flatMap(({ work }) => (work.kind === "row" ? [work] : work.kind === "combo" ? work.rows : []));

const bytesOfGradients = (calls: readonly Call[], direction: "reads" | "writes"): number =>
  calls
    .flatMap(accessesOf)
    .filter((access) => access[direction] && access.slice.buffer.label.endsWith("gradients"))
    .reduce((sum, { slice }) => sum + slice.size, 0);

describe("gradients of large embeddings", () => {
  test("are one row map and one launch of scatters for all tables, and their memory is not accessed", () => {
    const calls = planned();
    const [map, ...others] = worksOf(calls, "row-map");
    const [group, ...further] = worksOf(calls, "grouped-scatter");
    assert.deepEqual(
      map?.tables.map(({ rows, count }) => [rows, count]),
      [
        [6000, 32],
        [4000, 32],
      ],
    );
    assert.deepEqual([others, further, worksOf(calls, "scatter")], [[], [], []]);
    // The gradient of the concatenated rows is read in place: [32, 2 · 32].
    const shape = {
      ...{ dtype: "f32", outer: 1, length: 32, inner: 32, count: 32, isIndexShared: true, overwrites: true },
      strides: { outerSource: 0, sourceRow: 64 },
    };
    const scatters = group?.scatters ?? [];
    assert.deepEqual(
      scatters.map((scatter) => scatter.shape),
      [shape, shape],
    );
    assert.equal(new Set(scatters.map(({ source }) => source.buffer)).size, 1);
    const [first, second] = scatters.map(({ source, target }) => [source.offset, target.offset]);
    assert.deepEqual(
      [first, second],
      [
        [0, 0],
        [4 * 32, 4 * 32 * 32],
      ],
    );
    const headBytes = 4 * (64 * 8 + 8);
    assert.equal(bytesOfGradients(calls, "writes"), headBytes);
    // A norm and an update.
    assert.equal(bytesOfGradients(calls, "reads"), 2 * headBytes);
  });

  test("are a section of the norm's vector, and neighbouring tables are one", () => {
    const calls = planned();
    const [norm] = worksOf(calls, "chunked-reduce") as readonly ChunkedReduceCall[];
    const [vector] = norm?.vectors ?? [];
    assert.ok(vector && "sections" in vector);
    assert.deepEqual(
      vector.sections.map(({ first, length, rowMap }) => [first, length, rowMap?.width]),
      [
        [0, 10_000 * 32, 32],
        [10_000 * 32, 64 * 8 + 8, undefined],
      ],
    );
    const updates = rowsOf(calls).filter(({ kernel }) => kernel.name.includes("AdamW of compact rows"));
    assert.deepEqual(
      updates.map(({ iteration }) => [iteration.rows, iteration.row.size]),
      [[10_000, 32]],
    );
  });

  test("are compact with padding after a table, without clipping, and with tables of different sizes", () => {
    // 4 · 4001 · 36 bytes are no multiple of 256.
    const padded = planned({ tables: [4001, 4000], width: 36 });
    const updates = rowsOf(padded).filter(({ kernel }) => kernel.name.includes("of compact rows"));
    assert.deepEqual(
      updates.map(({ iteration }) => iteration.rows),
      [4001, 4000],
    );
    assert.ok(isCompact(planned({ clips: false })));
  });

  test("are compact for any elementwise reader, of one table if it reads two of them", () => {
    const tables = [6000, 6000];
    const rowsOfMaps = (keeps: Options["keeps"]): readonly (readonly number[])[] =>
      worksOf(planned({ tables, ...(keeps && { keeps }) }), "row-map").map((map) =>
        map.tables.map(({ rows }) => rows),
      );
    assert.deepEqual(
      rowsOfMaps(([first]) => first!.mul(2)),
      [[6000], [6000]],
    );
    assert.deepEqual(
      rowsOfMaps(([first, second]) => first!.mul(2).add(second!)),
      [[6000]],
    );
  });

  test("are whole tables if they are read after the step, small, or not only a sum of few rows", () => {
    const others: Readonly<Record<string, Options>> = {
      "read after the step": { clears: "before" },
      small: { tables: [300, 200] },
      "of as many entries as rows": { tables: [6000], batch: 6000 },
      "rows of a width that is no multiple of four": { width: 33 },
      "also the gradient of a GEMM": { isTied: true, tables: [6000] },
      "gradients of two lookups": { isShared: true },
      "gradients of two backward passes": { backwards: 2 },
      "reduced by a sparse optimizer": { optimizer: "SparseAdam" },
      "read by a sum": { tables: [6000], keeps: ([gradient]) => gradient!.sum().expand([6000, 32]) },
      // The numbers of a draw follow from the order of all elements.
      "read with draws": { tables: [6000], keeps: ([gradient]) => nn.functional.dropout(gradient!, 0.5) },
    };
    for (const [name, options] of Object.entries(others)) assert.ok(!isCompact(planned(options)), name);
  });
});
