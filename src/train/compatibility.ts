/** Checks that a run can resume from a checkpoint: same model, same tensors, and settings that give the same result. */

import { HoldfastError } from "../errors/index.js";
import { formatShape } from "../ops/index.js";
import type { JsonRecord } from "../records/index.js";
import { type Checkpoint, tensorPrefixes } from "./checkpoint-file.js";
import { isRecord, toJson } from "./files/json.js";

/** Dtypes and shapes by tensor name. */
export type TensorShapes = ReadonlyMap<string, { readonly dtype: string; readonly shape: readonly number[] }>;

/** The run that resumes. */
export interface ExpectedCheckpoint {
  /** The model's name, as in the checkpoint's `state.model`. */
  readonly model: string;
  /** The tensors of the model and the optimizer, from `describeState`. */
  readonly tensors?: TensorShapes;
  /** The settings that change the result. The checkpoint's other settings are ignored. */
  readonly settings?: JsonRecord;
}

/** Max. differences in a message; the others are only counted. */
const maxListed = 4;

/** Throws, with a one-line reason, if a checkpoint has another model or other settings. */
export function requireCompatible(checkpoint: Checkpoint, expected: ExpectedCheckpoint): void {
  const { model, tensors, settings = {} } = expected;
  const subject = `The checkpoint of step ${checkpoint.step}`;
  if (checkpoint.state["model"] !== model) {
    throw new HoldfastError(
      "BAD_STATE",
      `${subject} has the model ${JSON.stringify(checkpoint.state["model"] ?? null)}, but this run trains ${JSON.stringify(model)}. Use the folder of a run with the same model.`,
    );
  }
  if (tensors) requireSameTensors(checkpoint, model, tensors);
  requireSameSettings(subject, checkpoint.state["settings"], settings);
}

/** Throws if saved settings differ from the expected ones. Compares `names`; default: all expected settings. */
export function requireSameSettings(
  subject: string,
  saved: unknown,
  expected: JsonRecord,
  names: Iterable<string> = Object.keys(expected),
): void {
  const before = isRecord(saved) ? saved : {};
  const changes = [...names].flatMap((name) => {
    const [a, b] = [settingText(before[name]), settingText(expected[name])];
    return a === b ? [] : [`${name} was ${a} and is now ${b}`];
  });
  if (changes.length === 0) return;
  const advice = changes.some((change) => change.startsWith("blas ")) ? `${blasAdvice} ` : "";
  throw new HoldfastError(
    "BAD_SETTING",
    `${subject} was made with other settings: ${listOf(changes)}. ${advice}Resume with the same settings, or start a new run in another folder.`,
    { numbers: { changes: changes.length } },
  );
}

/** Throws if a checkpoint's tensors are not those of the model and the optimizer. Tensors that a run added are ignored. */
export function requireSameTensors(checkpoint: Checkpoint, model: string, expected: TensorShapes): void {
  const saved = [...checkpoint.tensors].filter(([name]) => !name.startsWith(tensorPrefixes.extra));
  const misfits = saved.flatMap(([name, tensor]) => {
    const target = expected.get(name);
    if (!target) return [`${name} is only in the checkpoint`];
    const [a, b] = [tensor, target].map(({ dtype, shape }) => `${dtype} ${formatShape(shape)}`);
    return a === b ? [] : [`${name} is ${a} in the checkpoint and ${b} in this run`];
  });
  const missing = [...expected.keys()].filter((name) => !checkpoint.tensors.has(name));
  const all = [...misfits, ...missing.map((name) => `${name} is not in the checkpoint`)];
  if (all.length === 0) return;
  throw new HoldfastError(
    "BAD_STATE",
    `The checkpoint of step ${checkpoint.step} does not fit this ${model}: ${listOf(all)}. Build the model and the optimizer as in the saved run.`,
    { numbers: { misfits: all.length } },
  );
}

/** The library is no option of the command, and another one is a change that nobody asked for. */
const blasAdvice =
  "Another BLAS library, or another number of threads, changes the last bits of the result. HOLDFAST_BLAS names the library, or is off; HOLDFAST_THREADS is the number of threads.";

/** A setting as JSON text. Settings with equal text are equal. */
function settingText(value: unknown): string {
  if (value === undefined) return "not set";
  return toJson("settings", { value }).slice('{"value":'.length, -1);
}

function listOf(items: readonly string[]): string {
  const more = items.length - maxListed;
  return items.slice(0, maxListed).join("; ") + (more > 0 ? `; and ${more} more` : "");
}
