/**
 * The packages of Hugging Face that are used here, loaded when they are first needed. Their declarations can't be resolved by TypeScript's
 * "nodenext", so the parts in use are declared here.
 */

import { createRequire } from "node:module";

/** A value of a template: a string, a list, a map or something else. */
export interface TemplateValue {
  readonly value: unknown;
}

/** The variables of a template. */
export interface TemplateEnvironment {
  set(name: string, value: unknown): unknown;
}

/** A parsed template, or a part of one. */
export interface TemplateNode {
  readonly type: string;
}

/** Runs parsed templates. Every part of one passes through `evaluate`. */
export interface TemplateInterpreter {
  run(program: TemplateNode): TemplateValue;
  evaluate(node: TemplateNode | undefined, environment: TemplateEnvironment): TemplateValue;
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
