/** A chat template: writes the messages of a chat as the text that a model was trained with. */

import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { withDeadline } from "../deadline.js";
import { jinjaPackage, type TemplateNode } from "../packages.js";
import { limitedInterpreter, TemplateRaised, templateGlobals } from "./limited-interpreter.js";
import type { ChatMessage } from "./message.js";
import { TemplateLimit } from "./value-limits.js";

/** Options of `Tokenizer.applyChatTemplate`. */
export interface ChatTemplateOptions {
  /** End with the beginning of an answer, so that the model continues with one. Default: false. */
  readonly addGenerationPrompt?: boolean;
  /** The name of the template, where there are several. Default: "default". */
  readonly template?: string;
  /** Descriptions of the tools that the model may call. */
  readonly tools?: readonly unknown[];
  /** More variables for the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

/** A part of a text. */
export interface TextSpan {
  readonly start: number;
  readonly end: number;
}

/** A chat's text, and the parts of it between `{% generation %}` and `{% endgeneration %}`. */
export interface RenderedChat {
  readonly text: string;
  readonly answers: readonly TextSpan[];
}

const maxMs = 800;

export class ChatTemplate {
  /** True if the template marks the answers, by `{% generation %}`. */
  readonly marksAnswers: boolean;
  readonly #program: TemplateNode;
  readonly #special: Readonly<Record<string, string | undefined>>;
  readonly #name: string;

  /** `file`: for errors. */
  constructor(source: string, special: Readonly<Record<string, string | undefined>> = {}, file?: string) {
    const marked = markGenerations(source);
    this.marksAnswers = marked !== source;
    this.#special = special;
    this.#name = file === undefined ? "The chat template" : `The chat template of ${file}`;
    this.#program = withDeadline(
      maxMs,
      () => `${this.#name}, while it was read,`,
      () => {
        const { parse, tokenize } = jinjaPackage();
        try {
          return parse(tokenize(marked, { lstrip_blocks: true, trim_blocks: true }));
        } catch (cause) {
          throw this.#error("BAD_FILE", "can't be read", cause, "Correct the template.");
        }
      },
    );
  }

  render(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): string {
    return this.renderWithAnswers(messages, options).text;
  }

  renderWithAnswers(messages: readonly ChatMessage[], options: ChatTemplateOptions = {}): RenderedChat {
    const { addGenerationPrompt = false, tools, variables = {} } = options;
    const environment = templateGlobals();
    const values = {
      ...this.#special,
      ...variables,
      messages,
      ...(tools ? { tools } : {}),
      add_generation_prompt: addGenerationPrompt,
    };
    for (const [name, value] of Object.entries(values)) if (value !== undefined) environment.set(name, value);
    const text = withDeadline(
      maxMs,
      () => `${this.#name}, with ${messages.length} messages,`,
      () => {
        try {
          return String(limitedInterpreter(environment).run(this.#program).value);
        } catch (cause) {
          if (cause instanceof TemplateRaised)
            throw this.#error("BAD_ARGUMENT", "rejects the messages", cause, "Change them.");
          if (cause instanceof TemplateLimit)
            throw this.#error("BAD_FILE", "was stopped", cause, "Use another template.");
          throw this.#error("BAD_ARGUMENT", "failed", cause, "Correct it, or the messages.");
        }
      },
    );
    return this.marksAnswers ? readMarks(text) : { text, answers: [] };
  }

  #error(code: ErrorCode, what: string, cause: unknown, advice: string): HoldfastError {
    if (cause instanceof HoldfastError) return cause;
    const why = cause instanceof Error ? cause.message.slice(0, 500) : String(cause);
    return new HoldfastError(code, `${this.#name} ${what}: ${why}. ${advice}`, { cause });
  }
}

/** Characters of a private use area, which texts don't have: the starts and ends of answers. */
const [openingMark, closingMark] = ["\u{10fff0}", "\u{10fff1}"];

/** Replaces the tags of answers by output of marks, with the same treatment of white space. */
function markGenerations(source: string): string {
  return source.replace(
    /\{%([-+]?)\s*(end)?generation\s*([-+]?)%\}/g,
    (_, left: string, end, right: string) => {
      const [before, after] = [left === "-" ? "-" : "", right === "-" ? "-" : ""];
      return `{{${before} "${end === undefined ? openingMark : closingMark}" ${after}}}`;
    },
  );
}

function readMarks(marked: string): RenderedChat {
  const answers: TextSpan[] = [];
  let text = "";
  let start: number | undefined;
  for (const part of marked.split(/([\u{10fff0}\u{10fff1}])/u)) {
    const isStart = part === openingMark;
    if (!isStart && part !== closingMark) {
      text += part;
      continue;
    }
    if (isStart !== (start === undefined)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "The generation marks of a chat are not in pairs. The messages must not contain U+10FFF0 or U+10FFF1, and the template must not nest the marks.",
      );
    }
    if (start !== undefined) answers.push({ start, end: text.length });
    start = isStart ? text.length : undefined;
  }
  return { text, answers };
}
