/** Finds which of PyTorch's names Holdfast has: by introspection of both libraries. */

import * as holdfast from "../../src/index.js";
import { otherNames } from "./other-names.js";
import { otherMeanings, reasonNotToCount } from "./scope.js";

/** The namespaces of torch-names.json, each with its names by kind. */
export interface TorchNames {
  readonly version: string;
  readonly namespaces: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
}

export interface CoveredName {
  readonly name: string;
  readonly isHere: boolean;
  /** What precedes the camelCase name in Holdfast, such as `nn.`: `x.` for tensors, nothing for the package itself. */
  readonly place?: string;
  /** How to write it, if Holdfast has it under another name. */
  readonly otherName?: string;
  /** Why it does not count. */
  readonly reason?: string;
}

export interface CoveredNamespace {
  readonly label: string;
  readonly names: readonly CoveredName[];
  /** Of the names that count. */
  readonly covered: number;
  readonly counted: number;
}

type Space = Readonly<Record<string, unknown>>;

const spaceOf = (...path: readonly string[]): Space =>
  path.reduce<Space>((space, key) => (space[key] as Space | undefined) ?? {}, holdfast as unknown as Space);

/** Where Holdfast has the names of a namespace. The first place that has a name is the one that is shown. */
const places: Readonly<Record<string, readonly { readonly prefix: string; readonly space: Space }[]>> = {
  torch: [
    { prefix: "", space: spaceOf() },
    { prefix: "x.", space: spaceOf("Tensor", "prototype") },
    { prefix: "nn.functional.", space: spaceOf("nn", "functional") },
    { prefix: "linalg.", space: spaceOf("linalg") },
    { prefix: "autograd.", space: spaceOf("autograd") },
  ],
  "torch.Tensor": [
    { prefix: "x.", space: spaceOf("Tensor", "prototype") },
    { prefix: "", space: spaceOf() },
    { prefix: "linalg.", space: spaceOf("linalg") },
  ],
  "torch.nn": [{ prefix: "nn.", space: spaceOf("nn") }],
  "torch.nn.functional": [
    { prefix: "nn.functional.", space: spaceOf("nn", "functional") },
    { prefix: "x.", space: spaceOf("Tensor", "prototype") },
    { prefix: "", space: spaceOf() },
  ],
  "torch.nn.init": [{ prefix: "nn.init.", space: spaceOf("nn", "init") }],
  "torch.linalg": [
    { prefix: "linalg.", space: spaceOf("linalg") },
    { prefix: "x.", space: spaceOf("Tensor", "prototype") },
  ],
  "torch.optim": [{ prefix: "optim.", space: spaceOf("optim") }],
  "torch.optim.lr_scheduler": [
    { prefix: "optim.lrScheduler.", space: spaceOf("optim", "lrScheduler") },
    { prefix: "optim.", space: spaceOf("optim") },
  ],
  "torch.autograd": [
    { prefix: "autograd.", space: spaceOf("autograd") },
    { prefix: "", space: spaceOf() },
    { prefix: "x.", space: spaceOf("Tensor", "prototype") },
  ],
  "torch.utils.data": [{ prefix: "", space: spaceOf() }],
};

/** `log_softmax` → `logSoftmax`. A trailing underscore, which marks work in place, stays. */
export function toCamelCase(name: string): string {
  return name.replace(/(?<=[a-zA-Z0-9])_([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
}

function coverName(label: string, name: string): CoveredName {
  const fullName = `${label}.${name}`;
  const otherName = otherNames[fullName];
  if (otherName !== undefined) return { name, isHere: true, otherName };
  const camel = toCamelCase(name);
  const place = places[label]?.find(({ space }) => camel in space);
  if (place && !otherMeanings.has(fullName)) return { name, isHere: true, place: place.prefix };
  const reason = reasonNotToCount(fullName);
  return reason === undefined ? { name, isHere: false } : { name, isHere: false, reason };
}

export function coverNames(torch: TorchNames): readonly CoveredNamespace[] {
  return Object.entries(torch.namespaces).map(([label, kinds]) => {
    const names = Object.values(kinds)
      .flat()
      .sort()
      .map((name) => coverName(label, name));
    const covered = names.filter(({ isHere }) => isHere).length;
    const counted = names.filter(({ reason }) => reason === undefined).length;
    return { label, names, covered, counted };
  });
}
