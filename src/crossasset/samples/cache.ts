/**
 * A cache of samples on disk. A file's name is a digest of all inputs of its samples. A file that is damaged or belongs to another
 * user is ignored and written again.
 */

import { createHash } from "node:crypto";
import { chmodSync, existsSync, lstatSync, type Stats, statSync } from "node:fs";
import { join } from "node:path";
import {
  loadSafetensors,
  makeFolder,
  type SafetensorsFile,
  type StoredTensor,
  saveSafetensors,
} from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { isPrivate } from "../../files/index.js";
import { type Dtype, viewElements } from "../../ir/index.js";
import type { Bars } from "../bars/bars.js";
import { checksumOfBars } from "../bars/checksum.js";
import { defaultStride, makeSamples, type SampleSettings, type Samples } from "./features.js";
import { featureCount, scales } from "./scales.js";

/** Increase it whenever makeSamples gives other numbers: it invalidates all older files. */
export const samplesVersion = 1;

export interface CachedSamples {
  readonly samples: Samples;
  readonly fromCache: boolean;
  /** Why an existing file was not used. */
  readonly skipReason?: string;
}

/**
 * The samples of these bars, from the cache, or computed and stored there. A missing folder is created; a folder that
 * can't be written is an error. "off" disables the cache. A folder or a file is used only if it belongs to this user
 * and no other user may write to it: a checksum does not stop an attacker.
 *
 * ```js
 * const { samples, fromCache } = cachedSamples(bars, { stride: 60 }, "cache/samples");
 * ```
 */
export function cachedSamples(bars: Bars, settings: SampleSettings, folder: string | "off"): CachedSamples {
  if (folder === "off") return { samples: makeSamples(bars, settings), fromCache: false };
  const existed = existsSync(folder);
  const distrust = existed ? whyUntrusted(`The folder ${folder}`, statSync(folder)) : undefined;
  if (distrust !== undefined)
    return {
      samples: makeSamples(bars, settings),
      fromCache: false,
      skipReason: `${distrust} It is not used.`,
    };
  const key = keyOf(bars, settings);
  const path = join(folder, `samples-${key}.safetensors`);
  const cached = existsSync(path) ? readSamples(path, key) : {};
  if (cached.samples) return { samples: cached.samples, fromCache: true };
  const samples = makeSamples(bars, settings);
  makeFolder(folder);
  if (!existed) denyOthersWrite(folder);
  const tensors = tensorsOf(samples);
  saveSafetensors(path, tensors, new Map(Object.entries({ key, checksum: checksumOf(tensors) })));
  denyOthersWrite(path);
  return { samples, fromCache: false, ...cached };
}

/** Why another user may have written the file, with advice; undefined if only this user can write it. */
function whyUntrusted(subject: string, stats: Stats): string | undefined {
  if (isPrivate(stats)) return undefined;
  return stats.uid === process.getuid?.()
    ? `${subject} is writable by other users. Run chmod go-w on it.`
    : `${subject} belongs to another user. Use a cache folder of your own (--cache).`;
}

/** Removes write permissions of other users, which a permissive umask leaves. */
function denyOthersWrite(path: string): void {
  const { mode } = statSync(path);
  if ((mode & 0o022) !== 0) chmodSync(path, mode & 0o7755);
}

/** A digest of all inputs of the samples, in 64 characters. */
function keyOf(bars: Bars, { stride = defaultStride, labelled = true }: SampleSettings): string {
  const inputs = JSON.stringify({ samplesVersion, stride, labelled });
  return createHash("sha256").update(inputs).update(checksumOfBars(bars)).digest("hex");
}

interface CacheLookup {
  readonly samples?: Samples;
  readonly skipReason?: string;
}

function readSamples(path: string, key: string): CacheLookup {
  try {
    const stats = lstatSync(path);
    if (!stats.isFile()) throw invalidFile("is not a regular file");
    const distrust = whyUntrusted(`The file ${path}`, stats);
    if (distrust !== undefined) return { skipReason: `${distrust} It is written again.` };
    return { samples: samplesOf(loadSafetensors(path), key) };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return { skipReason: error.message };
  }
}

function tensorsOf({ count, bar, time, x, labels }: Samples): StoredTensor[] {
  return [
    { name: "bar", dtype: "i32", shape: [count], bytes: bytesOf(bar) },
    { name: "labels", dtype: "i32", shape: [count, scales.length], bytes: bytesOf(labels) },
    { name: "time", dtype: "f64", shape: [count], bytes: bytesOf(time) },
    { name: "x", dtype: "f32", shape: [count, scales.length, featureCount], bytes: bytesOf(x) },
  ];
}

function samplesOf({ tensors, metadata }: SafetensorsFile, key: string): Samples {
  if (metadata.get("key") !== key) throw invalidFile("was made from other bars or settings");
  const samples = {
    count: tensors.get("bar")?.shape[0] ?? 0,
    bar: elementsOf(tensors, "bar", "i32"),
    time: elementsOf(tensors, "time", "f64"),
    x: elementsOf(tensors, "x", "f32"),
    labels: elementsOf(tensors, "labels", "i32"),
  };
  // The checksum covers the parsed tensors, in their fixed order and with their expected shapes.
  if (metadata.get("checksum") !== checksumOf(tensorsOf(samples))) throw invalidFile("has a wrong checksum");
  return samples;
}

function elementsOf<D extends Dtype>(tensors: SafetensorsFile["tensors"], name: string, dtype: D) {
  const tensor = tensors.get(name);
  if (tensor?.dtype !== dtype) throw invalidFile(`has no ${name} in ${dtype}`);
  return viewElements(dtype, tensor.bytes);
}

function checksumOf(tensors: readonly StoredTensor[]): string {
  const hash = createHash("sha256");
  for (const { name, shape, bytes } of tensors) hash.update(`${name} [${shape.join(", ")}] `).update(bytes);
  return hash.digest("hex");
}

function invalidFile(problem: string): HoldfastError {
  return new HoldfastError("BAD_FILE", `The file ${problem}. It is written again.`);
}

function bytesOf(array: ArrayBufferView): Uint8Array {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}
