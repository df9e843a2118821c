/** saveLora: writes the adapters of a model to a folder, as PEFT does. */

import { rmSync } from "node:fs";
import { join } from "node:path";
import { layOutFile, makeFolder, type PreparedWrite, prepareWrite, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Module, Parameter } from "../../nn/index.js";
import { readParameter } from "../folders/read-parameter.js";
import { pieceBytes } from "../folders/write-parameter.js";
import { isTransposed } from "../hub-layout.js";
import { PretrainedModel } from "../pretrained-model.js";
import { adapterConfigOf } from "./adapter-config.js";
import { modulesToSave, requireAdapters } from "./apply.js";
import { hubPathOf, listed, type NamedModule } from "./linear-layers.js";

export const configFile = "adapter_config.json";
export const weightsFile = "adapter_model.safetensors";
/** Precedes all names in PEFT's files. */
export const peftPrefix = "base_model.model.";

/** A parameter that a file of adapters has. */
export interface SavedParameter {
  /** Its name in the file. */
  readonly name: string;
  readonly parameter: Parameter;
  /** True if the file has [in, out]. */
  readonly isTransposed: boolean;
}

/** The parameters of the modules that are saved whole. */
export function wholeParameters(
  model: Module,
  saved: readonly NamedModule[] = modulesToSave(model),
): readonly SavedParameter[] {
  const owners = saved.map(({ path }) => `${path}.`);
  return [...model.namedParameters()].flatMap(([path, parameter]) =>
    owners.some((owner) => path.startsWith(owner)) && !path.split(".").includes("adapter")
      ? [
          {
            name: `${peftPrefix}${hubPathOf(model, path)}`,
            parameter,
            isTransposed: model instanceof PretrainedModel && isTransposed(model.hubLayout, path),
          },
        ]
      : [],
  );
}

/**
 * Saves the adapters of a model: `adapter_config.json` and `adapter_model.safetensors`, which PEFT and `loadLora` load. Modules of
 * `modulesToSave` are in it; the frozen weights are not. Files are written under temporary names first, then renamed.
 *
 * @example
 * ```ts
 * import { mkdtempSync, readdirSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { applyLora, device, modelFromConfig, saveLora } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, n_positions: 8, n_embd: 8, n_layer: 1, n_head: 2 };
 * const model = applyLora(modelFromConfig({ model_type: "gpt2", ...sizes }).to(cpu));
 * const folder = join(mkdtempSync(join(tmpdir(), "lora-")), "adapter");
 * saveLora(model, folder);
 * console.log(readdirSync(folder).join()); // → adapter_config.json,adapter_model.safetensors
 * cpu.close();
 * ```
 */
export function saveLora(model: Module, folder: string): void {
  const layers = requireAdapters("saveLora", model);
  const whole = wholeParameters(model);
  const kept = new Set([
    ...whole.map(({ parameter }) => parameter),
    ...layers.flatMap(({ adapter }) => [adapter.loraA, adapter.loraB]),
  ]);
  const lost = [...model.namedParameters()].filter(([, one]) => one.requiresGrad && !kept.has(one));
  if (lost.length > 0)
    throw new HoldfastError(
      "BAD_STATE",
      `saveLora: ${listed(lost.map(([path]) => path))} ${lost.length > 1 ? "are" : "is"} trained, and the files would not have it. ` +
        "Name its module in modulesToSave of applyLora, or freeze it.",
      { numbers: { parameters: lost.length } },
    );
  const tensors = [
    ...layers.flatMap(({ hubPath, adapter }) => [
      savedAs(`${peftPrefix}${hubPath}.lora_A.weight`, adapter.loraA),
      savedAs(`${peftPrefix}${hubPath}.lora_B.weight`, adapter.loraB),
    ]),
    ...whole,
  ].map((one) => ({
    ...one,
    dtype: one.parameter.dtype,
    shape: one.isTransposed ? one.parameter.shape.toReversed() : one.parameter.shape,
  }));
  const config = `${JSON.stringify(adapterConfigOf(model, layers, modulesToSave(model)), undefined, 2)}\n`;
  makeFolder(folder);
  const prepared: PreparedWrite[] = [];
  try {
    prepared.push(prepareWrite(join(folder, configFile), config));
    prepared.push(prepareWrite(join(folder, weightsFile), chunksOf(tensors)));
    // Without weights a folder is rejected: no moment has the config of one adapter and the weights of another.
    withFileError(`${folder} can't be cleaned up`, folder, () =>
      rmSync(join(folder, weightsFile), { force: true }),
    );
    for (const file of prepared) file.commit();
  } finally {
    for (const file of prepared) file.discard();
  }
}

const savedAs = (name: string, parameter: Parameter): SavedParameter => ({
  name,
  parameter,
  isTransposed: false,
});

function* chunksOf(
  tensors: readonly (SavedParameter & {
    readonly dtype: Parameter["dtype"];
    readonly shape: readonly number[];
  })[],
): Generator<Uint8Array> {
  const { beginning, sorted } = layOutFile(tensors, new Map([["format", "pt"]]));
  yield beginning;
  for (const tensor of sorted) yield* readParameter(tensor, pieceBytes);
}
