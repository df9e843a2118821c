/** Optimizers that a user defines by formulas. The whole update becomes one kernel, as with the built-in optimizers. */

import { HoldfastError } from "../errors/index.js";
import { type Expression, term } from "../ir/index.js";
import { evaluateFormula } from "./evaluate-formula.js";
import { argsOf, type Formula, FormulaBook, type FormulaNode, lowerFormula } from "./formula.js";
import { requireNumber } from "./numbers.js";
import { type CommonOptions, Optimizer, type ParameterSource } from "./optimizer.js";
import type { Assignment, StepTerms, UpdateRule } from "./update-rule.js";

/** The options of a defined optimizer: its defaults' names, and those of every optimizer. */
export type DefinedOptions<Names extends string> = CommonOptions & Readonly<Partial<Record<Names, number>>>;

/** The inputs of an update: values of one element, and numbers of the step. */
export type UpdateInputs<State extends string, Names extends string> = Readonly<
  Record<"parameter" | "gradient" | "lr" | "weightDecay" | "step" | State | Names, Formula>
>;

/** The definition of an optimizer. */
export interface OptimizerDefinition<State extends string, Names extends string> {
  /** The name of the class. */
  readonly name: string;
  /** What each element keeps between steps; initially 0, in f32 or better. */
  readonly state?: readonly State[];
  /** The options and their defaults: numbers. Groups may have their own. */
  readonly defaults: Readonly<Record<Names | "lr", number>>;
  /**
   * The new values, by formulas of the old ones. It runs once, when the optimizer is defined: it records formulas, so conditions are
   * `a.lt(b).where(c, d)`. `step` is 1 in the first step.
   */
  update(inputs: UpdateInputs<State, Names>): Readonly<Record<State | "parameter", Formula>>;
}

/** A class of optimizers. */
export type DefinedOptimizer<Names extends string> = new (
  parameters: ParameterSource<DefinedOptions<Names>>,
  options?: DefinedOptions<Names>,
) => Optimizer<DefinedOptions<Names>>;

/**
 * Defines an optimizer by formulas, which become one kernel for parameters, gradients and state. Formulas of lr, step and options alone are
 * computed once per step, in f64. The result is a class: it works in compiled steps, with groups, schedules and checkpoints.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const Signum = optim.defineOptimizer({
 *   name: "Signum",
 *   state: ["m"],
 *   defaults: { lr: 0.01, beta: 0.9 },
 *   update({ parameter, gradient, m, lr, beta }) {
 *     const next = m.mul(beta).add(gradient.mul(beta.neg().add(1)));
 *     return { m: next, parameter: parameter.sub(next.sign().mul(lr)) };
 *   },
 * });
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const signum = new Signum([w], { lr: 0.5 });
 * w.square().sum().backward();
 * signum.step();
 * console.log(w.tolist()); // → [ 3.5, -1.5 ]
 * cpu.close();
 * ```
 */
export function defineOptimizer<const State extends string = never, const Names extends string = never>(
  definition: OptimizerDefinition<State, Names>,
): DefinedOptimizer<Names> {
  const { name, defaults } = definition;
  const recorded = record(definition);
  const defined = class extends Optimizer<DefinedOptions<Names>> {
    constructor(
      parameters: ParameterSource<DefinedOptions<Names>>,
      options: DefinedOptions<Names> = {} as DefinedOptions<Names>,
    ) {
      super(parameters, { ...defaults, ...options }, (merged) => ruleOf(recorded, merged));
    }
  };
  Object.defineProperty(defined, "name", { value: name });
  return defined;
}

interface Recording {
  readonly name: string;
  readonly key: string;
  readonly state: readonly string[];
  /** The options that are settings of the rule. */
  readonly options: readonly string[];
  /** The assignments in an order in which each finds the old values that it needs. */
  readonly assignments: readonly { readonly target: string; readonly node: FormulaNode }[];
  /** The formulas of a step that formulas of elements use. */
  readonly numbers: readonly FormulaNode[];
}

const elementInputs = ["parameter", "gradient"];
const stepInputs = ["lr", "weightDecay", "step"];

function record<State extends string, Names extends string>({
  name,
  state = [],
  defaults,
  update,
}: OptimizerDefinition<State, Names>): Recording {
  const options = Object.keys(defaults).filter((option) => !["lr", "weightDecay"].includes(option));
  const names = [...elementInputs, ...stepInputs, ...state, ...options];
  const repeated = names.find((one, index) => names.indexOf(one) !== index);
  if (repeated !== undefined) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: "${repeated}" is the name of two inputs of the update. Rename the state or the option.`,
    );
  }
  const book = new FormulaBook();
  const isOfElement = (input: string): boolean =>
    elementInputs.includes(input) || (state as readonly string[]).includes(input);
  const inputs = Object.fromEntries(names.map((input) => [input, book.input(input, isOfElement(input))]));
  const result: Readonly<Record<string, Formula>> = update(inputs as UpdateInputs<State, Names>);
  const targets = [...state, "parameter"];
  const unknown = Object.keys(result).find((target) => !targets.includes(target));
  const missing = targets.find((target) => result[target] === undefined);
  if (unknown !== undefined || missing !== undefined) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: update returns ${Object.keys(result).join(", ") || "nothing"}. Return new values for ${targets.join(", ")}.`,
    );
  }
  const nodes = targets.map((target) => {
    const node = book.operand(result[target] as Formula);
    if (node) return { target, node };
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}: the new value of "${target}" is no formula. Return a number, or a formula of the inputs.`,
    );
  });
  const assignments = inOrder(name, nodes);
  const outputs = assignments.map(({ target, node }) => `${target} = ${book.idOf(node)}`);
  return {
    ...{ name, state, options, assignments },
    key: [book.key, `options ${options.join(" ")}`, `state ${state.join(" ")}`, ...outputs].join("; "),
    numbers: numbersOf(nodes.map(({ node }) => node)),
  };
}

/**
 * An order of the assignments: a value is stored only when no later formula needs the old one. A later formula takes a new state from
 * where it is stored.
 */
function inOrder(name: string, pending: Recording["assignments"]): Recording["assignments"] {
  const ordered: { target: string; node: FormulaNode }[] = [];
  let left = [...pending];
  while (left.length > 0) {
    const stored = [...ordered];
    const next = left.find((candidate) => {
      const cuts = cutsOf([...stored, candidate]);
      return left.every(
        ({ target, node }) => target === candidate.target || !needs(node, candidate.target, cuts),
      );
    });
    if (!next) {
      const targets = left.map(({ target }) => target);
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${name}: the new values of ${targets.join(", ")} depend on each other's old values in a circle, and they are stored one after the other. ` +
          "Add a state that keeps one of the old values.",
      );
    }
    ordered.push(next);
    left = left.filter((one) => one !== next);
  }
  return ordered;
}

/** Nodes whose value is stored in a state. A parameter may be rounded when it is stored. */
function cutsOf(stored: Recording["assignments"]): ReadonlyMap<FormulaNode, string> {
  return new Map(
    stored.flatMap(({ target, node }) =>
      target === "parameter" || !node.isElement ? [] : [[node, target] as const],
    ),
  );
}

function needs(node: FormulaNode, input: string, cuts: ReadonlyMap<FormulaNode, string>): boolean {
  if (cuts.has(node)) return false;
  if (node.kind === "input") return node.name === input;
  return argsOf(node).some((arg) => needs(arg, input, cuts));
}

/** Formulas of the step whose values elements use; a formula of the step can be a whole new value. */
function numbersOf(roots: readonly FormulaNode[]): readonly FormulaNode[] {
  const found = new Set<FormulaNode>();
  const seen = new Set<FormulaNode>();
  const visit = (node: FormulaNode): void => {
    if (seen.has(node)) return;
    seen.add(node);
    if (node.isElement) for (const arg of argsOf(node)) visit(arg);
    else if (node.kind !== "constant") found.add(node);
  };
  for (const root of roots) visit(root);
  return [...found];
}

function ruleOf(recording: Recording, merged: Readonly<Record<string, unknown>>): UpdateRule {
  const { name, key, state, options, assignments, numbers } = recording;
  const settings = options.map((option) => {
    const value = Number(merged[option]);
    requireNumber(name, option, value, {});
    return value;
  });
  const rule: UpdateRule = {
    ...{ name, key, settings },
    moments: state,
    numbers: numbers.map(({ key: formula }) => formula),
    stepNumbers: (terms) => numbers.map((node) => numberExpression(node, terms, options)),
    update({ p, g, moment, number }) {
      const stored: { target: string; node: FormulaNode }[] = [];
      const type = p.type === "f64" ? "f64" : "f32";
      return assignments.map((assignment): Assignment => {
        const cuts = cutsOf(stored);
        const expression = lowerFormula(assignment.node, type, (node) => {
          const cut = cuts.get(node);
          if (cut !== undefined) return moment(state.indexOf(cut));
          const index = numbers.indexOf(node);
          if (index >= 0) return node.kind === "compare" ? term.ne(number(index), 0) : number(index);
          if (node.kind !== "input") return undefined;
          if (node.name === "parameter") return p;
          return node.name === "gradient" ? g : moment(state.indexOf(node.name));
        });
        stored.push(assignment);
        return [assignment.target === "parameter" ? "p" : state.indexOf(assignment.target), expression];
      });
    },
  };
  return { ...rule, changesPadding: changesZeros(recording, merged) };
}

/** A number of the step, in f64. */
function numberExpression(
  node: FormulaNode,
  { lr, weightDecay, t, setting }: StepTerms,
  options: readonly string[],
): Expression {
  const inputs: Readonly<Record<string, Expression>> = { lr, weightDecay, step: t };
  const expression = lowerFormula(node, "f64", (one) =>
    one.kind === "input" ? (inputs[one.name] ?? setting(options.indexOf(one.name))) : undefined,
  );
  return node.kind === "compare" ? term.convert(expression, "f64") : expression;
}

/** Whether the first steps change a parameter of 0 without a gradient: the padding between parameters must stay 0. */
function changesZeros(
  { state, assignments }: Recording,
  options: Readonly<Record<string, unknown>>,
): boolean {
  const numbers = Object.fromEntries(Object.entries(options).map(([name, value]) => [name, Number(value)]));
  let kept = Object.fromEntries([...state, "parameter"].map((name) => [name, 0]));
  for (const step of [1, 2, 3, 1000]) {
    const inputs = { weightDecay: 0, ...numbers, ...kept, gradient: 0, step };
    kept = Object.fromEntries(assignments.map(({ target, node }) => [target, evaluateFormula(node, inputs)]));
    if (kept["parameter"] !== 0) return true;
  }
  return false;
}
