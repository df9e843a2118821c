/** The linear layers of a model, by their names here and in Hugging Face's models, and which of them a list of names selects. */

import { quote } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { Linear, type Module } from "../../nn/index.js";
import { hubName } from "../hub-layout.js";
import { PretrainedModel } from "../pretrained-model.js";
import { LoraAdapter } from "./adapter.js";

/** A module of a model. */
export interface NamedModule<M extends Module = Module> {
  readonly module: M;
  /** The path of the module here: layers.0.selfAttn.qProj. */
  readonly path: string;
  /** Its path in Hugging Face's model: model.layers.0.self_attn.q_proj. The path here, if there is no such model. */
  readonly hubPath: string;
}

/** The modules of a model without adapters, each once. */
export function namedModules(model: Module): readonly NamedModule[] {
  return [...model.namedModules()].flatMap(([path, module]) => {
    const isOfAdapter = path.split(".").includes("adapter");
    return path === "" || isOfAdapter ? [] : [{ module, path, hubPath: hubPathOf(model, path) }];
  });
}

/** The path of a module or a parameter in Hugging Face's model. */
export function hubPathOf(model: Module, path: string): string {
  return model instanceof PretrainedModel ? hubName(model.hubLayout, path) : path;
}

/** The linear layers of a model. */
export function linearLayers(model: Module): readonly NamedModule<Linear>[] {
  return namedModules(model).flatMap(({ module, ...names }) =>
    module instanceof Linear ? [{ module, ...names }] : [],
  );
}

/** The linear layers with LoRA, and their adapters. */
export function adaptedLayers(
  model: Module,
): readonly (NamedModule<Linear> & { readonly adapter: LoraAdapter })[] {
  return linearLayers(model).flatMap((layer) =>
    layer.module.adapter instanceof LoraAdapter ? [{ ...layer, adapter: layer.module.adapter }] : [],
  );
}

/** As PEFT matches names: the whole path, or its end after a dot. Names here are valid too. */
export function isNamed({ path, hubPath }: NamedModule, names: readonly string[]): boolean {
  return names.some((name) => [path, hubPath].some((whole) => whole === name || whole.endsWith(`.${name}`)));
}

/** Modules that PEFT's "all-linear" leaves out: the output layers. */
const outputLayers = new Set(["lmHead", "classifier"]);

/** The layers that targets select. Rejects a target without a layer. */
export function selectLayers(
  what: string,
  model: Module,
  targets: "all-linear" | readonly string[],
): readonly NamedModule<Linear>[] {
  const layers = linearLayers(model);
  if (targets === "all-linear")
    return layers.filter(({ path }) => !(model instanceof PretrainedModel && outputLayers.has(path)));
  const missing = targets.filter((name) => !layers.some((layer) => isNamed(layer, [name])));
  if (missing.length === 0 && targets.length > 0) return layers.filter((layer) => isNamed(layer, targets));
  const asked =
    missing.length > 0 ? `no linear layer is called ${listed(missing.map(quote))}` : "there are no targets";
  throw new HoldfastError("BAD_ARGUMENT", `${what}: ${asked}. ${layersThere(layers)}`, {
    numbers: { targets: targets.length, layers: layers.length },
  });
}

/** The names that select exactly these layers: the last parts of their paths if they do, otherwise whole paths. */
export function shortNames(model: Module, layers: readonly NamedModule<Linear>[]): readonly string[] {
  const ends = [...new Set(layers.map(({ hubPath }) => lastPart(hubPath)))].sort();
  const selected = linearLayers(model).filter((layer) => isNamed(layer, ends));
  return selected.length === layers.length ? ends : layers.map(({ hubPath }) => hubPath).sort();
}

/** A sentence with the names of linear layers. */
export function layersThere(layers: readonly NamedModule<Linear>[]): string {
  const ends = [...new Set(layers.map(({ hubPath }) => lastPart(hubPath)))];
  return ends.length === 0
    ? "The model has no linear layer."
    : `Its linear layers are called ${listed(ends)}.`;
}

export function listed(names: readonly string[]): string {
  const shown = names.slice(0, 20).join(", ");
  return names.length > 20 ? `${shown} and ${names.length - 20} more` : shown;
}

const lastPart = (path: string): string => path.slice(path.lastIndexOf(".") + 1);
