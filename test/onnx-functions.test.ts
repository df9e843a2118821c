/**
 * The functions, methods and layers that PyTorch checks are exported, and their files give their results; or the export says why not. The
 * long tests try all cases, also in ONNX Runtime if it is installed.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { type Device, HoldfastError, type Tensor, zeros } from "holdfast";
import { isLeftToCpu, openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { makeFolder } from "./support/folders.js";
import { compareExport, type Engine, interpreter } from "./support/onnx/compare.js";
import { type OracleModel, oracleModels } from "./support/onnx/oracle-models.js";
import { findOnnxRuntime } from "./support/onnx/runtime.js";

const device: Device = openDevice({ threads: 1, memory: "512MiB" });
const folder = makeFolder();
const all = oracleModels(device);
const { every, runtime } = effort<{ every: number; runtime: Engine | undefined }>({
  quick: { every: 12, runtime: undefined },
  thorough: { every: 1, runtime: findOnnxRuntime() },
});
const engines = [interpreter, ...(runtime ? [runtime] : [])];

/** What ONNX files can't have, and the cases that need it. */
const rejected: readonly (readonly [message: RegExp, names: string])[] = [
  [
    /read the values of a tensor/,
    "maskedSelect nonzero argwhere where unique uniqueConsecutive indexPut bincount histc histogram repeatInterleave",
  ],
  [
    /ONNX has no such decomposition of matrices/,
    `linalg.cholesky linalg.cholesky_inverse linalg.cholesky_solve linalg.cond linalg.eigh linalg.eigvalsh linalg.inv linalg.lstsq linalg.lu
    linalg.lu_factor linalg.lu_solve linalg.matrix_exp linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.pinv linalg.qr
    linalg.solve linalg.solve_right linalg.solve_triangular linalg.svd linalg.svdvals linalg.tensorinv linalg.tensorsolve`,
  ],
  [/it changes the weight of an embedding/, "embedding embeddingBag"],
];
const namesOf = (names: string): readonly string[] => names.split(/\s+/);
const seen = new Set<string>();
after(() => {
  const listed = rejected.flatMap(([, names]) => namesOf(names));
  if (every === 1) assert.deepEqual([...seen].sort(), [...listed].sort(), "cases that are rejected");
});

/** In a file, NaN is sorted as infinity: then neither comes first. */
function sortsBoth({ name, inputs }: OracleModel): boolean {
  if (name !== "sort" && name !== "argsort") return false;
  const values = inputs.flatMap((input) => Array.from(input.dataSync(), Number));
  return values.some(Number.isNaN) && values.some((value) => Math.abs(value) === Number.POSITIVE_INFINITY);
}

async function check(oracleModel: OracleModel): Promise<void> {
  if (sortsBoth(oracleModel)) return;
  const { name, inputs, run } = oracleModel;
  // A call without tensors needs an input too.
  const feeds = inputs.length > 0 ? inputs : [zeros([1])];
  const model = (...operands: Tensor[]): unknown => run(operands.slice(0, inputs.length));
  const named = Object.fromEntries(feeds.map((input, index) => [`x${index}`, input]));
  const comparison = { name: "call", model, feeds: [named], options: { dynamicAxes: {} } } as const;
  try {
    await compareExport(device, folder, comparison, engines);
  } catch (error) {
    if (isLeftToCpu(error)) return;
    if (!(error instanceof HoldfastError))
      throw new Error(`${name} ${inputs.map(({ shape }) => `[${shape}]`)}`, { cause: error });
    const row = rejected.find(([message]) => message.test(error.message));
    assert.ok(row && namesOf(row[1]).includes(name), `${name}: ${error.message}`);
    seen.add(name);
  }
}

for (const kind of new Set(all.map((model) => model.kind)))
  test(`${kind}: ONNX files give the results, or the export is rejected with a reason`, async (t) => {
    const models = all.filter((model) => model.kind === kind);
    const tried = models.filter((_, index) => index % every === 0);
    for (const model of tried) await check(model);
    t.diagnostic(`${tried.length} of ${models.length} cases`);
  });
