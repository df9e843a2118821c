/** Writes an ONNX file, and a second file for weights beyond a limit. Weights are read one by one while they are written. */

import { basename } from "node:path";
import { writeAtomically } from "../data/index.js";
import { dtypes } from "../ir/index.js";
import { submit } from "../kernels/index.js";
import { allocateArray, copyCalls, type DeviceArray, isContiguous, sizeOf } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { alignUp } from "../units/index.js";
import type { Initializer } from "./graph.js";
import { encodeModel, type OnnxModel, type OnnxTensor } from "./model-proto.js";
import type { LazyBytes } from "./protobuf.js";

export interface ModelToWrite extends Omit<OnnxModel, "graph"> {
  readonly graph: Omit<OnnxModel["graph"], "initializers">;
}

/** Smaller tensors stay in the model's file. */
const minExternalBytes = 1024;

/** Runtimes map the file to memory, page by page. */
const pageBytes = 4096;

interface WrittenFiles {
  readonly files: readonly string[];
  readonly bytes: number;
}

/** The file of weights is written first, so that the model never refers to a missing one. Each file is written atomically. */
export function writeModel(
  runtime: Runtime,
  path: string,
  { graph, ...model }: ModelToWrite,
  initializers: readonly Initializer[],
  limit: number,
): WrittenFiles {
  const lazy = initializers.map((each) => ({ ...each, content: bytesOf(runtime, each) }));
  const total = lazy.reduce((sum, { content }) => sum + content.byteLength, 0);
  if (total <= limit) {
    const message = encodeModel({ ...model, graph: { ...graph, initializers: lazy } });
    writeAtomically(path, message.chunks());
    return { files: [path], bytes: message.byteLength };
  }
  const dataPath = `${path}_data`;
  const location = basename(dataPath);
  let end = 0;
  const parts: { readonly offset: number; readonly content: LazyBytes }[] = [];
  const tensors = lazy.map((each): OnnxTensor => {
    const { content } = each;
    if (content.byteLength < minExternalBytes) return each;
    const offset = alignUp(end, pageBytes);
    parts.push({ offset, content });
    end = offset + content.byteLength;
    return { ...each, content: { location, offset, length: content.byteLength } };
  });
  writeAtomically(dataPath, chunksAt(parts));
  const message = encodeModel({ ...model, graph: { ...graph, initializers: tensors } });
  writeAtomically(path, message.chunks());
  return { files: [path, dataPath], bytes: message.byteLength + end };
}

function* chunksAt(parts: readonly { readonly offset: number; readonly content: LazyBytes }[]) {
  let end = 0;
  for (const { offset, content } of parts) {
    if (offset > end) yield new Uint8Array(offset - end);
    yield* content.chunks();
    end = offset + content.byteLength;
  }
}

function bytesOf(runtime: Runtime, { content }: Initializer): LazyBytes {
  if (content instanceof Uint8Array) return { byteLength: content.byteLength, chunks: () => [content] };
  return {
    byteLength: sizeOf(content.shape) * dtypes[content.dtype].bytes,
    *chunks() {
      yield readBytes(runtime, content);
    },
  };
}

/** The elements in row-major order. */
function readBytes(runtime: Runtime, array: DeviceArray): Uint8Array {
  if (!array.storage) return new Uint8Array(0);
  if (isContiguous(array)) return runtime.read(array.storage);
  const copy = allocateArray(runtime, array.shape, array.dtype, "ONNX weight");
  submit(runtime, copyCalls(array, copy));
  if (!copy.storage) return new Uint8Array(0);
  try {
    return runtime.read(copy.storage);
  } finally {
    runtime.arena.free(copy.storage);
  }
}
