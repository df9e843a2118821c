/**
 * ONNX Runtime as an engine, and transformers.js, if they are installed. They take 474 MB, so they are no dependencies:
 * `npm run test:onnx -- --install` fetches them.
 */

import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { homedir } from "node:os";
import { join } from "node:path";
import type { Dtype } from "holdfast";
import type { PlainArray } from "./arrays.js";
import type { Engine, PlainFeeds, Results } from "./compare.js";

/** The version of ONNX Runtime is the one that transformers.js needs. */
export const [onnxRuntimeVersion, transformersJsVersion] = ["1.30.0", "4.3.1"];

/** The folder with its node_modules. HOLDFAST_ONNX_RUNTIME names another one. */
export const onnxRuntimeFolder =
  process.env["HOLDFAST_ONNX_RUNTIME"] ?? join(homedir(), ".cache/holdfast-tests/onnxruntime");

/** A package of that folder; undefined if it is not installed. */
export function findPackage(name: string): unknown {
  const modules = join(onnxRuntimeFolder, "node_modules");
  return existsSync(join(modules, name)) ? createRequire(join(modules, "load.js"))(name) : undefined;
}

/** Options of tests that need both packages. */
export const needsOnnxRuntime = {
  skip:
    !existsSync(join(onnxRuntimeFolder, "node_modules/@huggingface/transformers")) &&
    "ONNX Runtime and transformers.js are not installed: npm run test:onnx -- --install",
};

interface OrtTensor {
  readonly type: string;
  readonly dims: readonly number[];
  readonly data: ArrayLike<number | bigint>;
}

interface Ort {
  readonly Tensor: new (type: string, data: unknown, dims: readonly number[]) => OrtTensor;
  readonly InferenceSession: {
    create(
      path: string,
      options: object,
    ): Promise<{
      run(feeds: Readonly<Record<string, OrtTensor>>): Promise<Readonly<Record<string, OrtTensor>>>;
      readonly outputNames: readonly string[];
    }>;
  };
}

const types: Partial<Record<Dtype, readonly [name: string, array: (data: readonly number[]) => unknown]>> = {
  f32: ["float32", (data) => Float32Array.from(data)],
  f64: ["float64", (data) => Float64Array.from(data)],
  i32: ["int32", (data) => Int32Array.from(data)],
  i64: ["int64", (data) => BigInt64Array.from(data, BigInt)],
  i8: ["int8", (data) => Int8Array.from(data)],
  u8: ["uint8", (data) => Uint8Array.from(data)],
  bool: ["bool", (data) => Uint8Array.from(data)],
};

/** The engine; undefined if it is not installed. */
export function findOnnxRuntime(): Engine | undefined {
  const ort = findPackage("onnxruntime-node") as Ort | undefined;
  if (!ort) return undefined;
  return {
    name: `ONNX Runtime ${onnxRuntimeVersion}`,
    open: async (path) => {
      const session = await ort.InferenceSession.create(path, { logSeverityLevel: 3, intraOpNumThreads: 1 });
      return async (feeds) => {
        const found = await session.run(tensorsOf(ort, feeds));
        return Object.fromEntries(session.outputNames.map((name) => [name, resultOf(found[name]!)]));
      };
    },
  };
}

function tensorsOf(ort: Ort, feeds: PlainFeeds): Record<string, OrtTensor> {
  return Object.fromEntries(
    Object.entries(feeds).map(([name, { dtype, shape, data }]: [string, PlainArray]) => {
      const [type, array] = types[dtype]!;
      return [name, new ort.Tensor(type, array(data), shape)];
    }),
  );
}

function resultOf({ type, dims, data }: OrtTensor): Results[string] {
  const [dtype] = Object.entries(types).find(([, [name]]) => name === type)!;
  return { dtype: dtype as Dtype, shape: dims, data: Array.from(data, Number) };
}
