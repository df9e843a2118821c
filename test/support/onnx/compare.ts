/** Exports a model, and compares the file's results with the model's. */

import assert from "node:assert/strict";
import { join } from "node:path";
import {
  type Device,
  type Dtype,
  type ExportOnnxOptions,
  exportOnnx,
  nn,
  noGrad,
  type Tensor,
} from "holdfast";
import type { PlainArray } from "./arrays.js";
import { type ReadModel, readModel } from "./read-model.js";
import { checkModel, runModel } from "./run-model.js";

export type Feeds = Readonly<Record<string, Tensor>>;
export type PlainFeeds = Readonly<Record<string, PlainArray>>;
export type Results = Readonly<
  Record<
    string,
    { readonly dtype: Dtype; readonly shape: readonly number[]; readonly data: ArrayLike<number> }
  >
>;

/** What runs an ONNX file. */
export interface Engine {
  readonly name: string;
  open(path: string): Promise<(feeds: PlainFeeds) => Promise<Results>>;
}

/** The plain interpreter, after the strict check of the file's structure. */
export const interpreter: Engine = {
  name: "the interpreter",
  open: async (path) => {
    const model = readModel(path);
    checkModel(model);
    return async (feeds) => runModel(model, feeds);
  },
};

export interface Comparison {
  readonly name: string;
  readonly model: nn.Module | ((...inputs: Tensor[]) => unknown);
  /** The first ones are those of the export. */
  readonly feeds: readonly [Feeds, ...Feeds[]];
  readonly options?: ExportOnnxOptions;
  /** Of float results, relative to the largest expected magnitude if that is above 1. Default: 1e-5. */
  readonly tolerance?: number;
}

type Forward = (...inputs: Tensor[]) => unknown;

/** Compares in each engine. Returns the file, read strictly. */
export async function compareExport(
  device: Device,
  folder: string,
  { name, model, feeds, options = {}, tolerance = 1e-5 }: Comparison,
  engines: readonly Engine[] = [interpreter],
): Promise<ReadModel> {
  const path = join(folder, `${name.replaceAll(/\W+/g, "-")}.onnx`);
  exportOnnx(model, path, feeds[0], options);
  if (model instanceof nn.Module) model.eval();
  const forward = (
    model instanceof nn.Module ? (model as unknown as { forward: Forward }).forward.bind(model) : model
  ) as Forward;
  const expected = feeds.map((feed) =>
    device.step(() => noGrad(() => flatten(forward(...Object.values(feed))).map(plainOf))),
  );
  for (const engine of engines) {
    const run = await engine.open(path);
    for (const [index, feed] of feeds.entries()) {
      const plain = Object.fromEntries(Object.entries(feed).map(([key, tensor]) => [key, plainOf(tensor)]));
      const results = Object.entries(await run(plain));
      assert.equal(results.length, expected[index]!.length, `${name}: the number of results`);
      for (const [at, [result, array]] of results.entries())
        requireClose(`${result} in ${engine.name}, feed ${index}`, array, expected[index]![at]!, tolerance);
    }
  }
  return readModel(path);
}

export function plainOf(tensor: Tensor): PlainArray {
  return {
    dtype: tensor.dtype,
    shape: tensor.shape,
    data: Array.from(tensor.dataSync() as ArrayLike<number>, Number),
  };
}

function flatten(result: unknown): Tensor[] {
  if (Array.isArray(result)) return result.flatMap(flatten);
  if (typeof result !== "object" || result === null) return [];
  return "dataSync" in result ? [result as Tensor] : Object.values(result).flatMap(flatten);
}

function requireClose(what: string, actual: Results[string], expected: PlainArray, tolerance: number): void {
  assert.equal(actual.dtype, expected.dtype, `${what}: the dtype`);
  assert.deepEqual([...actual.shape], [...expected.shape], `${what}: the shape`);
  const isFloat = /f\d+$/.test(expected.dtype);
  const finite = expected.data.filter(Number.isFinite).map(Math.abs);
  const scale = Math.max(
    1,
    finite.reduce((a, b) => Math.max(a, b), 0),
  );
  for (const [index, value] of expected.data.entries()) {
    const got = actual.data[index]!;
    const isSame = Object.is(got, value) || got === value;
    const isClose = isFloat && Math.abs(got - value) <= tolerance * scale;
    assert.ok(isSame || isClose, `${what}, element ${index}: ${got} instead of ${value}`);
  }
}
