/**
 * The packages of Hugging Face that are used here, loaded when they are first needed. Their declarations can't be resolved by TypeScript's
 * "nodenext", so the parts in use are declared here.
 */

import { createRequire } from "node:module";

/** A value of a template: a string, a list, a map or something else. */
export interface TemplateValue {
  /** Items of lists and maps are values of templates, too. */
  readonly value: unknown;
  /** Methods by name. */
  readonly builtins: ReadonlyMap<string, TemplateValue>;
}

/** The value of a function or a method. */
export type TemplateFunction = (
  values: readonly TemplateValue[],
  scope: TemplateEnvironment,
) => TemplateValue;

/** The variables of a template. */
export interface TemplateEnvironment {
  set(name: string, value: unknown): unknown;
}

/** A parsed template, or a part of one. Parts have the fields of their type. */
export interface TemplateNode {
  readonly type: string;
  /** Of an identifier. */
  readonly value?: unknown;
  /** Of a binary expression. */
  readonly left?: TemplateNode;
  readonly right?: TemplateNode;
  readonly operator?: { readonly value: string };
  /** Of a call. */
  readonly callee?: TemplateNode;
  /** Of a member. */
  readonly object?: TemplateNode;
  readonly property?: TemplateNode;
}

/** Evaluated arguments: in order, and by name. */
export type TemplateArguments = readonly [
  positional: readonly TemplateValue[],
  named: ReadonlyMap<string, TemplateValue>,
];

/** Runs parsed templates. Every part of one passes through `evaluate`; the other methods are steps of it. */
export interface TemplateInterpreter {
  run(program: TemplateNode): TemplateValue;
  evaluate(node: TemplateNode | undefined, scope: TemplateEnvironment): TemplateValue;
  evaluateBlock(statements: readonly TemplateNode[], scope: TemplateEnvironment): TemplateValue;
  evaluateBinaryExpression(node: TemplateNode, scope: TemplateEnvironment): TemplateValue;
  evaluateMemberExpression(node: TemplateNode, scope: TemplateEnvironment): TemplateValue;
  evaluateArguments(nodes: readonly TemplateNode[], scope: TemplateEnvironment): TemplateArguments;
  applyFilter(operand: TemplateValue, filter: TemplateNode, scope: TemplateEnvironment): TemplateValue;
}

interface JinjaPackage {
  readonly Environment: new () => TemplateEnvironment;
  readonly Interpreter: new (environment: TemplateEnvironment) => TemplateInterpreter;
  tokenize(
    source: string,
    options: { readonly lstrip_blocks: boolean; readonly trim_blocks: boolean },
  ): unknown;
  parse(tokens: unknown): TemplateNode;
}

interface TokenizersPackage {
  readonly SplitPreTokenizer: new (config: {
    readonly type: "Split";
    readonly pattern: { readonly Regex: string };
    readonly behavior: string;
    readonly invert: boolean;
  }) => { readonly pattern: RegExp | null };
}

const require = createRequire(import.meta.url);

export function jinjaPackage(): JinjaPackage {
  return require("@huggingface/jinja") as JinjaPackage;
}

export function tokenizersPackage(): TokenizersPackage {
  return require("@huggingface/tokenizers") as TokenizersPackage;
}
