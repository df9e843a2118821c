/** The fuzzing targets by name; `targets.ts` implements each, and loads the whole library. */

export const fuzzTargetNames = ["parquet", "runs", "http", "safetensors", "csv", "models"] as const;
export type FuzzTargetName = (typeof fuzzTargetNames)[number];
