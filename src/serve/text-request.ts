/**
 * The requests for texts: chats and completions, as OpenAI's API defines them. Every field is checked. A field that is unknown, or that would
 * change the answer and is not supported, is rejected by its name.
 */

import { type GenerateOptions, withDefaults } from "../generate/index.js";
import type { ChatMessage, JsonField, Tokenizer } from "../text/index.js";
import { RequestError, toRequestError } from "./request-error.js";

export type RequestKind = "chat" | "completion";

/** A checked request. */
export interface TextRequest {
  readonly kind: RequestKind;
  /** The ids of each prompt. */
  readonly prompts: readonly Int32Array[];
  /** Texts of each prompt. */
  readonly n: number;
  readonly stream: boolean;
  /** A stream ends with the usage. */
  readonly includesUsage: boolean;
  readonly options: GenerateOptions;
}

/** What requests are checked against. */
export interface RequestRules {
  /** The name of the model. */
  readonly model: string;
  readonly tokenizer: Tokenizer;
  /** Settings that a request need not name. */
  readonly defaults: GenerateOptions;
  /** Maximum number of tokens of a prompt. */
  readonly maxPrompt: number;
  /** Maximum number of new tokens of a text. */
  readonly maxTokens: number;
  /** Maximum number of texts of a request. */
  readonly maxTexts: number;
  /** Characters that a token has at most; a longer prompt is rejected before it is encoded. */
  readonly maxTokenLength: number;
}

/** The new tokens of a completion that names no number, as in OpenAI's API. */
const usualCompletionTokens = 16;
const maxMessages = 2048;

/** Fields that both kinds of requests have. */
const settings = [
  ...["model", "n", "stream", "stream_options", "stop", "max_tokens", "temperature", "top_p", "seed"],
  // Not in OpenAI's API, but in that of other servers.
  ...["top_k", "repetition_penalty"],
];
const known: Readonly<Record<RequestKind, ReadonlySet<string>>> = {
  chat: new Set([...settings, "messages", "max_completion_tokens"]),
  completion: new Set([...settings, "prompt"]),
};

/** Fields without effect on texts. */
const ignored: ReadonlySet<string> = new Set([
  ...["user", "metadata", "store", "service_tier", "safety_identifier"],
  ...["prompt_cache_key", "prompt_cache_retention", "parallel_tool_calls"],
]);

/** Fields that are not supported, and the values, as JSON, with which they have no effect. */
const unsupported: Readonly<Record<string, readonly string[]>> = {
  logprobs: ["false"],
  top_logprobs: ["0"],
  presence_penalty: ["0"],
  frequency_penalty: ["0"],
  logit_bias: ["{}"],
  response_format: ['{"type":"text"}'],
  tools: ["[]"],
  tool_choice: ['"none"', '"auto"'],
  functions: ["[]"],
  function_call: ['"none"', '"auto"'],
  modalities: ['["text"]'],
  best_of: ["1"],
  echo: ["false"],
  suffix: ['""'],
  audio: [],
  prediction: [],
  reasoning_effort: [],
  verbosity: [],
  web_search_options: [],
};

/** Checks the body of a request, and encodes its prompts. */
export function readTextRequest(kind: RequestKind, body: JsonField, rules: RequestRules): TextRequest {
  requireKnownFields(kind, body);
  requireModel(body.get("model"), rules.model);
  const n = optional(body.get("n"), (field) => field.whole(1, rules.maxTexts)) ?? 1;
  const stream = body.get("stream").boolean(false);
  const includesUsage = readStreamOptions(body.get("stream_options"), stream);
  const options = readOptions(kind, body, rules);
  const prompts = kind === "chat" ? [chatPrompt(body.get("messages"), rules)] : textPrompts(body, rules);
  const texts = n * prompts.length;
  if (texts > rules.maxTexts) {
    throw new RequestError(
      400,
      `The request asks for ${texts} texts; the maximum is ${rules.maxTexts}. Send several requests.`,
      { param: n > 1 ? "n" : "prompt" },
    );
  }
  return { kind, prompts, n, stream, includesUsage, options };
}

function requireKnownFields(kind: RequestKind, body: JsonField): void {
  const unknown: string[] = [];
  for (const [name, field] of body.entries()) {
    if (known[kind].has(name) || ignored.has(name) || field.isAbsent) continue;
    const neutral = Object.hasOwn(unsupported, name) ? unsupported[name] : undefined;
    if (!neutral) unknown.push(name.slice(0, 60));
    else if (!neutral.includes(JSON.stringify(field.value))) {
      const advice = neutral.length === 0 ? "Leave it out" : `Leave it out, or send ${neutral.join(" or ")}`;
      throw new RequestError(400, `${name} is not supported. ${advice}.`, {
        ...{ param: name, code: "unsupported_parameter" },
      });
    }
  }
  const [first] = unknown;
  if (first === undefined) return;
  const names = unknown.slice(0, 8).join(", ");
  throw new RequestError(
    400,
    `Unknown field${unknown.length === 1 ? "" : "s"}: ${names}. The fields are ${[...known[kind]].join(", ")}.`,
    { param: first, code: "unknown_parameter" },
  );
}

/** A request need not name the model. */
function requireModel(field: JsonField, model: string): void {
  const name = field.optionalString(1000);
  if (name === undefined || name === model) return;
  throw new RequestError(
    404,
    `The model ${JSON.stringify(name.slice(0, 100))} is not here. This server has ${JSON.stringify(model)}.`,
    {
      ...{ param: "model", code: "model_not_found" },
    },
  );
}

function readStreamOptions(field: JsonField, stream: boolean): boolean {
  if (field.isAbsent) return false;
  if (!stream) throw new RequestError(400, "stream_options needs stream: true.", { param: "stream_options" });
  for (const [name, option] of field.entries()) {
    const isKnown = name === "include_usage" || name === "include_obfuscation";
    if (!isKnown) {
      throw new RequestError(400, `Unknown field: stream_options.${name.slice(0, 60)}. Use include_usage.`, {
        ...{ param: "stream_options", code: "unknown_parameter" },
      });
    }
    option.boolean(false);
  }
  return field.get("include_usage").boolean(false);
}

function readOptions(kind: RequestKind, body: JsonField, rules: RequestRules): GenerateOptions {
  const { defaults, maxTokens } = rules;
  const temperature = optional(body.get("temperature"), (field) => real(field, 0, 2));
  const topP = optional(body.get("top_p"), (field) => Math.max(1e-6, real(field, 0, 1)));
  const topK = optional(body.get("top_k"), (field) => field.whole(-1, 2 ** 31 - 1));
  const penalty = optional(body.get("repetition_penalty"), (field) => real(field, 0.01, 100));
  const seed = optional(body.get("seed"), (field) =>
    field.whole(-Number.MAX_SAFE_INTEGER, Number.MAX_SAFE_INTEGER),
  );
  const stop = optional(body.get("stop"), stopStrings);
  const [newer, older] = ["max_completion_tokens", "max_tokens"].map((name) =>
    optional(body.get(name), (field) => field.whole(1, maxTokens)),
  );
  const usual = kind === "completion" ? usualCompletionTokens : maxTokens;
  const requested: GenerateOptions = {
    maxNewTokens: newer ?? older ?? Math.min(defaults.maxNewTokens ?? usual, maxTokens),
    ...(temperature !== undefined && { temperature }),
    ...(topP !== undefined && { topP }),
    ...(topK !== undefined && { topK: Math.max(0, topK) }),
    ...(penalty !== undefined && { repetitionPenalty: penalty }),
    ...(seed !== undefined && { seed: BigInt.asUintN(64, BigInt(seed)) }),
    ...(stop && { stop: [...stop, ...stopsOf(defaults)] }),
  };
  return withDefaults(requested, defaults);
}

function stopsOf({ stop = [] }: GenerateOptions): readonly string[] {
  return typeof stop === "string" ? [stop] : stop;
}

function stopStrings(field: JsonField): readonly string[] {
  const fields = field.isList ? field.items(16) : [field];
  return fields.map((item) => {
    const text = item.string(500);
    if (text === "") throw item.wrong("a string with at least one character");
    return text;
  });
}

/** The ids of a chat, up to the beginning of the answer. */
function chatPrompt(field: JsonField, rules: RequestRules): Int32Array {
  const messages = field.items(maxMessages).map(readMessage);
  if (messages.length === 0) throw field.wrong("a list of at least one message");
  const { tokenizer } = rules;
  try {
    const text = tokenizer.applyChatTemplate(messages, { addGenerationPrompt: true });
    return encode(text, "messages", rules, false);
  } catch (error) {
    throw toRequestError(error, "messages");
  }
}

function readMessage(field: JsonField): ChatMessage {
  for (const [name, value] of field.entries()) {
    if (["role", "content", "name"].includes(name) || value.isAbsent) continue;
    if (["tool_calls", "annotations"].includes(name) && value.isList && value.list().length === 0) continue;
    throw new RequestError(
      400,
      `${value.path} is not supported. A message has a role, a content, and optionally a name.`,
      {
        ...{ param: value.path, code: "unsupported_parameter" },
      },
    );
  }
  const name = field.get("name").optionalString(100);
  return {
    role: field.get("role").string(100),
    content: contentOf(field.get("content")),
    ...(name !== undefined && { name }),
  };
}

/** A text, or a list of parts that are texts. */
function contentOf(field: JsonField): string {
  if (!field.isList) return field.string(Number.POSITIVE_INFINITY);
  return field
    .items(1000)
    .map((part) => {
      const type = part.get("type");
      if (type.string(100) !== "text") throw type.wrong('"text"');
      return part.get("text").string(Number.POSITIVE_INFINITY);
    })
    .join("");
}

/** A string, its ids, or a list of either. */
function textPrompts(body: JsonField, rules: RequestRules): readonly Int32Array[] {
  const field = body.get("prompt");
  if (!field.isList) return [encode(field.string(Number.POSITIVE_INFINITY), "prompt", rules, true)];
  const list = field.list();
  if (list.length === 0) throw field.wrong("a string, or a list that is not empty");
  if (typeof list[0] === "number") return [idsOf(field, rules)];
  return field
    .items(rules.maxTexts)
    .map((item) =>
      item.isList
        ? idsOf(item, rules)
        : encode(item.string(Number.POSITIVE_INFINITY), item.path, rules, true),
    );
}

function idsOf(field: JsonField, rules: RequestRules): Int32Array {
  const list = field.list();
  requirePrompt(list.length, field.path, rules);
  const { vocabularySize } = rules.tokenizer;
  return Int32Array.from(list, (id, index) => field.item(id, index).whole(0, vocabularySize - 1));
}

function encode(text: string, param: string, rules: RequestRules, addSpecialTokens: boolean): Int32Array {
  // Encoding takes time, so a text that is too long for any encoding is rejected before.
  const { maxTokenLength, maxPrompt, tokenizer } = rules;
  if (text.length > maxPrompt * maxTokenLength) throw tooLong(`${text.length} characters`, param, rules);
  let ids: Int32Array;
  try {
    ids = tokenizer.encode(text, { addSpecialTokens });
  } catch (error) {
    throw toRequestError(error, param);
  }
  requirePrompt(ids.length, param, rules);
  return ids;
}

function requirePrompt(tokens: number, param: string, rules: RequestRules): void {
  if (tokens === 0) throw new RequestError(400, "The prompt has no tokens. Send some text.", { param });
  if (tokens > rules.maxPrompt) throw tooLong(`${tokens} tokens`, param, rules);
}

function tooLong(size: string, param: string, { maxPrompt }: RequestRules): RequestError {
  return new RequestError(400, `The prompt has ${size}; the maximum is ${maxPrompt} tokens.`, {
    ...{ param, code: "context_length_exceeded" },
  });
}

function optional<Value>(field: JsonField, read: (field: JsonField) => Value): Value | undefined {
  return field.isAbsent ? undefined : read(field);
}

function real(field: JsonField, min: number, max: number): number {
  const value = field.number();
  if (value < min || value > max) throw field.wrong(`a number from ${min} to ${max}`);
  return value;
}
