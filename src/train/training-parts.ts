/**
 * The parts of a training in a checkpoint, by name: models, optimizers, and objects with a plain state. A single part of a kind is
 * named after the kind, such as `model`; several have their own names, such as `model.critic`.
 */

import { HoldfastError } from "../errors/index.js";
import { Module } from "../nn/index.js";
import { GradScaler, Optimizer, swaUtils } from "../optim/index.js";
import type { Device, Tensor } from "../tensor/index.js";
import type { SplitTensors } from "./checkpoint-file.js";
import type { TensorShapes } from "./compatibility.js";
import { splitOf } from "./split-checkpoint.js";

/** An object with a plain state: a schedule, a loader, early stopping, or your own. */
export interface Stateful {
  /** Plain data: numbers, strings, arrays and records of these. */
  stateDict(): object;
  /** Restores a state. If it does not fit, it throws and changes nothing. */
  loadStateDict(state: never): void;
}

/** One of a kind, or several by name. */
export type OneOrNamed<Part> = Part | Readonly<Record<string, Part>>;

/** An optimizer, or averages of weights: its state consists of tensors. */
export type OptimizerPart = Optimizer | swaUtils.AveragedModel;

/** The parts of a training. */
export interface TrainingParts {
  readonly model?: OneOrNamed<Module>;
  readonly optimizer?: OneOrNamed<OptimizerPart>;
  /** The scaler of losses in f16. */
  readonly scaler?: OneOrNamed<GradScaler>;
  readonly schedule?: OneOrNamed<Stateful>;
  readonly loader?: OneOrNamed<Stateful>;
  readonly earlyStopping?: OneOrNamed<Stateful>;
  /** Save the positions of the random generators on the host and the models' devices. Default: true if there is an optimizer. */
  readonly random?: boolean;
}

export type Named<Part> = readonly (readonly [name: string, part: Part])[];

const statefulKinds = ["schedule", "loader", "earlyStopping"] as const;
const partNames = ["model", "optimizer", "scaler", ...statefulKinds, "random", "step", "extra", "tensors"];

/** The parts by name, checked. */
export class PartList {
  readonly models: Named<Module>;
  readonly optimizers: Named<OptimizerPart>;
  readonly scalers: Named<GradScaler>;
  readonly stateful: Named<Stateful>;
  readonly hasRandom: boolean;
  /** The passed kinds. Other kinds in a checkpoint are ignored. */
  readonly kinds: ReadonlySet<string>;

  constructor(parts: TrainingParts) {
    if (typeof parts !== "object" || parts === null) {
      throw new HoldfastError("BAD_ARGUMENT", "Pass the parts of a training: { model, optimizer, … }.");
    }
    const unknown = Object.keys(parts).find((name) => !partNames.includes(name));
    if (unknown !== undefined) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `A checkpoint has no part "${unknown}". Use ${partNames.join(", ")}; put your own data into extra.`,
      );
    }
    const isModule = (value: unknown): value is Module => value instanceof Module;
    const isOptimizer = (value: unknown): value is OptimizerPart =>
      value instanceof Optimizer || value instanceof swaUtils.AveragedModel;
    this.models = named("model", parts.model, isModule, "a module");
    this.optimizers = named("optimizer", parts.optimizer, isOptimizer, "an optimizer");
    const isScaler = (value: unknown): value is GradScaler => value instanceof GradScaler;
    this.scalers = named("scaler", parts.scaler, isScaler, "a GradScaler");
    this.stateful = statefulKinds.flatMap((kind) =>
      named(kind, parts[kind], isStateful, "an object with stateDict() and loadStateDict()"),
    );
    this.hasRandom = parts.random ?? this.optimizers.length > 0;
    this.kinds = new Set(
      [...this.models, ...this.optimizers, ...this.scalers, ...this.stateful].map(([name]) => kindOf(name)),
    );
  }

  /** The tensors of models, optimizers and scalers by name, and the random states of their devices if requested. */
  tensors(): ReadonlyMap<string, Tensor> {
    return new Map(this.#entries<Tensor>((optimizer) => optimizer.stateDict()));
  }

  /** The same with the whole shapes of tensors that are split over ranks. */
  shapes(): TensorShapes {
    return new Map(
      this.#entries<Pick<Tensor, "dtype" | "shape">>((optimizer) =>
        optimizer instanceof Optimizer ? optimizer.describeState() : optimizer.stateDict(),
      ),
    );
  }

  /** How the tensors of optimizers are split over ranks. */
  get split(): SplitTensors | undefined {
    const all = this.optimizers.flatMap(([name, optimizer]) =>
      optimizer instanceof Optimizer ? (splitOf(optimizer, `${name}.`) ?? []) : [],
    );
    const [first] = all;
    return first && { ...first, shapes: Object.assign({}, ...all.map(({ shapes }) => shapes)) };
  }

  #entries<Item>(
    stateOf: (optimizer: OptimizerPart) => Readonly<Record<string, Item>>,
  ): [string, Item | Tensor][] {
    return [
      ...this.models.flatMap(([name, module]) => prefixed(name, Object.entries(module.stateDict()))),
      ...this.optimizers.flatMap(([name, part]) => prefixed(name, Object.entries(stateOf(part)))),
      ...this.scalers.flatMap(([name, part]) => prefixed(name, Object.entries(part.stateDict()))),
      ...this.randomStates().map(([name, state]): [string, Tensor] => [name, state]),
    ];
  }

  /** Numbered by device: the first is `random.state`. */
  randomStates(): Named<Tensor> {
    if (!this.hasRandom) return [];
    return this.#devices().map(({ randomState }, index) => [
      `${randomKind}.state${index === 0 ? "" : `.${index}`}`,
      randomState,
    ]);
  }

  #devices(): readonly Device[] {
    const tensors = [
      ...this.models.flatMap(([, module]) => Object.values(module.stateDict())),
      ...this.optimizers.flatMap(([, optimizer]) => optimizer.parameters),
    ];
    return [...new Set(tensors.map(({ device }) => device))];
  }
}

export const randomKind = "random";

/** The first word of the name of a tensor or a part. */
export function kindOf(name: string): string {
  return name.split(".", 1)[0] ?? name;
}

function prefixed<Item>(prefix: string, entries: Iterable<readonly [string, Item]>): [string, Item][] {
  return Array.from(entries, ([name, item]) => [`${prefix}.${name}`, item]);
}

function named<Part extends object>(
  kind: string,
  value: OneOrNamed<Part> | undefined,
  isPart: (value: unknown) => value is Part,
  expected: string,
): Named<Part> {
  if (value === undefined) return [];
  if (isPart(value)) return [[kind, value]];
  const entries = typeof value === "object" && value !== null ? Object.entries(value) : [];
  if (entries.length === 0) {
    throw new HoldfastError("BAD_ARGUMENT", `${kind} must be ${expected}, or an object of them by name.`);
  }
  return entries.map(([key, part]) => {
    if (key === "" || key.includes(".")) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${kind}: the name "${key}" must not be empty or contain a dot.`,
      );
    }
    if (isPart(part)) return [`${kind}.${key}`, part];
    throw new HoldfastError("BAD_ARGUMENT", `${kind}.${key} must be ${expected}.`);
  });
}

function isStateful(value: unknown): value is Stateful {
  const { stateDict, loadStateDict } = (value ?? {}) as Partial<Stateful>;
  return typeof stateDict === "function" && typeof loadStateDict === "function";
}
