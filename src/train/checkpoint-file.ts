/**
 * A checkpoint as the bytes of a safetensors file: any program that reads the format can read the tensors. The header's
 * metadata has the step, the state and a checksum of the whole file, so that any altered byte is found.
 */

import { createHash } from "node:crypto";
import { listChunks, readSafetensors, type StoredTensor } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { fromJson, type JsonRecord, toJson } from "./files/json.js";

/** All that a run goes on from. */
export interface Checkpoint {
  /** How many steps were made. */
  readonly step: number;
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** The rest, as plain data. `model` and `settings` are what `requireCompatible` looks at. */
  readonly state: JsonRecord;
}

/** How the names of a checkpoint's tensors begin: the model's weights, the optimizer's state, and what a run adds. */
export const tensorPrefixes = { model: "model.", optimizer: "optimizer.", extra: "extra." } as const;

export const checkpointFormat = "holdfast checkpoint";

/** Changes when an older Holdfast could not read what a newer one writes, or the other way round. */
export const checkpointVersion = 1;

/** Stands in the checksum's place while it is computed. */
const noSum = "0".repeat(64);

/** The pieces of the file, to be written one behind the other. */
export function encodeCheckpoint({ step, tensors, state }: Checkpoint): readonly Uint8Array[] {
  if (!Number.isSafeInteger(step) || step < 0) {
    throw new HoldfastError("BAD_ARGUMENT", `A checkpoint's step is ${step}; give a whole number from 0 on.`);
  }
  const { model } = state;
  const metadata = {
    format: checkpointFormat,
    version: String(checkpointVersion),
    model: typeof model === "string" ? model : "",
    step: String(step),
    state: toJson("state", state),
  };
  const withSum = (sha256: string): readonly Uint8Array[] =>
    listChunks(tensors.values(), new Map(Object.entries({ ...metadata, sha256 })));
  const sum = createHash("sha256");
  for (const piece of withSum(noSum)) sum.update(piece);
  return withSum(sum.digest("hex"));
}

/** Reads a checkpoint; what is truncated, altered, something else or of another version is rejected with the reason. */
export function decodeCheckpoint(bytes: Uint8Array): Checkpoint {
  const { tensors, metadata } = readSafetensors(bytes);
  const format = metadata.get("format");
  if (format !== checkpointFormat) {
    const what =
      format === undefined ? "It is a safetensors file" : `Its format is ${JSON.stringify(format)}`;
    throw rejection(`${what}, but no checkpoint.`);
  }
  const version = metadata.get("version") ?? "none";
  if (version !== String(checkpointVersion)) {
    throw rejection(
      `It has version ${version} of the format, and this Holdfast reads version ${checkpointVersion}: use the Holdfast that wrote it.`,
    );
  }
  const [told, found] = [metadata.get("sha256") ?? "", sumOf(bytes, metadata.get("sha256"))];
  if (told !== found) {
    throw rejection(
      `It was altered: its checksum is ${told.slice(0, 8)}…, and that of its bytes ${found.slice(0, 8)}….`,
    );
  }
  const state = fromJson("Its state", metadata.get("state") ?? "");
  const step = metadata.get("step") ?? "none";
  if (!/^\d+$/.test(step) || !Number.isSafeInteger(Number(step)))
    throw rejection(
      `Its step is ${JSON.stringify(step.slice(0, 40))}, and it must be a whole number from 0 on.`,
    );
  return { step: Number(step), tensors, state };
}

/** The checksum of a file's bytes, with that of the header taken for zeros. */
function sumOf(bytes: Uint8Array, told: string | undefined): string {
  const file = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  // In a text or a name these quotes would be escaped, so this finds the member itself.
  const at = told === undefined ? -1 : file.indexOf(`"sha256":"${told}"`);
  if (told?.length !== noSum.length || at < 0) return "nowhere";
  const begin = at + '"sha256":"'.length;
  return createHash("sha256")
    .update(file.subarray(0, begin))
    .update(noSum)
    .update(file.subarray(begin + noSum.length))
    .digest("hex");
}

function rejection(message: string): HoldfastError {
  return new HoldfastError("BAD_FILE", message);
}
