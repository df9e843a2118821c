/**
 * `npm run bench:attention`: attention in one kernel, compared with attention built from GEMMs and row
 * kernels. Prints microseconds and GFLOP/s with 1 and 2 threads; only the arithmetic of the GEMMs counts.
 * Both variants alternate and the best time of each counts, because other load on the machine only ever adds
 * time.
 */

import "./source-modules.js";
import { cpus } from "node:os";
import { openCpuDriver, openRuntime, type Runtime, type Storage } from "holdfast/internals";
import { type BinaryOp, type Expression, iterateRows, type RowKernel } from "../src/ir/index.js";
import { attentionBackwardCalls, attentionCalls, gemmCalls, rowCalls, submit } from "../src/kernels/index.js";
import { answerHelp } from "../test/support/command-line.js";
import { bestTimes } from "./best-times.js";

answerHelp(import.meta.url);

const repetitions = 40;

/** Dense self-attention: as many columns as rows, and values as wide as keys. */
interface Attention {
  readonly pairs: number;
  readonly rows: number;
  readonly width: number;
}

const attentions: readonly Attention[] = [
  { pairs: 1024, rows: 12, width: 64 },
  { pairs: 1024, rows: 13, width: 30 },
  { pairs: 8, rows: 512, width: 64 },
];

const load = (input: number): Expression => ({ kind: "load", input, type: "f32" });
const reduced = (stage: number): Expression => ({ kind: "reduced", stage, type: "f32" });
const binary = (op: BinaryOp, a: Expression, b: Expression): Expression => ({
  kind: "binary",
  op,
  a,
  b,
  type: "f32",
});
const power: Expression = { kind: "unary", op: "exp", a: binary("sub", load(0), reduced(0)), type: "f32" };
const softmax: RowKernel = {
  name: "softmax",
  inputs: ["f32"],
  outputs: [{ dtype: "f32", per: "element" }],
  scalars: [],
  stages: [
    { kind: "reduce", op: "max", value: load(0) },
    { kind: "reduce", op: "add", value: power },
    { kind: "store", output: 0, value: binary("div", power, reduced(1)) },
  ],
};
const softmaxGradient: RowKernel = {
  name: "softmax gradient",
  inputs: ["f32", "f32"],
  outputs: [{ dtype: "f32", per: "element" }],
  scalars: [],
  stages: [
    { kind: "reduce", op: "add", value: binary("mul", load(0), load(1)) },
    { kind: "store", output: 0, value: binary("mul", load(0), binary("sub", load(1), reduced(0))) },
  ],
};

/** Forward and backward, in both variants. */
function variantsOf(runtime: Runtime, { pairs, rows, width }: Attention) {
  const [operandSize, scoreSize] = [rows * width, rows * rows];
  const allocate = (name: string, elements: number): Storage => {
    const size = pairs * elements * 4;
    const storage = runtime.persistent.place("data set", name, [{ name, size }]).storages[0]!;
    const source = Float32Array.from({ length: size / 4 }, () => Math.random() - 0.5);
    runtime.upload([{ source, target: storage }]);
    return storage;
  };
  const names = ["q", "k", "v", "y", "dq", "dk", "dv", "dy"] as const;
  const at = Object.fromEntries(names.map((name) => [name, allocate(name, operandSize)])) as Record<
    (typeof names)[number],
    Storage
  >;
  const [probabilities, scoreGradient, probabilityGradient] = ["p", "ds", "dp"].map((name) =>
    allocate(name, scoreSize),
  ) as [Storage, Storage, Storage];
  const scale = 1 / Math.sqrt(width);
  const strides = { batchStride: operandSize, headStride: 0, rowStride: width };
  const operand = (storage: Storage) => ({ storage, ...strides });
  const inputs = {
    dtype: "f32" as const,
    batch: pairs,
    heads: 1,
    rows,
    columns: rows,
    width,
    valueWidth: width,
    query: operand(at.q),
    key: operand(at.k),
    value: operand(at.v),
    probabilities,
    scale,
  };
  const scores = (storage: Storage, isTransposed = false) => ({
    storage,
    rowStride: rows,
    batchStride: scoreSize,
    isTransposed,
  });
  const matrix = (storage: Storage, isTransposed = false) => ({
    storage,
    rowStride: width,
    batchStride: operandSize,
    isTransposed,
  });
  const gemm = { dtype: "f32", batch: pairs, m: rows } as const;
  const ofScores = { ...gemm, n: rows, k: width };
  const ofRows = { ...gemm, n: width, k: rows };
  const rowsOf = (operands: number) =>
    iterateRows(
      [pairs * rows, rows],
      Array.from({ length: operands }, () => [rows, 1]),
      1,
    );
  const scratch = allocate("scratch", 4 * operandSize + 4 * scoreSize + 4096);
  return {
    forward: [
      () => submit(runtime, attentionCalls({ ...inputs, out: operand(at.y) })),
      () => {
        submit(
          runtime,
          gemmCalls({
            ...ofScores,
            a: matrix(at.q),
            b: matrix(at.k, true),
            c: scores(probabilities),
            alpha: scale,
            scratch,
          }),
        );
        submit(
          runtime,
          rowCalls({
            kernel: softmax,
            iteration: rowsOf(2),
            operands: [probabilities, probabilities],
          }),
        );
        submit(
          runtime,
          gemmCalls({ ...ofRows, a: scores(probabilities), b: matrix(at.v), c: matrix(at.y), scratch }),
        );
      },
    ],
    backward: [
      () =>
        submit(
          runtime,
          attentionBackwardCalls({
            ...inputs,
            outGradient: operand(at.dy),
            queryGradient: operand(at.dq),
            keyGradient: operand(at.dk),
            valueGradient: operand(at.dv),
            scoreGradient,
          }),
        ),
      () => {
        submit(
          runtime,
          gemmCalls({
            ...ofScores,
            a: matrix(at.dy),
            b: matrix(at.v, true),
            c: scores(probabilityGradient),
            scratch,
          }),
        );
        submit(
          runtime,
          rowCalls({
            kernel: softmaxGradient,
            iteration: rowsOf(3),
            operands: [probabilities, probabilityGradient, scoreGradient],
          }),
        );
        const factor = { alpha: scale, scratch };
        submit(
          runtime,
          gemmCalls({ ...ofRows, a: scores(scoreGradient), b: matrix(at.k), c: matrix(at.dq), ...factor }),
        );
        submit(
          runtime,
          gemmCalls({
            ...ofRows,
            a: scores(scoreGradient, true),
            b: matrix(at.q),
            c: matrix(at.dk),
            ...factor,
          }),
        );
        submit(
          runtime,
          gemmCalls({
            ...ofRows,
            a: scores(probabilities, true),
            b: matrix(at.dy),
            c: matrix(at.dv),
            scratch,
          }),
        );
      },
    ],
  } as const;
}

console.log(
  `${new Date().toISOString()}, node ${process.version}, ${process.platform} ${process.arch}, ${cpus().length} × ${cpus()[0]?.model}`,
);
console.log("\n  pairs × rows × width      threads                one kernel                 GEMMs");
for (const attention of attentions) {
  for (const threads of [1, 2]) {
    const driver = openCpuDriver({ threads });
    const runtime = openRuntime({ driver, stallAfter: "off", environment: {}, print: () => {} });
    const { pairs, rows, width } = attention;
    for (const [direction, variants] of Object.entries(variantsOf(runtime, attention))) {
      const times = bestTimes(
        variants.map((run) => () => {
          run();
          runtime.synchronize();
        }),
        repetitions,
      );
      const operations = 2 * pairs * rows * rows * width * (direction === "forward" ? 2 : 4);
      const cells = times.map((elapsedMs) => {
        const rate = (operations / elapsedMs / 1e6).toFixed(1);
        return `${(elapsedMs * 1000).toFixed(0).padStart(9)} µs ${rate.padStart(5)} GFLOP/s`;
      });
      const name = `${pairs} × ${rows} × ${width}`;
      console.log(
        `  ${name.padEnd(24)} ${String(threads).padStart(7)} ${direction.padEnd(8)} ${cells.join("")}`,
      );
    }
    runtime.close();
    driver.close();
  }
}
