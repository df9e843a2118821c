/**
 * A checkpoint as a safetensors file: any program that reads the format can read the tensors. The header's metadata has the
 * step, the state and a checksum of the whole file, so that any altered byte is found.
 */

import { createHash } from "node:crypto";
import { listChunks, readSafetensors, type StoredTensor } from "../data/index.js";
import type { World } from "../distributed/index.js";
import { HoldfastError } from "../errors/index.js";
import type { JsonRecord } from "../records/index.js";
import { fromJson, toJson } from "./files/json.js";

/** The state that a run resumes from. */
export interface Checkpoint {
  /** Completed steps. */
  readonly step: number;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Plain data. `requireCompatible` compares its `model` and `settings`. */
  readonly state: JsonRecord;
  /** Of a training whose optimizer is split over ranks: `tensors` has the elements of this rank, and all ranks save it. */
  readonly split?: SplitTensors;
}

/** Tensors that are split over ranks. */
export interface SplitTensors {
  readonly ranks: World;
  /** The shapes of the whole tensors by name. */
  readonly shapes: Readonly<Record<string, readonly number[]>>;
}

/** The prefixes of tensor names: the model's weights, the optimizer's state, and tensors that a run adds. */
export const tensorPrefixes = { model: "model.", optimizer: "optimizer.", extra: "extra." } as const;

export const checkpointFormat = "holdfast checkpoint";

/** Changes if an older and a newer Holdfast can't read each other's files. */
export const checkpointVersion = 1;

/** Replaces the checksum while it is computed. */
const zeroChecksum = "0".repeat(64);

/** The chunks of the file, in order. */
export function encodeCheckpoint(checkpoint: Checkpoint): readonly Uint8Array[] {
  return encodeChecked(checkpoint).chunks;
}

/** The chunks of the file, in order, and the checksum in its header. */
export function encodeChecked({ step, tensors, state }: Checkpoint): {
  readonly chunks: readonly Uint8Array[];
  readonly sha256: string;
} {
  requireStep(step);
  const { model } = state;
  const metadata = {
    format: checkpointFormat,
    version: String(checkpointVersion),
    model: typeof model === "string" ? model : "",
    step: String(step),
    state: toJson("state", state),
  };
  const withChecksum = (sha256: string): readonly Uint8Array[] =>
    listChunks(tensors.values(), new Map(Object.entries({ ...metadata, sha256 })));
  const hash = createHash("sha256");
  for (const chunk of withChecksum(zeroChecksum)) hash.update(chunk);
  const sha256 = hash.digest("hex");
  return { chunks: withChecksum(sha256), sha256 };
}

/**
 * Decodes a checkpoint. Throws with the reason if the file is truncated, altered, of another kind or of another version,
 * or if its checksum is not `sha256`.
 */
export function decodeCheckpoint(bytes: Uint8Array, sha256?: string): Checkpoint {
  const { tensors, metadata } = readSafetensors(bytes);
  const format = metadata.get("format");
  if (format !== checkpointFormat) {
    const kind =
      format === undefined ? "It is a safetensors file" : `Its format is ${JSON.stringify(format)}`;
    throw rejection(`${kind}, not a checkpoint.`);
  }
  const version = metadata.get("version") ?? "none";
  if (version !== String(checkpointVersion)) {
    throw rejection(
      `It has format version ${version}, but this Holdfast reads version ${checkpointVersion}. Use the Holdfast that wrote it.`,
    );
  }
  const [expected, actual] = [metadata.get("sha256") ?? "", checksumOf(bytes, metadata.get("sha256"))];
  if (expected !== actual) {
    throw rejection(
      `It was altered: its header has the checksum ${expected.slice(0, 8)}…, but its bytes have ${actual.slice(0, 8)}….`,
    );
  }
  if (sha256 !== undefined && actual !== sha256) throw rejection("It belongs to another checkpoint.");
  const state = fromJson("Its state", metadata.get("state") ?? "");
  const step = metadata.get("step") ?? "none";
  if (!/^\d+$/.test(step) || !Number.isSafeInteger(Number(step)))
    throw rejection(
      `Its step is ${JSON.stringify(step.slice(0, 40))}. It must be a whole number, 0 or more.`,
    );
  return { step: Number(step), tensors, state };
}

export function requireStep(step: number): void {
  if (Number.isSafeInteger(step) && step >= 0) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `The checkpoint's step is ${step}. It must be a whole number, 0 or more.`,
  );
}

/** The checksum of a file's bytes, with zeros for the checksum in the header. */
function checksumOf(bytes: Uint8Array, stored: string | undefined): string {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  // Quotes inside strings are escaped, so this finds the member itself.
  const at = stored === undefined ? -1 : file.indexOf(`"sha256":"${stored}"`);
  if (stored?.length !== zeroChecksum.length || at < 0) return "none";
  const start = at + '"sha256":"'.length;
  return createHash("sha256")
    .update(file.subarray(0, start))
    .update(zeroChecksum)
    .update(file.subarray(start + zeroChecksum.length))
    .digest("hex");
}

function rejection(message: string): HoldfastError {
  return new HoldfastError("BAD_FILE", message);
}
