/**
 * Checkpoints of an optimizer that is split over ranks. Every rank writes a file with its elements, at the same time; then rank 0 writes the
 * checkpoint itself, with the names and checksums of these files. So a checkpoint is there only if all of it is. Reading joins the elements,
 * whatever the number of ranks.
 */

import { readdirSync, rmSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileError, readWhole, type StoredTensor, type WriteBytes, writeAtomically } from "../data/index.js";
import type { World } from "../distributed/index.js";
import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import { sizeOf } from "../ops/index.js";
import type { Optimizer } from "../optim/index.js";
import { type Checkpoint, decodeCheckpoint, encodeChecked, type SplitTensors } from "./checkpoint-file.js";
import { isRecord } from "./files/json.js";
import { fits, listOf, recordOf, text } from "./files/json-shapes.js";

/** The file of a rank. */
interface Part {
  readonly name: string;
  readonly sha256: string;
}

const extension = ".safetensors";
/** `step-000000012.rank-3.0123456789abcdef.safetensors` */
const partName = /^(.+)\.rank-\d+\.[0-9a-f]{16}\.safetensors$/;
/** The name of a tensor with the elements of a rank. */
const sliceName = /^(.+)\[(\d+):(\d+)\]$/;

/** How an optimizer's tensors are split, for a checkpoint; undefined if they are not. `prefix`: of their names. */
export function splitOf(optimizer: Optimizer, prefix: string): SplitTensors | undefined {
  const { ranks } = optimizer;
  if (!ranks) return undefined;
  const own = optimizer.stateDict();
  const split = Object.entries(optimizer.describeState()).filter(([name]) => !(name in own));
  return { ranks, shapes: Object.fromEntries(split.map(([name, { shape }]) => [prefix + name, shape])) };
}

/** Writes a checkpoint. All ranks of a split one call it, and write at the same time. */
export function writeCheckpoint(
  path: string,
  checkpoint: Checkpoint,
  options: { readonly write?: WriteBytes } = {},
): void {
  const { split } = checkpoint;
  if (!split) {
    writeAtomically(path, encodeChecked(checkpoint).chunks, options);
    return;
  }
  const { ranks, shapes } = split;
  const parts = ranks.exchange("the parts of a checkpoint", writePart(path, checkpoint, ranks, options));
  if (ranks.rank !== 0) return;
  const state = { ...checkpoint.state, split: { shapes, parts: parts.slice(1) } };
  writeAtomically(path, encodeChecked({ ...checkpoint, state }).chunks, options);
  const used = new Set(parts.map((part) => part?.name));
  removeParts(dirname(path), (name, owner) => owner === stem(path) && !used.has(name));
}

/** Writes the elements of this rank. The name has the checksum, so that no file of an older checkpoint is replaced. */
function writePart(
  path: string,
  { step, tensors }: Checkpoint,
  { rank }: World,
  options: { readonly write?: WriteBytes },
): Part | null {
  if (rank === 0) return null;
  const own = new Map([...tensors].filter(([name]) => sliceName.test(name)));
  const { chunks, sha256 } = encodeChecked({ step, tensors: own, state: {} });
  const name = `${stem(path)}.rank-${rank}.${sha256.slice(0, 16)}${extension}`;
  writeAtomically(join(dirname(path), name), chunks, options);
  return { name, sha256 };
}

/** Reads and verifies a checkpoint with all of its parts. */
export function readCheckpoint(path: string): Checkpoint {
  const checkpoint = decodeCheckpoint(readWhole(path));
  const { split, ...state } = checkpoint.state;
  if (split === undefined) return checkpoint;
  const { shapes, parts } = splitIn(split);
  const tensors = new Map(checkpoint.tensors);
  for (const { name, sha256 } of parts) {
    const partPath = join(dirname(path), name);
    if (basename(name) !== name || !partName.test(name)) throw damaged(`it names the file ${name}`);
    try {
      const part = decodeCheckpoint(readWhole(partPath), sha256);
      for (const [tensorName, tensor] of part.tensors) tensors.set(tensorName, tensor);
    } catch (error) {
      throw fileError(`The part ${name} is rejected`, partPath, error);
    }
  }
  return { ...checkpoint, state, tensors: joined(tensors, shapes) };
}

/** Removes a checkpoint with its parts. It is no checkpoint any more before the first part is gone. */
export function removeCheckpoint(path: string): void {
  rmSync(path, { force: true });
  removeParts(dirname(path), (_, owner) => owner === stem(path));
}

/** Removes parts whose checkpoint was never completed. */
export function removeUnusedParts(folder: string): void {
  const names = readdirSync(folder);
  const used = new Set(
    names.filter((name) => !partName.test(name)).map((name) => name.replace(".superseded", "")),
  );
  removeParts(folder, (_, owner) => !used.has(owner + extension), names);
}

/** Removes the parts that are unused, by their name and that of their checkpoint without its extension. */
function removeParts(
  folder: string,
  isUnused: (name: string, owner: string) => boolean,
  names: readonly string[] = readdirSync(folder),
): void {
  for (const name of names) {
    const [, owner] = partName.exec(name) ?? [];
    if (owner !== undefined && isUnused(name, owner)) rmSync(join(folder, name), { force: true });
  }
}

function stem(path: string): string {
  return basename(path, extension);
}

/** The tensors, with each split one in one piece. */
function joined(
  tensors: ReadonlyMap<string, StoredTensor>,
  shapes: Readonly<Record<string, readonly number[]>>,
): ReadonlyMap<string, StoredTensor> {
  const result = new Map<string, StoredTensor>();
  const slices = new Map<string, { readonly start: number; readonly tensor: StoredTensor }[]>();
  for (const [name, tensor] of tensors) {
    const [, whole, start] = sliceName.exec(name) ?? [];
    if (whole === undefined || !Object.hasOwn(shapes, whole)) result.set(name, tensor);
    else slices.set(whole, [...(slices.get(whole) ?? []), { start: Number(start), tensor }]);
  }
  for (const [name, shape] of Object.entries(shapes)) {
    const sorted = (slices.get(name) ?? []).sort((a, b) => a.start - b.start);
    const [first] = sorted;
    if (!first) throw damaged(`it has no elements of ${name}`);
    const { dtype } = first.tensor;
    let next = 0;
    for (const { start, tensor } of sorted) {
      if (start !== next || tensor.dtype !== dtype)
        throw damaged(`its elements of ${name} do not fit together`);
      next += sizeOf(tensor.shape);
    }
    if (next !== sizeOf(shape))
      throw damaged(`it has ${next} elements of ${name}, which has ${sizeOf(shape)}`);
    const bytes = new Uint8Array(next * dtypes[dtype].bytes);
    for (const { start, tensor } of sorted) bytes.set(tensor.bytes, start * dtypes[dtype].bytes);
    result.set(name, { name, dtype, shape, bytes });
  }
  return result;
}

const wholeNumber = fits(
  (value) => Number.isSafeInteger(value) && Number(value) >= 0,
  "a whole number, 0 or more",
);
/** The split of a checkpoint's state, checked. */
function splitIn(value: unknown): {
  readonly shapes: Readonly<Record<string, readonly number[]>>;
  readonly parts: readonly Part[];
} {
  const shapes = isRecord(value) && isRecord(value["shapes"]) ? value["shapes"] : {};
  const sizes = recordOf(Object.fromEntries(Object.keys(shapes).map((name) => [name, listOf(wholeNumber)])));
  const parts = listOf(recordOf({ name: text, sha256: text }));
  const problem = recordOf({ shapes: sizes, parts })(value, "split");
  if (problem) throw damaged(problem);
  return value as { shapes: Record<string, readonly number[]>; parts: readonly Part[] };
}

function damaged(problem: string): HoldfastError {
  return new HoldfastError("BAD_FILE", `The checkpoint is damaged: ${problem}.`);
}
