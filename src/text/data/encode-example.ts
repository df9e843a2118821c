/** Makes token sequences of examples: ids, and which of them count in the loss. */

import { HoldfastError } from "../../errors/index.js";
import type { ChatTemplateOptions } from "../chat/index.js";
import type { Tokenizer } from "../tokenizer/index.js";
import { type AnsweredText, findAnswers } from "./chat-answers.js";
import { encodeSections } from "./encode-sections.js";
import type { Example } from "./read-example.js";

/** A text as tokens. */
export interface EncodedText {
  readonly ids: ArrayLike<number>;
  /** Ranges of tokens that count in the loss; undefined for all. */
  readonly counted?: readonly (readonly [start: number, end: number])[];
}

export interface EncodeExampleOptions {
  readonly lossOn: "answers" | "all";
  readonly template?: string | undefined;
}

/** The token sequences of an example: several if a chat's earlier answers look different after later messages. */
export function encodeExample(
  tokenizer: Tokenizer,
  example: Example,
  { lossOn, template }: EncodeExampleOptions,
): readonly EncodedText[] {
  if (example.kind === "text")
    return [{ ids: [...startIds(tokenizer), ...encode(tokenizer, example.text), ...endIds(tokenizer)] }];
  if (example.kind === "completion")
    return [encodeCompletion(tokenizer, example.prompt, example.completion, lossOn)];
  const { messages, firstAnswer, tools } = example;
  const options: ChatTemplateOptions = {
    ...(template !== undefined && { template }),
    ...(tools && { tools }),
  };
  const chatTemplate = tokenizer.chatTemplate(template);
  if (lossOn === "all") return [{ ids: encode(tokenizer, chatTemplate.render(messages, options)) }];
  return findAnswers(chatTemplate, messages, firstAnswer, options).map((text) =>
    encodeAnswered(tokenizer, text),
  );
}

/** The ids before a text. */
export function startIds(tokenizer: Tokenizer): readonly number[] {
  return tokenizer.addedEnds.before;
}

/** The ids after a text: those that the tokenizer adds, or the end token, so that the model learns to end. */
export function endIds({ addedEnds: { after }, eosId }: Tokenizer): readonly number[] {
  return after.length > 0 || eosId === undefined ? after : [eosId];
}

function encode(tokenizer: Tokenizer, text: string): Int32Array {
  return tokenizer.encode(text, { addSpecialTokens: false });
}

function encodeCompletion(
  tokenizer: Tokenizer,
  prompt: string,
  completion: string,
  lossOn: "answers" | "all",
): EncodedText {
  const { ids: between, indices } = encodeSections(tokenizer, prompt + completion, [prompt.length]);
  const before = startIds(tokenizer);
  const ids = [...before, ...between, ...endIds(tokenizer)];
  if (lossOn === "all") return { ids };
  return { ids, counted: [[before.length + (indices[0] ?? 0), ids.length]] };
}

function encodeAnswered(tokenizer: Tokenizer, { text, answers }: AnsweredText): EncodedText {
  const borders = answers.flatMap(({ start, end }) => [start, end]);
  const { ids, indices } = encodeSections(tokenizer, text, borders);
  const counted = answers.map((_, answer) => {
    const [start = 0, end = 0] = indices.slice(2 * answer);
    return [start, endOfAnswer(tokenizer, ids, start, end)] as const;
  });
  return { ids, counted };
}

/** White space that a template writes after the token that ends an answer does not count: a model stops at that token. */
function endOfAnswer(tokenizer: Tokenizer, ids: readonly number[], start: number, end: number): number {
  for (let index = end - 1; index >= start; index--) {
    const id = ids[index] ?? 0;
    if (tokenizer.isSpecial(id)) return index + 1;
    if (tokenizer.decode([id]).trim() !== "") break;
  }
  return end;
}

/** Adds the place of an example to an error. */
export function atLine(path: string, line: number, error: unknown): unknown {
  if (!(error instanceof HoldfastError) || error.message.startsWith(path)) return error;
  const { code, message, numbers } = error;
  return new HoldfastError(code, `${path}, line ${line}: ${message}`, {
    numbers: { ...numbers, path, line },
    cause: error,
  });
}
