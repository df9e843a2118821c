/**
 * A checkpoint as a safetensors file: any program that reads the format can read the tensors. The header's metadata has the
 * step, the state and a checksum of the whole file, so that any altered byte is found.
 */

import { createHash } from "node:crypto";
import { listChunks, readSafetensors, type StoredTensor } from "../data/index.js";
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
}

/** The prefixes of tensor names: the model's weights, the optimizer's state, and tensors that a run adds. */
export const tensorPrefixes = { model: "model.", optimizer: "optimizer.", extra: "extra." } as const;

export const checkpointFormat = "holdfast checkpoint";

/** Changes if an older and a newer Holdfast can't read each other's files. */
export const checkpointVersion = 1;

/** Replaces the checksum while it is computed. */
const zeroChecksum = "0".repeat(64);

/** The chunks of the file, in order. */
export function encodeCheckpoint({ step, tensors, state }: Checkpoint): readonly Uint8Array[] {
  if (!Number.isSafeInteger(step) || step < 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The checkpoint's step is ${step}. It must be a whole number, 0 or more.`,
    );
  }
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
  return withChecksum(hash.digest("hex"));
}

/** Decodes a checkpoint. Throws with the reason if the file is truncated, altered, of another kind or of another version. */
export function decodeCheckpoint(bytes: Uint8Array): Checkpoint {
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
  const state = fromJson("Its state", metadata.get("state") ?? "");
  const step = metadata.get("step") ?? "none";
  if (!/^\d+$/.test(step) || !Number.isSafeInteger(Number(step)))
    throw rejection(
      `Its step is ${JSON.stringify(step.slice(0, 40))}. It must be a whole number, 0 or more.`,
    );
  return { step: Number(step), tensors, state };
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
