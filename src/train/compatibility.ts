/** Whether a run can go on from a checkpoint: the same model, the same tensors, and settings that give the same result. */

import { HoldfastError } from "../errors/index.js";
import { formatShape } from "../ops/index.js";
import type { JsonRecord } from "../records/index.js";
import { type Checkpoint, tensorPrefixes } from "./checkpoint-file.js";
import { isRecord, toJson } from "./files/json.js";

/** Dtypes and shapes by the names of tensors. */
export type TensorShapes = ReadonlyMap<string, { readonly dtype: string; readonly shape: readonly number[] }>;

/** What the run that wants to go on is. */
export interface ExpectedCheckpoint {
  /** The kind of model, as it stands in the checkpoint's `state.model`. */
  readonly model: string;
  /** The tensors of the model and the optimizer, as `describeState` tells them. */
  readonly tensors?: TensorShapes;
  /** The settings that change the result; the checkpoint's other ones are not looked at. */
  readonly settings?: JsonRecord;
}

/** Differences that a message lists before it only counts them. */
const listedDifferences = 4;

/** Rejects a checkpoint of another model, or made with other settings, with the reason on one line. */
export function requireCompatible(found: Checkpoint, expected: ExpectedCheckpoint): void {
  const { model, tensors, settings = {} } = expected;
  const subject = `The checkpoint of step ${found.step}`;
  if (found.state["model"] !== model) {
    throw new HoldfastError(
      "BAD_STATE",
      `${subject} is of the model ${JSON.stringify(found.state["model"] ?? null)}, and this run trains ${JSON.stringify(model)}. Give the folder of a run of the same model.`,
    );
  }
  if (tensors) requireSameTensors(found, model, tensors);
  requireSameSettings(subject, found.state["settings"], settings);
}

/** Rejects settings that are not those that something was made with; those that are expected of it, or `names`, are looked at. */
export function requireSameSettings(
  subject: string,
  found: unknown,
  expected: JsonRecord,
  names: Iterable<string> = Object.keys(expected),
): void {
  const told = isRecord(found) ? found : {};
  const changes = [...names].flatMap((name) => {
    const [a, b] = [wordOf(told[name]), wordOf(expected[name])];
    return a === b ? [] : [`${name} was ${a} and is ${b} here`];
  });
  if (changes.length === 0) return;
  throw new HoldfastError(
    "BAD_SETTING",
    `${subject} was made with other settings: ${listOf(changes)}. Resume with the settings that it was made with, or start a new run in another folder.`,
    { numbers: { changes: changes.length } },
  );
}

/** Rejects a checkpoint whose tensors are not those of the model and the optimizer; what a run has added is its own affair. */
export function requireSameTensors(found: Checkpoint, model: string, expected: TensorShapes): void {
  const own = [...found.tensors].filter(([name]) => !name.startsWith(tensorPrefixes.extra));
  const misfits = own.flatMap(([name, tensor]) => {
    const there = expected.get(name);
    if (!there) return [`${name} is in the checkpoint and not here`];
    const [a, b] = [tensor, there].map(({ dtype, shape }) => `${dtype} ${formatShape(shape)}`);
    return a === b ? [] : [`${name} is ${a} in the checkpoint and ${b} here`];
  });
  const missing = [...expected.keys()].filter((name) => !found.tensors.has(name));
  const all = [...misfits, ...missing.map((name) => `${name} is here and not in the checkpoint`)];
  if (all.length === 0) return;
  throw new HoldfastError(
    "BAD_STATE",
    `The checkpoint of step ${found.step} does not fit this ${model}: ${listOf(all)}. Make model and optimizer as they were when it was saved.`,
    { numbers: { misfits: all.length } },
  );
}

/** A setting as it stands in a file: what is written alike is alike. */
function wordOf(value: unknown): string {
  if (value === undefined) return "not set";
  return toJson("settings", { value }).slice('{"value":'.length, -1);
}

function listOf(items: readonly string[]): string {
  const more = items.length - listedDifferences;
  return items.slice(0, listedDifferences).join("; ") + (more > 0 ? `; and ${more} more` : "");
}
