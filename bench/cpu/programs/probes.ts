/** The features that the ten programs and their likes need, and how a library's process tells which of them it has. */

export const features = [
  "embedding with gradient",
  "convolution with gradient",
  "LSTM layer",
  "batch norm with running statistics",
  "dropout",
  "gradient of a gradient",
  "gradient of one's own",
  "compiled step",
  "AdamW",
  "clipping of the gradients' norm",
  "checkpoint of weights, optimizer and random state",
  "safetensors files",
  "f16",
  "bf16",
  "f64",
  "vmap",
  "backend for browsers' GPUs",
] as const;
export type Feature = (typeof features)[number];

/** True, or the reason why not. A probe that throws lacks the feature too. */
export type Probes = Readonly<Record<Feature, () => true | string | Promise<true | string>>>;

/** What a process prints: a reason for each feature, empty if the library has it. */
export type Answers = Readonly<Record<Feature, string>>;

export async function printAnswers(probes: Probes): Promise<void> {
  const answers: Record<string, string> = {};
  for (const feature of features) {
    try {
      const answer = await probes[feature]();
      answers[feature] = answer === true ? "" : answer;
    } catch (error) {
      answers[feature] = error instanceof Error ? (error.message.split("\n")[0] ?? "") : String(error);
    }
  }
  console.log(JSON.stringify(answers));
}

/** True if a value is near another, or says how it differs. */
export const isNear = (value: number, expected: number): true | string =>
  Math.abs(value - expected) < 1e-3 || `gives ${value}, not ${expected}`;

/** True if one of the exports, one level deep, has such a name. */
export function exportNamed(exports: object, pattern: RegExp): true | string {
  const keys = Object.entries(exports).flatMap(([key, value]) =>
    typeof value === "object" && value !== null ? [key, ...Object.keys(value)] : [key],
  );
  return keys.some((key) => pattern.test(key)) || `no export is named ${pattern}`;
}
