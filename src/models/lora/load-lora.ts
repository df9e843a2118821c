/** loadLora: gives a model the adapters of a folder, which PEFT or saveLora wrote. A folder is untrusted. */

import { join } from "node:path";
import { openSafetensors, quote, type TensorInFile } from "../../data/index.js";
import { checkOptions, HoldfastError } from "../../errors/index.js";
import { type Linear, Module } from "../../nn/index.js";
import { type MatchedTensor, weightDtype } from "../folders/match-tensors.js";
import { readJsonObject } from "../folders/model-files.js";
import { nameFile } from "../folders/name-file.js";
import { pieceBytes, writeParameter } from "../folders/write-parameter.js";
import type { LoraSizes } from "./adapter.js";
import { type AdapterConfig, readAdapterConfig } from "./adapter-config.js";
import { attach, removeLora, selectModules } from "./apply.js";
import {
  adaptedLayers,
  isNamed,
  layersThere,
  linearLayers,
  listed,
  type NamedModule,
} from "./linear-layers.js";
import { configFile, peftPrefix, weightsFile, wholeParameters } from "./save-lora.js";

/** Options of `loadLora`. */
export interface LoadLoraOptions {
  /** Adapters get gradients, to be trained on. Default: false. */
  readonly trainable?: boolean;
  /** Fields of adapter_config.json that Holdfast does not know and that do not change the arithmetic. */
  readonly allowUnknown?: readonly string[];
}

/** The pair of matrices of a layer. */
interface LayerTensors {
  readonly layer: NamedModule<Linear>;
  readonly sizes: LoraSizes;
  readonly a: TensorInFile;
  readonly b: TensorInFile;
}

/**
 * Freezes a model and gives it the adapters of a folder with `adapter_config.json` and `adapter_model.safetensors`. A folder that does not
 * fit the model is rejected before memory is allocated. Returns the model.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import { applyLora, device, loadLora, nn, removeLora, saveLora } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Sequential(new nn.Linear(4, 2)).to(cpu);
 * const folder = join(mkdtempSync(join(tmpdir(), "lora-")), "adapter");
 * saveLora(applyLora(model, { rank: 3, targets: "all-linear" }), folder);
 * loadLora(removeLora(model), folder);
 * console.log(model.parameters().map(({ shape }) => shape.join(" × ")).join()); // → 2 × 4,2,3 × 4,2 × 3
 * cpu.close();
 * ```
 */
export function loadLora<M extends Module>(model: M, folder: string, options: LoadLoraOptions = {}): M {
  const { trainable = false, allowUnknown = [] } = checkOptions("loadLora", options, {
    trainable: true,
    allowUnknown: true,
  });
  if (!(model instanceof Module) || typeof folder !== "string")
    throw new HoldfastError("BAD_ARGUMENT", "loadLora takes a model and a folder: loadLora(model, folder).");
  const unplaced = model.parameters().find(({ isPlaced }) => !isPlaced);
  if (unplaced)
    throw new HoldfastError(
      "NO_DEVICE",
      "loadLora: the model is not on a device yet. Move it first: model.to(device).",
    );
  const path = join(folder, configFile);
  const config = nameFile(path, () => readAdapterConfig(readJsonObject(path), allowUnknown));
  const file = openSafetensors(join(folder, weightsFile));
  try {
    const left = new Map(file.tensors);
    const layers = pairTensors(folder, model, config, left);
    const saved = nameFile(path, () => selectModules(model, config.modulesToSave));
    const whole = wholeParameters(model, saved).map((one) => ({
      ...one,
      tensor: takeTensor(folder, left, one.name),
    }));
    if (left.size > 0)
      throw badFolder(
        folder,
        `the model has no layer for ${listed([...left.keys()].slice(0, 5).map(quote))}. Check that the adapter belongs to this model. ` +
          layersThere(linearLayers(model)),
        { extra: left.size },
      );
    const wholeMatches = whole.map(({ name, parameter, isTransposed, tensor }) => {
      requireShape(folder, tensor, isTransposed ? parameter.shape.toReversed() : parameter.shape);
      return { ...{ path: name, parameter, isTransposed, tensor, file }, dtype: weightDtype(folder, tensor) };
    });
    attach("loadLora", model, { layers: layers.map(({ layer, sizes }) => ({ ...layer, sizes })), saved });
    const byLayer = new Map(layers.map(({ layer, ...tensors }) => [layer.module, tensors]));
    const scratch = new Uint8Array(pieceBytes);
    const matches: MatchedTensor[] = [...wholeMatches];
    for (const { module, hubPath, adapter } of adaptedLayers(model)) {
      const pair = byLayer.get(module);
      for (const [parameter, tensor] of [
        [adapter.loraA, pair?.a],
        [adapter.loraB, pair?.b],
      ] as const)
        if (tensor)
          matches.push({
            ...{ path: hubPath, parameter, isTransposed: false, tensor, file },
            dtype: weightDtype(folder, tensor),
          });
    }
    try {
      for (const match of matches) {
        match.parameter.requiresGrad = trainable;
        writeParameter(match, scratch);
      }
    } catch (error) {
      removeLora(model);
      throw error;
    }
  } finally {
    file.close();
  }
  return model;
}

/** The layers of a file's pairs of matrices, which it takes out of `left`. */
function pairTensors(
  folder: string,
  model: Module,
  config: AdapterConfig,
  left: Map<string, TensorInFile>,
): readonly LayerTensors[] {
  const layers = linearLayers(model);
  const { targets, namesAll } = config;
  const names = Array.isArray(targets) ? targets : undefined;
  const expected = names && namesAll ? names : [];
  const pairs = layers.flatMap((layer): LayerTensors[] => {
    const [nameA, nameB] = ["A", "B"].map(
      (matrix) => `${peftPrefix}${layer.hubPath}.lora_${matrix}.weight`,
    ) as [string, string];
    if (!left.has(nameA) && !left.has(nameB) && !isNamed(layer, expected)) return [];
    if (names && !isNamed(layer, names))
      throw badFolder(
        folder,
        `it has an adapter for ${quote(layer.hubPath)}, and target_modules of ${configFile} does not name this layer. Check that both ` +
          "files belong together",
        { layer: layer.hubPath },
      );
    const [a, b] = [takeTensor(folder, left, nameA), takeTensor(folder, left, nameB)];
    const sizes = config.sizesOf(layer.hubPath);
    requireShape(folder, a, [sizes.rank, layer.module.inFeatures]);
    requireShape(folder, b, [layer.module.outFeatures, sizes.rank]);
    for (const tensor of [a, b]) weightDtype(folder, tensor);
    return [{ layer, sizes, a, b }];
  });
  if (pairs.length > 0) return pairs;
  throw badFolder(folder, `no adapter fits a layer of the model. ${layersThere(layers)}`, {
    tensors: left.size,
  });
}

function takeTensor(folder: string, left: Map<string, TensorInFile>, name: string): TensorInFile {
  const tensor = left.get(name);
  left.delete(name);
  if (tensor) return tensor;
  throw badFolder(folder, `it lacks ${quote(name)}. Check that the adapter belongs to this model`, { name });
}

function requireShape(folder: string, { name, shape }: TensorInFile, wanted: readonly number[]): void {
  if (shape.join() === wanted.join()) return;
  const [found, expected] = [shape.slice(0, 8), wanted].map((sizes) => `[${sizes.join(", ")}]`);
  throw badFolder(
    folder,
    `tensor ${quote(name)} is ${found}, and by the model and ${configFile} it is ${expected}`,
    { name },
  );
}

function badFolder(
  folder: string,
  problem: string,
  numbers: Readonly<Record<string, string | number>>,
): HoldfastError {
  return new HoldfastError("BAD_STATE", `${folder}: ${problem}${problem.endsWith(".") ? "" : "."}`, {
    numbers: { folder, ...numbers },
  });
}
