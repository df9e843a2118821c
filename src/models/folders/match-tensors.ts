/** Which tensor of a folder belongs to which parameter. All faults are found before anything is placed. */

import { quote, type TensorInFile } from "../../data/index.js";
import { type ErrorNumbers, HoldfastError } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import type { Parameter } from "../../nn/index.js";
import { type HubLayout, hubName, isTransposed } from "../hub-layout.js";
import type { PretrainedModel } from "../pretrained-model.js";
import type { FolderTensor } from "./model-files.js";

/** A parameter, and the tensor with its values. */
export interface MatchedTensor extends FolderTensor {
  readonly path: string;
  readonly parameter: Parameter;
  readonly dtype: Dtype;
  /** True if the file has [in, out]. */
  readonly isTransposed: boolean;
}

/** Options of `loadPretrained` about names. */
export interface MatchOptions {
  /** Names of parameters that keep their random values, or beginnings of such names: "classifier". */
  readonly allowMissing?: readonly string[];
  /** Names of tensors of the folder that are left out, or their beginnings: "cls". */
  readonly allowExtra?: readonly string[];
}

/** The dtypes of weights by their names in files. */
const weightDtypes: Readonly<Record<string, Dtype>> = { F64: "f64", F32: "f32", F16: "f16", BF16: "bf16" };

/** Matches the parameters of a model with the tensors of a folder. */
export function matchTensors(
  folder: string,
  model: PretrainedModel,
  tensors: ReadonlyMap<string, FolderTensor>,
  { allowMissing = [], allowExtra = [] }: MatchOptions,
): readonly MatchedTensor[] {
  const { hubLayout } = model;
  const used = new Set<string>();
  const matched: MatchedTensor[] = [];
  const missing: string[] = [];
  for (const [path, parameter] of model.namedParameters()) {
    const name = hubName(hubLayout, path);
    const found = namesOf(hubLayout, name).find(
      (candidate) => tensors.has(candidate) && !used.has(candidate),
    );
    const entry = found === undefined ? undefined : tensors.get(found);
    if (found === undefined || !entry) {
      if (!isAllowed(name, allowMissing)) missing.push(name);
      continue;
    }
    used.add(found);
    matched.push({
      ...entry,
      ...{ path, parameter, isTransposed: isTransposed(hubLayout, path) },
      dtype: checkTensor(folder, entry, parameter, isTransposed(hubLayout, path)),
    });
  }
  const extra = [...tensors.keys()].filter(
    (name) => !used.has(name) && !hubLayout.ignored.test(name) && !isAllowed(name, allowExtra),
  );
  const faults = [
    ...(missing.length > 0 ? [`it lacks ${listed(missing)}`] : []),
    ...(extra.length > 0 ? [`the model has no ${listed(extra)}`] : []),
  ];
  if (faults.length === 0) return matched;
  throw badState(
    folder,
    `${faults.join("; and ")}. Check that config.json belongs to these weights. To leave tensors out, pass allowMissing or allowExtra ` +
      "with the beginnings of their names",
    { missing: missing.length, extra: extra.length },
  );
}

/** The names that a parameter may have: older files lack the prefix, and call weights of norms gamma and beta. */
function namesOf({ prefix }: HubLayout, name: string): readonly string[] {
  const bare = name.startsWith(`${prefix}.`) ? [name, name.slice(prefix.length + 1)] : [name];
  return bare.flatMap((one) => [
    one,
    ...(one.endsWith("LayerNorm.weight") ? [one.replace(/weight$/, "gamma")] : []),
    ...(one.endsWith("LayerNorm.bias") ? [one.replace(/bias$/, "beta")] : []),
  ]);
}

function isAllowed(name: string, beginnings: readonly string[]): boolean {
  return beginnings.some((beginning) => name === beginning || name.startsWith(`${beginning}.`));
}

/** The dtype of a tensor. Rejects one that does not fit its parameter. */
function checkTensor(
  folder: string,
  { tensor }: FolderTensor,
  { shape }: Parameter,
  isStoredTransposed: boolean,
): Dtype {
  const dtype = weightDtype(folder, tensor);
  const name = quote(tensor.name);
  const expected = isStoredTransposed ? shape.toReversed() : shape;
  if (tensor.shape.join() === expected.join()) return dtype;
  const [found, wanted] = [tensor.shape.slice(0, 8), expected].map((sizes) => `[${sizes.join(", ")}]`);
  throw badState(
    folder,
    `tensor ${name} is ${found}, and the config's is ${wanted}. Check that config.json belongs to these weights`,
    {
      name,
    },
  );
}

/** The dtype of a tensor of weights. Rejects others. */
export function weightDtype(folder: string, tensor: TensorInFile): Dtype {
  const dtype = Object.hasOwn(weightDtypes, tensor.fileDtype) ? weightDtypes[tensor.fileDtype] : undefined;
  if (dtype) return dtype;
  const name = quote(tensor.name);
  throw new HoldfastError(
    "BAD_DTYPE",
    `${folder}: tensor ${name} has the dtype ${quote(tensor.fileDtype)}; weights are ${Object.keys(weightDtypes).join(", ")}. ` +
      "Convert the model with the program that wrote it: quantized weights can't be loaded.",
    { numbers: { name, dtype: tensor.fileDtype } },
  );
}

function listed(names: readonly string[]): string {
  const shown = names.slice(0, 5).map(quote).join(", ");
  return names.length > 5 ? `${shown} and ${names.length - 5} more tensors` : shown;
}

function badState(folder: string, problem: string, numbers: ErrorNumbers): HoldfastError {
  return new HoldfastError("BAD_STATE", `${folder}: ${problem}.`, { numbers: { folder, ...numbers } });
}
