/**
 * The parts of a training that a checkpoint holds, by name: models, optimizers, and what has a state of plain data. Where
 * there is one of a kind its name is the kind, as in `model`; several have names of their own, as in `model.critic`.
 */

import { HoldfastError } from "../errors/index.js";
import { Module } from "../nn/index.js";
import { Optimizer } from "../optim/index.js";
import type { Device, Tensor } from "../tensor/index.js";

/** Something with a state of plain data: a schedule, a loader, early stopping, or an object of your own. */
export interface Stateful {
  /** Plain data: numbers, texts, arrays and records of these. */
  stateDict(): object;
  /** Goes on from a state; throws, and changes nothing, where it does not fit. */
  loadStateDict(state: never): void;
}

/** One of a kind, or several by name. */
export type OneOrNamed<Part> = Part | Readonly<Record<string, Part>>;

/** What a training consists of. */
export interface TrainingParts {
  readonly model?: OneOrNamed<Module>;
  readonly optimizer?: OneOrNamed<Optimizer>;
  readonly schedule?: OneOrNamed<Stateful>;
  readonly loader?: OneOrNamed<Stateful>;
  readonly earlyStopping?: OneOrNamed<Stateful>;
  /** Where random numbers stand, on the host and on the devices of the models. Default: true if there is an optimizer. */
  readonly random?: boolean;
}

export type Named<Part> = readonly (readonly [name: string, part: Part])[];

const statefulKinds = ["schedule", "loader", "earlyStopping"] as const;
const stepPhaseNames = ["model", "optimizer", ...statefulKinds, "random", "step", "extra", "tensors"];

/** The parts by name, checked. */
export class SliceList {
  readonly models: Named<Module>;
  readonly optimizers: Named<Optimizer>;
  readonly stateful: Named<Stateful>;
  readonly hasRandom: boolean;
  /** The kinds that were given: those of a checkpoint that were not are left alone. */
  readonly kinds: ReadonlySet<string>;

  constructor(parts: TrainingParts) {
    if (typeof parts !== "object" || parts === null) {
      throw new HoldfastError("BAD_ARGUMENT", "Give the parts of a training: { model, optimizer, … }.");
    }
    const unknown = Object.keys(parts).find((name) => !stepPhaseNames.includes(name));
    if (unknown !== undefined) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `A checkpoint has no part "${unknown}". Give ${stepPhaseNames.join(", ")}; data of your own goes into extra.`,
      );
    }
    const isModule = (value: unknown): value is Module => value instanceof Module;
    const isOptimizer = (value: unknown): value is Optimizer => value instanceof Optimizer;
    this.models = named("model", parts.model, isModule, "a module");
    this.optimizers = named("optimizer", parts.optimizer, isOptimizer, "an optimizer");
    this.stateful = statefulKinds.flatMap((kind) =>
      named(kind, parts[kind], isStateful, "an object with stateDict() and loadStateDict()"),
    );
    this.hasRandom = parts.random ?? this.optimizers.length > 0;
    this.kinds = new Set(
      [...this.models, ...this.optimizers, ...this.stateful].map(([name]) => kindOf(name)),
    );
  }

  /** The tensors of models and optimizers by name, and the random states of their devices where they are asked for. */
  tensors(): ReadonlyMap<string, Tensor> {
    const entries = [
      ...this.models.flatMap(([name, module]) => prefixed(name, module.namedParameters())),
      ...this.optimizers.flatMap(([name, optimizer]) =>
        prefixed(name, Object.entries(optimizer.stateDict())),
      ),
      ...this.randomStates(),
    ];
    return new Map(entries);
  }

  /** By the places of the devices: the first one's is `random.state`. */
  randomStates(): Named<Tensor> {
    if (!this.hasRandom) return [];
    return this.#devices().map(({ randomState }, place) => [
      `${randomKind}.state${place === 0 ? "" : `.${place}`}`,
      randomState,
    ]);
  }

  #devices(): readonly Device[] {
    const tensors = [
      ...this.models.flatMap(([, module]) => module.parameters()),
      ...this.optimizers.flatMap(([, optimizer]) => optimizer.parameters),
    ];
    return [...new Set(tensors.map(({ device }) => device))];
  }
}

export const randomKind = "random";

/** What a name of a tensor or of a part begins with. */
export function kindOf(name: string): string {
  return name.split(".", 1)[0] ?? name;
}

function prefixed(prefix: string, entries: Iterable<readonly [string, Tensor]>): [string, Tensor][] {
  return Array.from(entries, ([name, tensor]) => [`${prefix}.${name}`, tensor]);
}

function named<Part extends object>(
  kind: string,
  given: OneOrNamed<Part> | undefined,
  isPart: (value: unknown) => value is Part,
  what: string,
): Named<Part> {
  if (given === undefined) return [];
  if (isPart(given)) return [[kind, given]];
  const entries = typeof given === "object" && given !== null ? Object.entries(given) : [];
  if (entries.length === 0) {
    throw new HoldfastError("BAD_ARGUMENT", `${kind} must be ${what}, or an object of them by name.`);
  }
  return entries.map(([key, part]) => {
    if (key === "" || key.includes(".")) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${kind}: the name "${key}" must not be empty or contain a dot.`,
      );
    }
    if (isPart(part)) return [`${kind}.${key}`, part];
    throw new HoldfastError("BAD_ARGUMENT", `${kind}.${key} must be ${what}.`);
  });
}

function isStateful(value: unknown): value is Stateful {
  const { stateDict, loadStateDict } = (value ?? {}) as Partial<Stateful>;
  return typeof stateDict === "function" && typeof loadStateDict === "function";
}
