/** applyLora, mergeLora, unmergeLora and removeLora: low-rank adapters beside the linear layers of a model. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { Linear, Module, type Parameter } from "../../nn/index.js";
import { PretrainedModel } from "../pretrained-model.js";
import { LoraAdapter, type LoraSizes } from "./adapter.js";
import {
  adaptedLayers,
  isNamed,
  layersThere,
  linearLayers,
  listed,
  type NamedModule,
  namedModules,
  selectLayers,
} from "./linear-layers.js";

/** Options of `applyLora`, with PEFT's defaults. */
export interface LoraOptions extends Partial<LoraSizes> {
  /**
   * Names of linear layers: their last parts, such as "q_proj", or longer ends of their paths, as Hugging Face or as Holdfast calls them; or
   * "all-linear" for all but output layers. Default: those of PEFT for the model type.
   */
  readonly targets?: "all-linear" | readonly string[];
  /** Names of modules that are trained whole and saved with the adapter, such as a new head: ["classifier"]. */
  readonly modulesToSave?: readonly string[];
}

const optionNames: OptionNames<LoraOptions> = {
  rank: true,
  alpha: true,
  dropout: true,
  useRslora: true,
  targets: true,
  modulesToSave: true,
};

/** PEFT's default targets by model type. PEFT has none for vit. */
const defaultTargets: Readonly<Record<string, readonly string[]>> = {
  gpt2: ["c_attn"],
  llama: ["q_proj", "v_proj"],
  mistral: ["q_proj", "v_proj"],
  qwen2: ["q_proj", "v_proj"],
  qwen3: ["q_proj", "v_proj"],
  bert: ["query", "value"],
  vit: ["query", "value"],
};

/** Above any rank that is of use, so that a mistake is an error at once. */
export const maxRank = 65_536;

const savedModules = new WeakMap<Module, readonly NamedModule[]>();

/** The modules that are saved with the adapters of a model. */
export function modulesToSave(model: Module): readonly NamedModule[] {
  return savedModules.get(model) ?? [];
}

/**
 * Freezes a model and gives its linear layers LoRA adapters: trainable matrices A [rank, in] and B [out, rank] in float32. A layer then
 * computes x·Wᵀ + b + alpha / rank · dropout(x)·Aᵀ·Bᵀ. B starts as zeros, so the model's results are the same at first. Returns the model.
 *
 * @example
 * ```ts
 * import { applyLora, device, modelFromConfig, optim } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
 * const model = modelFromConfig({ model_type: "llama", ...sizes }).to(cpu);
 * applyLora(model, { rank: 4, alpha: 8, dropout: 0.05, targets: ["q_proj", "k_proj", "v_proj", "o_proj"] });
 * const trained = model.parameters().filter(({ requiresGrad }) => requiresGrad);
 * const optimizer = new optim.AdamW(trained, { lr: 1e-4 });
 * console.log(optimizer.parameters.length, optimizer.parameters[0]?.shape); // → 8 [ 4, 8 ]
 * cpu.close();
 * ```
 */
export function applyLora<M extends Module>(model: M, options: LoraOptions = {}): M {
  if (!(model instanceof Module))
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "applyLora takes a module and options: applyLora(model, { rank: 16 }).",
    );
  const { targets, modulesToSave = [], ...given } = checkOptions("applyLora", options, optionNames);
  const sizes = checkSizes({ rank: 8, alpha: 8, dropout: 0, useRslora: false, ...given });
  const layers = selectLayers("applyLora", model, targets ?? targetsOf(model));
  attach("applyLora", model, {
    layers: layers.map((layer) => ({ ...layer, sizes })),
    saved: selectModules(model, modulesToSave),
  });
  return model;
}

/** What `attach` adds. */
export interface Attachment {
  readonly layers: readonly (NamedModule<Linear> & { readonly sizes: LoraSizes })[];
  readonly saved: readonly NamedModule[];
}

/** Freezes a model, and gives layers adapters. */
export function attach(what: string, model: Module, { layers, saved }: Attachment): void {
  if (adaptedLayers(model).length > 0)
    throw new HoldfastError(
      "BAD_STATE",
      `${what}: the model has LoRA adapters already. Save or merge them, and call removeLora(model) first.`,
    );
  const special = layers.find(({ module }) => module.adapter !== null || !usesOwnForward(module));
  if (special)
    throw new HoldfastError(
      "UNSUPPORTED",
      `${what}: ${special.path} is a ${special.module.constructor.name} with a forward or an adapter of its own. Choose other targets. ` +
        layersThere(layers),
    );
  const places = new Set(model.parameters().flatMap((one) => (one.isPlaced ? [one.device] : [])));
  model.requiresGrad_(false);
  model.releaseGradients();
  for (const { module, sizes } of layers) {
    const adapter = new LoraAdapter(module, sizes);
    adapter.train(module.isTraining);
    module.adapter = adapter;
  }
  for (const { module } of saved) module.requiresGrad_();
  savedModules.set(model, saved);
  const [device] = places;
  try {
    // Together, so that an optimizer updates all of them in one launch. Parameters that are placed stay where they are.
    if (device) model.to(device);
  } catch (rejection) {
    removeLora(model);
    throw rejection;
  }
}

/** True if a class has not replaced Linear's forward. Hooks may call it. */
function usesOwnForward(layer: Linear): boolean {
  const { forward } = Object.getPrototypeOf(layer) as Linear;
  return forward === Linear.prototype.forward;
}

/** Rejects sizes out of range. */
export function checkSizes(sizes: LoraSizes): LoraSizes {
  const { rank, alpha, dropout, useRslora } = sizes;
  const fault =
    !Number.isInteger(rank) || rank < 1 || rank > maxRank
      ? `rank is ${String(rank)}; it must be a whole number from 1 to ${maxRank}`
      : typeof alpha !== "number" || !(alpha > 0) || !Number.isFinite(alpha)
        ? `alpha is ${String(alpha)}; it must be a number above 0`
        : typeof dropout !== "number" || !(dropout >= 0 && dropout < 1)
          ? `dropout is ${String(dropout)}; it must be a number from 0 to below 1`
          : typeof useRslora !== "boolean"
            ? `useRslora is ${String(useRslora)}; it must be true or false`
            : undefined;
  if (fault === undefined) return { rank, alpha, dropout, useRslora };
  throw new HoldfastError("BAD_ARGUMENT", `LoRA: ${fault}.`, { numbers: { rank, alpha, dropout } });
}

function targetsOf(model: Module): readonly string[] {
  const type = model instanceof PretrainedModel ? model.config["model_type"] : undefined;
  const targets =
    typeof type === "string" && Object.hasOwn(defaultTargets, type) ? defaultTargets[type] : undefined;
  if (targets) return targets;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `applyLora: ${model.constructor.name} has no default targets. Pass targets, or "all-linear". ${layersThere(linearLayers(model))}`,
  );
}

/** The modules with these names. */
export function selectModules(model: Module, names: readonly string[]): readonly NamedModule[] {
  const modules = namedModules(model);
  const missing = names.filter((name) => !modules.some((module) => isNamed(module, [name])));
  if (missing.length > 0) {
    const there = [...model.namedChildren()].map(([name]) => name);
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `modulesToSave: no module is called ${listed(missing.map((name) => JSON.stringify(name)))}. The model has ${listed(there)}.`,
    );
  }
  return modules.filter((module) => isNamed(module, names));
}

/**
 * Adds the product of each adapter to the weight of its layer, so that the layers compute no product of their own. The results stay the same
 * within rounding. Merging twice has no effect. A merged model is not trained: call `unmergeLora` first.
 *
 * @example
 * ```ts
 * import { applyLora, device, mergeLora, nn, ones, removeLora } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Sequential(new nn.Linear(4, 2)).to(cpu);
 * applyLora(model, { rank: 1, targets: "all-linear" });
 * const before = model.forward(ones([4])).sum().item();
 * removeLora(mergeLora(model));
 * console.log(model.forward(ones([4])).sum().item() === before, model.parameters().length); // → true 2
 * cpu.close();
 * ```
 */
export function mergeLora<M extends Module>(model: M): M {
  return setMerged("mergeLora", model, true);
}

/**
 * Subtracts what `mergeLora` added. Weights come back within rounding, as with PEFT: load the model again for the same bits.
 *
 * @example
 * ```ts
 * import { applyLora, device, mergeLora, nn, unmergeLora } from "holdfast";
 * const cpu = await device("cpu");
 * const model = applyLora(new nn.Sequential(new nn.Linear(4, 2)).to(cpu), { targets: "all-linear" });
 * unmergeLora(mergeLora(model));
 * console.log(String(model));
 * // → Sequential(
 * // →   (0): Linear(inFeatures=4, outFeatures=2, bias=true
 * // →     (adapter): LoraAdapter(rank=8, alpha=8
 * // →       (dropout): Dropout(p=0)
 * // →     )
 * // →   )
 * // → )
 * cpu.close();
 * ```
 */
export function unmergeLora<M extends Module>(model: M): M {
  return setMerged("unmergeLora", model, false);
}

function setMerged<M extends Module>(what: string, model: M, isMerged: boolean): M {
  const layers = requireAdapters(what, model).filter(({ adapter }) => adapter.isMerged !== isMerged);
  const shared = layers.find(({ module }) => countUses(model, module.weight) > 1);
  if (shared)
    throw new HoldfastError(
      "BAD_STATE",
      `${what}: the weight of ${shared.path} is shared with another module, which would change too. Leave the layer out of the targets.`,
    );
  for (const { module, adapter } of layers) adapter.merge(module, isMerged);
  return model;
}

/** How many modules have a parameter in a field. */
function countUses(model: Module, parameter: Parameter): number {
  return [...model.namedModules()].filter(([, module]) => Object.values(module).includes(parameter)).length;
}

/** The layers with LoRA. Rejects a model without any. */
export function requireAdapters(what: string, model: Module): ReturnType<typeof adaptedLayers> {
  const layers = model instanceof Module ? adaptedLayers(model) : [];
  if (layers.length > 0) return layers;
  throw new HoldfastError(
    "BAD_STATE",
    `${what}: the model has no LoRA adapters. Call applyLora or loadLora first.`,
  );
}

/**
 * Removes all adapters. Layers compute x·Wᵀ + b again; merged products stay in their weights. The parameters stay frozen.
 *
 * @example
 * ```ts
 * import { applyLora, nn, removeLora } from "holdfast";
 * const model = applyLora(new nn.Sequential(new nn.Linear(4, 2)), { targets: ["0"] });
 * console.log(model.parameters().length, removeLora(model).parameters().length); // → 4 2
 * ```
 */
export function removeLora<M extends Module>(model: M): M {
  for (const { module } of requireAdapters("removeLora", model)) module.adapter = null;
  savedModules.delete(model);
  return model;
}
