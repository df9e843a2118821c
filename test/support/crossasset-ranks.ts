/** `holdfast train crossasset` on several ranks, in folders that can be compared bit for bit. */

import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { CheckpointStore } from "../../src/train/index.js";
import { holdfastProgram, measuredIn, tinyModel } from "./crossasset-runs.js";
import { type MpiName, type StartedRanks, startRanks } from "./ranks.js";
import { plainDevice, shortRunFlags } from "./short-process.js";

/** The shards of every run. */
export const shards = 4;

/** 11 or 21 samples for each of two folds: uneven batches, and some shards without a row. */
const settings = [
  ...["--device", "cpu", "--generate", "12000", "--folds", "2", "--batch", "16", "--dropout", "0.1"],
  ...["--shards", String(shards), "--json", ...tinyModel],
];

export interface JobOptions {
  readonly out: string;
  readonly epochs: number;
  readonly more?: readonly string[];
}

export function commandOf({ out, epochs, more = [] }: JobOptions): [string, string[]] {
  const args = ["train", "crossasset", ...settings, "--epochs", String(epochs), "--out", out, ...more];
  return [process.execPath, [...shortRunFlags, holdfastProgram, ...args]];
}

/** Trains in this many processes. */
export function trainOnRanks(
  job: JobOptions,
  options: {
    readonly mpi: MpiName;
    readonly size: number;
    readonly onOutput?: (output: string) => void;
    readonly withinMs?: number;
    readonly env?: Readonly<Record<string, string>>;
  },
): StartedRanks {
  return startRanks({ ...options, command: commandOf(job) });
}

/** Trains in one process, without a launcher. */
export async function trainAlone(job: JobOptions): Promise<void> {
  const [node, args] = commandOf(job);
  await promisify(execFile)(node, args, { env: { ...process.env, ...plainDevice } });
}

/** The figures of a finished run, and the bits of its last checkpoint: weights, moments, counts, random state. */
export function bitsOf(run: string): { readonly figures: string; readonly tensors: Record<string, string> } {
  const { tensors } = new CheckpointStore(join(run, "checkpoints")).load("latest");
  const entries = [...tensors].map(([name, { dtype, shape, bytes }]): [string, string] => [
    name,
    `${dtype} ${shape.join()} ${Buffer.from(bytes).toString("hex")}`,
  ]);
  return { figures: measuredIn(run), tensors: Object.fromEntries(entries.sort()) };
}
